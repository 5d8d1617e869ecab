#ifndef SLUICE_COMMON_CORE_TOKEN_MASK_H_
#define SLUICE_COMMON_CORE_TOKEN_MASK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"

namespace sluice {

// Token ids [begin, end).
struct TokenRun {
  TokenId begin = 0;
  TokenId end = 0;
  bool operator==(const TokenRun&) const = default;
};

// The tokens that may be sampled at one position.
struct TokenMask {
  std::vector<TokenRun> runs;  // rising; none is empty, none overlap or touch
  bool excludes = false;       // all tokens but those of `runs` are allowed
  bool operator==(const TokenMask&) const = default;
};

// The most runs of all masks of a plan together. A mask within a string has
// about 20,000 in a vocabulary of 128 k tokens.
inline constexpr size_t kMaxMaskRuns = 1 << 20;

// INVALID_ARGUMENT unless the runs are as above, within the vocabulary, and
// allow a token.
Status Validate(const TokenMask& mask, int32_t vocab_size);

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_TOKEN_MASK_H_
