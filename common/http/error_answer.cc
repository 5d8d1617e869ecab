#include "common/http/error_answer.h"

#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/http/sse.h"

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

HttpResponse ErrorResponse(ApiError error) {
  HttpResponse response;
  response.status = error.http_status;
  response.error = std::move(error);
  return response;
}

HttpResponse PlainError(const ApiError& error, const HttpRequest&) {
  HttpResponse response;
  response.status = error.http_status;
  response.body = ErrorJson(error);
  if (error.http_status == 429 || error.http_status == 503) {
    response.headers.emplace_back("Retry-After",
                                  Cat(error.retry_after_seconds));
    // Some clients' libraries look at it first.
    response.headers.emplace_back("Retry-After-Ms",
                                  Cat(1000LL * error.retry_after_seconds));
  }
  return response;
}

std::string PlainStreamError(const ApiError& error, const HttpRequest&) {
  return SseEvent(ErrorJson(error));
}

void AddPlainHeaders(const HttpRequest&, Duration took, HttpHeaders& headers) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(took);
  headers.emplace_back("OpenAI-Processing-Ms", Cat(ms.count()));
}

void WriteError(const ClientFormat& format, const HttpRequest& request,
                HttpResponse& response) {
  if (!response.error) return;
  HttpResponse written = format.error(*response.error, request);
  written.headers.insert(written.headers.end(),
                         std::make_move_iterator(response.headers.begin()),
                         std::make_move_iterator(response.headers.end()));
  written.error = std::move(response.error);
  response = std::move(written);
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
  return ErrorResponse(std::move(error));
}

}  // namespace sluice::http
