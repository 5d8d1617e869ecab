#include "common/sampling/logit_changes.h"

#include <algorithm>

namespace sluice {
namespace {

// Returns a changed logit, kept finite.
float Bounded(float logit) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return std::clamp(logit, -kMax, kMax);
}

float Penalized(const SamplingParams& params, float logit, int32_t generated) {
  // Both sides are computed, since branches are unpredictable here.
  const float less = logit / params.repetition_penalty;
  const float more = logit * params.repetition_penalty;
  const float repeated = Bounded(logit > 0 ? less : more);
  const float rarer =
      repeated - params.frequency_penalty * static_cast<float>(generated);
  const float penalized = Bounded(rarer - params.presence_penalty);
  return generated == 0 ? repeated : penalized;
}

// Excludes the tokens that the mask does not allow, from `first` on.
void Exclude(const TokenMask& mask, TokenId first, std::span<float> logits) {
  const TokenId last = first + static_cast<TokenId>(logits.size());
  const auto exclude = [&](TokenId begin, TokenId end) {
    begin = std::max(begin, first);
    end = std::min(end, last);
    if (begin >= end) return;
    std::fill_n(logits.begin() + (begin - first), end - begin, kMaskedLogit);
  };
  TokenId behind = 0;  // the end of the runs so far
  for (const TokenRun& run : mask.runs) {
    if (mask.excludes) {
      exclude(run.begin, run.end);
    } else {
      exclude(behind, run.begin);
    }
    behind = run.end;
  }
  if (!mask.excludes) exclude(behind, last);
}

}  // namespace

void LogitChanges::Apply(TokenId first, std::span<float> logits) const {
  // Returns the token's logit, or null if another part has it.
  const auto find = [&](TokenId token) {
    const auto at = static_cast<size_t>(token) - static_cast<size_t>(first);
    return at < logits.size() ? &logits[at] : nullptr;
  };
  for (const LogitBias& entry : params.logit_bias) {
    float* logit = find(entry.token);
    if (logit == nullptr || *logit == kMaskedLogit) continue;
    *logit = Bounded(*logit + entry.bias);
  }
  if (mask != nullptr) Exclude(*mask, first, logits);
  if (masks) {
    for (const TokenId id : params.stop_token_ids) {
      if (float* logit = find(id)) *logit = kMaskedLogit;
    }
  }
  if (counts == nullptr) return;
  for (const auto& [token, generated] : counts->entries()) {
    float* logit = find(token);
    if (logit == nullptr || *logit == kMaskedLogit) continue;
    *logit = Penalized(params, *logit, generated);
  }
}

}  // namespace sluice
