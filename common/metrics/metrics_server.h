#ifndef SLUICE_COMMON_METRICS_METRICS_SERVER_H_
#define SLUICE_COMMON_METRICS_METRICS_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/status.h"

namespace sluice::metrics {

class Registry;

// The answer of /readyz: 200 if `ready`, else 503; `json` is the body.
struct Readiness {
  bool ready = false;
  std::string json = "{}";
};

struct MetricsServerOptions {
  std::string listen = "127.0.0.1:0";  // port 0: choose one, see port()
  // Both are called on the server's thread and must not block.
  const Registry* registry = nullptr;  // outlives the server
  std::function<Readiness()> readiness;
  // Further answers, JSON, by path ("/experts"); called as the two above.
  std::map<std::string, std::function<std::string()>, std::less<>> pages;
};

// A small HTTP/1.1 listener for probes and scrapes: GET and HEAD of /metrics,
// /livez, /readyz and the pages given, one answer per connection. It has one
// thread, "metrics", which no work of the process can delay; slow or silent
// clients are dropped after 5 s, or when 64 later ones came, and do not delay
// others.
class MetricsServer {
 public:
  // INVALID_ARGUMENT for an address that is not "IPv4:port", "[IPv6]:port" or
  // "localhost:port"; UNAVAILABLE if it cannot be bound.
  static StatusOr<std::unique_ptr<MetricsServer>> Start(
      MetricsServerOptions options);
  ~MetricsServer();  // stops and joins
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  int port() const;

 private:
  class Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::metrics

#endif  // SLUICE_COMMON_METRICS_METRICS_SERVER_H_
