#include "common/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/model/philox.h"
#include "kernels/context.h"
#include "kernels/logits.h"

namespace sluice {
namespace {

// Below this, temperature means greedy; 1 / temperature stays finite.
constexpr float kGreedyTemperature = 1e-5f;
// First guess of how many candidates top_p keeps.
constexpr int64_t kFirstCandidates = 64;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Sampling runs on one thread per row: several rows run side by side.
kernels::Context OneThread() {
  static const kernels::Isa isa = kernels::DetectIsa();
  return {nullptr, isa};
}

Status CheckLogits(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  bool finite = true;
  for (const float value : logits) finite &= value < kInfinity;
  if (finite) return OkStatus();
  const auto bad = std::find_if(logits.begin(), logits.end(),
                                [](float v) { return !(v < kInfinity); });
  return Internal("logit of token ", bad - logits.begin(), " is ", *bad);
}

struct Candidate {
  TokenId id = 0;
  float logit = 0;
};

// Most likely first, the lower id on ties: a total order, so whatever picks
// and sorts by it gives one result.
bool Likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The `count` likeliest of `all`, likeliest first. Reorders `all`.
void SortFront(std::vector<Candidate>& all, int64_t count) {
  const auto middle = all.begin() + count;
  if (count < static_cast<int64_t>(all.size())) {
    std::nth_element(all.begin(), middle, all.end(), Likelier);
  }
  std::sort(all.begin(), middle, Likelier);
}

class Drawing {
 public:
  Drawing(std::span<const float> logits, const SamplingParams& params)
      : params_(params), candidates_(logits.size()) {
    for (size_t i = 0; i < logits.size(); ++i) {
      candidates_[i] = {static_cast<TokenId>(i), logits[i]};
    }
    max_ = *std::max_element(logits.begin(), logits.end());
  }

  StatusOr<TokenId> Draw(double uniform) {
    if (max_ == kMasked) return Internal("every token is masked");
    TakeTopK();
    TakeTopP();
    const float least = params_.min_p;  // the largest weight is exactly 1
    double total = 0;
    for (const Candidate& c : candidates_) {
      const float weight = Weight(c);
      if (weight >= least) total += weight;
    }
    const double target = uniform * total;
    double sum = 0;
    TokenId last = 0;
    for (const Candidate& c : candidates_) {
      const float weight = Weight(c);
      if (weight < least || weight == 0) continue;
      sum += weight;
      last = c.id;
      if (sum > target) break;
    }
    return last;
  }

 private:
  float Weight(const Candidate& c) const {
    return kernels::Exp((c.logit - max_) / params_.temperature);
  }

  void TakeTopK() {
    const int64_t k = params_.top_k;
    if (k == 0 || k >= static_cast<int64_t>(candidates_.size())) return;
    SortFront(candidates_, k);
    candidates_.resize(k);
    sorted_ = k;
  }

  void TakeTopP() {
    if (params_.top_p >= 1.0f) return;
    const int64_t all = static_cast<int64_t>(candidates_.size());
    double total = 0;  // by rising id, or largest first after top_k
    for (const Candidate& c : candidates_) total += Weight(c);
    const double wanted = static_cast<double>(params_.top_p) * total;
    double sum = 0;
    for (int64_t i = 0; i < all; ++i) {
      if (i >= sorted_) GrowSorted(i + 1);
      sum += Weight(candidates_[i]);
      if (sum >= wanted) {
        candidates_.resize(i + 1);
        return;
      }
    }
    // Rounding kept the sum below the share of the whole: all stay.
  }

  // Makes the first `least` or more candidates stand in order.
  void GrowSorted(int64_t least) {
    const int64_t all = static_cast<int64_t>(candidates_.size());
    sorted_ = std::min(all, std::max({least, kFirstCandidates, sorted_ * 4}));
    SortFront(candidates_, sorted_);
  }

  const SamplingParams& params_;
  std::vector<Candidate> candidates_;
  int64_t sorted_ = 0;  // so many at the front stand in order
  float max_ = 0;
};

// A changed logit, kept finite.
float Bounded(float logit) {
  constexpr float kMost = std::numeric_limits<float>::max();
  return std::clamp(logit, -kMost, kMost);
}

void Penalize(const SamplingParams& params, const TokenCounts& counts,
              std::vector<float>& logits) {
  const float repetition = params.repetition_penalty;
  // Each token's logit depends on no other: any order will do.
  for (const auto& [token, generated] : counts.entries()) {
    float& logit = logits[token];
    if (logit == kMasked) continue;
    logit = Bounded(logit > 0 ? logit / repetition : logit * repetition);
    if (generated == 0) continue;
    logit -= params.frequency_penalty * static_cast<float>(generated);
    logit = Bounded(logit - params.presence_penalty);
  }
}

// The logits after bias, min_tokens and penalties; empty if they are the same.
std::vector<float> Adjust(std::span<const float> logits,
                          const SamplingParams& params,
                          const SamplingPoint& point) {
  const int64_t sampled =
      static_cast<int64_t>(point.history.size()) - point.num_prompt_tokens;
  const bool masks =
      sampled < params.min_tokens && !params.stop_token_ids.empty();
  const bool penalizes = NeedsTokenCounts(params);
  if (!masks && !penalizes && params.logit_bias.empty()) return {};
  std::vector<float> out(logits.begin(), logits.end());
  for (const LogitBias& entry : params.logit_bias) {
    float& logit = out[entry.token];
    if (logit != kMasked) logit = Bounded(logit + entry.bias);
  }
  if (masks) {
    for (const TokenId id : params.stop_token_ids) out[id] = kMasked;
  }
  if (penalizes && point.counts != nullptr) {
    Penalize(params, *point.counts, out);
  } else if (penalizes) {
    Penalize(params, TokenCounts::Of(point.history, point.num_prompt_tokens),
             out);
  }
  return out;
}

std::vector<Candidate> TopOf(std::span<const float> logits, int count) {
  std::vector<Candidate> top;
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate c = {static_cast<TokenId>(i), logits[i]};
    const bool full = top.size() == static_cast<size_t>(count);
    if (full && !Likelier(c, top.back())) continue;
    if (full) top.pop_back();
    top.insert(std::upper_bound(top.begin(), top.end(), c, Likelier), c);
  }
  return top;
}

}  // namespace

StatusOr<TokenResult> DescribeToken(std::span<const float> logits,
                                    TokenId token, int num_top) {
  SLUICE_RETURN_IF_ERROR(CheckLogits(logits));
  TokenResult result;
  result.token = token;
  if (num_top < 0) return result;
  const float total = kernels::LogSumExp(OneThread(), logits);
  const Candidate own = {token, logits[token]};
  int32_t rank = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (Likelier({static_cast<TokenId>(i), logits[i]}, own)) ++rank;
  }
  result.logprob = TokenLogprob{token, own.logit - total, rank};
  if (num_top == 0) return result;
  for (const Candidate& c : TopOf(logits, num_top)) {
    result.top_logprobs.push_back(
        {c.id, c.logit - total,
         static_cast<int32_t>(result.top_logprobs.size())});
  }
  return result;
}

StatusOr<TokenResult> Sample(std::span<const float> logits,
                             const SamplingParams& params,
                             const SamplingPoint& point) {
  SLUICE_RETURN_IF_ERROR(CheckLogits(logits));
  const std::vector<float> adjusted = Adjust(logits, params, point);
  const std::span<const float> allowed =
      adjusted.empty() ? logits : std::span<const float>(adjusted);
  TokenId token = 0;
  if (params.temperature < kGreedyTemperature) {
    token = static_cast<TokenId>(kernels::ArgMax(OneThread(), allowed));
    if (allowed[token] == kMasked) return Internal("every token is masked");
  } else {
    const double uniform = UniformFor(params.seed, params.choice,
                                      static_cast<uint32_t>(point.position));
    SLUICE_ASSIGN_OR_RETURN(token, Drawing(allowed, params).Draw(uniform));
  }
  return DescribeToken(logits, token, params.logprobs);
}

}  // namespace sluice
