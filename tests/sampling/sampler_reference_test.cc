// Draws against sampler.h's semantics in double, over a plain sort; and the
// same bits on every instruction set and however a row is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/sampling/philox.h"
#include "common/sampling/sampler.h"
#include "tests/testing/representative.h"

namespace sluice {
namespace {

using kernels::Isa;

constexpr int64_t kVocabularies[] = {1,   15,    16,     17,     255,   300,
                                     513, 49152, 128256, 151552, 201088};

std::vector<float> GaussianLogits(int64_t size, float deviation,
                                  uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> logit(-2, deviation);
  std::vector<float> logits(static_cast<size_t>(size));
  for (float& value : logits) value = logit(random);
  return logits;
}

// The tokens left by top_k, top_p and min_p, with their probabilities.
class DoubleReference {
 public:
  DoubleReference(const std::vector<float>& logits, double temperature)
      : logits_(logits), order_(logits.size()) {
    const double max = *std::max_element(logits.begin(), logits.end());
    for (const float logit : logits) {
      weights_.push_back(std::exp((double(logit) - max) / temperature));
    }
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
      return logits_[a] > logits_[b];
    });
  }

  // The cumulative probabilities by rising id; tokens that are out add
  // nothing. `slack` moves the bounds of top_p and min_p outwards.
  std::vector<double> Cumulative(const SamplingParams& params,
                                 double slack) const {
    std::vector<double> left(weights_.size(), 0.0);
    size_t count = order_.size();
    if (params.top_k > 0) {
      count = std::min(count, static_cast<size_t>(params.top_k));
    }
    double total = 0;
    for (size_t i = 0; i < count; ++i) total += weights_[order_[i]];
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      const double weight = weights_[order_[i]];
      if (params.top_p < 1 && sum >= (params.top_p + slack) * total) break;
      sum += weight;
      if (weight >= params.min_p * (1 - slack)) left[order_[i]] = weight;
    }
    std::partial_sum(left.begin(), left.end(), left.begin());
    for (double& value : left) value /= left.back();
    return left;
  }

 private:
  const std::vector<float>& logits_;
  std::vector<double> weights_;
  std::vector<size_t> order_;
};

SamplingParams Filters(float temperature, int32_t top_k, float top_p,
                       float min_p) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  params.seed = 21;
  return params;
}

// Each alone, together, and at their ends.
const std::vector<SamplingParams> kFilters = {
    Filters(1, 0, 1, 0),         Filters(0.7f, 0, 1, 0),
    Filters(2, 0, 1, 0),         Filters(1, 40, 1, 0),
    Filters(1, 1000, 1, 0),      Filters(1, 0, 0.95f, 0),
    Filters(1.5f, 0, 0.5f, 0),   Filters(1, 0, 0.9999f, 0),
    Filters(1, 0, 1, 0.05f),     Filters(1, 0, 1, 1e-35f),
    Filters(0.8f, 100, 0.9f, 0), Filters(0.9f, 50, 0.8f, 0.02f),
    Filters(1, 0, 0.9f, 0.01f),  Filters(1, 1, 1, 0),
    Filters(1, 0, 1e-9f, 0),     Filters(1, 0, 1, 1)};

StatusOr<TokenResult> DrawAt(Sampler& sampler, const std::vector<float>& logits,
                             const SamplingParams& params, int32_t position) {
  static const std::vector<TokenId> history = {0};
  const SamplingPoint point = {position, history, 1};
  return sampler.Run({.logits = logits, .params = &params, .point = point});
}

// A draw is the inverse of the cumulative distribution at the uniform number:
// that pins each token, not only frequencies.
TEST(SamplerReferenceTest, EveryDrawIsTheInverseOfTheDistributionInDouble) {
  Sampler sampler(kernels::DetectIsa());
  for (const int64_t size : kVocabularies) {
    for (const float deviation : {1.0f, 3.0f}) {
      if (deviation < 3 && size > 100000) continue;
      const auto logits = GaussianLogits(size, deviation);
      for (const SamplingParams& params : kFilters) {
        const DoubleReference reference(logits, params.temperature);
        const auto cdf = reference.Cumulative(params, 0);
        // Rounding may move the end of top_p by a token or two.
        const double bound = params.top_p < 1 ? 2e-3 : 4e-6;
        const auto widest = reference.Cumulative(params, 1e-5);
        for (int32_t position = 0; position < 40; ++position) {
          const auto drawn = DrawAt(sampler, logits, params, position);
          ASSERT_TRUE(drawn.ok()) << drawn.status();
          const TokenId id = drawn->token;
          const double u = UniformFor(params.seed, 0, position);
          const auto at = [&](const std::vector<double>& c, TokenId token) {
            return token < 0 ? 0.0 : c[token];
          };
          ASSERT_LE(at(cdf, id - 1), u + bound) << size << " " << position;
          ASSERT_GE(at(cdf, id), u - bound) << size << " " << position;
          ASSERT_GT(at(widest, id), at(widest, id - 1)) << "is left out";
        }
      }
    }
  }
}

TEST(SamplerReferenceTest, FiltersThatLeaveOneTokenAreGreedy) {
  SamplingParams greedy;
  greedy.temperature = 0;
  Sampler sampler(kernels::DetectIsa());
  for (const int64_t size : kVocabularies) {
    const auto logits = GaussianLogits(size, 3, 7);
    const auto want = DrawAt(sampler, logits, greedy, 0);
    for (const SamplingParams& params :
         {Filters(1, 1, 1, 0), Filters(2, 0, 1e-9f, 0), Filters(2, 0, 1, 1),
          Filters(1.1e-5f, 0, 1, 0), Filters(2, 1, 0.5f, 0.5f)}) {
      for (int32_t position = 0; position < 20; ++position) {
        EXPECT_EQ(*DrawAt(sampler, logits, params, position), *want) << size;
      }
    }
  }
}

TEST(SamplerReferenceTest, EqualLogitsAreKeptFromTheLowestIdOn) {
  Sampler sampler(kernels::DetectIsa());
  std::vector<float> logits(20000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = i % 2 ? 0.0f : -0.0f;
  for (const SamplingParams& params :
       {Filters(1, 5000, 1, 0), Filters(1, 0, 0.25f, 0),
        Filters(1, 10000, 0.5f, 1)}) {
    TokenId most = 0;
    for (int32_t position = 0; position < 2000; ++position) {
      const auto drawn = DrawAt(sampler, logits, params, position);
      most = std::max(most, drawn->token);
    }
    EXPECT_LT(most, 5000);
    EXPECT_GT(most, 4950);
  }
}

TEST(SamplerReferenceTest, EveryIsaAndEveryCutGivesTheSameBits) {
  std::vector<TokenId> history;
  for (TokenId i = 0; i < 60; ++i) history.push_back(i * i % 15);
  for (const int64_t size : kVocabularies) {
    const auto logits = GaussianLogits(size, 3, 2);
    Sampler plain(Isa::kPortable);
    for (SamplingParams params : kFilters) {
      params.logprobs = 5;
      if (params.top_k == 40) params.repetition_penalty = 1.3f;
      if (params.min_p > 0) params.frequency_penalty = 0.4f;
      const TokenTask task = {
          .logits = logits, .params = &params, .point = {60, history, 20}};
      if (size < 15) continue;  // the history's ids
      const auto want = plain.Run(task);
      ASSERT_TRUE(want.ok());
      for (const Isa isa :
           {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
        if (!kernels::HasIsa(isa)) continue;
        Sampler sampler(isa);
        for (const int parts : {1, 2, 3, 16}) {
          sampler.Begin(task);
          for (int i = parts - 1; i >= 0; --i) sampler.Scan(i, parts);
          for (int i = parts - 1; i >= 0; --i) sampler.Weigh(i, parts);
          const auto drawn = sampler.Finish();
          ASSERT_TRUE(drawn.ok());
          ASSERT_TRUE(*drawn == *want)
              << kernels::ToString(isa) << " " << size << " in " << parts;
        }
      }
    }
  }
}

// Chi-square over groups of tokens of about equal probability.
double GroupedChiSquare(const std::vector<double>& cdf,
                        const std::vector<TokenId>& drawn, int groups) {
  std::vector<double> expected(groups, 0), seen(groups, 0);
  const auto group_of = [&](size_t token) {
    const double middle = (cdf[token] + (token > 0 ? cdf[token - 1] : 0.0)) / 2;
    return std::min(groups - 1, static_cast<int>(middle * groups));
  };
  for (size_t i = 0; i < cdf.size(); ++i) {
    expected[group_of(i)] += cdf[i] - (i > 0 ? cdf[i - 1] : 0.0);
  }
  for (const TokenId token : drawn) ++seen[group_of(token)];
  double sum = 0;
  for (int g = 0; g < groups; ++g) {
    const double want = expected[g] * static_cast<double>(drawn.size());
    if (want > 0) sum += (seen[g] - want) * (seen[g] - want) / want;
  }
  return sum;
}

TEST(SamplerReferenceTest, DrawsOfALargeVocabularyFollowItsDistribution) {
  if (testing::OnlyQuick()) {
    GTEST_SKIP() << "80,000 draws: under sanitizers in the long mode alone";
  }
  constexpr int kGroups = 32;
  constexpr int kTokens = 20000;
  constexpr double kLimit = 61.1;  // 99.9 %, 31 degrees
  const auto logits = GaussianLogits(20000, 2);
  Sampler sampler(kernels::DetectIsa());
  for (const SamplingParams& params :
       {Filters(1, 0, 1, 0), Filters(1, 0, 0.9f, 0), Filters(1, 2000, 1, 0),
        Filters(1, 0, 1, 0.01f)}) {
    std::vector<TokenId> drawn;
    for (int32_t position = 0; position < kTokens; ++position) {
      drawn.push_back(DrawAt(sampler, logits, params, position)->token);
    }
    const DoubleReference reference(logits, params.temperature);
    EXPECT_LT(GroupedChiSquare(reference.Cumulative(params, 0), drawn, kGroups),
              kLimit);
    // The bound tells wrong samplers: of another temperature, or one whose
    // draw takes each token's neighbour.
    const DoubleReference warmer(logits, 1.1);
    auto of_others = warmer.Cumulative(Filters(1.1f, 0, 1, 0), 0);
    EXPECT_GT(GroupedChiSquare(of_others, drawn, kGroups), kLimit);
    for (TokenId& token : drawn) token = (token + 1) % 20000;
    EXPECT_GT(GroupedChiSquare(reference.Cumulative(params, 0), drawn, kGroups),
              kLimit);
  }
}

TEST(SamplerReferenceTest, LogprobsAreTheRawOnesWhateverTheDraw) {
  const auto logits = GaussianLogits(5000, 2, 5);
  Sampler sampler(kernels::DetectIsa());
  for (SamplingParams params : kFilters) {
    params.logprobs = 3;
    for (const float bias : {0.0f, 1.0f}) {
      if (bias > 0) params.logit_bias = {{17, bias}};
      for (int32_t position = 0; position < 5; ++position) {
        const auto drawn = DrawAt(sampler, logits, params, position);
        ASSERT_TRUE(drawn.ok());
        EXPECT_EQ(*drawn, *DescribeToken(logits, drawn->token, 3));
      }
    }
  }
}

TEST(SamplerReferenceTest, LogprobsAreCloseToDoubleForEveryVocabulary) {
  for (const int64_t size : kVocabularies) {
    const auto logits = GaussianLogits(size, 2, 4);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double(logit));
    const auto told = DescribeToken(logits, static_cast<TokenId>(size / 2), 20);
    ASSERT_TRUE(told.ok());
    EXPECT_NEAR(told->logprob->logprob, logits[size / 2] - std::log(sum), 3e-6);
    ASSERT_EQ(std::ssize(told->top_logprobs), std::min<int64_t>(size, 20));
    for (const TokenLogprob& top : told->top_logprobs) {
      EXPECT_NEAR(top.logprob, logits[top.token] - std::log(sum), 3e-6);
    }
  }
}

}  // namespace
}  // namespace sluice
