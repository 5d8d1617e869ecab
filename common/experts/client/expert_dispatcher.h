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
#include "common/model_config/layer_split.h"
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
  // Nothing heard of a host for so long: the host gets no new work while
  // another one with the same experts is heard of.
  Duration silent_after = std::chrono::milliseconds(500);
  Duration ping_every = std::chrono::milliseconds(100);
  // Between two attempts to reach a host; doubles from the first to the last.
  Duration first_backoff = std::chrono::milliseconds(50);
  Duration last_backoff = std::chrono::seconds(1);
  // Batches that may be sent twice because they are late, saved up; one of ten
  // adds to them.
  double most_hedges = 10;
  ExpertClientMetrics* metrics = nullptr;  // lives until Stop; may be null
  // Told when what Ready says has changed, by "expert-watch" alone; may be
  // null.
  std::function<void(bool ready)> on_ready = {};
};

// A batch that is not answered yet.
struct ExpertCall {
  int32_t host = 0;
  uint64_t dispatch = 0;  // which layer's
  std::vector<size_t> units;
  std::vector<int32_t> rows;
  wire::SentBatch asked;
  int64_t sent_ns = 0;
  int64_t pairs = 0;
};

// A stage's remote experts: one stream to every host that the placement names
// for the stage's layers. Begin dispatches a layer's rows in batches, each to
// the replica with the least work outstanding; a batch that is late (beyond
// the 99th percentile of its size) goes to another replica too, one that is
// lost or refused at once; the first answer is taken, as all give the same
// bits. Finish waits and combines. Rows that no host is left for fail with
// UNAVAILABLE, naming experts and layers.
//
// Begin and Finish: the stage's thread. The others: any. The thread
// "expert-watch" pings and reconnects. One mutex guards the hosts and what is
// dispatched; batches are made and sent outside of it. Streams' callbacks hold
// weak references: call Stop before the last reference goes.
class ExpertDispatcher final
    : public ExpertTransport,
      public std::enable_shared_from_this<ExpertDispatcher> {
 public:
  // INVALID_ARGUMENT for a host without an address or with one that may not
  // be used. Connects to nothing yet.
  static StatusOr<std::shared_ptr<ExpertDispatcher>> Make(
      const ModelConfig& config, DispatchOptions options);
  ~ExpertDispatcher() override;

  // Begins to connect, as the stage that `info` tells of. Once.
  void Connect(const StageInfo& info);
  // OK if every remote expert has a host that can be sent to. UNAVAILABLE
  // names the first that has none, its hosts and why.
  Status Ready() const;
  // Waits for that, at most until `deadline`; what Ready says then.
  Status WaitReady(TimePoint deadline) const;
  // Ends all streams; what is dispatched fails. Idempotent.
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

  // What a host's stream of that generation says.
  void OnWelcome(int32_t host, uint64_t generation,
                 const wire::ExpertWelcome& welcome);
  void OnResult(int32_t host, uint64_t generation,
                const v1::ExpertResult& proto, Buffer sums);
  void OnPong(int32_t host, uint64_t generation, const v1::ExpertPong& pong);
  void OnEnd(int32_t host, uint64_t generation, const Status& status);
  // The call was answered.
  void Settle(ExpertCall call, wire::ExpertResult result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The call will not be answered: its units are open to other hosts.
  void Lose(const ExpertCall& call, bool refused, const Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ExpertCall TakeCall(Calls::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The stage's thread: everything that can be sent now.
  void SendAll() ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(const HostBatch& outgoing) ABSL_LOCKS_EXCLUDED(mutex_);

  const DispatchOptions options_;
  const ShardMap map_;
  wire::ExpertHello hello_;  // const after Connect
  // The stage's thread alone changes its structure; the units' states are
  // guarded.
  std::unique_ptr<LayerDispatch> layer_;
  uint64_t wire_epoch_ = 0;
  uint64_t next_batch_ = 1;

  mutable Mutex mutex_;
  mutable CondVar changed_;  // answers, hosts, stopping
  CondVar wake_watch_;       // stopping alone
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // By the placement's index: those with experts of the stage's layers.
  HostConnections hosts_ ABSL_GUARDED_BY(mutex_);
  uint64_t dispatch_ ABSL_GUARDED_BY(mutex_) = 0;  // open now; 0: none
  uint64_t last_dispatch_ ABSL_GUARDED_BY(mutex_) = 0;
  Calls calls_ ABSL_GUARDED_BY(mutex_);
  SendPlanner planner_ ABSL_GUARDED_BY(mutex_);
  NamedThread watch_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_EXPERT_DISPATCHER_H_
