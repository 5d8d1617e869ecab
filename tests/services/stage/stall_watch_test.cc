#include "services/stage/stall_watch.h"

#include <gtest/gtest.h>

namespace sluice::stage {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(StallJudgeTest, LayersThatTakeLongAreProgress) {
  for (const auto& [held, each] : {std::pair{true, 50}, {false, 9}}) {
    StallJudge judge;
    const TimePoint start = Clock::now();
    for (int second = 0; second < 1000; ++second) {
      judge.Take({static_cast<uint64_t>(second / each), held},
                 start + seconds(second));
      EXPECT_FALSE(judge.is_dead()) << second;
    }
  }
}

// Looks at a loop that stands still, four times a second from `from` to `to`
// seconds after `start`.
void LookOn(StallJudge& judge, bool held, TimePoint start, seconds from,
            seconds to) {
  for (Duration at = from; at <= to; at += milliseconds(250)) {
    judge.Take({7, held}, start + at);
  }
}

TEST(StallJudgeTest, ALoopThatStandsStillIsToldAndThenDead) {
  for (const bool held : {true, false}) {
    StallJudge judge;
    const TimePoint start = Clock::now();
    const auto limit = std::chrono::duration_cast<seconds>(
        held ? StallJudge::kHeldLimit : StallJudge::kFreeLimit);
    LookOn(judge, held, start, seconds(0), seconds(1));
    EXPECT_FALSE(judge.is_told());
    LookOn(judge, held, start, seconds(1), seconds(2));
    EXPECT_TRUE(judge.is_told());
    LookOn(judge, held, start, seconds(2), limit - seconds(1));
    EXPECT_FALSE(judge.is_dead());
    LookOn(judge, held, start, limit - seconds(1), limit);
    EXPECT_TRUE(judge.is_dead());
    judge.Take({8, held}, start + limit + seconds(1));
    EXPECT_FALSE(judge.is_told());
  }
}

TEST(StallJudgeTest, WhatAGatewayGivesUpEndsSoon) {
  StallJudge judge;
  const TimePoint start = Clock::now();
  LookOn(judge, /*held=*/true, start, seconds(0), seconds(20));
  EXPECT_FALSE(judge.is_dead());
  judge.Take({7, false}, start + seconds(20));
  EXPECT_TRUE(judge.is_dead());
}

TEST(StallJudgeTest, AProcessThatWasStoppedGoesOn) {
  StallJudge judge;
  const TimePoint start = Clock::now();
  LookOn(judge, /*held=*/false, start, seconds(0), seconds(5));
  // SIGSTOP, and SIGCONT an hour later: the watch runs before the loop.
  LookOn(judge, /*held=*/false, start, seconds(3600), seconds(3602));
  EXPECT_FALSE(judge.is_dead());
  judge.Take({8, false}, start + seconds(3603));
  EXPECT_FALSE(judge.is_told());
}

}  // namespace
}  // namespace sluice::stage
