#ifndef SLUICE_COMMON_TEXT_CHAT_REQUEST_H_
#define SLUICE_COMMON_TEXT_CHAT_REQUEST_H_

#include "common/base/json.h"
#include "common/base/status.h"

namespace sluice {

// Returns the messages as templates expect them: arguments of tool calls are
// objects and, with `join_parts`, contents are strings. Errors name the place:
// "messages[2].tool_calls[0].function.arguments: ...".
StatusOr<Json> NormalizeMessages(Json messages, bool join_parts);

// Returns `value` with every string of the request marked (MarkAll), except
// strings of a fixed set (roles, types) and well-known keys.
Json MarkRequest(const Json& value, char32_t plane);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_CHAT_REQUEST_H_
