#ifndef SLUICE_COMMON_MODEL_TOKEN_COUNTS_H_
#define SLUICE_COMMON_MODEL_TOKEN_COUNTS_H_

#include <cstdint>
#include <span>
#include <unordered_map>

#include "common/core/ids.h"

namespace sluice {

// How often each token of one sequence was generated, and which its prompt
// has: what penalties depend on. A function of the history alone: counts
// that grew with the sequence equal those that Of gives for the whole.
class TokenCounts {
 public:
  // The first `num_prompt_tokens` of `history` are the prompt.
  static TokenCounts Of(std::span<const TokenId> history,
                        int32_t num_prompt_tokens);

  void AddGenerated(TokenId token) { ++entries_[token]; }

  // Every token of the history with the number of times that it was
  // generated; 0: it occurs in the prompt alone. In no order.
  const std::unordered_map<TokenId, int32_t>& entries() const {
    return entries_;
  }

  bool operator==(const TokenCounts&) const = default;

 private:
  std::unordered_map<TokenId, int32_t> entries_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_TOKEN_COUNTS_H_
