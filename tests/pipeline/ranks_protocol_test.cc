// What the ends of Follow do about peers that break the protocol.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/pipeline/rank_processes.h"
#include "tests/pipeline/rank_raw_peers.h"

namespace sluice {
namespace {

using testing::AwaitLogged;
using testing::BoundsOf;
using testing::Bytes;
using testing::DropFrame;
using testing::FactsFrame;
using testing::FactsOf;
using testing::FollowerProcess;
using testing::Frame;
using ::testing::HasSubstr;
using testing::HelloOf;
using testing::HoldsWithin;
using ::testing::IsEmpty;
using testing::LeadProcess;
using testing::OrderFrame;
using testing::OrderOf;
using testing::RawFollower;
using testing::RawLead;
using testing::Soon;
using testing::StepOf;
using testing::StepRecord;

// The lead --------------------------------------------------------------------

TEST(RanksProtocolTest, AStrangersHelloIsRefused) {
  LeadProcess lead(1, 2);
  for (const std::string& hello : {std::string(), std::string("\xff\xff")}) {
    const Status status = RawFollower::Open(lead.address(), hello)->End();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(Message(status), HasSubstr("Follow begins with a hello"));
  }
}

// A lead of rank 0, and a raw follower that has said that it is ready.
struct RawLoad {
  RawLoad() : lead(1, 2), follower(RawFollower::Open(lead, 1, 1)) {
    Connect(1);
  }
  // Load `load`, up to the facts by which all are ready.
  void Connect(uint64_t load) {
    const int read = follower->read();
    auto connected = lead.Connect();
    AwaitRead(read + 1);
    Say(ReadyFacts(), load);
    EXPECT_TRUE(connected.get().ok());
    AwaitRead(read + 2);
  }
  void AwaitRead(int count) {
    EXPECT_TRUE(HoldsWithin(std::chrono::seconds(10),
                            [&] { return follower->read() == count; }));
  }
  void Say(const RankFacts& facts, uint64_t load) {
    v1::FollowerFrame frame;
    *frame.mutable_facts() = ToProto(facts, load);
    EXPECT_TRUE(follower->Send(Frame(frame)));
  }
  void SayFailed(uint64_t load) {
    v1::FollowerFrame frame;
    frame.mutable_failed()->set_load(load);
    frame.mutable_failed()->set_status_code(5);
    frame.mutable_failed()->set_status_message(Cat("of load ", load));
    EXPECT_TRUE(follower->Send(Frame(frame)));
  }
  // Sends `frame`, which the lead must refuse; the end's message.
  std::string Refused(grpc::ByteBuffer frame, StatusCode code) {
    EXPECT_TRUE(follower->Send(std::move(frame)));
    const Status status = follower->End();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(lead.lost.Await("rank 1 ("), HasSubstr(Message(status)));
    return Message(status);
  }

  LeadProcess lead;
  std::shared_ptr<RawFollower> follower;
};

TEST(RanksProtocolTest, AFollowersFramesAreChecked) {
  constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
  EXPECT_THAT(RawLoad().Refused(Bytes("\x08"), kInvalid),
              HasSubstr("frame ends within a number"));
  // Not a field, and longer than a frame may be.
  EXPECT_EQ(RawLoad().Refused(
                Bytes("\x02\x80\x80\x02" + std::string(32768, 'x')), kInvalid),
            "frame has a field 0");
  EXPECT_THAT(RawLoad().Refused(Frame(v1::FollowerFrame()), kInvalid),
              HasSubstr("no known kind"));
  v1::FollowerFrame frame;
  frame.mutable_failed()->set_status_message(
      std::string(kMaxFollowerFrameBytes, 'x'));
  EXPECT_THAT(RawLoad().Refused(Frame(frame), kInvalid),
              HasSubstr("more than 16384 bytes"));
  frame.mutable_failed()->set_status_message("none");
  EXPECT_THAT(RawLoad().Refused(Frame(frame), kInvalid),
              HasSubstr("status_code of a failure must not be 0"));
  *frame.mutable_facts() = ToProto(FactsOf(-1, 1, 1), 1);
  EXPECT_THAT(RawLoad().Refused(Frame(frame), kInvalid),
              HasSubstr("max_context must be between 1"));
}

TEST(RanksProtocolTest, FactsWithoutEndEndTheStream) {
  RawLoad load;
  v1::FollowerFrame frame;
  *frame.mutable_facts() = ToProto(FactsOf(1, 1, 1), 1);
  for (size_t i = 0; i < LeadRanks::kMaxEarlyFacts; ++i) {
    EXPECT_TRUE(load.follower->Send(Frame(frame)));
  }
  EXPECT_THAT(load.Refused(Frame(frame), StatusCode::kResourceExhausted),
              HasSubstr("facts come with 4 unanswered, limit 4"));
}

TEST(RanksProtocolTest, WhatComesLateOfADroppedLoadIsNotOfTheNextOne) {
  RawLoad load;
  load.lead.link().Drop();
  load.AwaitRead(3);
  CapturedStderr logged;
  load.Say(FactsOf(6, 6, 6), 1);
  load.SayFailed(0);
  // All before the failure has come with it.
  AwaitLogged(logged, "could not load: of load 0");
  EXPECT_THAT(Message(load.lead.Connect().get().status()),
              HasSubstr("could not load: of load 0"));
  auto connected = load.lead.Connect();
  load.AwaitRead(4);
  // Behind the next order.
  load.SayFailed(1);
  load.Say(FactsOf(7, 7, 7), 1);
  load.Say(ReadyFacts(), 2);
  EXPECT_TRUE(connected.get().ok());
  load.Say(FactsOf(9, 9, 9), 2);
  const auto agreed = load.lead.link().Agree(FactsOf(20, 20, 1));
  ASSERT_TRUE(agreed.ok()) << agreed.status();
  EXPECT_EQ(*agreed, FactsOf(9, 9, 10));
}

TEST(RanksProtocolTest, AFollowerThatReadsNothingIsLost) {
  RawLoad load;
  load.follower->Stall();
  const RankStepBounds bounds = BoundsOf(1 << 16);
  const auto step = StepOf(bounds, 1);  // 1.3 MB
  for (int i = 0; i < 200 && load.lead.lost.all().empty(); ++i) {
    load.lead.link().Begin(step->inputs, step->hidden);
  }
  EXPECT_THAT(load.lead.lost.last(), HasSubstr("64 messages wait"));
  load.lead.link().Begin(step->inputs, step->hidden);
  EXPECT_EQ(load.lead.lost.all().size(), 1u);
  load.follower->Resume();
  EXPECT_EQ(load.follower->End().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(load.lead.lost.all().size(), 1u) << "told once";
}

TEST(RanksProtocolTest, AFollowerThatEndsItsStreamWithALoadIsLost) {
  RawLoad load;
  load.follower->HalfClose();
  EXPECT_TRUE(load.follower->End().ok());
  EXPECT_THAT(load.lead.lost.Await("rank 1 ("),
              HasSubstr(") was lost: they ended the stream"));
}

// The follower ----------------------------------------------------------------

grpc::ByteBuffer StepFrameOf(const RankStepBounds& bounds) {
  const auto step = StepOf(bounds, 1);
  return StepFrame(step->inputs, step->hidden);
}

TEST(RanksProtocolTest, ALeadsFramesAreChecked) {
  v1::LeadFrame bad_order;
  SentOrder sent{OrderOf(2), "id", 1};
  sent.order.last_layer = sent.order.first_layer;
  *bad_order.mutable_order() = ToProto(sent);
  const RankStepBounds bounds = BoundsOf(0);
  const struct {
    std::vector<grpc::ByteBuffer> frames;
    const char* message;
  } cases[] = {
      {{Bytes("\x08")}, "frame ends within a number"},
      {{Frame(v1::LeadFrame())}, "a frame of the lead has no known kind"},
      {{Frame(bad_order)}, "last_layer must be between 5"},
      {{OrderFrame(), OrderFrame()}, "an order before it dropped load 1"},
      {{FactsFrame()}, "sent facts without a load"},
      {{StepFrameOf(bounds)}, "sent a step without a load"},
      {{DropFrame()}, "sent a drop without a load"},
      {{OrderFrame(), DropFrame(), DropFrame()}, "sent a drop without a load"},
      {{OrderFrame(), StepFrameOf(bounds)}, "sent a step without a load"},
      // The order before the drop is none any more, the one behind it is.
      {{OrderFrame(), DropFrame(), OrderFrame(2), OrderFrame(3)},
       "an order before it dropped load 2"},
  };
  for (const auto& one : cases) {
    RawLead lead(one.frames);
    FollowerProcess follower(lead.address(), HelloOf(1, 1));
    const Status status = follower.End();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << one.message;
    EXPECT_THAT(Message(status), HasSubstr(one.message));
    EXPECT_EQ(follower.link().WaitOrder(Soon()).status(), status);
  }
}

TEST(RanksProtocolTest, FactsThatWereNotAskedForEndTheStream) {
  RawLead lead({OrderFrame()});
  FollowerProcess follower(lead.address(), HelloOf(1, 1));
  lead.Meet(follower);
  auto said = follower.Agree(FactsOf(1, 1, 1));
  lead.AwaitSaid({"facts", "facts"});
  lead.Send(FactsFrame());
  EXPECT_TRUE(said.get().ok());
  EXPECT_FALSE(follower.ended());
  lead.Send(FactsFrame());
  const Status status = follower.End();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "the lead sent facts without being asked");
}

TEST(RanksProtocolTest, StepsBehindTheDropEndTheStream) {
  const RankStepBounds bounds = BoundsOf(0);
  RawLead lead({OrderFrame()});
  FollowerProcess follower(lead.address(), HelloOf(1, 1));
  lead.Meet(follower);
  StepRecord record(bounds);
  follower.link().Follow(&record);
  lead.Send(StepFrameOf(bounds));
  lead.Send(DropFrame());
  EXPECT_TRUE(follower.link().WaitDropped(Soon()).ok());
  EXPECT_EQ(record.size(), 1u);
  lead.Send(StepFrameOf(bounds));
  EXPECT_THAT(Message(follower.End()), HasSubstr("a step without a load"));
  EXPECT_EQ(record.size(), 1u);
}

TEST(RanksProtocolTest, AnOrderBeforeTheDropEndsTheStream) {
  RawLead lead({OrderFrame()});
  FollowerProcess follower(lead.address(), HelloOf(1, 1));
  lead.Meet(follower);
  lead.Send(OrderFrame());
  EXPECT_EQ(Message(follower.End()),
            "the lead sent an order before it dropped load 1");
}

TEST(RanksProtocolTest, AFailuresTextIsCut) {
  LeadProcess lead(1, 2);
  FollowerProcess follower(lead, 1, 1);
  auto connected = lead.Connect();
  testing::Meet(connected, {&follower}, 2);
  follower.link().GiveUp(Internal(std::string(100'000, 'x')));
  const Status status = lead.link().Agree(FactsOf(1, 1, 1)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr(std::string(4096, 'x')));
}

TEST(RanksProtocolTest, ASilentFollowerGoesWithoutACallback) {
  LeadProcess lead(1, 2);
  CapturedStderr logged;
  FollowerProcess follower(lead, 1, 1);
  AwaitLogged(logged, "pid 7) came, build test");
  follower.Kill();
  EXPECT_FALSE(follower.ended());
  AwaitLogged(logged, "pid 7) went: ");
  EXPECT_THAT(lead.lost.all(), IsEmpty());
}

TEST(RanksProtocolTest, AnOrderThatIsDroppedBeforeItIsSeenIsNone) {
  // Whether all have come before the first look is chance: until they have, and
  // the first looks later each time.
  uint64_t first = 0;
  std::chrono::microseconds pause(500);
  EXPECT_TRUE(HoldsWithin(
      std::chrono::seconds(10),
      [&] {
        std::vector<grpc::ByteBuffer> frames;
        for (uint64_t load = 1; load <= 3; ++load) {
          if (load > 1) frames.push_back(DropFrame());
          frames.push_back(OrderFrame(load));
        }
        RawLead lead(frames);
        FollowerProcess follower(lead.address(), HelloOf(1, 1));
        std::this_thread::sleep_for(pause *= 2);
        auto order = follower.link().WaitOrder(Soon());
        EXPECT_TRUE(order.ok()) << order.status();
        if (!order.ok()) return true;
        first = order->memory;
        // One that has been seen ends first.
        for (uint64_t load = first; load < 3 && order.ok();) {
          EXPECT_TRUE(follower.link().WaitDropped(Soon()).ok());
          order = follower.link().WaitOrder(Soon());
          EXPECT_TRUE(order.ok()) << order.status();
          if (order.ok()) load = order->memory;
        }
        EXPECT_EQ(follower.link().WaitOrder(Clock::now()).status().code(),
                  StatusCode::kDeadlineExceeded);
        return first == 3;
      }))
      << "the first that was seen was load " << first;
}

TEST(RanksProtocolTest, AFollowerGivesALoadUpOnce) {
  RawLead lead({OrderFrame()});
  FollowerProcess follower(lead.address(), HelloOf(1, 1));
  lead.Meet(follower);
  LeadConnection& link = follower.link();
  link.GiveUp(NotFound("no GPU"));
  link.GiveUp(NotFound("no GPU"));
  lead.Send(DropFrame());
  EXPECT_TRUE(link.WaitDropped(Soon()).ok());
  EXPECT_EQ(link.Agree(FactsOf(1, 1, 1)).status().code(), StatusCode::kAborted);
  // Nothing of a load that is over.
  lead.Send(OrderFrame(2));
  ASSERT_TRUE(link.WaitOrder(Soon()).ok());
  lead.Send(DropFrame());
  EXPECT_TRUE(link.WaitDropped(Soon()).ok());
  link.GiveUp(NotFound("no GPU"));
  lead.Send(OrderFrame(3));
  ASSERT_TRUE(link.WaitOrder(Soon()).ok());
  link.GiveUp(NotFound("no GPU again"));
  link.Leave();
  lead.AwaitSaid({"facts", "failed 1", "failed 3", "leaving"});
  lead.End(OkStatus());
  EXPECT_TRUE(follower.End().ok());
  link.GiveUp(NotFound("to whom"));
}

TEST(RanksProtocolTest, NoCodeOfAStreamsEndHasAnotherMeaning) {
  for (const StatusCode code :
       {StatusCode::kCancelled, StatusCode::kDeadlineExceeded,
        StatusCode::kAborted, StatusCode::kInternal}) {
    RawLead lead({OrderFrame()});
    FollowerProcess follower(lead.address(), HelloOf(1, 1));
    lead.Meet(follower);
    auto said = follower.Agree(FactsOf(1, 1, 1));
    lead.AwaitSaid({"facts", "facts"});
    lead.End(MakeStatus(code, "a proxy says"));
    const Status end = follower.End();
    EXPECT_EQ(end.code(),
              code == StatusCode::kInternal ? code : StatusCode::kUnavailable);
    EXPECT_EQ(Message(end), "a proxy says");
    EXPECT_EQ(said.get().status(), end);
    EXPECT_EQ(follower.link().WaitOrder(Soon()).status(), end);
    EXPECT_EQ(follower.link().WaitDropped(Soon()), end);
    EXPECT_EQ(follower.link().Connect(OrderOf(2), "").status(), end);
  }
}

TEST(RanksProtocolTest, TheEndIsToldBeforeAWaitReturnsIt) {
  RawLead lead({OrderFrame()});
  std::promise<void> told, may_return;
  auto link = LeadConnection::Open(lead.address(), {}, HelloOf(1, 1),
                                   [&](const Status& status) {
                                     EXPECT_TRUE(status.ok()) << status;
                                     told.set_value();
                                     may_return.get_future().wait();
                                   });
  ASSERT_TRUE(link.ok()) << link.status();
  ASSERT_TRUE((*link)->WaitOrder(Soon()).ok());
  lead.End(OkStatus());
  told.get_future().wait();
  const TimePoint now = Clock::now();
  EXPECT_EQ((*link)->WaitOrder(now).status().code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*link)->WaitDropped(now).code(), StatusCode::kDeadlineExceeded);
  may_return.set_value();
  EXPECT_EQ((*link)->WaitOrder(Soon()).status().code(), StatusCode::kCancelled);
  EXPECT_EQ((*link)->WaitDropped(Soon()).code(), StatusCode::kCancelled);
}

TEST(RanksProtocolTest, ALeadThatIsNotThereIsUnavailable) {
  FollowerProcess follower("127.0.0.1:1", HelloOf(1, 1));
  EXPECT_EQ(follower.End().code(), StatusCode::kUnavailable);
  EXPECT_EQ(
      LeadConnection::Open("10.0.0.1:7", {}, HelloOf(1, 1), {}).status().code(),
      StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
