#include "common/serving/error.h"

#include <charconv>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "common/base/cat.h"
#include "common/base/retry_after.h"

namespace sluice::serving {
namespace {

constexpr char kParam[] = "sluice/param";
constexpr char kCode[] = "sluice/code";
constexpr char kTooLong[] = "sluice/too_long";  // "TOKENS LIMIT"

Status WithPayload(Status status, const char* key, std::string_view value) {
  status.SetPayload(key,
                    absl::Cord(absl::string_view(value.data(), value.size())));
  return status;
}

std::optional<std::string> Payload(const Status& status, const char* key) {
  const auto payload = status.GetPayload(key);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

std::optional<http::ApiError::TooLong> TooLongOf(const Status& status) {
  const auto payload = Payload(status, kTooLong);
  if (!payload) return std::nullopt;
  http::ApiError::TooLong counts;
  const char* const end = payload->data() + payload->size();
  const auto tokens = std::from_chars(payload->data(), end, counts.tokens);
  std::from_chars(tokens.ptr + 1, end, counts.limit);
  return counts;
}

}  // namespace

Status WithParam(Status status, std::string_view param) {
  return WithPayload(std::move(status), kParam, param);
}

Status WithCode(Status status, std::string_view code) {
  return WithPayload(std::move(status), kCode, code);
}

Status WithTooLong(Status status, int64_t tokens, int64_t limit) {
  return WithPayload(WithCode(std::move(status), "context_length_exceeded"),
                     kTooLong, Cat(tokens, " ", limit));
}

http::ApiError ToApiError(const Status& status) {
  http::ApiError error{500, Message(status), "server_error",
                       Payload(status, kParam), Payload(status, kCode)};
  error.too_long = TooLongOf(status);
  error.retry_after_seconds = RetryAfterSeconds(status).value_or(1);
  const auto set = [&](int http_status, std::string_view type,
                       std::string_view code) {
    error.http_status = http_status;
    error.type = type;
    if (!error.code && !code.empty()) error.code = code;
  };
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
      set(400, "invalid_request_error", "");
      break;
    case StatusCode::kUnauthenticated:
      set(401, "authentication_error", "invalid_api_key");
      break;
    case StatusCode::kNotFound:
      set(404, "invalid_request_error", "not_found");
      break;
    case StatusCode::kResourceExhausted:
      set(429, "rate_limit_error", "queue_full");
      break;
    case StatusCode::kUnimplemented:
      set(501, "server_error", "not_implemented");
      break;
    case StatusCode::kUnavailable:
      set(503, "service_unavailable_error", "unavailable");
      break;
    case StatusCode::kDeadlineExceeded:
      set(504, "timeout_error", "deadline_exceeded");
      break;
    default:
      error.message = "internal error";
      set(500, "server_error", "internal_error");
  }
  return error;
}

}  // namespace sluice::serving
