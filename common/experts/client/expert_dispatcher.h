#ifndef SLUICE_COMMON_EXPERTS_CLIENT_EXPERT_DISPATCHER_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_EXPERT_DISPATCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/concurrency/named_thread.h"
#include "common/experts/client/client_metrics.h"
#include "common/experts/client/expert_stream.h"
#include "common/experts/client/host_connection.h"
#include "common/experts/client/layer_dispatch.h"
#include "common/experts/client/send_planner.h"
#include "common/model/expert_transport.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/layer_range.h"
#include "common/model_config/weights_mode.h"
#include "common/rpc/transport_options.h"
#include "common/stage/stage_info.h"
#include "common/wire/expert.h"

namespace sluice {

struct ModelConfig;

struct DispatchOptions {
  ExpertPlacement placement;  // of the model; its hosts have addresses
  LayerRange layers;          // of the stage
  int32_t max_step_tokens = 512;
  WeightsMode weights = WeightsMode::kAuto;
  rpc::TransportOptions transport;
  // A host that is silent for this long gets no new work while another host
  // with the same experts is not silent.
  Duration silent_after = std::chrono::milliseconds(500);
  Duration ping_every = std::chrono::milliseconds(100);
  // Between two attempts to reach a host; doubles from the first to the last.
  Duration first_backoff = std::chrono::milliseconds(50);
  Duration last_backoff = std::chrono::seconds(1);
  // The most late batches that may be sent twice in a row; every tenth batch
  // allows one more.
  double most_hedges = 10;
  ExpertClientMetrics* metrics = nullptr;  // lives until Stop; may be null
  // Called by "expert-watch" alone when Ready's result changes; may be null.
  std::function<void(bool ready)> on_ready = {};
};

// A batch without an answer yet.
struct ExpertCall {
  int32_t host = 0;
  uint64_t dispatch = 0;  // the number of the layer's Dispatch
  std::vector<size_t> units;
  std::vector<int32_t> rows;
  wire::SentBatch asked;
  int64_t sent_ns = 0;
  int64_t pairs = 0;
};

// A stage's remote experts: one stream to every host that the placement names
// for the stage's layers. Dispatch sends a layer's rows in batches, each to the
// replica with the least work outstanding. A late batch (beyond the 99th
// percentile of its size) goes to another replica as well, a lost or refused
// one at once. The first answer counts, since all have the same bits. Combine
// waits and adds. Rows without a host fail with UNAVAILABLE, which names
// experts and layers.
//
// The stage's thread calls Dispatch and Combine, any thread the others. The
// thread "expert-watch" pings and reconnects. One mutex guards hosts and
// dispatched units; batches are made and sent outside of it. Streams' callbacks
// hold weak references: call Stop before the last reference goes.
class ExpertDispatcher final
    : public ExpertTransport,
      public std::enable_shared_from_this<ExpertDispatcher> {
 public:
  // INVALID_ARGUMENT for a host without an address, or with one that may not be
  // used. Connects to nothing yet.
  static StatusOr<std::shared_ptr<ExpertDispatcher>> Make(
      const ModelConfig& config, DispatchOptions options);
  ~ExpertDispatcher() override;

  // Begins to connect, for the stage of `info`. Once.
  void Connect(const StageInfo& info);
  // OK if every remote expert has a usable host. UNAVAILABLE names the first
  // expert without one, its hosts and the reasons.
  Status Ready() const;
  // Waits until Ready is OK, at most until `deadline`; returns Ready's status.
  Status WaitReady(TimePoint deadline) const;
  // Ends all streams; dispatched rows fail. Idempotent.
  void Stop();

  std::span<const kernels::TreeNode> nodes(int32_t layer) const override {
    return map_.nodes(layer);
  }
  void Dispatch(const RoutedRows& routed) override;
  std::vector<RowFailure> Combine(
      const RoutedRows& routed,
      std::span<const kernels::Matrix> parts) override;

 private:
  using Calls = std::unordered_map<uint64_t, ExpertCall>;

  ExpertDispatcher(const ModelConfig& config, DispatchOptions options);

  void Watch();
  void Open(int32_t host) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status ReadyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Events of a host's stream of that generation.
  void OnWelcome(int32_t host, uint64_t generation,
                 const wire::ExpertWelcome& welcome);
  void OnResult(int32_t host, uint64_t generation,
                const v1::ExpertResult& proto, Buffer sums);
  void OnPong(int32_t host, uint64_t generation, const v1::ExpertPong& pong);
  void OnEnd(int32_t host, uint64_t generation, const Status& status);
  // Takes the answer of the call.
  void Settle(ExpertCall call, wire::ExpertResult result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives up the call: other hosts may take its units.
  void Lose(const ExpertCall& call, bool refused, const Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ExpertCall TakeCall(Calls::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The stage's thread: sends all units that a host can take now.
  void SendAll() ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(const HostBatch& outgoing) ABSL_LOCKS_EXCLUDED(mutex_);

  const DispatchOptions options_;
  const ShardMap map_;
  wire::ExpertHello hello_;  // const after Connect
  // The stage's thread changes its structure; the units' states are guarded.
  std::unique_ptr<LayerDispatch> layer_;
  Epoch wire_epoch_;
  uint64_t next_batch_ = 1;

  mutable Mutex mutex_;
  mutable CondVar changed_;  // answers, hosts, stopping
  CondVar wake_watch_;       // stopping alone
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // The hosts with experts of the stage's layers, by the placement's index.
  HostConnections hosts_ ABSL_GUARDED_BY(mutex_);
  uint64_t dispatch_ ABSL_GUARDED_BY(mutex_) = 0;  // open now; 0: none
  uint64_t last_dispatch_ ABSL_GUARDED_BY(mutex_) = 0;
  Calls calls_ ABSL_GUARDED_BY(mutex_);
  SendPlanner planner_ ABSL_GUARDED_BY(mutex_);
  NamedThread watch_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_EXPERT_DISPATCHER_H_
