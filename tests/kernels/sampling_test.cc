#include "kernels/sampling.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/exp_log.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

constexpr float kTop = std::numeric_limits<float>::infinity();

// Remainders of lanes and of pieces, and vocabularies of models.
constexpr int64_t kSizes[] = {1,   2,   15,   16,   17,    31,     33,
                              255, 256, 257,  271,  511,   512,    513,
                              769, 992, 4095, 4097, 49152, 151552, 201088};

std::vector<float> Logits(int64_t n) {
  auto logits = RandomFloats(static_cast<uint64_t>(n) + 5, n, 12.0f);
  for (int64_t i = 7; i < n; i += 31) logits[i] = -kTop;
  for (int64_t i = 3; i < n; i += 97) logits[i] = -0.0f;
  return logits;
}

class SamplingTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!HasIsa(GetParam())) {
      GTEST_SKIP() << "this machine has no " << ToString(GetParam());
    }
  }
  Isa isa() const { return GetParam(); }
};

TEST_P(SamplingTest, MaximaAreThoseOfThePieces) {
  for (const int64_t n : kSizes) {
    const auto logits = Logits(n);
    std::vector<float> maxima(NumPieces(n), 77);
    ASSERT_TRUE(PieceMaxima(isa(), logits, maxima));
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_LE(logits[i], maxima[i / kLogitsPiece]) << n;
    }
    for (int64_t p = 0; p < NumPieces(n); ++p) {
      const int64_t end = std::min(n, (p + 1) * kLogitsPiece);
      float max = -kTop;
      for (int64_t i = p * kLogitsPiece; i < end; ++i) {
        max = std::max(max, logits[i]);
      }
      ASSERT_EQ(maxima[p], max) << n;
    }
  }
}

TEST_P(SamplingTest, NanAndPlusInfinityAreSeenWhereverTheyAre) {
  for (const int64_t n : {1, 15, 16, 17, 255, 256, 257, 300}) {
    const auto good = Logits(n);
    std::vector<float> maxima(NumPieces(n));
    for (int64_t at = 0; at < n; ++at) {
      for (const float bad : {kTop, std::nanf("")}) {
        auto logits = good;
        logits[at] = bad;
        ASSERT_FALSE(PieceMaxima(isa(), logits, maxima)) << n << " " << at;
      }
    }
  }
}

TEST_P(SamplingTest, AWeightIsOurExpOfTheScaledDistance) {
  for (const float scale : {1.0f, 1 / 0.7f, 0.5f, 40.0f, 99999.0f}) {
    for (const int64_t n : {1, 15, 16, 17, 1000, 4097}) {
      const auto logits = Logits(n);
      std::vector<float> weights(n + 1, -1);
      Weights(isa(), logits, {12.0f, scale}, {weights.data(), size_t(n)});
      for (int64_t i = 0; i < n; ++i) {
        const float want = Exp((logits[i] - 12.0f) * scale);
        ASSERT_EQ(std::bit_cast<uint32_t>(weights[i]),
                  std::bit_cast<uint32_t>(want))
            << logits[i] << " " << scale;
      }
      EXPECT_EQ(weights[n], -1);  // nothing behind is written
    }
  }
  float one = 0;
  const float extreme[] = {std::numeric_limits<float>::lowest()};
  Weights(isa(), extreme, {-extreme[0], 1.0f}, {&one, 1});
  EXPECT_EQ(one, 0);
  Weights(isa(), extreme, {extreme[0], 1.0f}, {&one, 1});
  EXPECT_EQ(one, 1);
}

TEST_P(SamplingTest, SumsAreCloseToDoubleAndTheSameOnEveryIsa) {
  for (const int64_t n : kSizes) {
    const auto logits = Logits(n);
    const Softening softening = {12.0f, 1 / 0.9f};
    std::vector<float> sums(NumPieces(n));
    std::vector<float> plain(NumPieces(n));
    WeightSums(isa(), logits, softening, sums);
    cpu::kScalarOps.weight_sums(logits.data(), n,
                                {softening.max, softening.scale}, plain.data());
    ASSERT_TRUE(SameBits(sums, plain)) << n;
    std::vector<double> exact(NumPieces(n));
    for (int64_t i = 0; i < n; ++i) {
      exact[i / kLogitsPiece] += std::exp((double(logits[i]) - 12.0) / 0.9);
    }
    for (int64_t p = 0; p < NumPieces(n); ++p) {
      // 20 sums in a row, Exp, its argument's three roundings.
      ASSERT_NEAR(sums[p], exact[p], exact[p] * (Gamma(20) + 1e-5)) << n;
    }
  }
}

TEST_P(SamplingTest, PiecesAloneHaveTheBitsOfTheWhole) {
  const int64_t n = 2000;
  const auto logits = Logits(n);
  const Softening softening = {12.0f, 1.25f};
  std::vector<float> whole(NumPieces(n));
  std::vector<float> maxima(NumPieces(n));
  WeightSums(isa(), logits, softening, whole);
  PieceMaxima(isa(), logits, maxima);
  for (int64_t p = 0; p < NumPieces(n); ++p) {
    const int64_t begin = p * kLogitsPiece;
    const auto piece = std::span<const float>(logits).subspan(
        begin, std::min(kLogitsPiece, n - begin));
    float value = 0;
    WeightSums(isa(), piece, softening, {&value, 1});
    EXPECT_EQ(value, whole[p]);
    PieceMaxima(isa(), piece, {&value, 1});
    EXPECT_EQ(value, maxima[p]);
  }
}

TEST_P(SamplingTest, ChosenLogitsAreThoseOfAPlainLoop) {
  for (const int64_t n : kSizes) {
    const auto logits = Logits(n);
    for (const float least : {-kTop, -20.0f, -3.0f, 0.0f, 11.9f, 13.0f}) {
      std::vector<float> values(n + 16);
      std::vector<int32_t> ids(n + 16);
      const int64_t count = SelectNotBelow(isa(), logits, least, 100,
                                           {values.data(), ids.data()});
      int64_t want = 0;
      for (int64_t i = 0; i < n; ++i) {
        if (!(logits[i] >= least)) continue;
        ASSERT_LT(want, count);
        ASSERT_EQ(ids[want], 100 + i);
        ASSERT_EQ(values[want], logits[i]);
        ++want;
      }
      ASSERT_EQ(count, want) << n << " " << least;
    }
  }
}

TEST_P(SamplingTest, CountsAreThoseOfAPlainLoop) {
  for (const int64_t n : kSizes) {
    const auto logits = Logits(n);
    for (const float value : {-kTop, -20.0f, 0.0f, logits[n / 2], 13.0f}) {
      int64_t want = 0;
      for (const float logit : logits) want += logit > value ? 1 : 0;
      ASSERT_EQ(CountAbove(isa(), logits, value), want) << n << " " << value;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, SamplingTest, testing::ValuesIn(kAllIsas),
                         [](const auto& parameter) {
                           return std::string(ToString(parameter.param));
                         });

}  // namespace
}  // namespace sluice::kernels
