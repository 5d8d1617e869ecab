// Products with MXFP4 weights: the bits of the same values in F32.
#include <cmath>
#include <memory>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "kernels/matmul.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

class Mxfp4Test : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!IsAvailable(GetParam())) {
      GTEST_SKIP() << "this machine has no " << ToString(GetParam());
    }
  }
  std::vector<float> Multiply(Executor* executor, const WeightView& w,
                              const std::vector<float>& x, int64_t tokens) {
    const OwnedMatrix input(tokens, w.cols, x);
    OwnedMatrix y(tokens, w.rows, 3);
    MatMul({.executor = executor, .isa = GetParam()}, input.view(), w, nullptr,
           y.view());
    EXPECT_TRUE(y.MarkIntact());
    return y.values();
  }
};

TEST_P(Mxfp4Test, EveryCodeAtEveryPlaceAndScaleIsItsValue) {
  const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const int64_t cols = 64;
  const int64_t rows = 253;  // row r: scale r; 253 and up may overflow
  for (int shift = 0; shift < 16; ++shift) {
    std::vector<uint8_t> codes;
    std::vector<uint8_t> scales;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < cols; k += 2) {
        const int low = static_cast<int>((k + r + shift) % 16);
        const int high = static_cast<int>((k + 1 + r + shift) % 16);
        codes.push_back(static_cast<uint8_t>(low | high << 4));
      }
      scales.insert(scales.end(), 2, static_cast<uint8_t>(r));
    }
    const OwnedWeight w(rows, cols, codes, scales);
    for (int64_t k = 0; k < cols; ++k) {
      std::vector<float> x(cols, 0.0f);
      x[k] = 1.0f;
      const auto y = Multiply(nullptr, w.view(), x, 1);
      for (int64_t r = 0; r < rows; ++r) {
        const int code = static_cast<int>((k + r + shift) % 16);
        const double sign = code < 8 ? 1.0 : -1.0;
        const double want =
            sign * std::ldexp(magnitudes[code % 8], static_cast<int>(r) - 127);
        ASSERT_EQ(double{y[r]}, want) << "row " << r << " column " << k;
      }
    }
  }
}

TEST_P(Mxfp4Test, ProductsHaveTheBitsOfTheSameValuesInF32) {
  ThreadTeam team({.num_threads = 3});
  for (int64_t cols : {32, 64, 96, 288, 2880}) {
    for (int64_t rows : {1, 2, 3, 4, 7, 8, 33, 100}) {
      const OwnedWeight packed = OwnedWeight::RandomMxfp4(11, rows, cols);
      const OwnedWeight wide(WeightType::kF32, rows, cols, packed.values());
      for (int64_t tokens : {1, 2, 5, 6, 7, 19}) {
        const auto x = RandomFloats(12, tokens * cols);
        const auto want = Multiply(nullptr, wide.view(), x, tokens);
        EXPECT_TRUE(SameBits(Multiply(nullptr, packed.view(), x, tokens), want))
            << rows << "x" << cols << ", " << tokens << " tokens";
        EXPECT_TRUE(SameBits(Multiply(&team, packed.view(), x, tokens), want))
            << rows << "x" << cols << ", " << tokens << " tokens, a team";
      }
    }
  }
}

TEST_P(Mxfp4Test, ProductsAreCloseToDouble) {
  const int64_t cols = 2880;
  const int64_t rows = 20;
  const OwnedWeight w = OwnedWeight::RandomMxfp4(13, rows, cols);
  const auto values = w.values();
  const auto x = RandomFloats(14, cols);
  const auto y = Multiply(nullptr, w.view(), x, 1);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = values.data() + r * cols;
    const double bound = Gamma(cols / 16 + 4) * AbsDot(x.data(), row, cols);
    EXPECT_NEAR(y[r], DotInDouble(x.data(), row, cols), bound);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Mxfp4Test, testing::ValuesIn(kAllIsas),
                         [](const auto& tested) {
                           return std::string(ToString(tested.param));
                         });

}  // namespace
}  // namespace sluice::kernels
