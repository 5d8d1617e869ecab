// The processes of one stage's ranks: loads and steps in order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "sluice/v1/expert.grpc.pb.h"
#include "tests/pipeline/rank_processes.h"

namespace sluice {
namespace {

using testing::BoundsOf;
using ::testing::ElementsAre;
using testing::ExpectSame;
using testing::FactsOf;
using testing::FollowerProcess;
using ::testing::HasSubstr;
using testing::HoldsWithin;
using testing::IdOf;
using ::testing::IsEmpty;
using testing::LeadProcess;
using testing::Loaded;
using testing::Meet;
using testing::OrderOf;
using testing::Soon;
using testing::StepOf;
using testing::StepRecord;

// Loads ----------------------------------------------------------------------

class RankSocketsTest : public ::testing::TestWithParam<bool> {
 public:
  static std::string Address() {
    if (!GetParam()) return "127.0.0.1:0";
    return Cat("unix:", ::testing::TempDir(), "/ranks-", getpid(), ".sock");
  }
};

INSTANTIATE_TEST_SUITE_P(All, RankSocketsTest, ::testing::Bool(),
                         [](const auto& made) {
                           return made.param ? "SocketFile" : "Loopback";
                         });

TEST_P(RankSocketsTest, FollowersComeInAnyOrderAndGetTheSameLoad) {
  LeadProcess lead(2, 8, Address());
  auto connected = lead.Connect();
  lead.waiting.AwaitIs("waits for ranks 2 to 7");
  FollowerProcess middle(lead, 4, 1);
  lead.waiting.AwaitIs("waits for ranks 2 to 3, 5 to 7");
  EXPECT_EQ(middle.link().WaitOrder(Clock::now()).status().code(),
            StatusCode::kDeadlineExceeded);
  FollowerProcess last(lead, 5, 3);
  lead.waiting.AwaitIs("waits for ranks 2 to 3");
  FollowerProcess first(lead, 2, 2);
  lead.waiting.AwaitIs("waits for ranks 2 to 7 to load");
  auto id = std::async(std::launch::async, [&] { return middle.Connect(8); });
  lead.waiting.AwaitIs("waits for ranks 2 to 3, 5 to 7 to load");
  auto of_first =
      std::async(std::launch::async, [&] { return first.Connect(8); });
  lead.waiting.AwaitIs("waits for ranks 5 to 7 to load");
  EXPECT_EQ(last.Connect(8), "id");
  EXPECT_EQ(id.get(), "id");
  EXPECT_EQ(of_first.get(), "id");
  EXPECT_EQ(IdOf(connected), "id");
  EXPECT_THAT(
      lead.waiting.all(),
      ElementsAre("waits for ranks 2 to 7", "waits for ranks 2 to 3, 5 to 7",
                  "waits for ranks 2 to 3", "",
                  "waits for ranks 2 to 7 to load",
                  "waits for ranks 2 to 3, 5 to 7 to load",
                  "waits for ranks 5 to 7 to load", ""));
  // Twice, since a load may ask twice.
  for (uint64_t round : {1, 2}) {
    auto from_first = first.Agree(FactsOf(120, 60, 1));
    auto from_last = last.Agree(FactsOf(100, 64, 10));
    auto agreed = lead.Agree(FactsOf(128, 50, 100 * round));
    lead.waiting.AwaitIs("waits for rank 4 to load");
    EXPECT_FALSE(HoldsWithin(std::chrono::milliseconds(50), [&] {
      return agreed.wait_for(std::chrono::seconds(0)) ==
             std::future_status::ready;
    })) << "rank 4 has said nothing";
    auto from_middle = middle.Agree(FactsOf(110, 70, 1000));
    const RankFacts all = FactsOf(100, 50, 1011 + 100 * round);
    for (auto* facts : {&from_first, &from_last, &from_middle, &agreed}) {
      const auto got = facts->get();
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(*got, all);
    }
    EXPECT_EQ(lead.waiting.last(), "");
  }
  lead.link().Drop();
  for (FollowerProcess* one : {&first, &middle, &last}) {
    EXPECT_TRUE(one->link().WaitDropped(Soon()).ok());
  }
  lead.link().Stop();
  for (FollowerProcess* one : {&first, &middle, &last}) {
    EXPECT_TRUE(one->End().ok()) << one->End();
    EXPECT_EQ(one->link().WaitOrder(Soon()).status().code(),
              StatusCode::kCancelled);
  }
  EXPECT_THAT(lead.lost.all(), IsEmpty());
  EXPECT_THAT(lead.leaving.all(), IsEmpty());
}

TEST_P(RankSocketsTest, StepsComeToAllFollowersInOrderWithAllFields) {
  const RankStepBounds bounds = BoundsOf(6);
  LeadProcess lead(1, 3, Address());
  FollowerProcess a(lead, 1, 1), b(lead, 2, 1);
  auto connected = lead.Connect();
  Meet(connected, {&a, &b}, 3);
  StepRecord at_a(bounds), at_b(bounds);
  // Some come before the follower is ready for them.
  for (uint64_t id = 0; id < LeadConnection::kMaxEarlySteps; ++id) {
    const auto step = StepOf(bounds, id);
    lead.link().Begin(step->inputs, step->hidden);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  a.link().Follow(&at_a);
  b.link().Follow(&at_b);
  for (uint64_t id = LeadConnection::kMaxEarlySteps; id < 24; ++id) {
    const auto step = StepOf(bounds, id);
    lead.link().Begin(step->inputs, step->hidden);
    if (id % 8 == 7) {
      ASSERT_TRUE(at_a.Await(id + 1) && at_b.Await(id + 1));
    }
  }
  lead.link().Drop();
  for (FollowerProcess* one : {&a, &b}) {
    EXPECT_TRUE(one->link().WaitDropped(Soon()).ok());
  }
  for (StepRecord* record : {&at_a, &at_b}) {
    ASSERT_EQ(record->size(), 24u);
    for (uint64_t id = 0; id < 24; ++id) {
      ExpectSame(record->at(id), *StepOf(bounds, id));
    }
  }
}

TEST(RanksTest, AFirstStagesStepsHaveNoRows) {
  const RankStepBounds bounds = BoundsOf(0, 1);
  Loaded loaded({2});
  StepRecord record(bounds);
  loaded.follower(0).link().Follow(&record);
  const auto step = StepOf(bounds, 5);
  loaded.lead.link().Begin(step->inputs, step->hidden);
  ASSERT_TRUE(record.Await(1));
  ExpectSame(record.at(0), *step);
}

TEST(RanksTest, EachLoadsStepsGoToItsRunner) {
  const RankStepBounds bounds = BoundsOf(0);
  LeadProcess lead(1, 2);
  FollowerProcess follower(lead, 1, 1);
  StepRecord records[] = {StepRecord(bounds), StepRecord(bounds),
                          StepRecord(bounds)};
  for (uint64_t load = 0; load < 3; ++load) {
    auto connected = lead.Connect();
    Meet(connected, {&follower}, 2);
    const auto step = StepOf(bounds, load);
    lead.link().Begin(step->inputs, step->hidden);
    // Most often the step is there before its runner.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    // The first load's is ready behind the drop, and has its step all the same.
    if (load > 0) follower.link().Follow(&records[load]);
    lead.link().Drop();
    EXPECT_TRUE(follower.link().WaitDropped(Soon()).ok());
    if (load == 0) follower.link().Follow(&records[load]);
    for (uint64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(records[i].size(), i <= load ? 1u : 0u) << i;
    }
    EXPECT_EQ(follower.link().Connect(OrderOf(2), "").status().code(),
              StatusCode::kAborted);
    EXPECT_EQ(follower.link().Agree(FactsOf(1, 1, 1)).status().code(),
              StatusCode::kAborted);
  }
}

TEST(RanksTest, StepsMayBeLarge) {
  const RankStepBounds bounds = BoundsOf(1 << 19, 1);
  Loaded loaded({2});
  StepRecord record(bounds);
  loaded.follower(0).link().Follow(&record);
  const auto step = StepOf(bounds, 5);  // 10 MiB
  loaded.lead.link().Begin(step->inputs, step->hidden);
  ASSERT_TRUE(record.Await(1));
  ExpectSame(record.at(0), *step);
}

TEST(RanksTest, ALeadWithAllRanksWaitsForNoFollower) {
  LeadProcess lead(2, 2);
  auto connected = lead.Connect();
  EXPECT_EQ(IdOf(connected), "id");
  const auto facts = lead.link().Agree(FactsOf(1, 2, 3));
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(*facts, FactsOf(1, 2, 3));
  EXPECT_THAT(lead.waiting.all(), IsEmpty());
}

TEST(RanksTest, AServerMayServeOthersBeside) {
  struct Other
      : v1::Expert::WithRawCallbackMethod_Batches<v1::Expert::Service> {
    struct Ends : grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
      Ends() { Finish({grpc::StatusCode::DATA_LOSS, "the other service"}); }
      void OnDone() override { delete this; }
    };
    grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Batches(
        grpc::CallbackServerContext*) override {
      return new Ends;
    }
  };
  Other other;
  LeadProcess lead(1, 2, "127.0.0.1:0", {&other});
  const auto channel = rpc::Connect(lead.address(), {});
  ASSERT_TRUE(channel.ok());
  grpc::ClientContext context;
  const auto stream = v1::Expert::NewStub(*channel)->Batches(&context);
  stream->WritesDone();
  EXPECT_EQ(stream->Finish().error_message(), "the other service");
  FollowerProcess follower(lead, 1, 1);
  auto connected = lead.Connect();
  Meet(connected, {&follower}, 2);
}

TEST(RanksTest, NumericsMustBeTheSame) {
  LeadProcess lead(1, 4);
  FollowerProcess follower(lead, 1, 3);
  auto connected = lead.Connect();
  Meet(connected, {&follower}, 4);
  RankFacts others = FactsOf(1, 1, 1);
  others.numerics = "f32-canonical-3";
  auto said = follower.Agree(others);
  const Status status = lead.link().Agree(FactsOf(1, 1, 1)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              HasSubstr("numerics of ranks 1 to 3 (ipv4:127.0.0.1:"));
  EXPECT_THAT(Message(status), HasSubstr("are f32-canonical-3, those of rank 0 "
                                         "cuda-fast-90-5"));
  lead.link().Drop();
  EXPECT_EQ(said.get().status().code(), StatusCode::kAborted);
  EXPECT_FALSE(follower.ended());
}

TEST(RanksTest, AFollowersOwnOrderMustBeTheLeads) {
  LeadProcess lead(1, 2);
  FollowerProcess follower(lead, 1, 1);
  auto connected = lead.Connect();
  const auto order = follower.link().WaitOrder(Soon());
  ASSERT_TRUE(order.ok());
  RankOrder own = *order;
  own.max_context = 64;
  const Status status = follower.link().Connect(own, "").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            "max_context of the order is 128, this process has 64");
  follower.link().GiveUp(status);
  EXPECT_THAT(Message(connected.get().status()),
              HasSubstr(Cat("pid 7) could not load: ", Message(status))));
}

// Steps that cannot be taken --------------------------------------------------

TEST(RanksTest, MoreEarlyStepsThanAFewEndTheStream) {
  Loaded loaded({2});
  const RankStepBounds bounds = BoundsOf(0);
  for (uint64_t id = 0; id <= LeadConnection::kMaxEarlySteps; ++id) {
    const auto step = StepOf(bounds, id);
    loaded.lead.link().Begin(step->inputs, step->hidden);
  }
  const Status status = loaded.follower(0).End();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("step 4 comes with 4 steps before"));
  loaded.lead.lost.Await("ranks 2 to 3 (");
  StepRecord record(bounds);
  loaded.follower(0).link().Follow(&record);
  EXPECT_EQ(record.size(), 0u) << "the stream has ended";
}

TEST(RanksTest, AStepWithoutAPlaceEndsTheStream) {
  for (const bool early : {false, true}) {
    Loaded loaded({2});
    StepRecord record(BoundsOf(0), 2);
    if (!early) loaded.follower(0).link().Follow(&record);
    for (uint64_t id = 0; id < 3; ++id) {
      const auto step = StepOf(record.bounds(), id);
      loaded.lead.link().Begin(step->inputs, step->hidden);
    }
    if (early) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      loaded.follower(0).link().Follow(&record);
    }
    const Status status = loaded.follower(0).End();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(Message(status), HasSubstr("step 2 comes while as many"));
    EXPECT_EQ(record.size(), 2u);
    loaded.lead.lost.Await("ranks 2 to 3 (");
  }
}

TEST(RanksTest, AStepBeyondTheBoundsEndsTheStream) {
  Loaded loaded({2});
  RankStepBounds bounds = BoundsOf(0);
  bounds.vocab_size = 101;
  StepRecord record(bounds);
  loaded.follower(0).link().Follow(&record);
  const auto step = StepOf(bounds, 1);
  loaded.lead.link().Begin(step->inputs, step->hidden);
  const Status status = loaded.follower(0).End();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            "step 1: token_ids[1] must be between -32 and 100, got 101");
  EXPECT_EQ(record.size(), 0u);
}

TEST(RanksTest, OnlyStagesMayFollow) {
  const auto roles = RanksMethodRoles();
  constexpr char kFollow[] = "/sluice.v1.Ranks/Follow";
  EXPECT_TRUE(rpc::CheckRole(roles, kFollow, {"stage"}, true).ok());
  for (const char* other : {"gateway", "expert"}) {
    EXPECT_FALSE(rpc::CheckRole(roles, kFollow, {other}, false).ok()) << other;
  }
}

}  // namespace
}  // namespace sluice
