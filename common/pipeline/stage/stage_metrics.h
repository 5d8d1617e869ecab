#ifndef SLUICE_COMMON_PIPELINE_STAGE_STAGE_METRICS_H_
#define SLUICE_COMMON_PIPELINE_STAGE_STAGE_METRICS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "common/rpc/rpc_observer.h"
#include "common/stage/stage.h"
#include "common/stage/stage_loop.h"

namespace sluice {

// The stage's series, and those of its gRPC server. Any thread.
class StageMetrics : public rpc::RpcObserver {
 public:
  enum class Peer { kPrevious, kNext, kGateway };
  enum class State { kLoading, kReady, kDraining, kFailed };

  // `registry` must outlive this object.
  explicit StageMetrics(metrics::Registry* registry);

  void SetState(State state);
  // Sets the figures of the loaded layers; StageInfo(): no layers.
  void OnLoaded(const StageInfo& info);
  // Copies the values that other classes count, at a scrape.
  void OnStats(const StageLoopStats& stats);

  // Counts a computed step.
  void OnStep(const StepOutput& output);
  // Counts a frame from or to a peer.
  void OnWire(Peer peer, int64_t bytes);
  void OnSerialized(int64_t nanos);
  // Counts how long a step waited for room in the successor's window.
  void OnWindow(int64_t nanos);
  // Counts the way to the successor and back, by this process's clock: from
  // sending a step to its ack, without the step's wait and computation there.
  void OnHop(int64_t nanos);

  // Counts a copy of keys and values to this stage.
  void OnCopied(bool is_whole, uint64_t bytes, int64_t nanos);

  void OnHandled(const std::string& method, StatusCode code,
                 Duration duration) override;

 private:
  struct Wire {
    metrics::Counter bytes;
    metrics::Counter messages;
  };
  void AddStepSeries();
  void AddGauges();
  // The series of several ranks.
  void AddRankSeries(int32_t ranks);
  metrics::Registry* const registry_;
  std::array<metrics::Histogram, 3> step_seconds_;  // prefill, decode, mixed
  metrics::Histogram compute_seconds_;
  metrics::Histogram input_wait_;
  metrics::Histogram window_wait_;
  // Of rank 0, and per rank; none with one rank.
  metrics::Histogram collective_wait_;
  metrics::Histogram reduce_seconds_;
  metrics::Histogram gather_seconds_;
  std::vector<metrics::Counter> rank_wait_;
  metrics::Histogram serialize_seconds_;
  metrics::Histogram hop_seconds_;
  metrics::Histogram batch_sequences_;
  metrics::Histogram batch_tokens_;
  std::array<Wire, 3> wire_;             // by Peer
  std::array<metrics::Gauge, 4> state_;  // by State
  metrics::Gauge busy_ratio_;
  metrics::Gauge queue_depth_;
  metrics::Gauge sequences_;
  metrics::Gauge kv_blocks_;
  metrics::Gauge kv_blocks_used_;
  metrics::Gauge kv_blocks_peak_;
  metrics::Gauge kv_bytes_;
  metrics::Gauge weights_bytes_;
  metrics::Gauge load_seconds_;
  metrics::Gauge first_layer_;
  metrics::Gauge num_layers_;
  metrics::Gauge epoch_;
  std::array<metrics::Counter, 2> kv_copies_;  // broken, whole
  metrics::Counter kv_copied_bytes_;
  metrics::Counter kv_copy_seconds_;
  metrics::Counter steps_;
  metrics::Counter steps_ahead_;
  metrics::Counter tokens_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_STAGE_METRICS_H_
