#include "common/tools/load/load_summary.h"

#include <gtest/gtest.h>

namespace sluice::load {
namespace {

TEST(StatisticsTest, PercentilesAreLinearBetweenNeighbours) {
  // numpy.percentile([1, 2, 4, 8], [0, 50, 90, 100]).
  const std::vector<double> values = {1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(values, 50), 3);
  EXPECT_DOUBLE_EQ(Percentile(values, 90), 6.8);
  EXPECT_DOUBLE_EQ(Percentile(values, 100), 8);
  EXPECT_DOUBLE_EQ(Percentile({5}, 99), 5);
}

TEST(StatisticsTest, ASummaryDoesNotDependOnTheOrder) {
  std::vector<double> values;
  for (int i = 1000; i >= 1; --i) values.push_back(i);
  const Summary s = Summarize(values);
  EXPECT_EQ(s.count, 1000u);
  EXPECT_DOUBLE_EQ(s.mean, 500.5);
  EXPECT_DOUBLE_EQ(s.min, 1);
  EXPECT_DOUBLE_EQ(s.p50, 500.5);
  EXPECT_NEAR(s.p90, 900.1, 1e-9);
  EXPECT_NEAR(s.p95, 950.05, 1e-9);
  EXPECT_NEAR(s.p99, 990.01, 1e-9);
  EXPECT_DOUBLE_EQ(s.max, 1000);
  EXPECT_NEAR(s.deviation, 288.675, 1e-3);
}

TEST(StatisticsTest, NothingMeasuredIsAllZero) {
  const Summary s = Summarize({});
  EXPECT_EQ(s.count, 0u);
  EXPECT_EQ(s.p99, 0);
}

}  // namespace
}  // namespace sluice::load
