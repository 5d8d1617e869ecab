#ifndef SLUICE_COMMON_SAMPLING_TOKEN_COUNTS_H_
#define SLUICE_COMMON_SAMPLING_TOKEN_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/core/ids.h"

namespace sluice {

// How often each token of one sequence was generated, and which its prompt
// has: what penalties depend on. A function of the history alone: counts
// that grew with the sequence equal those that Of gives for the whole.
class TokenCounts {
 public:
  struct Entry {
    TokenId token = 0;
    int32_t generated = 0;  // 0: it occurs in the prompt alone
    bool operator==(const Entry&) const = default;
  };

  // The first `num_prompt_tokens` of `history` are the prompt.
  static TokenCounts Of(std::span<const TokenId> history,
                        int32_t num_prompt_tokens);

  void AddGenerated(TokenId token) { ++EntryOf(token).generated; }

  // Every token of the history, in the order of its first occurrence: a row
  // of neighbours, because each drawn token walks over all of them.
  std::span<const Entry> entries() const { return entries_; }

  bool operator==(const TokenCounts& other) const {
    return entries_ == other.entries_;
  }

 private:
  Entry& EntryOf(TokenId token);

  std::vector<Entry> entries_;
  std::unordered_map<TokenId, size_t> places_;  // in entries_
};

}  // namespace sluice

#endif  // SLUICE_COMMON_SAMPLING_TOKEN_COUNTS_H_
