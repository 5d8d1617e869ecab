// A router of one token in one launch has the bits of its three operations.
#include "kernels/cuda/fast/norm_route.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/canonical/products.h"
#include "kernels/cuda/fast/norm.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

using Score = RouterRule::Score;

struct Routed {
  OwnedMatrix normed;
  OwnedMatrix logits;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  std::vector<ExpertGroup> groups;
  std::vector<int32_t> words;
  Routed(int64_t cols, const RouterRule& rule)
      : normed(1, cols),
        logits(1, rule.num_experts),
        ids(rule.per_token, -1),
        weights(rule.per_token, NAN),
        groups(rule.per_token),
        words(1 + 2 * rule.per_token, -1) {}
  RoutedRows to() {
    const auto k = static_cast<int64_t>(ids.size());
    return {
        ids.data(),
        weights.data(),
        {groups.data(), words.data(), words.data() + 1, words.data() + 1 + k}};
  }
  std::vector<float> all() const {
    std::vector<float> floats = normed.values();
    for (const std::vector<float>& more : {logits.values(), weights}) {
      floats.insert(floats.end(), more.begin(), more.end());
    }
    floats.insert(floats.end(), ids.begin(), ids.end());
    floats.insert(floats.end(), words.begin(), words.end());
    for (const ExpertGroup& group : groups) {
      for (const int32_t word : {group.expert, group.slot, group.slots}) {
        floats.push_back(static_cast<float>(word));
      }
    }
    return floats;
  }
};

void ExpectRouted(int64_t cols, const RouterRule& rule, bool finite = true) {
  SCOPED_TRACE(testing::Message()
               << cols << " columns, " << rule.num_experts << " experts");
  const int64_t n = rule.num_experts;
  auto values = RandomFloats(1, cols, 3.0f);
  if (!finite) values[cols / 2] = NAN;
  const OwnedMatrix x(1, cols, values);
  const auto norm = RandomFloats(2, cols);
  const OwnedWeight w(WeightType::kF32, n, cols, RandomFloats(3, n * cols));
  const auto bias = RandomFloats(4, n);
  const auto correction = RandomFloats(5, n, 0.2f);
  for (const bool plain : {false, true}) {
    const float* const b = plain ? nullptr : bias.data();
    const float* const c = plain ? nullptr : correction.data();
    const auto want = BothWays([&](Stream stream) {
      Routed to(cols, rule);
      TileRmsNorm(stream, x.view(), nullptr, norm.data(), 1e-5f,
                  to.normed.view());
      MatMul(stream, to.normed.view(), w.view(), b, to.logits.view());
      Route(stream, to.logits.view(), rule, c, to.to());
      return to.all();
    });
    const auto got = BothWays([&](Stream stream) {
      Routed to(cols, rule);
      uint32_t arrived = 0;
      for (int again = 0; again < 2; ++again) {
        EXPECT_TRUE(NormRoute(
            stream, {x.view(), norm.data(), 1e-5f, w.view(), b, rule, c,
                     to.normed.view(), to.logits.view(), to.to(), &arrived}));
        EXPECT_EQ(arrived, 0u);
      }
      return to.all();
    });
    EXPECT_TRUE(SameBits(got, want));
  }
}

TEST(NormRouteTest, HasTheBitsOfItsOperations) {
  for (const int64_t cols : {32, 196, 2048, 2052, 2880, 4100}) {
    ExpectRouted(cols, {Score::kSoftmaxOfSelected, 32, 4, 1, 1, false, 1.0f});
  }
  for (const int32_t n : {1, 2, 31, 33, 160, 256}) {
    for (const Score score : {Score::kSigmoid, Score::kSoftmax}) {
      ExpectRouted(64, {score, n, n < 8 ? 1 : 8, 1, 1, true, 2.5f});
    }
  }
}

TEST(NormRouteTest, RowsThatAreNotFiniteGiveIds) {
  ExpectRouted(64, {Score::kSigmoid, 40, 4, 1, 1, true, 1.0f}, false);
  ExpectRouted(64, {Score::kSoftmaxOfSelected, 32, 4, 1, 1, true, 1.0f}, false);
}

TEST(NormRouteTest, WhatDoesNotFitIsLeft) {
  const auto starts = [](int64_t rows, int64_t cols, const RouterRule& rule,
                         size_t shared, bool asked = true) {
    Machine machine(Schedule::kForward);
    MachineLimits limits = {shared, 1};
    if (!asked) limits.asked.Remove(Unconfirmed::kNormRoute);
    machine.Limit(limits);
    const OwnedMatrix x(rows, cols, RandomFloats(1, rows * cols));
    const auto norm = RandomFloats(2, cols);
    const OwnedWeight w(WeightType::kF32, rule.num_experts, cols,
                        RandomFloats(3, rule.num_experts * cols));
    OwnedMatrix normed(rows, cols);
    OwnedMatrix logits(rows, rule.num_experts);
    std::vector<int32_t> ids(rows * rule.per_token);
    std::vector<float> weights(rows * rule.per_token);
    uint32_t arrived = 0;
    return NormRoute(&machine, {x.view(),
                                norm.data(),
                                1e-5f,
                                w.view(),
                                nullptr,
                                rule,
                                nullptr,
                                normed.view(),
                                logits.view(),
                                {ids.data(), weights.data(), {}},
                                &arrived});
  };
  const RouterRule rule = {Score::kSigmoid, 8, 2, 1, 1, true, 1.0f};
  constexpr size_t kShared = 227 * 1024;
  EXPECT_TRUE(starts(1, 64, rule, kShared));
  EXPECT_FALSE(starts(2, 64, rule, kShared));
  EXPECT_FALSE(starts(1, 62, rule, kShared));
  EXPECT_FALSE(starts(1, 8196, rule, kShared));
  EXPECT_FALSE(starts(1, 4096, rule, 48 * 1024));
  EXPECT_FALSE(
      starts(1, 64, {Score::kSigmoid, 8, 2, 4, 2, true, 1.0f}, kShared));
  EXPECT_FALSE(
      starts(1, 64, {Score::kSigmoid, 257, 2, 1, 1, true, 1.0f}, kShared));
  EXPECT_FALSE(
      starts(1, 64, {Score::kSigmoid, 64, 33, 1, 1, true, 1.0f}, kShared));
  EXPECT_FALSE(starts(1, 64, rule, kShared, /*asked=*/false));
}

}  // namespace
}  // namespace sluice::kernels::cuda
