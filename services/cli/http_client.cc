#include "services/cli/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <limits>
#include <optional>
#include <utility>

#include "common/base/json.h"
#include "services/cli/sse_reader.h"

namespace sluice::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Error = beast::error_code;
using std::chrono::seconds;

// One connection; every call blocks, `timeout` at most.
class Connection {
 public:
  explicit Connection(seconds timeout) : timeout_(timeout) {}

  Status Connect(const BaseUrl& base) {
    asio::ip::tcp::resolver resolver(io_);
    Error error;
    const auto found = resolver.resolve(base.host, base.port, error);
    if (!error) {
      error = Await([&](auto done) {
        stream_.async_connect(found, [done](Error e, auto&&) { done(e); });
      });
    }
    return ToStatus(error, "connecting to", base);
  }

  Status Send(const BaseUrl& base, http::verb verb, const std::string& target,
              const std::string& body, const char* accept = nullptr) {
    http::request<http::string_body> request(verb, target, 11, body);
    request.set(http::field::host, base.host + ":" + base.port);
    request.set(http::field::content_type, "application/json");
    if (!base.api_key.empty()) {
      request.set(http::field::authorization, "Bearer " + base.api_key);
    }
    if (accept != nullptr) request.set(http::field::accept, accept);
    request.keep_alive(false);
    request.prepare_payload();
    return ToStatus(Await([&](auto done) {
                      http::async_write(stream_, request,
                                        [done](Error e, size_t) { done(e); });
                    }),
                    "sending to", base);
  }

  template <typename Parser>
  Status ReadAll(const BaseUrl& base, Parser& parser) {
    return ToStatus(Await([&](auto done) {
                      http::async_read(stream_, buffer_, parser,
                                       [done](Error e, size_t) { done(e); });
                    }),
                    "reading from", base);
  }

  template <typename Parser>
  Status ReadHeader(const BaseUrl& base, Parser& parser) {
    return ToStatus(Await([&](auto done) {
                      http::async_read_header(
                          stream_, buffer_, parser,
                          [done](Error e, size_t) { done(e); });
                    }),
                    "reading from", base);
  }

  // The bytes of the body that are there next; empty at its end.
  StatusOr<std::string> ReadSome(
      const BaseUrl& base, http::response_parser<http::buffer_body>& parser) {
    char bytes[8192];
    while (!parser.is_done()) {
      parser.get().body().data = bytes;
      parser.get().body().size = sizeof(bytes);
      Error error = Await([&](auto done) {
        http::async_read_some(stream_, buffer_, parser,
                              [done](Error e, size_t) { done(e); });
      });
      if (error == http::error::need_buffer) error = {};
      SLUICE_RETURN_IF_ERROR(ToStatus(error, "reading from", base));
      const size_t read = sizeof(bytes) - parser.get().body().size;
      if (read > 0) return std::string(bytes, read);
    }
    return std::string();
  }

 private:
  // Starts an operation and runs it to its end.
  template <typename Start>
  Error Await(Start start) {
    Error result;
    stream_.expires_after(timeout_);
    start([&result](Error error) { result = error; });
    io_.restart();
    io_.run();
    return result;
  }

  static Status ToStatus(Error error, std::string_view doing,
                         const BaseUrl& base) {
    if (!error) return OkStatus();
    if (error == beast::error::timeout) {
      return DeadlineExceeded(doing, " ", base.host, ":", base.port,
                              ": no answer in time");
    }
    return Unavailable(doing, " ", base.host, ":", base.port, ": ",
                       error.message());
  }

  asio::io_context io_{1};
  beast::tcp_stream stream_{io_};
  beast::flat_buffer buffer_;
  const seconds timeout_;
};

StatusOr<HttpResponse> Call(const BaseUrl& base, http::verb verb,
                            const std::string& target, const std::string& body,
                            seconds timeout, const char* accept = nullptr) {
  Connection connection(timeout);
  SLUICE_RETURN_IF_ERROR(connection.Connect(base));
  SLUICE_RETURN_IF_ERROR(connection.Send(base, verb, target, body, accept));
  http::response_parser<http::string_body> parser;
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  SLUICE_RETURN_IF_ERROR(connection.ReadAll(base, parser));
  const auto type = parser.get()[http::field::content_type];
  return HttpResponse{static_cast<int>(parser.get().result_int()),
                      std::string(type.data(), type.size()),
                      std::move(parser.get().body())};
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
  return Call(base, http::verb::get, target, "", timeout);
}

StatusOr<HttpResponse> HttpPost(const BaseUrl& base, const std::string& target,
                                const std::string& json, seconds timeout) {
  return Call(base, http::verb::post, target, json, timeout);
}

StatusOr<HttpResponse> HttpPostForBytes(const BaseUrl& base,
                                        const std::string& target,
                                        const std::string& json) {
  return Call(base, http::verb::post, target, json, seconds(600),
              "application/octet-stream");
}

Status HttpPostEvents(const BaseUrl& base, const std::string& target,
                      const std::string& json,
                      const std::function<Status(std::string_view)>& on_event) {
  Connection connection(seconds(600));
  SLUICE_RETURN_IF_ERROR(connection.Connect(base));
  SLUICE_RETURN_IF_ERROR(connection.Send(base, http::verb::post, target, json));
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  SLUICE_RETURN_IF_ERROR(connection.ReadHeader(base, parser));
  const int status = static_cast<int>(parser.get().result_int());
  SseReader reader;
  std::string refusal;
  for (;;) {
    SLUICE_ASSIGN_OR_RETURN(const std::string bytes,
                            connection.ReadSome(base, parser));
    if (bytes.empty()) break;
    if (status != 200) {
      refusal += bytes;
      continue;
    }
    for (const std::string& event : reader.Feed(bytes)) {
      SLUICE_RETURN_IF_ERROR(on_event(event));
    }
  }
  if (status == 200) return OkStatus();
  return FailedPrecondition(ErrorText(status, refusal));
}

std::string ErrorText(int status, const std::string& body) {
  const StatusOr<Json> parsed = ParseJson(body);
  if (parsed.ok() && parsed->is_object() && parsed->contains("error")) {
    const Json& error = (*parsed)["error"];
    if (error.is_object() && error.contains("message") &&
        error["message"].is_string()) {
      return Cat(status, ": ", error["message"].get<std::string>());
    }
  }
  return Cat(status, ": ", body);
}

}  // namespace sluice::cli
