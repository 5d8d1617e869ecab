#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_PLAN_CHANNEL_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_PLAN_CHANNEL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "common/engine/engine_loop.h"
#include "common/pipeline/gateway/handshake.h"
#include "common/pipeline/gateway/pipeline_events.h"
#include "common/pipeline/gateway/stage_connection.h"
#include "common/pipeline/gateway/stage_links.h"
#include "common/pipeline/gateway/step_traces.h"
#include "common/rpc/transport_options.h"

namespace sluice {

// Sends plans to the first stage and takes results from the last one, without
// the thread "pipeline", which opens and closes the channel for one epoch at a
// time. gRPC's callbacks hold weak references.
class PlanChannel : public StepExecutor,
                    public std::enable_shared_from_this<PlanChannel> {
 public:
  // Events of the streams, on the thread "pipeline".
  struct Events {
    // The stream of steps stands. The last stage keeps results until the other
    // one does, too.
    std::function<void(Epoch)> on_ready;
    // A stream of the epoch ended, because of stage `index`.
    std::function<void(Epoch, size_t index, const Status&)> on_end;
  };

  PlanChannel(ReplicaId replica, StageConnections stages,
              std::shared_ptr<PipelineEvents> events);

  // Sets the processes of the places. The thread "pipeline", while the channel
  // is closed.
  void SetStages(StageConnections stages);

  // Before Open. `on_result` runs on gRPC's threads, between GoLive and Close.
  void Start(Events events, std::function<void(StepResult)> on_result);

  // The thread "pipeline". Opens the streams of an epoch; all stages have sent
  // Welcome. on_ready or on_end follows, unless this returns an error.
  // `first`: of the first stage.
  Status Open(const wire::PipelineName& pipeline, const StageFacts& joined,
              const StageFacts& first, rpc::TransportOptions transport);
  // Lets plans and results of the latest Open pass.
  void GoLive();
  // Ends the streams. No on_result runs or comes after the return.
  void Close(const Status& why);

  // Any thread; neither waits. Submit drops a plan of another epoch than the
  // live one: its sender gets the news of the lost pipeline.
  void Submit(StepPlan plan) override;
  void OnPipelineBroken(Status why) override;

  // Returns the best clock estimates, from heartbeats and steps.
  std::vector<ClockEstimate> Clocks() const;
  // When the latest result came; a result passes through every stage.
  TimePoint last_result() const { return last_result_; }

 private:
  // gRPC's thread: a result, or a stream's end because of stage `index`.
  void Take(Epoch epoch, const v1::StepResult& proto, const PlanLimits& limits);
  void PostEnd(Epoch epoch, size_t index, const char* what,
               const Status& status);
  void SetLive(Epoch epoch, std::shared_ptr<rpc::CreditedSender> sender);

  const ReplicaId replica_;
  std::atomic<size_t> last_;  // the last stage's index
  const std::shared_ptr<PipelineEvents> events_;
  Events owner_;
  std::function<void(StepResult)> on_result_;

  // The thread "pipeline".
  Epoch epoch_;  // of the streams
  PlanLimits limits_;
  std::shared_ptr<rpc::CreditedSender> steps_;
  std::shared_ptr<ResultsLink> results_;

  mutable Mutex mutex_;
  StageConnections stages_ ABSL_GUARDED_BY(mutex_);
  Epoch submit_epoch_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<rpc::CreditedSender> sender_ ABSL_GUARDED_BY(mutex_);
  StepTraces traces_ ABSL_GUARDED_BY(mutex_);
  Mutex deliver_mutex_;  // held while on_result_ runs
  Epoch deliver_epoch_ ABSL_GUARDED_BY(deliver_mutex_);
  std::atomic<TimePoint> last_result_{TimePoint()};
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_PLAN_CHANNEL_H_
