#ifndef SLUICE_COMMON_HTTP_HTTP_SERVER_H_
#define SLUICE_COMMON_HTTP_HTTP_SERVER_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/cors.h"
#include "common/http/exchange.h"
#include "common/http/trusted_proxies.h"

namespace sluice::http {

struct HttpLimits {
  size_t header_bytes = size_t{16} << 10;
  size_t body_bytes = size_t{8} << 20;
  size_t all_body_bytes = size_t{256} << 20;  // of all requests at once
  int connections = 4096;
  // The limit of one client (an IPv4 address, or 64 bits of an IPv6 one) while
  // all connections are taken and another client waits for one.
  int connections_per_client = 1024;
  // Of all answers together, collected or unsent; see AnswerMemory.
  size_t all_backlog_bytes = size_t{256} << 20;
  // A slower client is disconnected without an answer: the time of a whole
  // header, of a connection's first byte, and of a TLS handshake.
  Duration header_time = std::chrono::seconds(10);
  // Of a whole body, which gets 408 beyond it.
  Duration body_time = std::chrono::seconds(60);
  // Bytes per second that a body must have had after its first seconds, else it
  // gets 408; 0: none.
  int min_body_rate = 500;
  Duration body_grace = std::chrono::seconds(10);
  Duration idle_time = std::chrono::seconds(75);  // between requests
  // Per 64 KiB of an answer, or a smaller block. A client that takes less
  // within this time is disconnected. Clients make room in steps: one that
  // reads 8 KiB/s may take most of a minute for one.
  Duration write_time = std::chrono::seconds(60);
  // The interval of probes to a client that half-closed its connection.
  Duration half_closed_time = std::chrono::seconds(2);
};

// PEM files; both empty: plain HTTP.
struct TlsFiles {
  std::string certificate;  // with the chain that leads to its signer
  std::string key;
};

// An answered exchange, for metrics. `status` 0: the client left first.
struct ExchangeSummary {
  std::string_view method;
  std::string_view route;  // "other": refused before it had one
  int status = 0;
  Duration duration{};
  std::string_view tenant;      // the API key's name, or empty
  std::string_view error_type;  // of the ApiError, or empty
  size_t request_bytes = 0;     // of the bodies
  size_t response_bytes = 0;
  std::string_view error_code = {};  // of the ApiError, or empty
  // Null only for bytes that are no request.
  const HttpRequest* request = nullptr;
  const AnswerFigures* figures = nullptr;  // null: refused before a route
};

struct HttpServerOptions {
  std::string listen = "127.0.0.1:8000";  // IP:port; port 0: choose one
  int threads = 2;
  std::string thread_name = "http";  // "http-0", ..; at most 11 bytes
  bool keep_alive = true;            // false: one answer per connection
  HttpLimits limits;
  TlsFiles tls;  // read again when they change
  CorsPolicy cors;
  TrustedProxies proxies;  // whose clients are told apart
  // Screens a request before its body is read: returns an answer to refuse it,
  // nothing to accept it. On the connection's loop; must not block. May be
  // empty.
  std::function<std::optional<HttpResponse>(HttpRequest&)> screen;
  // Called on the exchange's loop; must not block.
  std::function<void(std::shared_ptr<Exchange>)> handler;
  // Returns how the client of a request reads errors; of one that is not known
  // all members are empty. Any thread; must not block.
  ClientFormat (*client_format)(const HttpRequest& request) =
      [](const HttpRequest&) { return ClientFormat(); };
  std::function<void(const ExchangeSummary&)> observer;  // may be empty
};

// Live figures, for metrics. Any thread.
struct HttpServerStats {
  std::atomic<int> connections{0};
  std::atomic<int> exchanges{0};            // begun, not ended
  std::atomic<int> late_exchanges{0};       // of them, begun while draining
  std::atomic<long long> body_bytes{0};     // announced or held
  std::atomic<long long> backlog_bytes{0};  // unsent, of all connections
  std::atomic<long long> disconnects{0};    // clients gone before the end
  std::atomic<long long> slow_readers{0};   // of them, cut off by us
  std::atomic<long long> evictions{0};      // connections closed to make room
  // CPU time that one event held its loop for: the longest so far, and the
  // number of events above 50 ms.
  std::atomic<long long> longest_hold_ns{0};
  std::atomic<long long> long_holds{0};
};

// Whether only this machine reaches `listen` ("IP:port"). INVALID_ARGUMENT for
// text that is no address.
StatusOr<bool> IsLoopback(const std::string& listen);

// HTTP/1.1 with keep-alive and pipelining. Threads "http-0", "http-1", .. (of
// the options' name): each runs one event loop, and a connection stays on the
// loop it was given.
class HttpServer {
 public:
  // INVALID_ARGUMENT for a bad address or TLS file, UNAVAILABLE if the address
  // cannot be bound. Lowers limits.connections, with a warning, if
  // RLIMIT_NOFILE would leave no descriptors for other uses.
  static StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options);
  ~HttpServer();  // Stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  const HttpServerStats& stats() const;

  // Every later answer says Connection: close, and idle connections are closed.
  // The listener stays open, so that probes and scrapes get answers until Stop;
  // the handler refuses new work.
  void BeginDrain();
  // Waits until no exchange from before BeginDrain is in progress; false if
  // `deadline` came first.
  bool WaitIdle(TimePoint deadline) const;
  // Closes the listener, and no client that is connected goes without an
  // answer: the server takes no new connection, and lets in those that had
  // begun. Returns when all connections have ended, or at `deadline`. After
  // BeginDrain.
  void CloseListener(TimePoint deadline);
  // Ends all exchanges with Gone::kShutdown and joins the threads. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::http

#endif  // SLUICE_COMMON_HTTP_HTTP_SERVER_H_
