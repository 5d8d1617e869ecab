#ifndef SLUICE_SERVICES_CLI_HTTP_CLIENT_H_
#define SLUICE_SERVICES_CLI_HTTP_CLIENT_H_

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/json_fwd.h"
#include "common/base/status.h"

namespace sluice::cli {

// Where a server listens, "http://127.0.0.1:8080" (a path such as /v1 is
// ignored), and the key to show it as a bearer token, if any.
struct BaseUrl {
  std::string host;
  std::string port;
  std::string api_key;
  static StatusOr<BaseUrl> Parse(std::string_view url);
};

struct HttpResponse {
  int status = 0;
  std::string content_type;
  std::string body;
};

// One request on a connection of its own; blocks. UNAVAILABLE if nothing
// listens or the connection breaks, DEADLINE_EXCEEDED after `timeout` without
// any progress, 10 minutes of a post. Any HTTP status is OK here.
StatusOr<HttpResponse> HttpGet(
    const BaseUrl& base, const std::string& target,
    std::chrono::seconds timeout = std::chrono::seconds(10));
// Likewise; says that an answer as application/octet-stream is welcome.
StatusOr<HttpResponse> HttpPostForBytes(const BaseUrl& base,
                                        const std::string& target,
                                        const std::string& json);

// The JSON of an answer, of up to 1 GiB. NOT_FOUND for status 404,
// FAILED_PRECONDITION with the server's words for another than 200.
StatusOr<Json> GetJson(const BaseUrl& base, const std::string& target);
StatusOr<Json> PostJson(const BaseUrl& base, const std::string& target,
                        const Json& body);

// Posts `json` and gives the data of every server-sent event to `on_event`
// until the stream ends or `on_event` returns an error, which is returned. A
// status other than 200 is an error whose message is the body's.
Status HttpPostEvents(const BaseUrl& base, const std::string& target,
                      const std::string& json,
                      const std::function<Status(std::string_view)>& on_event);

// The gateway's own words in an OpenAI error body, else `body` itself.
std::string ErrorText(int status, const std::string& body);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_HTTP_CLIENT_H_
