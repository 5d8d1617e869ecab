#include "common/pipeline/gateway/heartbeats.h"

#include <gtest/gtest.h>

#include "common/pipeline/gateway/stage_clock.h"

namespace sluice {
namespace {

TEST(HeartbeatsTest, OnlyAnOutstandingSequenceIsAnAnswerAndOnlyOnce) {
  Heartbeats beats;
  EXPECT_EQ(beats.Answered(0), std::nullopt);
  for (uint64_t i = 1; i <= 4; ++i) {
    beats.Sent(i, static_cast<int64_t>(10 * i));
  }
  EXPECT_EQ(beats.Answered(5), std::nullopt) << "never sent";
  EXPECT_EQ(beats.Answered(2), 20);
  EXPECT_EQ(beats.Answered(2), std::nullopt) << "answered already";
  EXPECT_EQ(beats.Answered(1), std::nullopt) << "replies come in order";
  EXPECT_EQ(beats.Answered(4), 40);
  beats.Sent(6, 60);
  beats.Reset();
  EXPECT_EQ(beats.Answered(6), std::nullopt) << "of an older link";
}

TEST(HeartbeatsTest, AStageThatAnswersNothingFillsNoMemory) {
  Heartbeats beats;
  for (uint64_t i = 1; i <= Heartbeats::kMax + 1; ++i) beats.Sent(i, 7);
  EXPECT_EQ(beats.Answered(1), std::nullopt);
  EXPECT_EQ(beats.Answered(2), 7);
}

TEST(StageClockTest, AClockThatNoHostHasIsIgnored) {
  StageClock clock;
  for (const int64_t far : {INT64_MIN, INT64_MAX, int64_t{1} << 60}) {
    clock.Add(1, far, 2);
    EXPECT_FALSE(clock.At(3).known) << far;
  }
  clock.Add(1, (int64_t{1} << 60) - 1, 2);
  EXPECT_TRUE(clock.At(3).known);
}

}  // namespace
}  // namespace sluice
