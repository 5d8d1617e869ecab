#include "common/tools/measure/measure_rates.h"

#include <gtest/gtest.h>

namespace sluice::measure {
namespace {

using placement::kRateRows;
using placement::ParseRates;
using placement::RatesJson;

TEST(MeasureRatesTest, ThisMachinesRatesAreWholeAndReadBack) {
#ifdef SLUICE_TSAN
  GTEST_SKIP() << "reads gigabytes, which ThreadSanitizer makes minutes";
#endif
  RateOptions options;
  options.threads = 1;
  options.rounds = 1;
  options.types = {kernels::WeightType::kQ4_0};
  const auto rates = MeasureRates(options);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ(rates->threads, 1);
  EXPECT_GT(rates->read_gb_per_s, 0);
  EXPECT_GT(rates->wake_seconds, 0);
  ASSERT_EQ(rates->products.size(), 1u);
  for (size_t i = 0; i < kRateRows.size(); ++i) {
    EXPECT_GT(rates->products[0].from_memory[i], 0) << kRateRows[i];
    EXPECT_GT(rates->products[0].from_cache[i], 0) << kRateRows[i];
  }
  const auto again = ParseRates(RatesJson(*rates));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->isa, rates->isa);
  EXPECT_NEAR(again->join_seconds, rates->join_seconds, 1e-15);
  EXPECT_EQ(again->products[0].type, kernels::WeightType::kQ4_0);
  EXPECT_NEAR(
      again->products[0].from_memory[2] / rates->products[0].from_memory[2], 1,
      1e-9);
  options.isa = "none";
  EXPECT_FALSE(MeasureRates(options).ok());
}

}  // namespace
}  // namespace sluice::measure
