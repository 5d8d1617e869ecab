#ifndef SLUICE_COMMON_EXPERTS_HOST_EXPERT_METRICS_H_
#define SLUICE_COMMON_EXPERTS_HOST_EXPERT_METRICS_H_

#include <array>
#include <cstdint>
#include <string>

#include "common/experts/host/expert_heat.h"
#include "common/metrics/metrics.h"
#include "common/model/hosted_experts.h"
#include "common/rpc/rpc_observer.h"
#include "common/wire/expert.h"

namespace sluice {

struct ExpertLoopStats;

// The host's series, and those of its gRPC server. Any thread.
class ExpertMetrics : public rpc::RpcObserver {
 public:
  enum class State { kLoading, kReady, kDraining, kFailed, kStalled };

  // `registry` must outlive this object. `per_expert`: also one series per
  // layer and expert.
  ExpertMetrics(metrics::Registry* registry, bool per_expert);

  void SetState(State state);
  void OnLoaded(const HostedExpertsInfo& info);
  // Copies the values that other classes count, at a scrape.
  void OnScrape(const ExpertLoopStats& stats, int32_t clients,
                ExpertHeat& heat);

  // Batches were computed together.
  void OnComputed(int32_t batches, int32_t rows, int64_t nanos);
  // One of them has its result.
  void OnAnswered(const wire::ExpertResult& result);
  void OnRefused();
  void OnDropped();  // a result that could not be sent
  // The time to parse a frame and to write the answer.
  void OnSerialized(int64_t nanos);
  void OnWire(bool in, int64_t bytes);

  void OnHandled(const std::string& method, StatusCode code,
                 Duration duration) override;

 private:
  metrics::Registry* const registry_;
  const bool per_expert_;
  std::array<metrics::Counter, 2> batches_;     // answered, refused
  std::array<metrics::Counter, 2> rows_;        // answered, failed
  std::array<metrics::Counter, 2> wire_bytes_;  // in, out
  std::array<metrics::Gauge, 5> state_;         // by State
  metrics::Histogram batch_tokens_;
  metrics::Histogram joined_batches_;
  metrics::Histogram queue_seconds_;
  metrics::Histogram compute_seconds_;
  metrics::Histogram serialize_seconds_;
  metrics::Counter dropped_;
  metrics::Gauge queue_depth_;
  metrics::Gauge clients_;
  metrics::Gauge busy_ratio_;
  metrics::Gauge weights_bytes_;
  metrics::Gauge load_seconds_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_HOST_EXPERT_METRICS_H_
