#include "common/http/http_client.h"

#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_member.h"
#include "common/http/http_call.h"
#include "common/http/sse.h"

namespace sluice::http {
namespace {

using std::chrono::seconds;

struct Question {
  const char* method;
  const std::string& target;
  const std::string& body;
  const char* accept = "";
  seconds timeout = seconds(600);
  int cancel_fd = -1;
};

// Sends and waits. `on_body` gets the status and the body's bytes as they come;
// an error of `on_body` ends the call and is returned.
Status Ask(const BaseUrl& base, const Question& question,
           const std::function<Status(const ResponseParser&, std::string_view)>&
               on_body) {
  boost::asio::io_context io{1};
  ConnectionPool pool{io, {}, {}};
  SLUICE_RETURN_IF_ERROR(pool.Resolve(base));
  const auto call = std::make_shared<HttpCall>(
      pool,
      RequestHead(base, question.method, question.target, question.accept),
      question.body);
  Status done = OkStatus();
  boost::asio::posix::stream_descriptor cancel(io);
  if (question.cancel_fd >= 0) {
    cancel.assign(::dup(question.cancel_fd));
    cancel.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [&](const boost::system::error_code& error) {
                        if (error) return;
                        done = Cancelled("the request was cancelled");
                        call->Cancel();
                      });
  }
  call->Start({question.timeout, true},
              {[&](std::string_view bytes, TimePoint) {
                 done = on_body(call->response(), bytes);
                 if (!done.ok()) call->Cancel();
               },
               [&](HttpCall::End end, const std::string& error) {
                 cancel.close();  // the loop ends without it
                 if (end == HttpCall::End::kDone || !done.ok()) return;
                 const std::string what =
                     Cat(base.host, ":", base.port, ": ", error);
                 done = end == HttpCall::End::kTimeout ? DeadlineExceeded(what)
                                                       : Unavailable(what);
               }});
  io.run();
  return done;
}

StatusOr<HttpResponse> AskWhole(const BaseUrl& base, const Question& question) {
  HttpResponse response;
  SLUICE_RETURN_IF_ERROR(Ask(
      base, question, [&](const ResponseParser& head, std::string_view bytes) {
        response.status = head.status();
        response.content_type = head.content_type();
        response.body += bytes;
        return OkStatus();
      }));
  return response;
}

StatusOr<Json> JsonOf(const std::string& target,
                      const StatusOr<HttpResponse>& response) {
  SLUICE_RETURN_IF_ERROR(response.status());
  if (response->status == 200) {
    return ParseJson(response->body, {size_t{1} << 30, 64});
  }
  const std::string why =
      Cat(target, ": ", ErrorText(response->status, response->body));
  return response->status == 404 ? NotFound(why) : FailedPrecondition(why);
}

// Returns the lines that `bytes` complete; the rest of them is held.
std::vector<std::string> LinesOf(std::string_view bytes, std::string& held) {
  std::vector<std::string> lines;
  for (size_t end = bytes.find('\n'); end != std::string_view::npos;
       end = bytes.find('\n')) {
    held += bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    if (held.ends_with('\r')) held.pop_back();
    if (!held.empty()) lines.push_back(std::exchange(held, {}));
  }
  held += bytes;
  return lines;
}

// Gives the parts that `cut` makes of an answer of status 200 to `on_part`.
Status PostForParts(
    const BaseUrl& base, const Question& question,
    const std::function<std::vector<std::string>(std::string_view)>& cut,
    const std::function<Status(std::string_view)>& on_part) {
  int status = 0;
  std::string refusal;
  const Status asked =
      Ask(base, question,
          [&](const ResponseParser& head, std::string_view bytes) -> Status {
            status = head.status();
            if (status != 200) {
              refusal += bytes;
              return OkStatus();
            }
            for (const std::string& part : cut(bytes)) {
              SLUICE_RETURN_IF_ERROR(on_part(part));
            }
            return OkStatus();
          });
  SLUICE_RETURN_IF_ERROR(asked);
  if (status == 200) return OkStatus();
  return FailedPrecondition(ErrorText(status, refusal));
}

}  // namespace

StatusOr<BaseUrl> BaseUrl::Parse(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    return InvalidArgument(
        "'", url, "': this command speaks no TLS, http:// alone; for an ",
        "endpoint with https give the http:// address of a local proxy that ",
        "does (stunnel, socat)");
  }
  if (!url.starts_with(kScheme)) {
    return InvalidArgument("'", url, "' does not start with ", kScheme);
  }
  std::string_view rest = url.substr(kScheme.size());
  rest = rest.substr(0, rest.find('/'));
  const size_t colon = rest.rfind(':');
  BaseUrl base{std::string(rest.substr(0, colon)), "80", ""};
  if (colon != std::string_view::npos) base.port = rest.substr(colon + 1);
  if (base.host.empty() || base.port.empty()) {
    return InvalidArgument("'", url, "' names no host and port");
  }
  return base;
}

StatusOr<HttpResponse> HttpGet(const BaseUrl& base, const std::string& target,
                               seconds timeout) {
  return AskWhole(base, {"GET", target, "", "", timeout});
}

StatusOr<Json> GetJson(const BaseUrl& base, const std::string& target) {
  return JsonOf(target, HttpGet(base, target));
}

StatusOr<Json> PostJson(const BaseUrl& base, const std::string& target,
                        const Json& body) {
  return JsonOf(target, AskWhole(base, {"POST", target, DumpJson(body)}));
}

StatusOr<HttpResponse> HttpPostForBytes(const BaseUrl& base,
                                        const std::string& target,
                                        const std::string& json) {
  return AskWhole(base, {"POST", target, json, "application/octet-stream"});
}

Status HttpPostEvents(const BaseUrl& base, const std::string& target,
                      const std::string& json,
                      const std::function<Status(std::string_view)>& on_event,
                      int cancel_fd) {
  SseReader reader;
  return PostForParts(
      base,
      {"POST", target, json, "text/event-stream", seconds(600), cancel_fd},
      [&](std::string_view bytes) { return reader.Feed(bytes); }, on_event);
}

Status HttpPostLines(const BaseUrl& base, const std::string& target,
                     const std::string& json,
                     const std::function<Status(std::string_view)>& on_line,
                     int cancel_fd) {
  std::string held;  // of a line
  return PostForParts(
      base,
      {"POST", target, json, "application/x-ndjson", seconds(600), cancel_fd},
      [&](std::string_view bytes) { return LinesOf(bytes, held); }, on_line);
}

std::string ErrorText(int status, const std::string& body) {
  const StatusOr<Json> parsed = ParseJson(body);
  const Json* error = parsed.ok() ? FindMember(*parsed, "error") : nullptr;
  // Ollama's is the text itself.
  const std::string message = error == nullptr ? ""
                              : error->is_string()
                                  ? error->get<std::string>()
                                  : FindText(*error, "message");
  if (!message.empty()) return Cat(status, ": ", message);
  return Cat(status, ": ", body);
}

}  // namespace sluice::http
