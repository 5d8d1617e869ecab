#ifndef SLUICE_COMMON_DIALECTS_OLLAMA_PARSE_H_
#define SLUICE_COMMON_DIALECTS_OLLAMA_PARSE_H_

#include <string>
#include <string_view>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/serving/request.h"

namespace sluice::ollama {

struct OllamaRequest {
  // What a body without a prompt asks for is no answer.
  enum class Act { kAnswer, kLoad, kUnload };

  serving::ChatRequest chat;  // of a prompt as text: no messages
  Act act = Act::kAnswer;
  // Of /api/generate: `prompt` goes to the model as it is, or the model fills
  // what is between `prompt` and `suffix`.
  bool is_raw = false;
  std::string prompt;
  std::string suffix;
};

// Parse the bodies of /api/chat and /api/generate. INVALID_ARGUMENT, with the
// field as param, for malformed JSON, wrong types, values out of range, and
// known fields that are not built, unless their value changes nothing. Unknown
// fields are ignored, or refused if `strict`; null counts as absent.
StatusOr<OllamaRequest> ParseChat(std::string_view body, bool strict);
StatusOr<OllamaRequest> ParseGenerate(std::string_view body, bool strict);

// Returns `messages`, checked and normalised as ChatRequest says. Their JSON
// counts against `budget`.
StatusOr<Json> ParseMessages(const Json& messages, JsonBudget& budget);

}  // namespace sluice::ollama

#endif  // SLUICE_COMMON_DIALECTS_OLLAMA_PARSE_H_
