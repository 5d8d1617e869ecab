// The processes of one stage's ranks: who may follow, who is lost, who leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/pipeline/rank_processes.h"

namespace sluice {
namespace {

using testing::AwaitLogged;
using testing::BoundsOf;
using testing::FactsOf;
using testing::FollowerProcess;
using ::testing::HasSubstr;
using testing::HelloOf;
using ::testing::IsEmpty;
using testing::LeadProcess;
using testing::Loaded;
using testing::Meet;
using testing::Soon;
using testing::StepOf;
using testing::StepRecord;

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
  EXPECT_THAT(Message(status), HasSubstr("version 3 of Ranks, the follower 9"));

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
  Meet(connected, {&held, &first, &last}, 8);
}

TEST(RankFollowersTest, AFollowerOfAnotherBuildIsRefused) {
  LeadProcess lead(1, 3, "127.0.0.1:0", {}, "1.2 (aaaa)");
  const Status status = FollowerProcess(lead, 1, 2).End();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("the build of ranks 1 to 2 (ipv4:"));
  EXPECT_THAT(Message(status),
              HasSubstr("pid 7) is test, that of the lead 1.2 (aaaa)"));
  FollowerHello same = HelloOf(1, 2);
  same.build = "1.2 (aaaa)";
  FollowerProcess follower(lead.address(), same);
  auto connected = lead.Connect();
  Meet(connected, {&follower}, 3);
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
  Meet(connected, {&right}, 3);
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
  Meet(connected, {&again, &two}, 3);
  EXPECT_THAT(lead.lost.all(), IsEmpty());
}

TEST(RankFollowersTest, AFollowerLostBehindTheOrderIsTold) {
  LeadProcess lead(1, 4);
  FollowerProcess one(lead, 1, 1), two(lead, 2, 2);
  auto connected = lead.Connect();
  Meet(connected, {&one, &two}, 4);
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
  Meet(next, {&one, &again}, 4);
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
  for (auto& follower : loaded.followers) {
    EXPECT_TRUE(follower->link().WaitDropped(Soon()).ok());
  }
  Meet(connected, loaded.everyone(), 6);
  auto waits = loaded.follower(0).Agree(FactsOf(1, 1, 1));
  loaded.follower(1).link().GiveUp(ResourceExhausted("no memory is left"));
  const Status status = loaded.lead.link().Agree(FactsOf(1, 1, 1)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("ranks 4 to 5 (ipv4:127.0.0.1:"));
  EXPECT_THAT(Message(status),
              HasSubstr(") could not load: no memory is left"));
  EXPECT_EQ(loaded.lead.link().Agree(FactsOf(1, 1, 1)).status(), status)
      << "until the drop";
  loaded.lead.link().Drop();
  EXPECT_EQ(waits.get().status().code(), StatusCode::kAborted);
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
  follower.link().GiveUp(NotFound("there is no model"));
  const Status status = connected.get().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("rank 1 (ipv4:127.0.0.1:"));
  EXPECT_THAT(Message(status), HasSubstr("there is no model"));
  EXPECT_EQ(lead.waiting.last(), "");
  FollowerProcess other(lead, 2, 1);
  auto again = lead.Connect();
  Meet(again, {&follower, &other}, 3);
}

TEST(RankFollowersTest, AFailureBeforeAllAreConnectedEndsTheLeadsConnect) {
  LeadProcess lead(1, 4);
  FollowerProcess one(lead, 1, 1), two(lead, 2, 2);
  auto connected = lead.Connect();
  const auto order = one.link().WaitOrder(Soon());
  ASSERT_TRUE(order.ok());
  auto waits = std::async(std::launch::async,
                          [&] { return one.link().Connect(*order, ""); });
  lead.waiting.AwaitIs("waits for ranks 2 to 3 to load");
  ASSERT_TRUE(two.link().WaitOrder(Soon()).ok());
  two.link().GiveUp(NotFound("GPU 3 is not there"));
  const Status status = connected.get().status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("ranks 2 to 3 (ipv4:127.0.0.1:"));
  EXPECT_THAT(Message(status), HasSubstr("could not load: GPU 3 is not there"));
  EXPECT_EQ(lead.waiting.last(), "");
  // The lead has dropped the load.
  EXPECT_EQ(waits.get().status().code(), StatusCode::kAborted);
  lead.link().GiveUp(status);
  auto again = lead.Connect();
  Meet(again, {&one, &two}, 4);
  EXPECT_THAT(lead.lost.all(), IsEmpty());
}

TEST(RankFollowersTest, WhatTheLeadGivesUpIsDropped) {
  Loaded loaded({2});
  loaded.lead.link().GiveUp(NotFound("a GPU is gone"));
  EXPECT_TRUE(loaded.follower(0).link().WaitDropped(Soon()).ok());
  loaded.Load();
}

TEST(RankFollowersTest, ALossIsToldWithTheFailureBeforeIt) {
  Loaded loaded({2});
  loaded.follower(0).link().GiveUp(Internal("GPU 1 has an ECC error"));
  EXPECT_FALSE(loaded.lead.link().Agree(FactsOf(1, 1, 1)).ok());
  loaded.follower(0).Kill();
  EXPECT_THAT(loaded.lead.lost.Await("ranks 2 to 3 (ipv4:127.0.0.1:"),
              HasSubstr("pid 7) could not load: GPU 1 has an ECC error, and "
                        "were lost: "));
  // Without a load, in the log.
  LeadProcess lead(1, 2);
  CapturedStderr logged;
  FollowerProcess follower(lead, 1, 1);
  AwaitLogged(logged, "came, build test");
  follower.link().GiveUp(NotFound("there is no model"));
  AwaitLogged(logged, "pid 7) could not load: there is no model\n");
  follower.Kill();
  AwaitLogged(logged, "pid 7) could not load: there is no model, and went: ");
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

TEST(RankFollowersTest, StepsGoOnWhenLoadsAreStopped) {
  Loaded loaded({2});
  StepRecord record(BoundsOf(0));
  loaded.follower(0).link().Follow(&record);
  loaded.lead.link().StopLoads();
  const Status status = loaded.lead.link().Agree(FactsOf(1, 1, 1)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("told to end"));
  for (uint64_t id = 0; id < 2; ++id) {
    const auto step = StepOf(record.bounds(), id);
    loaded.lead.link().Begin(step->inputs, step->hidden);
    ASSERT_TRUE(record.Await(id + 1));
  }
  loaded.lead.link().Drop();
  EXPECT_TRUE(loaded.follower(0).link().WaitDropped(Soon()).ok());
  EXPECT_EQ(loaded.lead.Connect().get().status().code(),
            StatusCode::kUnavailable);
  EXPECT_FALSE(loaded.follower(0).ended());
  loaded.lead.link().Stop();
  EXPECT_TRUE(loaded.follower(0).End().ok());
  EXPECT_THAT(loaded.lead.lost.all(), IsEmpty());
}

TEST(RankFollowersTest, StopWakesWhoWaitsAndEndsStreamsWithOk) {
  LeadProcess lead(1, 3);
  FollowerProcess one(lead, 1, 1), two(lead, 2, 1);
  auto connected = lead.Connect();
  Meet(connected, {&one, &two}, 3);
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
