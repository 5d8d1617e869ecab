#include "tests/services/gateway/cost_elements.h"

namespace sluice::gateway {

const std::vector<std::string>& FieldsWithoutSize() {
  static const auto& all = *new std::vector<std::string>{
      "model",
      "max_tokens",
      "max_completion_tokens",
      "max_output_tokens",
      "max_new_tokens",
      "n_predict",
      "temperature",
      "top_p",
      "top_k",
      "min_p",
      "frequency_penalty",
      "presence_penalty",
      "repetition_penalty",
      "repeat_penalty",
      "repeat_last_n",
      "sse_ping_interval",
      "timings_per_token",
      "best_of",
      "ignore_eos",
      "min_tokens",
      "include_stop_str_in_output",
      "skip_special_tokens",
      "spaces_between_special_tokens",
      "top_logprobs",
      "stream_options",
      "return_tokens_as_token_ids",
      "add_special_tokens",
      "add_generation_prompt",
      "reasoning_effort",
      "enable_thinking",
      "think",
      "thinking",
      "reasoning",
      "include_reasoning",
      "reasoning_budget",
      "thinking_token_budget",
      "thinking_budget",
      "function_call",
      "tool_choice",
      "parallel_tool_calls",
      "guided_json_object",
      "cache_salt",
      "request_id",
      "priority",
  };
  return all;
}

}  // namespace sluice::gateway
