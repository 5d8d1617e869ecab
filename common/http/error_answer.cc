#include "common/http/error_answer.h"

#include "common/base/cat.h"
#include "common/base/json.h"

namespace sluice::http {
namespace {

Json OrNull(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json(nullptr);
}

}  // namespace

std::string ErrorJson(const ApiError& error) {
  Json body;
  body["error"] = {{"message", error.message},
                   {"type", error.type},
                   {"param", OrNull(error.param)},
                   {"code", OrNull(error.code)}};
  return DumpJson(body);
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response;
  response.status = error.http_status;
  response.body = ErrorJson(error);
  response.error_type = error.type;
  response.error_code = error.code.value_or("");
  if (error.http_status == 429 || error.http_status == 503) {
    response.headers.emplace_back("Retry-After",
                                  Cat(error.retry_after_seconds));
    // What OpenAI's clients look at first.
    response.headers.emplace_back("Retry-After-Ms",
                                  Cat(1000LL * error.retry_after_seconds));
  }
  return response;
}

HttpResponse TransportError(int http_status, std::string_view message) {
  ApiError error{http_status, std::string(message), "invalid_request_error",
                 std::nullopt, std::nullopt};
  switch (http_status) {
    case 408:
      error.code = "request_timeout";
      break;
    case 413:
      error.code = "request_too_large";
      break;
    case 431:
      error.code = "header_too_large";
      break;
    case 500:
      error.type = "server_error";
      break;
    case 501:
      error.code = "not_implemented";
      break;
    case 503:
      error.type = "service_unavailable_error";
      error.code = "unavailable";
      break;
  }
  return ErrorResponse(error);
}

}  // namespace sluice::http
