#include "common/sampling/token_counts.h"

namespace sluice {

TokenCounts TokenCounts::Of(std::span<const TokenId> history,
                            int32_t num_prompt_tokens) {
  TokenCounts counts;
  const auto prompt = static_cast<size_t>(num_prompt_tokens);
  for (const TokenId token : history.first(prompt)) counts.EntryOf(token);
  for (const TokenId token : history.subspan(prompt)) {
    counts.AddGenerated(token);
  }
  return counts;
}

TokenCounts::Entry& TokenCounts::EntryOf(TokenId token) {
  const auto [at, is_new] = places_.try_emplace(token, entries_.size());
  if (is_new) entries_.push_back({token, 0});
  return entries_[at->second];
}

}  // namespace sluice
