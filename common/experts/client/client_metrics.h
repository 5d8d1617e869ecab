#ifndef SLUICE_COMMON_EXPERTS_CLIENT_CLIENT_METRICS_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_CLIENT_METRICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/wire/expert.h"

namespace sluice {

// A stage's series about its expert hosts. Any thread.
class ExpertClientMetrics {
 public:
  enum class Outcome {
    kUsed,
    kLate,     // another replica was first, or the layer was done
    kRefused,  // by the host
    kLost,     // with the stream
  };

  // `hosts`: all names; an empty name is a host without use and without series.
  // `registry` must outlive this object.
  ExpertClientMetrics(metrics::Registry* registry,
                      const std::vector<std::string>& hosts);

  void OnUp(int32_t host, bool up);
  void OnSilent(int32_t host, bool silent);
  // A batch was made in `serialise_ns`; its trip begins then.
  void OnSent(int64_t serialise_ns);
  void OnHedge(int32_t host);  // that gets a late batch as well
  void OnRetry(int32_t host);  // that gets a batch in the place of another host
  void OnOutcome(int32_t host, Outcome outcome);
  // A batch was answered after `nanos`.
  void OnTrip(int32_t host, int64_t nanos, const wire::ExpertTimes& there);
  // A layer waited for `wait_ns`, and this many rows got no answer.
  void OnLayer(int64_t wait_ns, size_t failed_rows);

 private:
  struct Host {
    metrics::Gauge up;
    metrics::Gauge silent;
    std::vector<metrics::Counter> outcomes;  // by Outcome
    metrics::Counter hedges;
    metrics::Counter retries;
    metrics::Histogram trip;
  };
  Host& at(int32_t host) { return hosts_[static_cast<size_t>(host)]; }

  std::vector<Host> hosts_;
  metrics::Histogram serialise_;
  metrics::Histogram wire_;
  metrics::Histogram queue_;
  metrics::Histogram compute_;
  metrics::Histogram wait_;
  metrics::Counter failed_rows_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_CLIENT_METRICS_H_
