#ifndef SLUICE_COMMON_TEXT_CHAT_REQUEST_H_
#define SLUICE_COMMON_TEXT_CHAT_REQUEST_H_

#include "common/base/json.h"
#include "common/base/status.h"

namespace sluice {

// The messages of a request as templates expect them: the arguments of tool
// calls are objects, and, if `join_parts`, contents are strings. Errors name
// the place: "messages[2].tool_calls[0].function.arguments: ...".
StatusOr<Json> NormalizeMessages(Json messages, bool join_parts);

// `value` with every string of the request in it marked (MarkAll): not those
// that only a fixed set of values gives (roles, types), and no well-known key.
Json MarkRequest(const Json& value, char32_t plane);

}  // namespace sluice

#endif  // SLUICE_COMMON_TEXT_CHAT_REQUEST_H_
