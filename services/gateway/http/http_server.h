#ifndef SLUICE_SERVICES_GATEWAY_HTTP_HTTP_SERVER_H_
#define SLUICE_SERVICES_GATEWAY_HTTP_HTTP_SERVER_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "services/gateway/http/exchange.h"

namespace sluice::gateway {

struct HttpLimits {
  size_t header_bytes = size_t{16} << 10;
  size_t body_bytes = size_t{8} << 20;
  size_t all_body_bytes = size_t{256} << 20;  // of all requests at once
  int connections = 4096;
  // Unsent bytes of one streamed answer before its reader counts as gone.
  size_t backlog_bytes = size_t{1} << 20;
  // Who takes longer is cut off without an answer.
  Duration header_time = std::chrono::seconds(10);  // whole header
  Duration body_time = std::chrono::seconds(60);    // whole body
  Duration idle_time = std::chrono::seconds(75);    // between requests
  Duration write_time = std::chrono::seconds(30);   // one write
};

// An answered exchange, for metrics. `status` 0: the client left first.
struct ExchangeSummary {
  std::string_view method;
  std::string_view route;
  int status = 0;
  Duration duration{};
};

struct HttpServerOptions {
  std::string listen = "127.0.0.1:8000";  // IP:port; port 0: choose one
  int threads = 2;
  HttpLimits limits;
  // Called on the exchange's loop; must not block.
  std::function<void(std::shared_ptr<Exchange>)> handler;
  // An answer to what never became a request: status and a short reason.
  std::function<HttpResponse(int, std::string_view)> error_response;
  std::function<void(const ExchangeSummary&)> observer;  // may be empty
};

// Live figures, for metrics. Any thread.
struct HttpServerStats {
  std::atomic<int> connections{0};
  std::atomic<int> exchanges{0};            // begun, not ended
  std::atomic<long long> body_bytes{0};     // announced or held
  std::atomic<long long> backlog_bytes{0};  // unsent, of all connections
  std::atomic<long long> disconnects{0};    // clients gone before the end
  std::atomic<long long> slow_readers{0};   // of them, cut off by us
};

// HTTP/1.1 with keep-alive and pipelining. Threads "http-0", "http-1", ..:
// each runs one event loop, and a connection stays on the loop it was given.
class HttpServer {
 public:
  // INVALID_ARGUMENT for a bad address, UNAVAILABLE if it cannot be bound.
  static StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options);
  ~HttpServer();  // Stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  const HttpServerStats& stats() const;

  // Accepts no more, closes idle connections, and closes the others after
  // the answer at hand.
  void BeginDrain();
  // Waits until no exchange is in progress; false if `deadline` came first.
  bool WaitIdle(TimePoint deadline) const;
  // Ends what is left with Gone::kShutdown, joins the threads. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HTTP_HTTP_SERVER_H_
