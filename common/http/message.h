#ifndef SLUICE_COMMON_HTTP_MESSAGE_H_
#define SLUICE_COMMON_HTTP_MESSAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"

namespace sluice::http {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// One whole request, free of Beast, so that handlers are too.
struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query
  std::string query;
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string request_id;  // the client's X-Request-Id, or ours
  // The name of the request's API key; empty on a server without keys.
  std::string tenant;
  // The client's IP address; "unknown" once it has gone, empty for a request
  // that no connection carried.
  std::string peer;
  // The client whose share of the server the request counts against: "key:" and
  // the API key's name, or "addr:" and the peer's IP address on a server
  // without keys. Empty only for a request that no connection carried.
  std::string client;
  std::string traceparent;  // W3C trace context as offered; empty if invalid
  // The path of the request whose stream this one goes on with; empty for a
  // request that asks for itself. Its handler sets it.
  std::string resumed_path;
  TimePoint arrival = Clock::now();

  // The first value of header `name` (lower case); empty if absent.
  std::string_view Header(std::string_view name) const;
};

// An error as facts. The ClientFormat of its request writes it.
struct ApiError {
  int http_status = 500;
  std::string message;
  std::string type = "server_error";  // its kind, as in metrics and logs
  std::optional<std::string> param;   // the field of the request
  std::optional<std::string> code;
  int retry_after_seconds = 1;  // for 429 and 503
  // Of a prompt that does not fit: some dialects tell them in words of theirs.
  struct TooLong {
    int64_t tokens = 0;  // at least
    int64_t limit = 0;   // the context's
    bool operator==(const TooLong&) const = default;
  };
  std::optional<TooLong> too_long = {};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;  // beyond type, length, connection and request id
  std::string body;
  // An error, whose body is not written yet (WriteError); nothing: no error.
  std::optional<ApiError> error = {};
};

// "Not Found" for 404; "Unknown" for a status that we never send.
std::string_view ReasonPhrase(int status);

// The status line and all headers, with the empty line that ends them.
// `length`: Content-Length, or kChunked, or kNoLength for a body that ends
// with the connection (HTTP/1.0) or must not be there (204).
inline constexpr long long kChunked = -1;
inline constexpr long long kNoLength = -2;
std::string SerializeHead(const HttpResponse& response,
                          std::string_view request_id, long long length,
                          bool keep_alive);

// `bytes` as one chunk of a chunked body; not for empty bytes.
std::string SerializeChunk(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// `offered` if it is a sane id (1 to 128 of [A-Za-z0-9._:-]), else a random
// one: it ends up in headers and logs.
std::string SanitizedRequestId(std::string_view offered);

// `offered` if it is a valid traceparent (W3C Trace Context, version 00 to
// fe with no more fields than version 00 has), else nothing.
std::string SanitizedTraceparent(std::string_view offered);

// A request's target (RFC 9112, section 3.2) taken apart into `path`, its
// percent-escapes decoded, and `query`, as it came. False if it is neither
// "/path?query" nor "http://host/path?query" nor "*" of OPTIONS, or if an
// escape is malformed or stands for a control character.
bool ParseTarget(std::string_view target, HttpRequest& request);

// `text` in lower case (ASCII).
std::string AsciiLower(std::string_view text);

// 24 random hexadecimal digits.
std::string RandomId();

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_MESSAGE_H_
