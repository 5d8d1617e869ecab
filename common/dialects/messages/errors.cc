#include "common/dialects/messages/errors.h"

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/http/sse.h"

namespace sluice::messages {
namespace {

constexpr int kUnavailable = 503;
constexpr int kOverloaded = 529;

std::string_view TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case kUnavailable:
    case kOverloaded:
      return "overloaded_error";
    case 408:
    case 504:
      return "timeout_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string MessageOf(const http::ApiError& error) {
  if (!error.too_long) return error.message;
  return Cat("prompt is too long: ", error.too_long->tokens, " tokens > ",
             error.too_long->limit, " maximum");
}

}  // namespace

bool IsSpoken(const http::HttpRequest& request) {
  constexpr std::string_view kPath = "/v1/messages";
  const std::string_view path = request.path;
  const bool by_path =
      path.starts_with(kPath) &&
      (path.size() == kPath.size() || path[kPath.size()] == '/');
  return by_path || !request.Header(kVersionHeader).empty();
}

Json ErrorValue(const http::ApiError& error, std::string_view request_id) {
  return {
      {"type", "error"},
      {"error",
       {{"type", TypeOf(error.http_status)}, {"message", MessageOf(error)}}},
      {"request_id", request_id}};
}

http::HttpResponse WriteError(const http::ApiError& error,
                              const http::HttpRequest& request) {
  http::HttpResponse response;
  response.status =
      error.http_status == kUnavailable ? kOverloaded : error.http_status;
  response.body = DumpJson(ErrorValue(error, request.request_id));
  if (response.status == 429 || response.status == kOverloaded) {
    response.headers.emplace_back("Retry-After",
                                  Cat(error.retry_after_seconds));
  }
  return response;
}

std::string WriteStreamError(const http::ApiError& error,
                             const http::HttpRequest& request) {
  return http::SseEvent(DumpJson(ErrorValue(error, request.request_id)), "",
                        "error");
}

void AddHeaders(const http::HttpRequest& request, Duration,
                http::HttpHeaders& headers) {
  headers.emplace_back("Request-Id", request.request_id);
}

}  // namespace sluice::messages
