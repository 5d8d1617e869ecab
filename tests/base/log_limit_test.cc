#include "common/base/log_limit.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using std::chrono::seconds;

TEST(LogLimitTest, ABurstMayPassAndThenOneLinePerInterval) {
  LogLimit limit(3, seconds(1));
  const TimePoint begin = Clock::now();
  uint64_t dropped = 99;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(limit.Take(begin, &dropped));
    EXPECT_EQ(dropped, 0u);
  }
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(limit.Take(begin, &dropped));
  EXPECT_TRUE(limit.Take(begin + seconds(1), &dropped));
  EXPECT_EQ(dropped, 50u);
  EXPECT_FALSE(limit.Take(begin + seconds(1), &dropped));
  EXPECT_TRUE(limit.Take(begin + seconds(2), &dropped));
  EXPECT_EQ(dropped, 1u);
}

TEST(LogLimitTest, AfterALongSilenceABurstMayPassAgainAndNoMore) {
  LogLimit limit(2, seconds(1));
  const TimePoint begin = Clock::now();
  uint64_t dropped = 0;
  while (limit.Take(begin, &dropped)) {
  }
  const TimePoint later = begin + seconds(3600);
  EXPECT_TRUE(limit.Take(later, &dropped));
  EXPECT_TRUE(limit.Take(later, &dropped));
  EXPECT_FALSE(limit.Take(later, &dropped));
}

TEST(LogLimitTest, LinesBelowTheLevelTakeNothing) {
  LogLimit limit(1, seconds(3600));
  for (int i = 0; i < 5; ++i) limit.Write(LogLevel::kDebug, "not written");
  uint64_t dropped = 99;
  EXPECT_TRUE(limit.Take(Clock::now(), &dropped));
  EXPECT_EQ(dropped, 0u);
}

}  // namespace
}  // namespace sluice
