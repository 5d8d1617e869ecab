#ifndef SLUICE_COMMON_DIALECTS_MESSAGES_ERRORS_H_
#define SLUICE_COMMON_DIALECTS_MESSAGES_ERRORS_H_

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/json_fwd.h"
#include "common/http/error_answer.h"
#include "common/http/message.h"

namespace sluice::messages {

// Clients send it with every request.
inline constexpr std::string_view kVersionHeader = "anthropic-version";

// Returns whether the client of `request` reads errors of this dialect: by its
// path or, at a path that no other dialect has, its kVersionHeader.
bool IsSpoken(const http::HttpRequest& request);

// Returns {"type":"error","error":{"type","message"},"request_id"}. The type is
// the HTTP status's; of a prompt that does not fit the message is the one that
// agents read: "prompt is too long: N tokens > M maximum".
Json ErrorValue(const http::ApiError& error, std::string_view request_id);

// The members of this dialect's http::ClientFormat.

// Returns the whole answer: 503 is sent as 529, and both and 429 carry
// Retry-After.
http::HttpResponse WriteError(const http::ApiError& error,
                              const http::HttpRequest& request);
// Returns an event "error".
std::string WriteStreamError(const http::ApiError& error,
                             const http::HttpRequest& request);
// Adds Request-Id.
void AddHeaders(const http::HttpRequest& request, Duration took,
                http::HttpHeaders& headers);

}  // namespace sluice::messages

#endif  // SLUICE_COMMON_DIALECTS_MESSAGES_ERRORS_H_
