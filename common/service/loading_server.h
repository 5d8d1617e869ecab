#ifndef SLUICE_COMMON_SERVICE_LOADING_SERVER_H_
#define SLUICE_COMMON_SERVICE_LOADING_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/http/probe_server.h"
#include "common/metrics/metrics.h"

namespace sluice {

// What a process that loads a part of a model has beside its work: the series
// of every process, the port of probes and metrics, and the outcome of the
// first load. A server owns it, as the registry, which must outlive it. The
// thread that starts and stops the server calls Open and Close; any thread the
// other functions.
class LoadingServer {
 public:
  struct Options {
    std::string service;      // "stage", "expert"
    std::string isa;          // of sluice_build_info
    std::string certificate;  // of its peers' TLS, and the authority; may be
    std::string authority;    // empty
    std::string listen;       // of probes and metrics; empty: no port
    // Pages besides /metrics, and whether the process is ready. "metrics-0"
    // calls them, until Close returns.
    http::ProbeOptions probes;
  };

  explicit LoadingServer(metrics::Registry* registry) : registry_(*registry) {}

  // Adds the series and begins to answer probes. Errors as StartProbeServer.
  Status Open(Options options);
  // Ends the port. Idempotent.
  void Close() { server_.reset(); }
  int metrics_port() const;  // 0: there is no port

  // Ends the first load; returns false, and changes nothing, for a later one.
  bool SetOutcome(const Status& outcome);
  bool loaded() const;  // the first load has ended well
  // Returns the outcome of the first load; DEADLINE_EXCEEDED, which says that
  // `what` is still being loaded, if there is none by `deadline`.
  Status WaitLoaded(TimePoint deadline, const char* what);

 private:
  metrics::Registry& registry_;
  std::unique_ptr<http::HttpServer> server_;
  mutable Mutex mutex_;
  CondVar ended_;
  std::optional<Status> outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice

#endif  // SLUICE_COMMON_SERVICE_LOADING_SERVER_H_
