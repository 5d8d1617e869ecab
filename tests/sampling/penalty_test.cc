// Bias and penalties against the formulas of sampler.h in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/sampling/sampler.h"

namespace sluice {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();
constexpr int32_t kPrompt = 5;

// sampler.h's steps 1, 3 and 4, counted anew for every token.
std::vector<double> Reference(const std::vector<float>& logits,
                              const SamplingParams& params,
                              const std::vector<TokenId>& history) {
  std::vector<double> out(logits.begin(), logits.end());
  for (const LogitBias& entry : params.logit_bias) {
    out[entry.token] += entry.bias;
  }
  for (size_t token = 0; token < out.size(); ++token) {
    const auto id = static_cast<TokenId>(token);
    const auto all = std::count(history.begin(), history.end(), id);
    const auto made = std::count(history.begin() + kPrompt, history.end(), id);
    const double r = all > 0 ? params.repetition_penalty : 1.0;
    out[token] = out[token] > 0 ? out[token] / r : out[token] * r;
    out[token] -= params.frequency_penalty * static_cast<double>(made);
    out[token] -= made > 0 ? params.presence_penalty : 0.0f;
  }
  return out;
}

TokenId DrawAfter(const std::vector<float>& logits,
                  const SamplingParams& params,
                  const std::vector<TokenId>& history, int32_t position = 0) {
  const auto drawn = Sample(logits, params, {position, history, kPrompt});
  EXPECT_TRUE(drawn.ok()) << drawn.status();
  return drawn.ok() ? drawn->token : -1;
}

SamplingParams Some(std::mt19937& random, int vocab) {
  const auto uniform = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  SamplingParams params;
  params.temperature = 0;
  if (random() % 2) params.frequency_penalty = uniform(-2, 2);
  if (random() % 2) params.presence_penalty = uniform(-2, 2);
  if (random() % 2) params.repetition_penalty = uniform(0.5f, 2);
  for (int token = 0; random() % 2 && token < vocab; ++token) {
    if (random() % 4 == 0) params.logit_bias.push_back({token, uniform(-3, 3)});
  }
  return params;
}

TEST(PenaltyTest, TheLargestLogitIsThatOfADoubleReference) {
  constexpr int kVocab = 24;
  std::mt19937 random(5);
  int compared = 0;
  for (int round = 0; round < 2000; ++round) {
    const SamplingParams params = Some(random, kVocab);
    std::vector<float> logits(kVocab);
    for (float& logit : logits) {
      logit = std::normal_distribution<float>(0, 2)(random);
    }
    std::vector<TokenId> history(kPrompt + random() % 40);
    for (TokenId& token : history) token = random() % kVocab;
    std::vector<double> expected = Reference(logits, params, history);
    const auto best = std::max_element(expected.begin(), expected.end());
    const auto id = static_cast<TokenId>(best - expected.begin());
    const double top = *best;
    *best = -1e30;
    // Within F32's rounding of its rival nothing can be said.
    if (top - *std::max_element(expected.begin(), expected.end()) < 1e-4) {
      continue;
    }
    ++compared;
    ASSERT_EQ(DrawAfter(logits, params, history), id) << "round " << round;
  }
  EXPECT_GT(compared, 1900);
}

TEST(PenaltyTest, DrawsFollowTheSoftmaxOfTheReference) {
  const std::vector<float> logits = {1.0f, 0.0f, 2.0f, -1.0f, 0.5f, 1.5f};
  const std::vector<TokenId> history = {0, 1, 1, 0, 3, 2, 2, 3, 5};
  constexpr int kRounds = 20000;
  constexpr double kLimit = 20.5;  // 99.9 %, five degrees
  SamplingParams frequency, presence, repetition, bias, all;
  frequency.frequency_penalty = all.frequency_penalty = 0.7f;
  presence.presence_penalty = all.presence_penalty = -0.9f;
  repetition.repetition_penalty = all.repetition_penalty = 1.8f;
  bias.logit_bias = all.logit_bias = {{1, 1.5f}, {2, -2.0f}};
  for (const SamplingParams& params :
       {frequency, presence, repetition, bias, all}) {
    std::vector<double> p = Reference(logits, params, history);
    double total = 0;
    for (double& value : p) total += value = std::exp(value);
    std::vector<int> counts(logits.size(), 0);
    for (int i = 0; i < kRounds; ++i)
      ++counts[DrawAfter(logits, params, history, i)];
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const double expected = kRounds * p[i] / total;
      sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    EXPECT_LT(sum, kLimit);
  }
}

TEST(PenaltyTest, RepetitionCountsThePromptAndTheOthersDoNot) {
  const std::vector<float> logits = {3, 2.5f, 0, 0};
  const std::vector<TokenId> in_prompt = {0, 2, 2, 2, 2, 3};
  SamplingParams params;
  params.temperature = 0;
  params.frequency_penalty = params.presence_penalty = 2;
  EXPECT_EQ(DrawAfter(logits, params, in_prompt), 0);
  params.repetition_penalty = 1.5f;
  EXPECT_EQ(DrawAfter(logits, params, in_prompt), 1);
}

TEST(PenaltyTest, CountsThatGrewEqualThoseOfTheWhole) {
  std::mt19937 random(9);
  std::vector<TokenId> history(kPrompt);
  for (TokenId& token : history) token = random() % 16;
  TokenCounts grown = TokenCounts::Of(history, kPrompt);
  SamplingParams params;
  params.frequency_penalty = 0.3f;
  params.presence_penalty = 0.4f;
  params.repetition_penalty = 1.2f;
  std::vector<float> logits(16);
  for (int32_t position = kPrompt; position < 100; ++position) {
    for (float& logit : logits) logit = static_cast<float>(random() % 8);
    ASSERT_EQ(grown, TokenCounts::Of(history, kPrompt));
    const auto kept =
        Sample(logits, params, {position, history, kPrompt, &grown});
    const auto counted = Sample(logits, params, {position, history, kPrompt});
    ASSERT_TRUE(kept.ok() && counted.ok());
    ASSERT_EQ(kept->token, counted->token);
    history.push_back(kept->token);
    grown.AddGenerated(kept->token);
  }
}

TEST(PenaltyTest, LogprobsStayThoseOfTheRawDistribution) {
  const std::vector<float> logits = {1, 2, 3, 0.5f};
  SamplingParams params;
  params.temperature = 0;
  params.logprobs = 2;
  params.logit_bias = {{0, 100}};
  params.presence_penalty = 2;
  const std::vector<TokenId> history = {1, 1, 1, 1, 1, 2};
  const auto drawn = Sample(logits, params, {6, history, kPrompt});
  ASSERT_TRUE(drawn.ok());
  EXPECT_EQ(drawn->token, 0);
  EXPECT_EQ(*drawn, *DescribeToken(logits, 0, 2));
}

TEST(PenaltyTest, ABiasDoesNotBringBackWhatIsExcluded) {
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{1, 100}, {2, 100}};
  params.min_tokens = 3;
  params.stop_token_ids = {1};
  const std::vector<TokenId> history(kPrompt, 0);
  EXPECT_EQ(DrawAfter({5, 5, kExcluded, 1}, params, history), 0);
  params.min_tokens = 0;
  EXPECT_EQ(DrawAfter({5, 5, kExcluded, 1}, params, history), 1);
}

TEST(PenaltyTest, ExtremesStayFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  SamplingParams params;
  params.repetition_penalty = kMinRepetitionPenalty;
  params.frequency_penalty = -2;
  params.logit_bias = {{0, 100}};
  const std::vector<TokenId> history = {0, 1, 2, 0, 0, 1, 1};
  EXPECT_EQ(DrawAfter({kMax, -kMax, 0, 1}, params, history), 0);
  params.repetition_penalty = kMaxRepetitionPenalty;
  params.temperature = 0;
  EXPECT_EQ(DrawAfter({-kMax, -kMax, kExcluded, kExcluded}, params, history),
            0);
}

TEST(PenaltyTest, NeutralValuesChangeNoDraw) {
  const std::vector<float> logits = {0.1f, 0.2f, 0.3f, 0.25f};
  const std::vector<TokenId> history = {0, 1, 2, 3, 0, 1, 1};
  SamplingParams plain, biased;
  biased.logit_bias = {{2, 0}};
  for (int32_t position = 0; position < 200; ++position) {
    EXPECT_EQ(DrawAfter(logits, plain, history, position),
              DrawAfter(logits, biased, history, position));
  }
}

}  // namespace
}  // namespace sluice
