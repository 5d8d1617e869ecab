#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_CLIENT_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_CLIENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/step_plan.h"
#include "common/engine/engine_loop.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "common/rpc/transport_options.h"

namespace sluice {

struct PipelineOptions {
  std::vector<std::string> stages;  // "host:port" or "unix:PATH", in order
  ReplicaId replica;
  std::string gateway_id;  // of this run, for people; empty: drawn
  std::string build;       // for people, shown by the stages
  // transport.peer_timeout: silence after which a stage is lost.
  rpc::TransportOptions transport;
  Duration suspect_after = std::chrono::seconds(2);
  Duration heartbeat = std::chrono::milliseconds(250);
  // Whether the stages' model is the one that this gateway speaks for; may
  // be empty. A refusal is shown and tried again when a stage has changed.
  std::function<Status(const PipelineModel&)> check_model;
};

// Who is told. on_up and on_lost come from the client's thread, in turn;
// on_result from gRPC's, between the two; the others from the client's thread
// while a pipeline is up, and may be empty. None may wait for the client.
struct PipelineCallbacks {
  // Plans of `epoch` within `limits` may be submitted.
  std::function<void(Epoch, const PlanLimits&, int num_stages)> on_up;
  // No plan of the epoch is answered any more. Names the stage's index,
  // address and layers, and why.
  std::function<void(const Status&)> on_lost;
  std::function<void(StepResult)> on_result;
  // A stage was told to end: no new sequences, those that live may end.
  std::function<void(const Status&)> on_leaving = nullptr;
  // Whether, since on_leaving, no plan is in flight and none will come. Then
  // the stage is let go, and on_lost follows. Empty: at once.
  std::function<bool()> idle = nullptr;
  // An event of the client threw: the pipeline is built anew. Any thread.
  std::function<void(const Status&)> on_exception = nullptr;
};

// `engine` must outlive the client, or Stop must have returned.
PipelineCallbacks CallbacksTo(EngineLoop* engine);

// The gateway's end of one replica: connects to all stages, assigns epochs,
// sends plans to the first stage and takes results from the last, watches
// that all of them live, and builds the pipeline anew when one was lost. One
// thread, "pipeline", owns its state; gRPC's threads enqueue.
class PipelineClient : public StepExecutor {
 public:
  // INVALID_ARGUMENT for addresses and durations that cannot be.
  static StatusOr<std::unique_ptr<PipelineClient>> Create(
      PipelineOptions options);
  ~PipelineClient() override;  // Stop
  PipelineClient(const PipelineClient&) = delete;
  PipelineClient& operator=(const PipelineClient&) = delete;

  // Begins to connect. Once.
  void Start(PipelineCallbacks callbacks);
  // Asks the stages to finish what they have, and waits till all of them
  // said that they did, at most until `deadline`. No pipeline is built any
  // more; plans that are submitted from here on may be lost. For the time
  // between the last plan and Stop. Not from within a callback.
  void Drain(TimePoint deadline);
  // Lets go of the stages. No callback comes afterwards. Idempotent. Not from
  // within a callback.
  void Stop();

  // Any thread; neither waits. A plan of another epoch than the current one
  // is dropped: its sender has been or will be told on_lost.
  void Submit(StepPlan plan) override;
  void OnPipelineBroken(Status why) override;

  // Any thread.
  PipelineStatus status() const;
  bool ready() const;  // up, and no stage is suspect
  // What the stages agreed on the last time the pipeline was joined.
  std::optional<PipelineModel> model() const;

 private:
  class Impl;
  explicit PipelineClient(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_CLIENT_H_
