#include "tests/kernels/kernel_tester.h"

#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "gtest/gtest.h"

namespace sluice::kernels {
namespace {

TEST(KernelTesterTest, RandomFloatsAreUniformAndRepeatable) {
  const int64_t n = 100000;
  const auto a = RandomFloats(1, n, 2.0f);
  EXPECT_TRUE(SameBits(a, RandomFloats(1, n, 2.0f)));
  EXPECT_FALSE(SameBits(a, RandomFloats(2, n, 2.0f)));
  double sum = 0;
  double squares = 0;
  std::set<float> distinct;
  for (float x : a) {
    ASSERT_GE(x, -2.0f);
    ASSERT_LT(x, 2.0f);
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
    distinct.insert(x);
  }
  // Five standard deviations of the mean of n draws; variance 4 / 3.
  const double sigma = std::sqrt(4.0 / 3 / n);
  EXPECT_NEAR(sum / n, 0, 5 * sigma);
  EXPECT_NEAR(squares / n, 4.0 / 3, 5 * std::sqrt(64.0 / 45 / n));
  // 24 bits: about n^2 / 2^25 pairs meet.
  EXPECT_GT(distinct.size(), static_cast<size_t>(n - 600));
}

TEST(KernelTesterTest, NeighbouringSeedsAndDrawsAreUncorrelated) {
  const int64_t n = 100000;
  const auto a = RandomFloats(1, n + 1);
  const auto b = RandomFloats(2, n);
  double seeds = 0;
  double draws = 0;
  for (int64_t i = 0; i < n; ++i) {
    seeds += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    draws += static_cast<double>(a[i]) * static_cast<double>(a[i + 1]);
  }
  const double bound = 5.0 / 3 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(seeds / n, 0, bound);
  EXPECT_NEAR(draws / n, 0, bound);
}

TEST(KernelTesterTest, RandomBf16FitsTheType) {
  for (float x : RandomBf16(3, 1000)) {
    ASSERT_EQ(std::bit_cast<uint32_t>(x) & 0xFFFF, 0u);
  }
}

TEST(KernelTesterTest, WeightsOfBothTypesAreAlignedAndHoldTheirValues) {
  const auto values = RandomBf16(4, 15);
  const OwnedWeight f32(WeightType::kF32, 3, 5, values);
  const OwnedWeight bf16(WeightType::kBf16, 3, 5, values);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(f32.view().data) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bf16.view().data) % 64, 0u);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(static_cast<const float*>(f32.view().data)[i], values[i]);
    const uint16_t half = static_cast<const uint16_t*>(bf16.view().data)[i];
    EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(half) << 16),
              values[i]);
  }
}

TEST(KernelTesterTest, SameBitsTellsZerosApart) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(SameBits({0.0f}, {-0.0f}));
  EXPECT_FALSE(SameBits({0.0f}, {}));
  EXPECT_TRUE(SameBits({nan}, {nan}));
  EXPECT_TRUE(SameBits({}, {}));
}

TEST(KernelTesterTest, CanonicalDotOfWholeNumbersIsExact) {
  std::vector<float> a;
  std::vector<float> b;
  for (int i = 1; i <= 100; ++i) {
    a.push_back(static_cast<float>(i));
    b.push_back(static_cast<float>(2 * i - 50));
    double want = 0;
    for (int j = 1; j <= i; ++j) want += j * (2.0 * j - 50);
    ASSERT_EQ(CanonicalDot(a.data(), b.data(), i), want);
    ASSERT_EQ(DotInDouble(a.data(), b.data(), i), want);
  }
}

TEST(ContextTest, NamesEveryIsaAndDetectsOneThatRuns) {
  for (Isa isa : kAllIsas) EXPECT_STRNE(ToString(isa), "unknown");
  EXPECT_TRUE(HasIsa(DetectIsa()));
  EXPECT_TRUE(HasIsa(Isa::kPortable));
  printf("This machine: %s\n", ToString(DetectIsa()));
}

TEST(ContextTest, ParallelForWithoutATeamRunsEveryTaskHere) {
  std::vector<int> seen;
  ParallelFor(Context{}, 5, [&](int i) { seen.push_back(i); });
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(NumThreads(Context{}), 1);
}

}  // namespace
}  // namespace sluice::kernels
