#ifndef SLUICE_SERVICES_GATEWAY_OPENAI_REQUEST_H_
#define SLUICE_SERVICES_GATEWAY_OPENAI_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/json.h"
#include "common/core/ids.h"

namespace sluice::gateway {

// Requests after parsing: every value has its type and lies in its range.
// What was left out is nullopt; defaults are the model's business.

// Fields that chat and completions share.
struct GenerationFields {
  std::string model;  // empty: not given
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;  // 0: off
  std::optional<double> min_p;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  int64_t min_tokens = 0;
  // Top logprobs per token; 0: the token's own; nullopt: none.
  std::optional<int> logprobs;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool tokens_as_token_ids = false;
};

struct ChatRequest {
  GenerationFields fields;
  // Checked: an array of {"role", "content", ..}, contents plain strings,
  // "developer" renamed to "system".
  Json messages;
  bool add_generation_prompt = true;
};

using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionRequest {
  GenerationFields fields;
  std::vector<Prompt> prompts;  // at least one; one choice each
  bool echo = false;
  bool add_special_tokens = true;
};

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, Json> input;  // a prompt, or chat messages
  bool add_special_tokens = true;
  bool add_generation_prompt = true;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_OPENAI_REQUEST_H_
