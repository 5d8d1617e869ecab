#ifndef SLUICE_COMMON_DIALECTS_OPENAI_PARSE_H_
#define SLUICE_COMMON_DIALECTS_OPENAI_PARSE_H_

#include <cstdint>
#include <string_view>

#include "common/base/status.h"
#include "common/serving/request.h"
#include "common/serving/request_limits.h"

namespace sluice::openai {

struct TokenizeRequest {
  std::string model;
  std::variant<std::string, Json> input;     // a prompt, or chat messages
  std::string_view prompt_field = "prompt";  // or llama.cpp's "content"
  bool add_special_tokens = true;            // of a prompt
  RenderOptions chat_template;               // of messages
  std::vector<std::string> argument_names;   // as in ChatRequest
  Json tools;                                // as in ToolFields
  bool return_token_strs = false;
  // llama.cpp's: special tokens that a prompt spells are tokens; the answer has
  // each token's text beside its id.
  bool parses_special = true;
  bool with_pieces = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
};

inline constexpr size_t kMaxPrompts = 128;  // of one request

// Parses a body. INVALID_ARGUMENT, with the field as param (see error.h), for
// malformed JSON, wrong types, values out of range, and known fields that are
// not built, unless their value changes nothing. Unknown fields are ignored, or
// refused if `strict`; null counts as absent. `vocab_size` bounds token ids.
StatusOr<serving::ChatRequest> ParseChatRequest(std::string_view body,
                                                int vocab_size,
                                                bool strict = false);
StatusOr<serving::CompletionRequest> ParseCompletionRequest(
    std::string_view body, int vocab_size, bool strict = false);
StatusOr<TokenizeRequest> ParseTokenizeRequest(std::string_view body);
StatusOr<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body,
                                                   int vocab_size);

// Returns the prompts of `field`, of at most `most`: a string, token ids below
// `vocab_size`, or an array of either. `prompt` null: it is missing.
StatusOr<std::vector<serving::Prompt>> ParsePrompts(const Json* prompt,
                                                    std::string_view field,
                                                    int vocab_size,
                                                    size_t most);

// Returns the `messages` field, checked and normalised as ChatRequest says. Its
// JSON counts against `budget`, the rest of the request's budget.
StatusOr<Json> ParseMessages(const Json& messages, JsonBudget& budget);

}  // namespace sluice::openai

#endif  // SLUICE_COMMON_DIALECTS_OPENAI_PARSE_H_
