#include "common/dialects/openai/plain_body.h"

#include <algorithm>
#include <string_view>

#include "common/serving/plain_body.h"

namespace sluice::openai {
namespace {

// Members that bring no grammar, whatever their value is.
constexpr std::string_view kPlainNames[] = {
    "add_generation_prompt",
    "add_special_tokens",
    "allowed_token_ids",
    "bad_words",
    "best_of",
    "cache_salt",
    "chat_template_kwargs",
    "continue_final_message",
    "echo",
    "enable_thinking",
    "frequency_penalty",
    "ignore_eos",
    "include_stop_str_in_output",
    "logit_bias",
    "logprob_token_ids",
    "logprobs",
    "max_completion_tokens",
    "max_new_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "min_p",
    "min_tokens",
    "model",
    "n",
    "n_predict",
    "parallel_tool_calls",
    "presence_penalty",
    "priority",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_logprobs",
    "reasoning_effort",
    "repeat_penalty",
    "repetition_penalty",
    "request_id",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "safety_identifier",
    "seed",
    "service_tier",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "sse_ping_interval",
    "stop",
    "stop_token_ids",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "timings_per_token",
    "top_k",
    "top_logprobs",
    "top_p",
    "truncate_prompt_tokens",
    "user",
    "verbosity",
};
static_assert(std::ranges::is_sorted(kPlainNames));

constexpr serving::PlainValue kPlainValues[] = {
    {"tools", "[]"},
    {"tool_choice", R"("none")"},
    {"tool_choice", R"("auto")"},
    {"response_format", R"({"type":"text"})"}};

}  // namespace

bool IsPlainBody(std::string_view body) {
  return serving::IsPlainBody(body, kPlainNames, kPlainValues);
}

}  // namespace sluice::openai
