#ifndef SLUICE_COMMON_SAMPLING_LOGIT_CHANGES_H_
#define SLUICE_COMMON_SAMPLING_LOGIT_CHANGES_H_

#include <cstdint>
#include <limits>
#include <span>

#include "common/core/sampling_params.h"
#include "common/core/token_mask.h"
#include "common/sampling/token_counts.h"

namespace sluice {

// A logit that excludes its token.
inline constexpr float kMaskedLogit = -std::numeric_limits<float>::infinity();

// Steps 1 to 4 of sampler.h over a part of a row. Each step changes single
// tokens, none twice, so that several threads may change parts of a row.
struct LogitChanges {
  const SamplingParams& params;
  bool masks = false;                   // below min_tokens
  const TokenMask* mask = nullptr;      // null: all tokens are allowed
  const TokenCounts* counts = nullptr;  // null: without penalties

  bool any() const {
    return masks || mask != nullptr || counts != nullptr ||
           !params.logit_bias.empty();
  }
  // `logits` begins with token `first`.
  void Apply(TokenId first, std::span<float> logits) const;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_SAMPLING_LOGIT_CHANGES_H_
