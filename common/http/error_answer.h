#ifndef SLUICE_COMMON_HTTP_ERROR_ANSWER_H_
#define SLUICE_COMMON_HTTP_ERROR_ANSWER_H_

#include <optional>
#include <string>
#include <string_view>

#include "common/http/message.h"

namespace sluice::http {

// An error answer, with the members that OpenAI's clients read.
struct ApiError {
  int http_status = 500;
  std::string message;
  std::string type = "server_error";
  std::optional<std::string> param;
  std::optional<std::string> code;
  int retry_after_seconds = 1;  // for 429 and 503
};

// {"error":{"message","type","param","code"}}: param and code string or null.
std::string ErrorJson(const ApiError& error);

// The whole answer. 429 and 503 carry Retry-After and Retry-After-Ms.
HttpResponse ErrorResponse(const ApiError& error);

// Writes a whole error answer in a dialect, as ErrorResponse does in OpenAI's.
using ErrorWriter = HttpResponse (*)(const ApiError& error);

// The answer to bytes that are no valid request, by HTTP status.
HttpResponse TransportError(int http_status, std::string_view message);

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_ERROR_ANSWER_H_
