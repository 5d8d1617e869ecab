#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "kernels/elementwise.h"
#include "kernels/exp_log.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

class RowOpsTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!HasIsa(GetParam())) {
      GTEST_SKIP() << "this machine has no " << ToString(GetParam());
    }
  }
  Context context() const { return {.executor = nullptr, .isa = GetParam()}; }
};

TEST_P(RowOpsTest, RmsNormRoundsEachOperationOnce) {
  for (int64_t cols = 1; cols <= 70; ++cols) {
    const int64_t tokens = 3;
    const auto x = RandomFloats(1, tokens * cols, 3.0f);
    const auto weight = RandomFloats(2, cols);
    const OwnedMatrix input(tokens, cols, x);
    OwnedMatrix y(tokens, cols, 2);
    RmsNorm(context(), input.view(), weight.data(), 1e-5f, y.view());
    ASSERT_TRUE(y.MarkIntact());
    const auto got = y.values();
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = x.data() + t * cols;
      const float square = CanonicalDot(row, row, cols);
      const float scale =
          1.0f / std::sqrt(square / static_cast<float>(cols) + 1e-5f);
      for (int64_t i = 0; i < cols; ++i) {
        const float normed = row[i] * scale;
        ASSERT_EQ(got[t * cols + i], normed * weight[i]) << cols;
      }
    }
  }
}

TEST_P(RowOpsTest, RmsNormIsCloseToDoubleAndWorksInPlace) {
  const int64_t cols = 2048;
  const auto x = RandomFloats(3, cols, 50.0f);
  const auto weight = RandomFloats(4, cols);
  OwnedMatrix both(1, cols, x);
  RmsNorm(context(), both.view(), weight.data(), 1e-6f, both.view());
  const double mean = DotInDouble(x.data(), x.data(), cols) / cols;
  for (int64_t i = 0; i < cols; ++i) {
    const double want = x[i] / std::sqrt(mean + 1e-6) * weight[i];
    // Half the dot's error, and the roundings of five operations.
    const double bound = std::abs(want) * Gamma((cols / 16 + 4) / 2 + 5);
    ASSERT_NEAR(both.values()[i], want, bound);
  }
}

TEST_P(RowOpsTest, SiluMulIsCloseToDoubleAndTheSameOnEveryIsaAndTeam) {
  ThreadTeam team({.num_threads = 3});
  const Context with_team = {.executor = &team, .isa = GetParam()};
  for (int64_t cols : {1, 7, 8, 15, 16, 17, 33, 100, 8192}) {
    const int64_t tokens = 3;
    const OwnedMatrix x(tokens, 2 * cols,
                        RandomFloats(5, tokens * 2 * cols, 30.0f));
    OwnedMatrix y(tokens, cols, 1);
    SiluMul(context(), x.view(), y.view());
    ASSERT_TRUE(y.MarkIntact());
    const auto got = y.values();
    const auto in = x.values();
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < cols; ++i) {
        const double gate = in[t * 2 * cols + i];
        const double up = in[t * 2 * cols + cols + i];
        const double want = gate / (1 + std::exp(-gate)) * up;
        ASSERT_NEAR(got[t * cols + i], want,
                    std::abs(want) * (0x1p-22 + Gamma(3)));
      }
    }
    OwnedMatrix portable(tokens, cols);
    SiluMul(Context{}, x.view(), portable.view());
    EXPECT_TRUE(SameBits(portable.values(), got));
    OwnedMatrix teamed(tokens, cols);
    SiluMul(with_team, x.view(), teamed.view());
    EXPECT_TRUE(SameBits(teamed.values(), got));
  }
}

TEST_P(RowOpsTest, RmsNormHeadsNormsEveryHeadByItselfInPlace) {
  const int64_t heads = 5;
  const int64_t dim = 24;
  const auto x = RandomFloats(30, 3 * heads * dim, 4.0f);
  const auto weight = RandomFloats(31, dim);
  OwnedMatrix both(3, heads * dim, 2);
  for (int64_t t = 0; t < 3; ++t) {
    std::copy_n(x.data() + t * heads * dim, heads * dim, both.view().row(t));
  }
  RmsNormHeads(context(), both.view(), dim, weight.data(), 1e-6f);
  ASSERT_TRUE(both.MarkIntact());
  const OwnedMatrix one_by_one(3 * heads, dim, x);
  OwnedMatrix want(3 * heads, dim);
  RmsNorm(context(), one_by_one.view(), weight.data(), 1e-6f, want.view());
  EXPECT_TRUE(SameBits(both.values(), want.values()));
}

TEST_P(RowOpsTest, ClampedSwiGluIsCloseToDoubleAndTheSameOnEveryIsa) {
  for (int64_t cols : {1, 7, 8, 15, 16, 17, 33, 100, 2880}) {
    const int64_t tokens = 2;
    const double limit = 7.0;
    const OwnedMatrix x(tokens, 2 * cols,
                        RandomFloats(32, tokens * 2 * cols, 12.0f));
    OwnedMatrix y(tokens, cols, 1);
    ClampedSwiGlu(context(), x.view(), 7.0f, y.view());
    ASSERT_TRUE(y.MarkIntact());
    const auto got = y.values();
    const auto in = x.values();
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < cols; ++i) {
        const double gate = std::min(double{in[t * 2 * cols + i]}, limit);
        const double up =
            std::clamp(double{in[t * 2 * cols + cols + i]}, -limit, limit);
        const double act = gate / (1 + std::exp(-1.702 * gate));
        // The exponent, up to 20 in size, is rounded once and its slope is
        // one; up + 1 is rounded once and may be close to 0.
        ASSERT_NEAR(got[t * cols + i], act * (up + 1),
                    std::abs(act * (up + 1)) * (0x1p-19 + Gamma(4)) +
                        std::abs(act) * 8 * 0x1p-24);
      }
    }
    OwnedMatrix portable(tokens, cols);
    ClampedSwiGlu(Context{}, x.view(), 7.0f, portable.view());
    EXPECT_TRUE(SameBits(portable.values(), got));
  }
}

TEST_P(RowOpsTest, AddAndEmbed) {
  const int64_t cols = 37;
  const auto a = RandomFloats(6, 2 * cols);
  const auto b = RandomFloats(7, 2 * cols);
  OwnedMatrix x(2, cols, a);
  const OwnedMatrix y(2, cols, b);
  Add(context(), y.view(), x.view());
  for (int64_t i = 0; i < 2 * cols; ++i) {
    ASSERT_EQ(x.values()[i], a[i] + b[i]);
  }
  const auto table = RandomBf16(8, 5 * cols);
  const std::vector<int32_t> ids = {4, 0, 4};
  for (WeightType type : {WeightType::kF32, WeightType::kBf16}) {
    const OwnedWeight w(type, 5, cols, table);
    OwnedMatrix rows(3, cols, 2);
    Embed(context(), w.view(), ids.data(), rows.view());
    EXPECT_TRUE(rows.MarkIntact());
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t i = 0; i < cols; ++i) {
        ASSERT_EQ(rows.values()[t * cols + i], table[ids[t] * cols + i]);
      }
    }
  }
}

TEST_P(RowOpsTest, RopeRotatesThePairsOfEachStyle) {
  for (RopeStyle style : {RopeStyle::kHalfSplit, RopeStyle::kInterleaved}) {
    for (int64_t half : {1, 4, 8, 15, 16, 17, 32, 40}) {
      const int64_t head_dim = 2 * half + 2;  // the last two stay as they are
      const int64_t heads = 3;
      std::vector<double> inv_freq;
      for (int64_t i = 0; i < half; ++i) {
        inv_freq.push_back(std::pow(10000.0, -1.0 * i / half));
      }
      std::vector<float> cos(100 * half);
      std::vector<float> sin(100 * half);
      MakeRopeTable(inv_freq, {0, 100}, 1.0, cos.data(), sin.data());
      const std::vector<int32_t> positions = {0, 99, 42};
      const auto in = RandomFloats(9, 3 * heads * head_dim);
      OwnedMatrix x(3, heads * head_dim, in);
      Rope(context(), x.view(), head_dim, style,
           {.cos = cos.data(),
            .sin = sin.data(),
            .positions = 100,
            .half = half},
           positions.data());
      const auto out = x.values();
      for (int64_t t = 0; t < 3; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t base = (t * heads + h) * head_dim;
          for (int64_t i = 0; i < half; ++i) {
            const bool split = style == RopeStyle::kHalfSplit;
            const int64_t ai = base + (split ? i : 2 * i);
            const int64_t bi = base + (split ? i + half : 2 * i + 1);
            const float c = cos[positions[t] * half + i];
            const float s = sin[positions[t] * half + i];
            ASSERT_EQ(out[ai], std::fma(in[ai], c, -(in[bi] * s)));
            ASSERT_EQ(out[bi], std::fma(in[bi], c, in[ai] * s));
          }
          ASSERT_EQ(out[base + 2 * half], in[base + 2 * half]);
          ASSERT_EQ(out[base + 2 * half + 1], in[base + 2 * half + 1]);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, RowOpsTest, testing::ValuesIn(kAllIsas),
                         [](const auto& parameter) {
                           return std::string(ToString(parameter.param));
                         });

TEST(RopeTableTest, IsTheDoubleSineAndCosineRoundedOnce) {
  std::vector<double> inv_freq;
  for (int i = 0; i < 32; ++i) inv_freq.push_back(std::pow(5e5, -i / 32.0));
  const int64_t positions = 20000;
  std::vector<float> cos(positions * 32);
  std::vector<float> sin(positions * 32);
  MakeRopeTable(inv_freq, {0, positions}, 1.25, cos.data(), sin.data());
  int64_t different = 0;
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < 32; ++i) {
      const double angle = static_cast<double>(p) * inv_freq[i];
      const float c = static_cast<float>(std::cos(angle) * 1.25);
      const float s = static_cast<float>(std::sin(angle) * 1.25);
      // The library's last bit may differ, and with it a rounding, rarely.
      ASSERT_NEAR(cos[p * 32 + i], c, 0x1p-23);
      ASSERT_NEAR(sin[p * 32 + i], s, 0x1p-23);
      different += cos[p * 32 + i] != c;
      different += sin[p * 32 + i] != s;
    }
  }
  EXPECT_LE(different, 2);
}

TEST(RopeTableTest, StaysExactAtAMillionPositions) {
  const std::vector<double> inv_freq = {1.0};
  const int64_t positions = 1 << 20;
  std::vector<float> cos(positions);
  std::vector<float> sin(positions);
  MakeRopeTable(inv_freq, {0, positions}, 1.0, cos.data(), sin.data());
  for (int64_t p = positions - 5000; p < positions; ++p) {
    ASSERT_NEAR(cos[p], std::cos(static_cast<double>(p)), 0x1p-24);
    ASSERT_NEAR(sin[p], std::sin(static_cast<double>(p)), 0x1p-24);
  }
}

}  // namespace
}  // namespace sluice::kernels
