#include "common/model/token_counts.h"

namespace sluice {

TokenCounts TokenCounts::Of(std::span<const TokenId> history,
                            int32_t num_prompt_tokens) {
  TokenCounts counts;
  const auto prompt = static_cast<size_t>(num_prompt_tokens);
  for (const TokenId token : history.first(prompt)) {
    counts.entries_.try_emplace(token, 0);
  }
  for (const TokenId token : history.subspan(prompt)) {
    counts.AddGenerated(token);
  }
  return counts;
}

}  // namespace sluice
