#include "common/tools/load/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/tools/load/load_summary.h"

namespace sluice::load {
namespace {

std::vector<double> Gaps(double rate, uint64_t seed, int count) {
  Arrivals arrivals(rate, seed);
  std::vector<double> gaps;
  for (int i = 0; i < count; ++i) gaps.push_back(Seconds(arrivals.NextGap()));
  return gaps;
}

TEST(ArrivalsTest, ASeedRepeatsItsArrivals) {
  EXPECT_EQ(Gaps(10, 7, 100), Gaps(10, 7, 100));
  EXPECT_NE(Gaps(10, 7, 100), Gaps(10, 8, 100));
}

TEST(ArrivalsTest, APoissonProcessHasExponentialGaps) {
  const Summary s = Summarize(Gaps(50, 1, 100000));
  EXPECT_NEAR(s.mean, 0.02, 0.02 * 0.015);
  EXPECT_NEAR(s.deviation, 0.02, 0.02 * 0.03);
  EXPECT_NEAR(s.p50, 0.02 * std::log(2), 0.02 * 0.02);
  EXPECT_NEAR(s.p99, 0.02 * std::log(100), 0.02 * 0.2);
}

TEST(SeededRandomTest, NumbersBelowABoundAreAllReached) {
  SeededRandom random(1);
  std::vector<int> seen(7);
  for (int i = 0; i < 7000; ++i) ++seen[random.Below(7)];
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace sluice::load
