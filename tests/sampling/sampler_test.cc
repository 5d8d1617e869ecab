#include "common/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "common/sampling/philox.h"

namespace sluice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TokenId Draw(const std::vector<float>& logits, const SamplingParams& params,
             int32_t position = 0, int32_t num_sampled = 0) {
  const std::vector<TokenId> history(num_sampled + 1, 0);
  const auto drawn = Sample(logits, params, {position, history, 1});
  EXPECT_TRUE(drawn.ok()) << drawn.status();
  return drawn.ok() ? drawn->token : -1;
}

// Counts of `draws` tokens drawn at consecutive positions.
std::vector<int> Histogram(const std::vector<float>& logits,
                           const SamplingParams& params, int draws) {
  std::vector<int> counts(logits.size(), 0);
  for (int position = 0; position < draws; ++position) {
    ++counts[Draw(logits, params, position)];
  }
  return counts;
}

std::vector<double> Softmax(const std::vector<float>& logits,
                            double temperature) {
  std::vector<double> p;
  for (float logit : logits) p.push_back(std::exp(logit / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= total;
  return p;
}

double ChiSquare(const std::vector<int>& counts, const std::vector<double>& p,
                 int draws) {
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i;
      continue;
    }
    const double expected = p[i] * draws;
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

const std::vector<float> kLogits = {1.0f, 0.0f, 2.0f, -1.0f, 0.5f, 1.5f};
constexpr int kDraws = 20000;
// The 99.9 % point of chi-square with five degrees of freedom.
constexpr double kChiSquareLimit = 20.5;

TEST(PhiloxTest, GivesThePublishedVectors) {
  // Known answers of the authors' Random123 (philox4x32, 10 rounds).
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, SeedChoiceAndPositionEachGiveAnotherNumber) {
  const double base = UniformFor(1, 2, 3);
  EXPECT_EQ(base, UniformFor(1, 2, 3));
  EXPECT_NE(base, UniformFor(2, 2, 3));
  EXPECT_NE(base, UniformFor(uint64_t{1} << 32 | 1, 2, 3));
  EXPECT_NE(base, UniformFor(1, 3, 3));
  EXPECT_NE(base, UniformFor(1, 2, 4));
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_GE(UniformFor(9, 0, i), 0.0);
    EXPECT_LT(UniformFor(9, 0, i), 1.0);
  }
}

TEST(SamplerTest, TemperatureZeroTakesTheLargestAndTheLowerIdOnTies) {
  SamplingParams params;
  params.temperature = 0;
  EXPECT_EQ(Draw({1, 3, 2, 3}, params), 1);
  EXPECT_EQ(Draw({-kInfinity, -5}, params), 1);
}

TEST(SamplerTest, DrawsFollowTheSoftmaxAtTheTemperature) {
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    SamplingParams params;
    params.temperature = temperature;
    params.seed = 11;
    EXPECT_LT(ChiSquare(Histogram(kLogits, params, kDraws),
                        Softmax(kLogits, temperature), kDraws),
              kChiSquareLimit);
  }
}

TEST(SamplerTest, TopKKeepsTheKLargestAndRenormalises) {
  SamplingParams params;
  params.top_k = 3;
  params.seed = 12;
  std::vector<double> p = Softmax({1.0f, 2.0f, 1.5f}, 1);
  EXPECT_LT(ChiSquare(Histogram(kLogits, params, kDraws),
                      {p[0], 0, p[1], 0, 0, p[2]}, kDraws),
            kChiSquareLimit);
  params.top_k = 1;
  EXPECT_EQ(Histogram(kLogits, params, 100)[2], 100);
}

TEST(SamplerTest, TopKTiesGoToTheLowerIds) {
  SamplingParams params;
  params.top_k = 2;
  const auto counts = Histogram({1, 1, 1, 1}, params, 200);
  EXPECT_GT(counts[0], 0);
  EXPECT_GT(counts[1], 0);
  EXPECT_EQ(counts[2] + counts[3], 0);
}

TEST(SamplerTest, TopPKeepsTheShortestRunThatReachesIt) {
  // Shares 0.5, 0.3, 0.2: 0.5 is reached by the first alone.
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f),
                                     std::log(0.3f)};
  SamplingParams params;
  params.top_p = 0.49f;
  EXPECT_EQ(Histogram(logits, params, 200)[1], 200);
  params.top_p = 0.7f;
  const auto counts = Histogram(logits, params, kDraws);
  EXPECT_EQ(counts[0], 0);
  EXPECT_NEAR(counts[1], kDraws * 0.625, 300);
  params.top_p = 0.99f;
  EXPECT_GT(Histogram(logits, params, 200)[0], 0);
}

TEST(SamplerTest, TopPCountsTheShareWithinTopK) {
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f),
                                     std::log(0.3f)};
  SamplingParams params;
  params.top_k = 2;     // shares become 0.625 and 0.375
  params.top_p = 0.6f;  // reached by the first
  EXPECT_EQ(Histogram(logits, params, 200)[1], 200);
}

TEST(SamplerTest, TopPOverALargeFlatVocabularyKeepsItsShare) {
  const std::vector<float> logits(5000, 0.25f);
  SamplingParams params;
  params.top_p = 0.5f;
  TokenId largest = 0;
  for (int position = 0; position < 500; ++position) {
    largest = std::max(largest, Draw(logits, params, position));
  }
  EXPECT_LT(largest, 2500);  // ties: the lower ids are kept
  EXPECT_GT(largest, 2400);
}

TEST(SamplerTest, MinPKeepsWhatReachesItsShareOfTheLargest) {
  const std::vector<float> logits = {0.0f, std::log(0.5f), std::log(0.05f)};
  SamplingParams params;
  params.min_p = 0.1f;
  const auto counts = Histogram(logits, params, kDraws);
  EXPECT_NEAR(counts[0], kDraws * 2 / 3, 300);
  EXPECT_EQ(counts[2], 0);
  params.min_p = 1.0f;
  EXPECT_EQ(Histogram(logits, params, 100)[0], 100);
}

TEST(SamplerTest, TinyTemperatureIsGreedyAndSmallOneOverflowsNothing) {
  SamplingParams params;
  params.temperature = 1e-38f;
  EXPECT_EQ(Draw({50, 100, -100}, params), 1);
  params.temperature = 2e-5f;
  EXPECT_EQ(Draw({50, 100, -100}, params), 1);
}

TEST(SamplerTest, StopTokensAreExcludedBelowMinTokens) {
  SamplingParams params;
  params.temperature = 0;
  params.min_tokens = 2;
  params.stop_token_ids = {1};
  EXPECT_EQ(Draw({1, 3, 2}, params, 0, 0), 2);
  EXPECT_EQ(Draw({1, 3, 2}, params, 0, 1), 2);
  EXPECT_EQ(Draw({1, 3, 2}, params, 0, 2), 1);
}

TEST(SamplerTest, NanInfiniteAndAllMaskedLogitsAreAnInternalError) {
  const std::vector<TokenId> history = {0};
  for (float temperature : {0.0f, 1.0f}) {
    SamplingParams params;
    params.temperature = temperature;
    for (const std::vector<float>& bad :
         {std::vector<float>{1, NAN, 2}, std::vector<float>{1, kInfinity},
          std::vector<float>{-kInfinity, -kInfinity}}) {
      const auto drawn = Sample(bad, params, {1, history, 1});
      EXPECT_EQ(drawn.status().code(), StatusCode::kInternal);
    }
  }
}

TEST(SamplerTest, LogprobsAreOfTheRawDistribution) {
  SamplingParams params;
  params.temperature = 0.3f;
  params.top_k = 1;
  params.logprobs = 3;
  const std::vector<TokenId> history = {0};
  const auto drawn = Sample(kLogits, params, {1, history, 1});
  ASSERT_TRUE(drawn.ok());
  const auto p = Softmax(kLogits, 1);
  EXPECT_EQ(drawn->token, 2);
  EXPECT_NEAR(drawn->logprob->logprob, std::log(p[2]), 1e-6);
  EXPECT_EQ(drawn->logprob->rank, 0);
  ASSERT_EQ(drawn->top_logprobs.size(), 3u);
  const TokenId expected[] = {2, 5, 0};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(drawn->top_logprobs[i].token, expected[i]);
    EXPECT_EQ(drawn->top_logprobs[i].rank, i);
    EXPECT_NEAR(drawn->top_logprobs[i].logprob, std::log(p[expected[i]]), 1e-6);
  }
}

// The same floats as the top ones and a described token, in the order asked
// for.
TEST(SamplerTest, NamedTokensTakeThePlaceOfTheTopOnes) {
  SamplingParams params;
  params.temperature = 0;
  params.logprobs = 4;
  const std::vector<TokenId> history = {0};
  const auto top = Sample(kLogits, params, {1, history, 1});
  params.logprobs = 0;
  params.logprob_token_ids = {1, 5, 0};
  for (const float temperature : {0.0f, 0.7f}) {
    params.temperature = temperature;
    const auto drawn = Sample(kLogits, params, {1, history, 1});
    ASSERT_TRUE(top.ok() && drawn.ok());
    ASSERT_EQ(drawn->top_logprobs.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const TokenId token = params.logprob_token_ids[i];
      EXPECT_EQ(drawn->top_logprobs[i],
                *DescribeToken(kLogits, token, 0)->logprob);
    }
    EXPECT_EQ(drawn->top_logprobs[1], top->top_logprobs[1]);
    EXPECT_EQ(drawn->top_logprobs[2], top->top_logprobs[2]);
    EXPECT_EQ(*drawn->logprob,
              *DescribeToken(kLogits, drawn->token, 0)->logprob);
  }
}

TEST(SamplerTest, TopLogprobsOrderTiesByIdAndRankCountsThem) {
  const auto told = DescribeToken(std::vector<float>{1, 2, 1, 2, 1}, 2, 4);
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told->logprob->rank, 3);
  std::vector<TokenId> order;
  for (const auto& top : told->top_logprobs) order.push_back(top.token);
  EXPECT_EQ(order, (std::vector<TokenId>{1, 3, 0, 2}));
}

TEST(SamplerTest, NoLogprobsUnlessAskedFor) {
  const auto told = DescribeToken(kLogits, 1, -1);
  ASSERT_TRUE(told.ok());
  EXPECT_FALSE(told->logprob.has_value());
  EXPECT_TRUE(DescribeToken(kLogits, 1, 0)->top_logprobs.empty());
}

TEST(SamplerTest, AFilterThatKeepsEverythingStillDrawsTheSoftmax) {
  std::mt19937 random(3);
  std::vector<float> logits(300);
  for (float& logit : logits) logit = static_cast<float>(random() % 100) / 20;
  SamplingParams params;
  params.top_k = 300;  // off: as many as there are
  SamplingParams off;
  for (int position = 0; position < 300; ++position) {
    EXPECT_EQ(Draw(logits, params, position), Draw(logits, off, position));
  }
}

StatusOr<TokenResult> DrawMasked(const TokenMask& mask,
                                 const SamplingParams& params,
                                 int32_t position = 0) {
  static const std::vector<TokenId> history = {0};
  TokenTask task;
  task.logits = kLogits;
  task.params = &params;
  task.point = {position, history, 1};
  task.mask = &mask;
  return Sampler(kernels::Isa::kPortable).Run(task);
}

TEST(SamplerTest, AMaskLeavesItsTokensAlone) {
  SamplingParams params;
  params.temperature = 0;
  params.logprobs = 1;
  const auto all = Softmax(kLogits, 1);
  // Token 2 is the likeliest, then 5, 0, 4, 1, 3.
  const struct {
    TokenMask mask;
    TokenId drawn;
  } cases[] = {{{{{0, 6}}, false}, 2},
               {{{{0, 2}, {3, 6}}, false}, 5},
               {{{{0, 2}, {3, 5}}, false}, 0},
               {{{{3, 4}}, false}, 3},
               {{{{2, 3}}, true}, 5},
               {{{{0, 1}, {2, 6}}, true}, 1},
               {{{}, true}, 2}};
  for (const auto& c : cases) {
    const auto drawn = DrawMasked(c.mask, params);
    ASSERT_TRUE(drawn.ok()) << drawn.status();
    EXPECT_EQ(drawn->token, c.drawn);
    // Of the raw distribution: as if there were no mask.
    EXPECT_NEAR(drawn->logprob->logprob, std::log(all[c.drawn]), 1e-6);
    EXPECT_EQ(drawn->top_logprobs.at(0).token, 2);
  }
}

TEST(SamplerTest, AMaskedRowIsDrawnFromAsIfTheOthersWereNotThere) {
  SamplingParams params;
  params.seed = 5;
  const TokenMask mask = {{{1, 3}, {4, 5}}, false};
  std::vector<float> left(kLogits.size(), -kInfinity);
  for (const TokenId id : {1, 2, 4}) left[id] = kLogits[id];
  for (int position = 0; position < 200; ++position) {
    const auto drawn = DrawMasked(mask, params, position);
    ASSERT_TRUE(drawn.ok()) << drawn.status();
    EXPECT_EQ(drawn->token, Draw(left, params, position));
  }
}

// A bias moves an allowed token, and brings no other one back.
TEST(SamplerTest, AMaskComesBehindBiasesAndBeforePenalties) {
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{2, 100.0f}, {3, 50.0f}};
  EXPECT_EQ(DrawMasked({{{2, 3}}, true}, params)->token, 3);
  params.repetition_penalty = 100;
  EXPECT_EQ(DrawMasked({{{2, 4}}, true}, params)->token, 5);
}

TEST(SamplerTest, AMaskOfStopTokensAloneOverridesMinTokens) {
  SamplingParams params;
  params.min_tokens = 3;
  params.stop_token_ids = {4, 2};
  EXPECT_EQ(DrawMasked({{{4, 5}}, false}, params)->token, 4);
  EXPECT_EQ(DrawMasked({{{3, 5}}, false}, params)->token, 3);
}

}  // namespace
}  // namespace sluice
