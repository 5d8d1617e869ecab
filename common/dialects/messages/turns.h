#ifndef SLUICE_COMMON_DIALECTS_MESSAGES_TURNS_H_
#define SLUICE_COMMON_DIALECTS_MESSAGES_TURNS_H_

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/status.h"

namespace sluice::messages {

// What a thinking block's signature begins with. Behind it stands the thinking
// itself where the client asked for empty blocks: it comes back with them.
inline constexpr std::string_view kSignature = "sluice:";

// The conversation of a body.
struct Turns {
  Json messages = Json::array();  // as in serving::ChatRequest
  bool continues = false;         // the answer goes on with the last message
  // Tools that references or calls of the conversation name.
  std::set<std::string, std::less<>> named_tools;
  // The latest effort that a system message within the conversation sets, a
  // key of EffortWord; empty: none.
  std::string effort;
};

// Returns the conversation of `system` (null: none), a text or blocks, and
// `messages`. Text, images as notes, documents as far as they are text,
// thinking, calls and their results are kept, other blocks left out. The JSON
// texts within count against `budget`. INVALID_ARGUMENT names the member.
StatusOr<Turns> ReadTurns(const Json* system, const Json& messages,
                          JsonBudget& budget);

// Returns the word of chat templates for an effort of `config`, an
// output_config in `field`; nothing: it has none. INVALID_ARGUMENT for unknown
// efforts.
StatusOr<std::string> ReadEffort(const Json& config, const std::string& field);

}  // namespace sluice::messages

#endif  // SLUICE_COMMON_DIALECTS_MESSAGES_TURNS_H_
