#ifndef SLUICE_SERVICES_GATEWAY_OPENAI_ERROR_H_
#define SLUICE_SERVICES_GATEWAY_OPENAI_ERROR_H_

#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "services/gateway/http/message.h"

namespace sluice::gateway {

// An error as OpenAI's clients read it.
struct ApiError {
  int http_status = 500;
  std::string message;
  std::string type = "server_error";
  std::optional<std::string> param;
  std::optional<std::string> code;
  int retry_after_seconds = 1;  // for 429 and 503
};

// `status` with the request field and the code that the error object shall
// carry. They travel as payloads, so that parsers return plain statuses.
Status WithParam(Status status, std::string_view param);
Status WithCode(Status status, std::string_view code);

// INVALID_ARGUMENT about request field `param`: "param: parts...".
template <typename... Parts>
Status FieldError(std::string_view param, const Parts&... parts) {
  return WithParam(InvalidArgument(param, ": ", parts...), param);
}

// What a status is to a client: the code's HTTP status, and type, param and
// code, and when to try again (common/base/retry_after.h). INTERNAL's message
// stays with us.
ApiError ToApiError(const Status& status);

// {"error":{"message","type","param","code"}}: param and code string or null.
std::string ErrorJson(const ApiError& error);

// The whole answer. 429 and 503 carry Retry-After and Retry-After-Ms.
HttpResponse ErrorResponse(const ApiError& error);

// An answer to what never became a request, by HTTP status.
HttpResponse TransportError(int http_status, std::string_view message);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_OPENAI_ERROR_H_
