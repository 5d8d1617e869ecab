#ifndef SLUICE_COMMON_SERVING_CHAT_PARTS_H_
#define SLUICE_COMMON_SERVING_CHAT_PARTS_H_

#include <string>
#include <string_view>

#include "common/base/json.h"
#include "common/base/status.h"

namespace sluice::serving {

// The parts of ChatRequest::messages and ToolFields::tools, for the readers of
// dialects.

// What stands in a history for a picture.
inline constexpr std::string_view kImageNote =
    "[image left out: this model reads text]";

// Returns {"role", "content"} with room for what an assistant's message has
// more. `role`: "system", "user", "assistant" or "tool".
Json MakeMessage(std::string_view role, std::string content);

// Returns the arguments of a call as an object, which templates can show.
// `arguments` null: none. Arguments from a model may be cut or no JSON; clients
// send them back unchanged, and a refusal would end the conversation: such a
// text becomes {"arguments": text}. INVALID_ARGUMENT if `budget` is used up.
StatusOr<Json> ArgumentsToShow(const Json* arguments, JsonBudget& budget);

// Returns an entry of a message's "tool_calls"; `id` empty: the client gave no
// id.
Json MakeCall(std::string name, Json arguments, std::string id = "");

// Returns whether `name` may be a function's: 1 to kMaxToolNameBytes of A-Z a-z
// 0-9 and _ . : / -, which is markup in no format of calls.
bool IsToolName(std::string_view name);

// Returns {"type": "function", "function": {"name", "description",
// "parameters"}} without what is null.
Json MakeTool(std::string name, Json description, Json parameters);

// Returns whether `tools` has the function `name`.
bool HasTool(const Json& tools, std::string_view name);

}  // namespace sluice::serving

#endif  // SLUICE_COMMON_SERVING_CHAT_PARTS_H_
