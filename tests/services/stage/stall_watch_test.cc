#include "services/stage/stall_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace sluice::stage {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(StallJudgeTest, LayersThatTakeLongAreProgress) {
  for (const auto& [held, each] : {std::pair{true, 50}, {false, 9}}) {
    StallJudge judge;
    uint64_t reads = 0;
    const TimePoint start = Clock::now();
    for (int second = 0; second < 1000; ++second) {
      judge.Take(++reads, {static_cast<uint64_t>(second / each), held},
                 start + seconds(second));
      EXPECT_FALSE(judge.is_dead()) << second;
    }
  }
}

// Another reading than any before.
uint64_t NewReading() {
  static uint64_t reads = 0;
  return ++reads;
}

// Looks at a loop that stands still, four times a second from `from` to `to`
// seconds after `start`.
void LookOn(StallJudge& judge, bool held, TimePoint start, seconds from,
            seconds to) {
  for (Duration at = from; at <= to; at += milliseconds(250)) {
    judge.Take(NewReading(), {7, held}, start + at);
  }
}

TEST(StallJudgeTest, ALoopThatStandsStillIsToldAndThenDead) {
  for (const bool held : {true, false}) {
    StallJudge judge;
    const TimePoint start = Clock::now();
    const auto limit = std::chrono::duration_cast<seconds>(
        held ? StallLimits().held : StallLimits().free);
    LookOn(judge, held, start, seconds(0), seconds(1));
    EXPECT_FALSE(judge.is_told());
    LookOn(judge, held, start, seconds(1), seconds(2));
    EXPECT_TRUE(judge.is_told());
    LookOn(judge, held, start, seconds(2), limit - seconds(1));
    EXPECT_FALSE(judge.is_dead());
    LookOn(judge, held, start, limit - seconds(1), limit);
    EXPECT_TRUE(judge.is_dead());
    judge.Take(NewReading(), {8, held}, start + limit + seconds(1));
    EXPECT_FALSE(judge.is_told());
  }
}

TEST(StallJudgeTest, WhatAGatewayGivesUpEndsSoon) {
  StallJudge judge;
  const TimePoint start = Clock::now();
  LookOn(judge, /*held=*/true, start, seconds(0), seconds(20));
  EXPECT_FALSE(judge.is_dead());
  judge.Take(NewReading(), {7, false}, start + seconds(20));
  EXPECT_TRUE(judge.is_dead());
}

TEST(StallJudgeTest, AProcessThatWasStoppedGoesOn) {
  StallJudge judge;
  const TimePoint start = Clock::now();
  LookOn(judge, /*held=*/false, start, seconds(0), seconds(5));
  // SIGSTOP, and SIGCONT an hour later: the watch runs before the loop.
  LookOn(judge, /*held=*/false, start, seconds(3600), seconds(3602));
  EXPECT_FALSE(judge.is_dead());
  judge.Take(NewReading(), {8, false}, start + seconds(3603));
  EXPECT_FALSE(judge.is_told());
}

TEST(StallJudgeTest, AReadingThatDoesNotEndIsDeadSoon) {
  StallJudge judge;
  const TimePoint start = Clock::now();
  const uint64_t reads = NewReading();
  const auto limit = std::chrono::duration_cast<seconds>(StallLimits().free);
  for (Duration at = seconds(0); at < limit; at += milliseconds(250)) {
    judge.Take(reads, {7, /*held=*/true}, start + at);
    EXPECT_FALSE(judge.is_dead()) << Seconds(at);
  }
  judge.Take(reads, {7, true}, start + limit);
  EXPECT_TRUE(judge.is_dead());
}

TEST(StallJudgeTest, ASlowReadingOfASlowLayerIsNotDead) {
  StallJudge judge;
  const TimePoint start = Clock::now();
  LookOn(judge, /*held=*/true, start, seconds(0), seconds(30));
  const uint64_t reads = NewReading();
  for (int second = 31; second < 40; ++second) {
    judge.Take(reads, {7, true}, start + seconds(second));
    EXPECT_FALSE(judge.is_dead()) << second;
  }
}

StallLimits Short() {
  return {milliseconds(1500), milliseconds(300), milliseconds(100),
          milliseconds(20)};
}

void DoNothing(bool) {}

// Runs `read` in a watch; the process ends with 0 if the watch does not end it.
[[noreturn]] void Watched(std::function<LoopReading()> read) {
  StallWatch watch(std::move(read), DoNothing, Short());
  std::this_thread::sleep_for(seconds(20));
  std::_Exit(0);
}

class StallWatchDeathTest : public ::testing::Test {
 protected:
  StallWatchDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StallWatchDeathTest, ALoopThatStandsStillEndsTheProcess) {
  EXPECT_EXIT(Watched([] {
                return LoopReading{7, true};
              }),
              ::testing::ExitedWithCode(kStandsStill),
              "the loop has stood still for");
}

TEST_F(StallWatchDeathTest, ALockThatIsNeverGivenBackEndsTheProcess) {
  EXPECT_EXIT(
      {
        Mutex mutex;
        mutex.Lock();  // as a loop that stands still in its own lock
        Watched([&mutex] {
          MutexLock lock(mutex);
          return LoopReading{7, true};
        });
      },
      ::testing::ExitedWithCode(kStandsStill), "the loop has stood still for");
}

TEST(StallWatchTest, GatewaysAreRefusedWhileTheLoopStandsStill) {
  std::atomic<uint64_t> progress{0};
  std::atomic<bool> stands{false};
  std::atomic<int> calls{0};
  StallLimits limits;  // the process lives
  limits.told = milliseconds(50);
  limits.look_every = milliseconds(5);
  StallWatch watch(
      [&] {
        return LoopReading{progress, true};
      },
      [&](bool standing) {
        stands = standing;
        ++calls;
      },
      limits);
  while (!stands) std::this_thread::sleep_for(milliseconds(1));
  while (stands) {
    ++progress;
    std::this_thread::sleep_for(milliseconds(1));
  }
  watch.Stop();
  EXPECT_GE(calls, 2);
}

}  // namespace
}  // namespace sluice::stage
