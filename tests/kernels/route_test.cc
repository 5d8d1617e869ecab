#include "kernels/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "common/concurrency/thread_team.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels {
namespace {

using Score = RouterRule::Score;

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

class RouteTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!HasIsa(GetParam())) {
      GTEST_SKIP() << "this machine has no " << ToString(GetParam());
    }
  }
  Routed Run(const std::vector<float>& logits, const RouterRule& rule,
             const float* correction = nullptr, Executor* executor = nullptr) {
    const auto tokens = static_cast<int64_t>(logits.size()) / rule.num_experts;
    const OwnedMatrix input(tokens, rule.num_experts, logits);
    const auto asks = static_cast<size_t>(tokens * rule.per_token);
    Routed routed{std::vector<int32_t>(asks), std::vector<float>(asks)};
    Route({.executor = executor, .isa = GetParam()}, input.view(), rule,
          correction, routed.ids.data(), routed.weights.data());
    return routed;
  }
};

// The reference: one token in double precision, as the papers write it.
void InDouble(const float* logits, const RouterRule& rule,
              const float* correction, std::vector<int32_t>& ids,
              std::vector<double>& weights) {
  const int32_t n = rule.num_experts;
  std::vector<double> scores(logits, logits + n);
  if (rule.score == Score::kSigmoid) {
    for (double& s : scores) s = 1 / (1 + std::exp(-s));
  } else if (rule.score == Score::kSoftmax) {
    double sum = 0;
    for (double& s : scores) sum += s = std::exp(s);
    for (double& s : scores) s /= sum;
  }
  std::vector<double> choices = scores;
  for (int32_t e = 0; e < n && correction != nullptr; ++e) {
    choices[e] += double{correction[e]};
  }
  const int32_t size = n / rule.num_groups;
  std::vector<std::pair<double, int32_t>> groups;
  for (int32_t g = 0; g < rule.num_groups; ++g) {
    std::vector<double> own(choices.begin() + g * size,
                            choices.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    const double second = rule.group_best == 1 ? 0 : own[size > 1 ? 1 : 0];
    groups.push_back({-(own[0] + second), g});
  }
  std::sort(groups.begin(), groups.end());
  for (int32_t i = rule.groups_per_token; i < rule.num_groups; ++i) {
    std::fill_n(choices.begin() + groups[i].second * size, size, 0.0);
  }
  ids.resize(n);
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return choices[a] > choices[b];
  });
  ids.resize(rule.per_token);
  std::sort(ids.begin(), ids.end());
  weights.clear();
  for (int32_t e : ids) {
    const bool selected = rule.score == Score::kSoftmaxOfSelected;
    weights.push_back(selected ? std::exp(scores[e]) : scores[e]);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& w : weights) {
    if (rule.normalise || rule.score == Score::kSoftmaxOfSelected) w /= sum;
    w *= double{rule.scale};
  }
}

TEST_P(RouteTest, ChoosesAndWeighsAsInDouble) {
  const RouterRule rules[] = {
      {Score::kSigmoid, 160, 8, 1, 1, true, 2.5f},
      {Score::kSigmoid, 16, 4, 4, 2, true, 2.5f},
      {Score::kSigmoid, 24, 3, 3, 1, false, 1.0f},
      {Score::kSoftmax, 128, 8, 1, 1, true, 1.0f},
      {Score::kSoftmax, 8, 2, 1, 1, false, 1.0f},
      {Score::kSoftmax, 160, 6, 8, 3, false, 16.0f, 1},
      {Score::kSoftmaxOfSelected, 32, 4, 1, 1, false, 1.0f},
      {Score::kSoftmaxOfSelected, 5, 5, 1, 1, false, 1.0f},
      {Score::kSigmoid, 1, 1, 1, 1, true, 1.0f},
  };
  const int64_t tokens = 50;
  for (const RouterRule& rule : rules) {
    const int32_t n = rule.num_experts;
    const auto logits = RandomFloats(21, tokens * n, 4.0f);
    const auto correction = RandomFloats(22, n, 0.2f);
    const bool corrected = rule.score == Score::kSigmoid;
    const float* bias = corrected ? correction.data() : nullptr;
    const Routed routed = Run(logits, rule, bias);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<int32_t> ids;
      std::vector<double> weights;
      InDouble(logits.data() + t * n, rule, bias, ids, weights);
      for (int32_t j = 0; j < rule.per_token; ++j) {
        const int64_t at = t * rule.per_token + j;
        ASSERT_EQ(routed.ids[at], ids[j]) << n << " experts, token " << t;
        // Score, sum over the chosen, division and scale.
        ASSERT_NEAR(routed.weights[at], weights[j],
                    weights[j] * (0x1p-20 + Gamma(n + rule.per_token)));
      }
    }
  }
}

TEST_P(RouteTest, EveryIsaTeamAndBatchGivesTheSameBits) {
  ThreadTeam team({.num_threads = 3});
  const RouterRule rule = {Score::kSigmoid, 160, 8, 1, 1, true, 2.5f};
  const int64_t tokens = 700;
  const auto logits = RandomFloats(23, tokens * 160, 4.0f);
  const auto bias = RandomFloats(24, 160, 0.2f);
  const Routed all = Run(logits, rule, bias.data());
  const Routed teamed = Run(logits, rule, bias.data(), &team);
  EXPECT_EQ(teamed.ids, all.ids);
  EXPECT_TRUE(SameBits(teamed.weights, all.weights));
  const Routed one =
      Run({logits.begin() + 160, logits.begin() + 320}, rule, bias.data());
  const std::vector<float> of_all(all.weights.begin() + 8,
                                  all.weights.begin() + 16);
  EXPECT_TRUE(SameBits(one.weights, of_all));
  const OwnedMatrix input(tokens, 160, logits);
  Routed portable{std::vector<int32_t>(all.ids.size()),
                  std::vector<float>(all.ids.size())};
  Route({}, input.view(), rule, bias.data(), portable.ids.data(),
        portable.weights.data());
  EXPECT_EQ(portable.ids, all.ids);
  EXPECT_TRUE(SameBits(portable.weights, all.weights));
}

TEST_P(RouteTest, TheCorrectionSelectsAndDoesNotWeigh) {
  const RouterRule rule = {Score::kSigmoid, 4, 1, 1, 1, false, 1.0f};
  const std::vector<float> logits = {2, 1, 0, -1};
  const float correction[] = {0, 0, 0, 5};
  const Routed routed = Run(logits, rule, correction);
  EXPECT_EQ(routed.ids[0], 3);
  EXPECT_NEAR(routed.weights[0], 1 / (1 + std::exp(1.0)), 1e-6);
}

TEST_P(RouteTest, TiesGoToTheLowerIdAndMaskedGroupsCountAsZero) {
  const RouterRule tied = {Score::kSoftmax, 6, 3, 1, 1, true, 1.0f};
  EXPECT_EQ(Run({1, 2, 2, 2, 2, 1}, tied).ids, (std::vector<int32_t>{1, 2, 3}));
  // Group 1 is kept; its worst choice is below 0, where masked experts are.
  const RouterRule grouped = {Score::kSigmoid, 4, 2, 2, 1, false, 1.0f};
  const float correction[] = {0, 0, 1, -3};
  const float kept_alone[] = {0, 0, 9, -3};
  EXPECT_EQ(Run({0, 0, 0, 0}, grouped, correction).ids,
            (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(Run({0, 0, 0, 0}, grouped, kept_alone).ids,
            (std::vector<int32_t>{0, 2}));
}

TEST_P(RouteTest, NanLogitsGiveDistinctIdsAndNanWeights) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Score score :
       {Score::kSigmoid, Score::kSoftmax, Score::kSoftmaxOfSelected}) {
    const RouterRule rule = {score, 8, 3, 1, 1, true, 1.0f};
    const Routed routed = Run(std::vector<float>(8, nan), rule);
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{0, 1, 2}));
    for (float weight : routed.weights) EXPECT_TRUE(std::isnan(weight));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, RouteTest, testing::ValuesIn(kAllIsas),
                         [](const auto& tested) {
                           return std::string(ToString(tested.param));
                         });

}  // namespace
}  // namespace sluice::kernels
