#include "common/service/loading_server.h"

#include <utility>

#include "common/base/log.h"
#include "common/metrics/certificate_metrics.h"
#include "common/metrics/process_metrics.h"

namespace sluice {

Status LoadingServer::Open(Options options) {
  metrics::AddProcessMetrics(registry_, options.service, options.isa);
  metrics::AddPeerCertificates(registry_, options.certificate,
                               options.authority);
  if (options.listen.empty()) return OkStatus();
  http::ProbeOptions& probes = options.probes;
  probes.listen = options.listen;
  probes.pages["/metrics"] = [this] {
    return http::HttpResponse{
        200, std::string(metrics::kTextContentType), {}, registry_.Text()};
  };
  SLUICE_ASSIGN_OR_RETURN(server_, http::StartProbeServer(std::move(probes)));
  LogInfo("metrics on port ", server_->port());
  return OkStatus();
}

int LoadingServer::metrics_port() const {
  return server_ == nullptr ? 0 : server_->port();
}

bool LoadingServer::SetOutcome(const Status& outcome) {
  {
    MutexLock lock(mutex_);
    if (outcome_.has_value()) return false;
    outcome_ = outcome;
  }
  ended_.NotifyAll();
  return true;
}

bool LoadingServer::loaded() const {
  MutexLock lock(mutex_);
  return outcome_.has_value() && outcome_->ok();
}

Status LoadingServer::WaitLoaded(TimePoint deadline, const char* what) {
  MutexLock lock(mutex_);
  while (!outcome_.has_value()) {
    if (!ended_.WaitUntil(mutex_, deadline)) break;
  }
  if (outcome_.has_value()) return *outcome_;
  return DeadlineExceeded(what, " still being loaded");
}

}  // namespace sluice
