#include "kernels/cuda/shared/route.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/shared/expert_plan.h"
#include "kernels/route.h"
#include "tests/kernels/cuda/both_ways.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {
namespace {

using Score = RouterRule::Score;

// The weights, and behind them the ids.
std::vector<float> Together(const std::vector<int32_t>& ids,
                            std::vector<float> weights) {
  weights.insert(weights.end(), ids.begin(), ids.end());
  return weights;
}

void ExpectSameRouting(const std::vector<float>& logits, const RouterRule& rule,
                       const float* correction) {
  SCOPED_TRACE(testing::Message() << rule.num_experts << " experts");
  const auto tokens = static_cast<int64_t>(logits.size()) / rule.num_experts;
  const OwnedMatrix input(tokens, rule.num_experts, logits);
  const auto asks = static_cast<size_t>(tokens * rule.per_token);
  std::vector<int32_t> ids(asks);
  std::vector<float> weights(asks);
  kernels::Route({}, input.view(), rule, correction, ids.data(),
                 weights.data());
  const auto got = BothWays([&](Stream stream) {
    std::vector<int32_t> own(asks, -1);
    std::vector<float> own_weights(asks, NAN);
    Route(stream, input.view(), rule, correction,
          {own.data(), own_weights.data(), {}});
    return Together(own, own_weights);
  });
  EXPECT_TRUE(SameBits(got, Together(ids, weights)));
}

TEST(CudaRouteTest, HasTheCpusIdsAndWeights) {
  const RouterRule rules[] = {
      {Score::kSigmoid, 160, 8, 1, 1, true, 2.5f},
      {Score::kSigmoid, 16, 4, 4, 2, true, 2.5f},
      {Score::kSigmoid, 24, 3, 3, 1, false, 1.0f},
      {Score::kSigmoid, 66, 5, 33, 4, true, 0.5f},
      {Score::kSoftmax, 128, 8, 1, 1, true, 1.0f},
      {Score::kSoftmax, 33, 2, 1, 1, false, 1.0f},
      {Score::kSoftmax, 15, 15, 1, 1, true, 1.0f},
      {Score::kSoftmaxOfSelected, 32, 4, 1, 1, false, 1.0f},
      {Score::kSoftmaxOfSelected, 70, 64, 1, 1, false, 1.5f},
      {Score::kSoftmaxOfSelected, 40, 32, 1, 1, false, 1.5f},
      {Score::kSigmoid, 40, 33, 1, 1, true, 1.5f},
      {Score::kSigmoid, 1, 1, 1, 1, true, 1.0f},
  };
  for (const RouterRule& rule : rules) {
    const int32_t n = rule.num_experts;
    const auto logits = RandomFloats(31, 3 * n, 4.0f);
    const auto correction = RandomFloats(32, n, 0.2f);
    ExpectSameRouting(logits, rule, correction.data());
    ExpectSameRouting(logits, rule, nullptr);
  }
}

// A lane's experts, in registers and beyond.
TEST(CudaRouteTest, ExpertsOfEveryNumberOfRegistersAreChosen) {
  for (const int32_t n : {31, 32, 33, 64, 127, 128, 129, 160, 256, 257}) {
    const auto logits = RandomFloats(33, 2 * n, 4.0f);
    const auto correction = RandomFloats(34, n, 0.2f);
    for (const int32_t k : {1, 4, 9, 31}) {
      for (const Score score :
           {Score::kSigmoid, Score::kSoftmax, Score::kSoftmaxOfSelected}) {
        ExpectSameRouting(logits, {score, n, k, 1, 1, true, 1.5f},
                          correction.data());
      }
    }
  }
}

TEST(CudaRouteTest, ZerosOfBothSignsAreEqual) {
  std::vector<float> logits(70, -1.0f);
  for (const int e : {3, 35, 50, 69}) logits[e] = 0.0f;
  for (const int e : {2, 34, 36, 66}) logits[e] = -0.0f;
  ExpectSameRouting(logits, {Score::kSoftmaxOfSelected, 70, 5, 1, 1, true, 1},
                    nullptr);
  ExpectSameRouting(logits, {Score::kSoftmax, 70, 5, 1, 1, true, 1}, nullptr);
}

TEST(CudaRouteTest, InfiniteLogitsHaveTheCpusIdsAndWeights) {
  std::vector<float> logits = RandomFloats(35, 40);
  logits[7] = -INFINITY;
  logits[39] = INFINITY;
  ExpectSameRouting(logits, {Score::kSigmoid, 40, 40, 1, 1, true, 1}, nullptr);
  ExpectSameRouting(logits, {Score::kSigmoid, 40, 32, 1, 1, true, 1}, nullptr);
  logits[39] = 1.0f;
  ExpectSameRouting(logits, {Score::kSoftmax, 40, 32, 1, 1, true, 1}, nullptr);
}

struct OwnedPlan {
  std::vector<ExpertGroup> groups;
  std::vector<int32_t> num_groups;
  std::vector<int32_t> slots;
  std::vector<int32_t> rows;
  explicit OwnedPlan(size_t pairs)
      : groups(pairs, {-1, -1, -1}),
        num_groups(1, -1),
        slots(pairs, -2),
        rows(pairs, -2) {}
  ExpertPlan view() {
    return {groups.data(), num_groups.data(), slots.data(), rows.data()};
  }
  std::vector<int32_t> all() const {
    std::vector<int32_t> words = num_groups;
    words.insert(words.end(), slots.begin(), slots.end());
    words.insert(words.end(), rows.begin(), rows.end());
    for (const ExpertGroup& group : groups) {
      for (const int32_t word : {group.expert, group.slot, group.slots}) {
        words.push_back(word);
      }
    }
    return words;
  }
};

TEST(CudaRouteTest, ATokensPlanIsThatOfItsIds) {
  for (const int32_t n : {32, 40, 160, 300}) {
    for (const int32_t k : {1, 4, 32}) {
      std::vector<float> logits = RandomFloats(36, n, 4.0f);
      for (const bool numbers : {true, false}) {
        if (!numbers) logits[5] = NAN;
        const OwnedMatrix input(1, n, logits);
        BothWays([&](Stream stream) {
          OwnedPlan got(k);
          std::vector<int32_t> ids(k);
          std::vector<float> weights(k);
          Route(stream, input.view(),
                {Score::kSoftmaxOfSelected, n, k, 1, 1, true, 1}, nullptr,
                {ids.data(), weights.data(), got.view()});
          OwnedPlan want(k);
          PlanExperts(stream, {ids.data(), k, k, 0, n, 8, want.view()});
          EXPECT_EQ(got.all(), want.all());
          return std::vector<float>(ids.begin(), ids.end());
        });
      }
    }
  }
}

TEST(CudaRouteTest, EqualChoicesGoToTheLowerId) {
  for (const Score score :
       {Score::kSigmoid, Score::kSoftmax, Score::kSoftmaxOfSelected}) {
    std::vector<float> logits(100, 0.5f);
    for (const int e : {40, 71, 99}) logits[e] = 2.0f;
    ExpectSameRouting(logits, {score, 100, 6, 1, 1, true, 1.0f}, nullptr);
    ExpectSameRouting(logits, {score, 100, 6, 10, 3, true, 1.0f}, nullptr);
  }
}

TEST(CudaRouteTest, LogitsThatAreNoNumbersGiveIdsAndWeightsOfNaN) {
  const RouterRule rule = {Score::kSigmoid, 40, 4, 1, 1, true, 1.0f};
  const OwnedMatrix input(1, 40, std::vector<float>(40, NAN));
  BothWays([&](Stream stream) {
    std::vector<int32_t> ids(4, -1);
    std::vector<float> weights(4);
    Route(stream, input.view(), rule, nullptr,
          {ids.data(), weights.data(), {}});
    EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 2, 3}));
    for (const float weight : weights) EXPECT_TRUE(std::isnan(weight));
    return std::vector<float>(ids.begin(), ids.end());
  });
}

}  // namespace
}  // namespace sluice::kernels::cuda
