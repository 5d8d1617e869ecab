#include "common/engine/request_check.h"

#include <algorithm>

#include "common/core/kv_groups.h"

namespace sluice {

int64_t MaxPositions(const PlanLimits& limits) {
  const auto fits = [&](int64_t blocks) {
    int64_t held = 0;
    for (int32_t g = 0; g < limits.num_kv_groups; ++g) {
      held += MostBlocks(limits.kv_window(g),
                         static_cast<int32_t>(blocks) * kBlockTokens,
                         limits.max_step_tokens);
    }
    return held <= limits.num_blocks;
  };
  constexpr int64_t kMost = int64_t{1} << 26;  // positions are of 32 bits
  int64_t low = 0;                             // fits
  int64_t high = std::min<int64_t>(limits.num_blocks, kMost) + 1;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low * kBlockTokens;
}

Status CheckFits(int64_t num_prompt_tokens, int64_t max_tokens,
                 const PlanLimits& limits) {
  if (num_prompt_tokens + max_tokens > limits.max_context) {
    return InvalidArgument("the prompt has ", num_prompt_tokens,
                           " tokens and max_tokens is ", max_tokens,
                           ", together ", num_prompt_tokens + max_tokens,
                           "; the context limit is ", limits.max_context);
  }
  // The last token is sampled but never computed.
  const int64_t positions =
      num_prompt_tokens + std::max<int64_t>(max_tokens - 1, 0);
  const int64_t pool = MaxPositions(limits);
  if (positions > pool) {
    return InvalidArgument("the prompt has ", num_prompt_tokens,
                           " tokens and max_tokens is ", max_tokens,
                           "; the KV cache holds ", pool, " positions");
  }
  return OkStatus();
}

Status CheckRequest(const GenerateRequest& request, const PlanLimits& limits) {
  if (request.prompt_tokens.empty()) {
    return InvalidArgument("the prompt has no tokens");
  }
  if (request.max_tokens < 0) {
    return InvalidArgument("max_tokens must not be negative, got ",
                           request.max_tokens);
  }
  for (size_t i = 0; i < request.prompt_tokens.size(); ++i) {
    const TokenId token = request.prompt_tokens[i];
    if (token < 0 || token >= limits.vocab_size) {
      return InvalidArgument("prompt token ", i, " is ", token,
                             ", vocabulary size is ", limits.vocab_size);
    }
  }
  SLUICE_RETURN_IF_ERROR(Validate(request.sampling, limits.vocab_size));
  return CheckFits(static_cast<int64_t>(request.prompt_tokens.size()),
                   request.max_tokens, limits);
}

}  // namespace sluice
