#ifndef SLUICE_COMMON_SAMPLING_TOKEN_COUNTS_H_
#define SLUICE_COMMON_SAMPLING_TOKEN_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/core/ids.h"

namespace sluice {

// The number of times that each token of one sequence was generated, and the
// prompt's tokens: the input of penalties. A function of the history: counts
// that grow with the sequence equal those of the whole.
class TokenCounts {
 public:
  struct Entry {
    TokenId token = 0;
    int32_t generated = 0;  // 0: in the prompt alone
    bool operator==(const Entry&) const = default;
  };

  // Counts `history`, whose first `num_prompt_tokens` are the prompt.
  static TokenCounts Of(std::span<const TokenId> history,
                        int32_t num_prompt_tokens);

  void AddGenerated(TokenId token) { ++EntryOf(token).generated; }

  // Returns every token of the history, by first occurrence, as one array: each
  // draw reads all of them.
  std::span<const Entry> entries() const { return entries_; }

  bool operator==(const TokenCounts& other) const {
    return entries_ == other.entries_;
  }

 private:
  Entry& EntryOf(TokenId token);

  std::vector<Entry> entries_;
  std::unordered_map<TokenId, size_t> places_;  // index in entries_
};

}  // namespace sluice

#endif  // SLUICE_COMMON_SAMPLING_TOKEN_COUNTS_H_
