#ifndef SLUICE_COMMON_HTTP_HTTP_CLIENT_H_
#define SLUICE_COMMON_HTTP_HTTP_CLIENT_H_

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/http/message.h"

namespace sluice::http {

// A server's address, "http://127.0.0.1:8080" (a path such as /v1 is ignored),
// and its key for a bearer token, or empty.
struct BaseUrl {
  std::string host;
  std::string port;
  std::string api_key;
  // Further header fields of every request, names and values.
  std::vector<std::pair<std::string, std::string>> headers = {};
  static StatusOr<BaseUrl> Parse(std::string_view url);
};

// Sends one request on a connection of its own; blocks. OK for any HTTP status.
// UNAVAILABLE if no server listens or the connection breaks; DEADLINE_EXCEEDED
// after `timeout` without progress, 10 minutes of a post.
StatusOr<HttpResponse> HttpGet(
    const BaseUrl& base, const std::string& target,
    std::chrono::seconds timeout = std::chrono::seconds(10));
// Likewise; accepts application/octet-stream.
StatusOr<HttpResponse> HttpPostForBytes(const BaseUrl& base,
                                        const std::string& target,
                                        const std::string& json);

// Returns the JSON of an answer of up to 1 GiB. NOT_FOUND for status 404,
// FAILED_PRECONDITION with the server's message for another status but 200.
StatusOr<Json> GetJson(const BaseUrl& base, const std::string& target);
StatusOr<Json> PostJson(const BaseUrl& base, const std::string& target,
                        const Json& body);

// Posts `json` and gives the data of every server-sent event to `on_event`.
// Ends with the stream, or with an error of `on_event`, which is returned. A
// status other than 200 is an error with the body's message. CANCELLED as soon
// as the descriptor `cancel_fd` can be read; negative: none.
Status HttpPostEvents(const BaseUrl& base, const std::string& target,
                      const std::string& json,
                      const std::function<Status(std::string_view)>& on_event,
                      int cancel_fd = -1);

// Likewise for an answer of lines, each without its end; empty ones are left
// out.
Status HttpPostLines(const BaseUrl& base, const std::string& target,
                     const std::string& json,
                     const std::function<Status(std::string_view)>& on_line,
                     int cancel_fd = -1);

// Returns the message of an error body, in any dialect, else `body`.
std::string ErrorText(int status, const std::string& body);

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_HTTP_CLIENT_H_
