#include "common/placement/step_cost.h"

#include <gtest/gtest.h>

#include "common/placement/machines.h"
#include "tests/placement/published_models.h"

namespace sluice::placement {
namespace {

using kernels::WeightType;

MachineRates Rates(double gb, double gop) {
  MachineRates rates;
  rates.read_gb_per_s = gb;
  rates.byte_gop_per_s = gop;
  rates.f32_gop_per_s = gop;
  FillRates(rates);
  return rates;
}

StageWork WorkOf(const PaperModel& model, const ModelProducts& products) {
  return {&model.config, &products, {0, model.config.num_layers()}};
}

TEST(ProductsOfTest, CountEveryMatrixOnceAndOneExpert) {
  const PaperModel llama(kLlama70b);
  const ModelProducts dense =
      ProductsOf(llama.config, *llama.file, WeightsMode::kQ4_0);
  ASSERT_EQ(dense.layers.size(), 80u);
  ASSERT_EQ(dense.layers[7].dense.size(), 1u);
  EXPECT_EQ(dense.layers[7].dense[0].type, WeightType::kQ4_0);
  EXPECT_EQ(dense.layers[7].dense[0].elements,
            8192.0 * (8192 + 2 * 1024 + 8192 + 3 * 28672));
  EXPECT_TRUE(dense.layers[7].expert.empty());
  EXPECT_EQ(dense.head.type, WeightType::kQ8_0);
  EXPECT_EQ(dense.head.elements, 8192.0 * 128256);
  const PaperModel air(kGlmAir);
  const ModelProducts sparse =
      ProductsOf(air.config, *air.file, WeightsMode::kAuto);
  EXPECT_TRUE(sparse.layers[0].expert.empty());
  ASSERT_EQ(sparse.layers[1].expert.size(), 1u);
  EXPECT_EQ(sparse.layers[1].expert[0].elements, 3.0 * 4096 * 1408);
  EXPECT_EQ(TypesIn(sparse).size(), 2u);  // BF16, and F32 of the router
}

TEST(ElementSecondsTest, MeasuredPointsAreJoinedByLines) {
  MachineRates rates = Rates(10, 100);
  ProductRate rate;
  rate.type = WeightType::kQ4_0;
  rate.from_memory = {1e-10, 2e-10, 3e-10, 8e-10, 32e-10};
  rate.from_cache = {1e-11, 2e-11, 3e-11, 8e-11, 32e-11};
  rates.products = {rate};
  const auto at = [&](double rows, bool cached) {
    return ElementSeconds(rates, WeightType::kQ4_0, rows, cached);
  };
  EXPECT_DOUBLE_EQ(at(1, false), 1e-10);
  EXPECT_DOUBLE_EQ(at(4, false), 2e-10);
  EXPECT_DOUBLE_EQ(at(6, false), 2.5e-10);
  EXPECT_DOUBLE_EQ(at(128, false), 32e-10);
  EXPECT_DOUBLE_EQ(at(512, false), 128e-10);
  EXPECT_DOUBLE_EQ(at(6, true), 2.5e-11);
}

TEST(ElementSecondsTest, WithoutMeasuresABandwidthAndARateBound) {
  const MachineRates rates = Rates(10, 100);
  const auto at = [&](WeightType type, double rows) {
    return ElementSeconds(rates, type, rows, false);
  };
  // A weight of four times the bytes takes four times as long to read.
  EXPECT_NEAR(at(WeightType::kF32, 1) / at(WeightType::kBf16, 1), 2, 1e-9);
  EXPECT_NEAR(at(WeightType::kBf16, 1) / at(WeightType::kQ4_0, 1), 16 / 4.5,
              1e-9);
  // A prompt's products are bound by arithmetic.
  EXPECT_NEAR(at(WeightType::kQ4_0, 1024) / at(WeightType::kQ4_0, 512), 2,
              1e-9);
}

TEST(DistinctExpertsTest, ManyRowsReachAllExperts) {
  EXPECT_DOUBLE_EQ(DistinctExperts(128, 8, 1), 8);
  EXPECT_GT(DistinctExperts(128, 8, 8), 50);
  EXPECT_LT(DistinctExperts(128, 8, 8), 64);
  EXPECT_NEAR(DistinctExperts(128, 8, 512), 128, 1e-6);
  EXPECT_EQ(DistinctExperts(0, 0, 4), 0);
}

TEST(StepSecondsTest, ATokenTakesWhatItsWeightsTakeToRead) {
  const PaperModel llama(kLlama70b);
  const ModelProducts products =
      ProductsOf(llama.config, *llama.file, WeightsMode::kAuto);
  const StageWork work = WorkOf(llama, products);
  const double seconds = StepSeconds(work, Rates(100, 20000), {1, 1, 0});
  // 139 GB but for the embedding, at 85 % of the bandwidth.
  EXPECT_NEAR(seconds, 139.0 / 85, 0.05);
  // Eight streams read them once; a longer context reads more.
  EXPECT_LT(StepSeconds(work, Rates(100, 20000), {8, 1, 0}), 1.2 * seconds);
  EXPECT_GT(StepSeconds(work, Rates(100, 20000), {8, 1, 32768}), 1.2 * seconds);
  // A prompt is bound by its products.
  const double prompt = StepSeconds(work, Rates(100, 20000), {1, 512, 0});
  EXPECT_GT(prompt, 2.0 * 69.5e9 * 512 / 20e12);
}

TEST(StepSecondsTest, AMixtureReadsTheExpertsThatItTakes) {
  const PaperModel air(kGlmAir);
  const ModelProducts products =
      ProductsOf(air.config, *air.file, WeightsMode::kAuto);
  StageWork work = WorkOf(air, products);
  const MachineRates rates = Rates(100, 20000);
  // 12 B active parameters of 107 B.
  const double one = StepSeconds(work, rates, {1, 1, 0});
  EXPECT_NEAR(one, 2 * 12.0 / 85, 0.06);
  EXPECT_GT(StepSeconds(work, rates, {16, 1, 0}), 4 * one);
  work.local_experts = 0;
  EXPECT_LT(StepSeconds(work, rates, {16, 1, 0}), one);
}

TEST(StepSecondsTest, PartsOfAModelAddUp) {
  const PaperModel llama(kLlama70b);
  const ModelProducts products =
      ProductsOf(llama.config, *llama.file, WeightsMode::kAuto);
  StageWork work = WorkOf(llama, products);
  const MachineRates rates = Rates(50, 1000);
  const StepShape step = {2, 1, 100};
  const double whole = StepSeconds(work, rates, step);
  work.range = {0, 30};
  const double first = StepSeconds(work, rates, step);
  work.range = {30, 80};
  EXPECT_NEAR(first + StepSeconds(work, rates, step), whole, 1e-9);
}

}  // namespace
}  // namespace sluice::placement
