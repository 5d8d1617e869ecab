#ifndef SLUICE_SERVICES_GATEWAY_HTTP_METRICS_H_
#define SLUICE_SERVICES_GATEWAY_HTTP_METRICS_H_

#include <set>
#include <string>

#include "common/base/mutex.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"

namespace sluice::gateway {

// The series of answered requests: by handler under the usual names of HTTP
// instrumentation, by endpoint and error, and, with key_names, by API key. Any
// thread.
class HttpMetrics {
 public:
  HttpMetrics(metrics::Registry& registry, bool key_names)
      : registry_(registry), key_names_(key_names) {}

  void OnExchange(const http::ExchangeSummary& summary);

 private:
  // Returns a key's label: "other" beyond the first 64 keys.
  std::string KeyLabel(std::string_view tenant);

  metrics::Registry& registry_;
  const bool key_names_;
  Mutex mutex_;
  std::set<std::string, std::less<>> keys_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HTTP_METRICS_H_
