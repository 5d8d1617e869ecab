// The processes of one stage's ranks: who may follow, who is lost, who leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/pipeline/rank_processes.h"
#include "tests/testing/captured_stderr.h"

namespace sluice {
namespace {

using testing::BoundsOf;
using testing::FactsOf;
using testing::FollowerProcess;
using ::testing::HasSubstr;
using testing::HelloOf;
using testing::HoldsWithin;
using testing::IdOf;
using ::testing::IsEmpty;
using testing::LeadProcess;
using testing::Loaded;
using testing::Soon;
using testing::StepOf;
using testing::StepRecord;

void AwaitLogged(const CapturedStderr& logged, const std::string& part) {
  EXPECT_TRUE(HoldsWithin(std::chrono::seconds(10), [&] {
    return logged.Text().find(part) != std::string::npos;
  })) << part;
}

// Who follows ----------------------------------------------------------------

TEST(RankFollowersTest, WhoIsNotWantedIsRefusedWithTheReason) {
  LeadProcess lead(2, 8);
  FollowerProcess held(lead, 4, 2);
  auto connected = lead.Connect();
  lead.waiting.AwaitIs("waits for ranks 2 to 3, 6 to 7");
  const auto refused = [&](const FollowerHello& hello) {
    return FollowerProcess(lead.address(), hello).End();
  };
  FollowerHello hello = HelloOf(2, 2);
  hello.protocol_version = 9;
  Status status = refused(hello);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("version 1 of Ranks, the follower 9"));

  hello = HelloOf(2, 2);
  hello.model_digest = "bb22";
  status = refused(hello);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              HasSubstr("pid 7) is bb22, that of the lead aa11"));

  status = refused(HelloOf(4, 2));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("another follower has ranks 4 to 5"));

  const std::pair<int32_t, int32_t> across[] = {{3, 2}, {5, 2}, {4, 1},
                                                {5, 1}, {2, 6}, {4, 3}};
  for (const auto& [first, count] : across) {
    status = refused(HelloOf(first, count));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << first << count;
    EXPECT_THAT(Message(status), HasSubstr(RanksText(first, count)));
    EXPECT_THAT(Message(status), HasSubstr("pid 7) in part"));
    EXPECT_THAT(Message(status), HasSubstr("ranks 4 to 5 (ipv4:127.0.0.1:"));
  }
  const std::pair<int32_t, int32_t> outside[] = {{0, 1}, {1, 2}, {7, 2},
                                                 {8, 1}, {0, 8}, {6, 65536}};
  for (const auto& [first, count] : outside) {
    status = refused(HelloOf(first, count));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << first << count;
    EXPECT_THAT(Message(status),
                HasSubstr(Cat("the stage has ranks 0 to 7 and its lead ranks 0 "
                              "to 1, this follower has ",
                              RanksText(first, count))));
  }
  EXPECT_EQ(lead.waiting.last(), "waits for ranks 2 to 3, 6 to 7");
  FollowerProcess first(lead, 2, 2), last(lead, 6, 2);
  EXPECT_EQ(IdOf(connected), "id");
  EXPECT_EQ(held.Connect(8), "id");
}

TEST(RankFollowersTest,
     AFollowerWithAnotherModelThatCameEarlyIsRefusedAtConnect) {
  LeadProcess lead(1, 3);
  FollowerHello other = HelloOf(1, 2);
  other.model_digest = "bb22";
  CapturedStderr logged;
  FollowerProcess wrong(lead.address(), other);
  AwaitLogged(logged, "came, build test");
  // The ranks are held until the lead knows its model.
  EXPECT_EQ(FollowerProcess(lead, 1, 2).End().code(), StatusCode::kUnavailable);
  auto connected = lead.Connect();
  const Status status = wrong.End();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              HasSubstr("pid 7) is bb22, that of the lead aa11"));
  lead.waiting.AwaitIs("waits for ranks 1 to 2");
  FollowerProcess right(lead, 1, 2);
  EXPECT_EQ(IdOf(connected), "id");
  EXPECT_THAT(lead.lost.all(), IsEmpty());
}

TEST(RankFollowersTest, AFollowerLostBeforeTheOrderIsForgotten) {
  LeadProcess lead(1, 3);
  FollowerProcess one(lead, 1, 1);
  auto connected = lead.Connect();
  lead.waiting.AwaitIs("waits for rank 2");
  one.Kill();
  lead.waiting.AwaitIs("waits for ranks 1 to 2");
  FollowerProcess again(lead, 1, 1);
  lead.waiting.AwaitIs("waits for rank 2");
  FollowerProcess two(lead, 2, 1);
  EXPECT_EQ(IdOf(connected), "id");
  EXPECT_EQ(again.Connect(3), "id");
  EXPECT_THAT(lead.lost.all(), IsEmpty());
}

TEST(RankFollowersTest, AFollowerLostBehindTheOrderIsTold) {
  LeadProcess lead(1, 4);
  FollowerProcess one(lead, 1, 1), two(lead, 2, 2);
  auto connected = lead.Connect();
  EXPECT_EQ(IdOf(connected), "id");
  one.Connect(4);
  two.Connect(4);
  auto agreed = lead.Agree(FactsOf(1, 1, 1));
  two.Kill();
  EXPECT_THAT(lead.lost.Await("ranks 2 to 3 ("), HasSubstr(") were lost: "));
  const Status status = agreed.get().status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(Message(status), lead.lost.last());
  EXPECT_EQ(lead.lost.all().size(), 1u);
  EXPECT_FALSE(one.ended());
  // One in its place has no part in this load.
  CapturedStderr logged;
  FollowerProcess again(lead, 2, 2);
  AwaitLogged(logged, "came, build test");
  const auto step = StepOf(BoundsOf(0), 1);
  lead.link().Begin(step->inputs, step->hidden);
  lead.link().Drop();
  auto next = lead.Connect();
  EXPECT_EQ(IdOf(next), "id");
  EXPECT_EQ(again.Connect(4), "id");
  EXPECT_EQ(lead.lost.all().size(), 1u);
}

TEST(RankFollowersTest, AFollowerLostBehindTheDropIsForgotten) {
  Loaded loaded({2});
  loaded.lead.link().Drop();
  CapturedStderr logged;
  loaded.follower(0).Kill();
  AwaitLogged(logged, "pid 7) went: ");
  EXPECT_THAT(loaded.lead.lost.all(), IsEmpty());
  auto connected = loaded.lead.Connect();
  loaded.lead.waiting.AwaitIs("waits for ranks 2 to 3");
  loaded.lead.link().Stop();
  EXPECT_EQ(connected.get().status().code(), StatusCode::kUnavailable);
}

TEST(RankFollowersTest, TheLeadsEndIsTheFollowersEnd) {
  Loaded loaded({2});
  StepRecord record(BoundsOf(0));
  loaded.follower(0).link().Follow(&record);
  loaded.lead.Kill();
  const Status status = loaded.follower(0).End();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(loaded.follower(0).link().WaitDropped(Soon()), status);
  EXPECT_EQ(loaded.follower(0).link().WaitOrder(Soon()).status(), status);
}

// Loads that fail, drops ------------------------------------------------------

TEST(RankFollowersTest, AFailedLoadIsTheLeadsToo) {
  Loaded loaded({2, 4});
  loaded.lead.link().Drop();
  auto connected = loaded.lead.Connect();
  EXPECT_EQ(IdOf(connected), "id");
  for (auto& follower : loaded.followers) {
    EXPECT_TRUE(follower->link().WaitDropped(Soon()).ok());
    EXPECT_EQ(follower->Connect(6), "id");
  }
  auto waits = loaded.follower(0).Agree(FactsOf(1, 1, 1));
  loaded.follower(1).link().SendFailed(ResourceExhausted("no memory is left"));
  const Status status = loaded.lead.link().Agree(FactsOf(1, 1, 1)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("ranks 4 to 5 (ipv4:127.0.0.1:"));
  EXPECT_THAT(Message(status), HasSubstr("): no memory is left"));
  EXPECT_EQ(loaded.lead.link().Agree(FactsOf(1, 1, 1)).status(), status)
      << "until the drop";
  loaded.lead.link().Drop();
  EXPECT_EQ(waits.get().status().code(), StatusCode::kFailedPrecondition);
  for (auto& follower : loaded.followers) {
    EXPECT_TRUE(follower->link().WaitDropped(Soon()).ok());
  }
  // The other's facts of that load do not count in the next one.
  loaded.Load();
  EXPECT_THAT(loaded.lead.lost.all(), IsEmpty());
}

TEST(RankFollowersTest, AFailureBeforeTheFirstOrderEndsOneConnect) {
  LeadProcess lead(1, 3);
  FollowerProcess follower(lead, 1, 1);
  auto connected = lead.Connect();
  lead.waiting.AwaitIs("waits for rank 2");
  follower.link().SendFailed(NotFound("there is no model"));
  const Status status = connected.get().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("rank 1 (ipv4:127.0.0.1:"));
  EXPECT_THAT(Message(status), HasSubstr("there is no model"));
  FollowerProcess other(lead, 2, 1);
  auto again = lead.Connect();
  EXPECT_EQ(IdOf(again), "id");
}

TEST(RankFollowersTest, WhatComesLateOfADroppedLoadIsNotOfTheNextOne) {
  Loaded loaded({2});
  LeadConnection& follower = loaded.follower(0).link();
  loaded.lead.link().Drop();
  // The follower has not looked for the drop yet, before the next order and
  // behind it.
  EXPECT_EQ(follower.Agree(FactsOf(6, 6, 6)).status().code(),
            StatusCode::kFailedPrecondition);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  auto connected = loaded.lead.Connect();
  EXPECT_EQ(IdOf(connected), "id");
  EXPECT_EQ(follower.Agree(FactsOf(7, 7, 7)).status().code(),
            StatusCode::kFailedPrecondition);
  follower.SendFailed(Internal("of the first load"));
  ASSERT_TRUE(follower.WaitDropped(Soon()).ok());
  EXPECT_EQ(loaded.follower(0).Connect(4), "id");
  auto said = loaded.follower(0).Agree(FactsOf(9, 9, 9));
  const auto agreed = loaded.lead.link().Agree(FactsOf(20, 20, 1));
  ASSERT_TRUE(agreed.ok()) << agreed.status();
  EXPECT_EQ(*agreed, FactsOf(9, 9, 10));
  EXPECT_TRUE(said.get().ok());
}

TEST(RankFollowersTest, AnOrderThatIsDroppedBeforeItIsSeenIsNone) {
  LeadProcess lead(1, 2);
  FollowerProcess follower(lead, 1, 1);
  for (int i = 0; i < 3; ++i) {
    auto connected = lead.Connect();
    EXPECT_EQ(IdOf(connected), "id");
    lead.link().Drop();
  }
  auto connected = lead.Connect();
  EXPECT_EQ(IdOf(connected), "id");
  // Most often all has come now, and the last order is the first one seen.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(follower.Connect(2), "id");
  while (follower.link()
             .WaitDropped(Clock::now() + std::chrono::milliseconds(100))
             .ok()) {
    EXPECT_EQ(follower.Connect(2), "id");
  }
  auto agreed = lead.Agree(FactsOf(1, 1, 1));
  EXPECT_TRUE(follower.Agree(FactsOf(1, 1, 1)).get().ok());
  EXPECT_TRUE(agreed.get().ok());
}

// Ends in order ---------------------------------------------------------------

TEST(RankFollowersTest, AFollowerThatLeavesEndsTheStageInOrder) {
  Loaded loaded({2, 4});
  loaded.follower(1).link().Leave();
  EXPECT_THAT(loaded.lead.leaving.Await("ranks 4 to 5 (ipv4:127.0.0.1:"),
              HasSubstr(") were told to end"));
  // Steps go on until the stage is empty.
  StepRecord record(BoundsOf(0));
  loaded.follower(1).link().Follow(&record);
  const auto step = StepOf(record.bounds(), 1);
  loaded.lead.link().Begin(step->inputs, step->hidden);
  ASSERT_TRUE(record.Await(1));
  EXPECT_FALSE(loaded.follower(1).ended());
  loaded.lead.link().Drop();
  EXPECT_TRUE(loaded.follower(1).End().ok());
  EXPECT_TRUE(loaded.follower(1).link().WaitDropped(Soon()).ok());
  EXPECT_FALSE(loaded.follower(0).ended());
  loaded.lead.link().Stop();
  EXPECT_TRUE(loaded.follower(0).End().ok());
  EXPECT_THAT(loaded.lead.lost.all(), IsEmpty());
  EXPECT_EQ(loaded.lead.leaving.all().size(), 1u);
}

TEST(RankFollowersTest, AFollowerThatLeavesWithoutALoadJustEnds) {
  LeadProcess lead(1, 3);
  FollowerProcess follower(lead, 1, 1);
  auto connected = lead.Connect();
  lead.waiting.AwaitIs("waits for rank 2");
  follower.link().Leave();
  EXPECT_TRUE(follower.End().ok()) << follower.End();
  lead.waiting.AwaitIs("waits for ranks 1 to 2");
  EXPECT_THAT(lead.leaving.all(), IsEmpty());
  lead.link().Stop();
  EXPECT_EQ(connected.get().status().code(), StatusCode::kUnavailable);
}

TEST(RankFollowersTest, StopWakesWhoWaitsAndEndsStreamsWithOk) {
  LeadProcess lead(1, 3);
  FollowerProcess one(lead, 1, 1), two(lead, 2, 1);
  auto connected = lead.Connect();
  EXPECT_EQ(IdOf(connected), "id");
  one.Connect(3);
  auto agreed = lead.Agree(FactsOf(1, 1, 1));
  auto said = one.Agree(FactsOf(1, 1, 1));
  lead.link().Stop();
  EXPECT_EQ(agreed.get().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(said.get().status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(one.End().ok());
  EXPECT_TRUE(two.End().ok());
  const Status late = FollowerProcess(lead, 1, 1).End();
  EXPECT_EQ(late.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(late), HasSubstr("told to end"));
  const auto step = StepOf(BoundsOf(0), 1);
  lead.link().Begin(step->inputs, step->hidden);  // to none
  EXPECT_THAT(lead.lost.all(), IsEmpty());
}

}  // namespace
}  // namespace sluice
