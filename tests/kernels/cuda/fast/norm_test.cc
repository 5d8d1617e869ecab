// The norm of fast numerics, in the order that its header states.
#include "kernels/cuda/fast/norm.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

float SumOfSquares(const float* x, int64_t cols) {
  const int64_t threads = cols <= 2048 ? 128 : cols <= 4096 ? 256 : 512;
  std::vector<float> sums(threads);
  for (int64_t c = 0; c < cols; ++c) {
    float& sum = sums[c / 4 % threads];
    sum = std::fma(x[c], x[c], sum);
  }
  float fours[4] = {};
  for (int64_t warp = 0; warp < threads / 32; ++warp) {
    float* const lanes = sums.data() + warp * 32;
    for (int count = 16; count > 0; count /= 2) {
      for (int i = 0; i < count; ++i) lanes[i] += lanes[i + count];
    }
    float& four = fours[warp % 4];
    four = warp < 4 ? lanes[0] : four + lanes[0];
  }
  return (fours[0] + fours[1]) + (fours[2] + fours[3]);
}

std::vector<float> Expected(ConstMatrix x, const std::vector<int32_t>& rows,
                            const std::vector<float>& weight, float eps) {
  std::vector<float> y;
  for (const int32_t row : rows) {
    const float mean =
        SumOfSquares(x.row(row), x.cols) / static_cast<float>(x.cols);
    const float scale = 1.0f / std::sqrt(mean + eps);
    for (int64_t c = 0; c < x.cols; ++c) {
      y.push_back(x.row(row)[c] * scale * weight[c]);
    }
  }
  return y;
}

// Widths of no whole quads, of each number of threads, and of several pieces.
TEST(TileNormTest, RowsAreNormedInTheStatedOrder) {
  for (const int64_t cols : {1, 3, 4, 30, 64, 511, 512, 516, 2044, 2048, 2049,
                             2880, 4096, 4100, 8192, 8193, 8196, 16640}) {
    for (const int64_t pad : {0, 3}) {
      SCOPED_TRACE(testing::Message() << cols << " columns, pad " << pad);
      OwnedMatrix x(3, cols, pad);
      const auto values = RandomFloats(1, 3 * cols, 3.0f);
      for (int64_t t = 0; t < 3; ++t) {
        std::copy_n(values.data() + t * cols, cols, x.view().row(t));
      }
      const auto weight = RandomFloats(2, cols);
      const auto got = BothWays([&](Stream stream) {
        OwnedMatrix y(3, cols, pad);
        TileRmsNorm(stream, x.view(), nullptr, weight.data(), 1e-5f, y.view());
        EXPECT_TRUE(y.MarkIntact());
        OwnedMatrix in_place = x;
        TileRmsNorm(stream, in_place.view(), nullptr, weight.data(), 1e-5f,
                    in_place.view());
        EXPECT_TRUE(SameBits(in_place.values(), y.values()));
        return y.values();
      });
      EXPECT_TRUE(SameBits(got, Expected(x.view(), {0, 1, 2}, weight, 1e-5f)));
    }
  }
}

TEST(TileNormTest, RowsMayBeTaken) {
  const OwnedMatrix x(3, 96, RandomFloats(3, 3 * 96));
  const auto weight = RandomFloats(4, 96);
  const std::vector<int32_t> rows = {2, 0};
  const auto got = BothWays([&](Stream stream) {
    OwnedMatrix y(2, 96);
    TileRmsNorm(stream, x.view(), rows.data(), weight.data(), 1e-5f, y.view());
    return y.values();
  });
  EXPECT_TRUE(SameBits(got, Expected(x.view(), rows, weight, 1e-5f)));
}

TEST(TileNormTest, IsCloseToDouble) {
  const int64_t cols = 2880;
  const OwnedMatrix x(1, cols, RandomFloats(3, cols, 50.0f));
  const auto weight = RandomFloats(4, cols);
  const auto got = BothWays([&](Stream stream) {
    OwnedMatrix y(1, cols);
    TileRmsNorm(stream, x.view(), nullptr, weight.data(), 1e-6f, y.view());
    return y.values();
  });
  const auto in = x.values();
  const double mean = DotInDouble(in.data(), in.data(), cols) / cols;
  for (int64_t i = 0; i < cols; ++i) {
    const double want = in[i] / std::sqrt(mean + 1e-6) * weight[i];
    ASSERT_NEAR(got[i], want, std::abs(want) * Gamma(20));
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
