#include "common/dialects/openai/plain_body.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::openai {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Members that bring no grammar, whatever their value is.
constexpr std::string_view kPlainNames[] = {
    "add_generation_prompt",
    "add_special_tokens",
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
    "top_k",
    "top_logprobs",
    "top_p",
    "truncate_prompt_tokens",
    "user",
    "verbosity",
};
static_assert(std::ranges::is_sorted(kPlainNames));

// Takes a JSON text apart, as far as the places of its members need it. What it
// takes for a member is one wherever the text is JSON.
class Members {
 public:
  explicit Members(std::string_view text) : rest_(text) {}

  bool Take(char c) {
    SkipSpace();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // Returns the bytes of a string between its quotes; nothing: there is none.
  std::optional<std::string_view> TakeString() {
    if (!Take('"')) return std::nullopt;
    const std::string_view begin = rest_;
    if (!SkipString()) return std::nullopt;
    return begin.substr(0, begin.size() - rest_.size() - 1);
  }
  // Returns the bytes of a value; nothing: it has no end.
  std::optional<std::string_view> TakeValue() {
    SkipSpace();
    const std::string_view begin = rest_;
    size_t depth = 0;
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
      rest_.remove_prefix(1);
      if (c == '"' && !SkipString()) return std::nullopt;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
    }
    if (depth > 0 || begin.size() == rest_.size()) return std::nullopt;
    return begin.substr(0, begin.size() - rest_.size());
  }
  bool is_over() {
    SkipSpace();
    return rest_.empty();
  }

 private:
  void SkipSpace() {
    rest_.remove_prefix(
        std::min(rest_.find_first_not_of(kSpace), rest_.size()));
  }
  // To behind the closing quote: the first one with no backslash before it that
  // is not escaped itself.
  bool SkipString() {
    for (size_t at = rest_.find('"'); at != rest_.npos;
         at = rest_.find('"', at + 1)) {
      size_t begin = at;
      while (begin > 0 && rest_[begin - 1] == '\\') --begin;
      if ((at - begin) % 2 == 1) continue;
      rest_.remove_prefix(at + 1);
      return true;
    }
    return false;
  }

  std::string_view rest_;
};

// Whether a value of a member that can bring a grammar brings none.
bool IsWithout(std::string_view name, std::string_view value) {
  constexpr size_t kLongest = 64;
  if (value.size() > kLongest) return false;
  std::string dense(value);
  std::erase_if(dense, [](char c) { return kSpace.find(c) != kSpace.npos; });
  if (dense == "null") return true;
  if (name == "tools") return dense == "[]";
  if (name == "tool_choice") return dense == "\"none\"" || dense == "\"auto\"";
  return name == "response_format" && dense == R"({"type":"text"})";
}

}  // namespace

bool IsPlainBody(std::string_view body) {
  if (body.empty()) return true;
  Members members(body);
  if (!members.Take('{')) return false;
  if (members.Take('}')) return members.is_over();
  do {
    const auto name = members.TakeString();
    if (!name || !members.Take(':')) return false;
    const auto value = members.TakeValue();
    if (!value) return false;
    if (!std::ranges::binary_search(kPlainNames, *name) &&
        !IsWithout(*name, *value)) {
      return false;
    }
  } while (members.Take(','));
  return members.Take('}') && members.is_over();
}

}  // namespace sluice::openai
