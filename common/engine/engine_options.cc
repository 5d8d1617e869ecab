#include "common/engine/engine_options.h"

#include <algorithm>
#include <utility>

#include "common/core/kv_groups.h"

namespace sluice {
namespace {

Status CheckAtLeast(const char* name, int value, int low) {
  if (value >= low) return OkStatus();
  return InvalidArgument(name, " must be at least ", low, ", got ", value);
}

}  // namespace

Status Validate(const EngineOptions& options) {
  const struct {
    const char* name;
    int value;
    int low;
  } numbers[] = {
      {"max_running", options.max_running, 1},
      {"max_queue", options.max_queue, 0},
      {"max_running_per_client", options.max_running_per_client, 0},
      {"max_queue_per_client", options.max_queue_per_client, 0},
      {"max_step_tokens", options.max_step_tokens, 1},
      {"prefill_chunk", options.prefill_chunk, EngineOptions::kHalfStep},
      {"max_plans_in_flight", options.max_plans_in_flight, 0},
      {"max_replays", options.max_replays, 0},
      {"min_decode_batch", options.min_decode_batch, 1}};
  for (const auto& [name, value, low] : numbers) {
    SLUICE_RETURN_IF_ERROR(CheckAtLeast(name, value, low));
  }
  for (const auto& [name, value] :
       {std::pair{"place_turn", options.place_turn},
        {"max_queue_wait", options.max_queue_wait},
        {"target_itl", options.target_itl},
        {"recovery_timeout", options.recovery_timeout},
        {"prefix_idle", options.prefix_idle},
        {"ahead_within", options.ahead_within}}) {
    if (value >= Duration::zero()) continue;
    return InvalidArgument(name, " must not be negative, got ", Seconds(value),
                           " s");
  }
  return OkStatus();
}

Status Validate(const PlanLimits& limits) {
  for (const auto& [name, value] :
       {std::pair{"max_step_tokens", limits.max_step_tokens},
        {"max_sequences", limits.max_sequences},
        {"max_context", limits.max_context},
        {"num_blocks", limits.num_blocks},
        {"num_kv_groups", limits.num_kv_groups}}) {
    SLUICE_RETURN_IF_ERROR(CheckAtLeast(name, value, 1));
  }
  if (limits.kv_window(0) != 0) {
    return InvalidArgument("KV group 0 must see all positions, its window is ",
                           limits.kv_window(0));
  }
  for (int32_t g = 1; g < limits.num_kv_groups; ++g) {
    if (!IsState(limits.kv_window(g))) continue;
    SLUICE_RETURN_IF_ERROR(CheckAtLeast(
        "num_state_blocks", limits.num_state_blocks, kLeastStateBlocks));
    if (g + 1 == limits.num_kv_groups) continue;
    return InvalidArgument("the group of states must be the last, is KV group ",
                           g, " of ", limits.num_kv_groups);
  }
  if (MaxPositions(limits) == 0) {
    return InvalidArgument("num_blocks must be at least one for each of ",
                           limits.num_kv_groups, " KV groups, got ",
                           limits.num_blocks);
  }
  return CheckAtLeast("vocab_size", limits.vocab_size, 1);
}

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
  constexpr int64_t kMax = int64_t{1} << 26;  // positions are of 32 bits
  int64_t low = 0;                            // fits
  int64_t high = std::min<int64_t>(limits.num_blocks, kMax) + 1;
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
  if (request.sampling.hidden != HiddenWanted::kNone &&
      request.max_tokens != 0) {
    return InvalidArgument(
        "hidden states are of a prompt alone, max_tokens is ",
        request.max_tokens);
  }
  return CheckFits(static_cast<int64_t>(request.prompt_tokens.size()),
                   request.max_tokens, limits);
}

}  // namespace sluice
