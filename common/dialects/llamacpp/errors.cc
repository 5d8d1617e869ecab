#include "common/dialects/llamacpp/errors.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "common/base/json.h"
#include "common/http/error_answer.h"
#include "common/http/sse.h"

namespace sluice::llamacpp {
namespace {

std::string TypeOf(const http::ApiError& error) {
  if (error.too_long) return "exceed_context_size_error";
  switch (error.http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
    case 503:
      return "unavailable_error";
    case 501:
      return "not_supported_error";
    default:
      return error.http_status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

Json ErrorObject(const http::ApiError& error) {
  Json inner{{"code", error.http_status},
             {"message", error.message},
             {"type", TypeOf(error)}};
  if (error.too_long) {
    inner["n_prompt_tokens"] = error.too_long->tokens;
    inner["n_ctx"] = error.too_long->limit;
  }
  return {{"error", std::move(inner)}};
}

http::HttpResponse ErrorAnswer(const http::ApiError& error,
                               const http::HttpRequest& request) {
  // Its status, and its headers for a retry.
  http::HttpResponse response = http::PlainError(error, request);
  response.body = DumpJson(ErrorObject(error));
  return response;
}

std::string StreamError(const http::ApiError& error, const http::HttpRequest&) {
  return http::SseEvent(DumpJson(ErrorObject(error)));
}

void AddHeaders(const http::HttpRequest&, Duration, http::HttpHeaders&) {}

bool IsSpoken(const http::HttpRequest& request) {
  static constexpr std::string_view kPaths[] = {
      "/apply-template", "/completion", "/completions",
      "/infill",         "/props",      "/slots"};
  return std::find(std::begin(kPaths), std::end(kPaths), request.path) !=
         std::end(kPaths);
}

}  // namespace sluice::llamacpp
