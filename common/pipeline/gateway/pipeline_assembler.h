#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_ASSEMBLER_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_ASSEMBLER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/log_limit.h"
#include "common/base/status.h"
#include "common/concurrency/named_thread.h"
#include "common/core/gateway_role.h"
#include "common/pipeline/gateway/cluster_decider.h"
#include "common/pipeline/gateway/pipeline_events.h"
#include "common/pipeline/gateway/pipeline_observer.h"
#include "common/pipeline/gateway/pipeline_options.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "common/pipeline/gateway/plan_channel.h"
#include "common/pipeline/gateway/stage_connection.h"
#include "common/pipeline/gateway/status_board.h"

namespace sluice {

// The gateway's end of one replica: connects to all stages, gives each its
// place in an epoch (a layer range and a successor), opens the channel of plans
// and results, and builds the pipeline anew when a stage was lost. What is to
// be done the ClusterDecider says; this class gives it what comes by streams,
// and carries out its actions. One thread, "pipeline", owns its state; gRPC's
// threads leave events for it.
class PipelineAssembler {
 public:
  // INVALID_ARGUMENT for impossible addresses and durations.
  static StatusOr<std::unique_ptr<PipelineAssembler>> Create(
      PipelineOptions options);
  ~PipelineAssembler();  // Stop
  PipelineAssembler(const PipelineAssembler&) = delete;
  PipelineAssembler& operator=(const PipelineAssembler&) = delete;

  // The engine's StepExecutor; lives as long as the assembler.
  PlanChannel& plans() { return *plans_; }

  // Begins to connect. Once.
  void Start(PipelineObserver* observer);
  // Asks the stages to finish their steps, and waits until they have, or
  // `deadline`. Builds no pipeline any more, and may lose plans submitted from
  // here on. For the time between the last plan and Stop. Not from the
  // observer.
  void Drain(TimePoint deadline);
  // Releases the stages; the observer is told nothing any more. Idempotent. Not
  // from the observer.
  void Stop();

  // Any thread.
  PipelineStatus status() const {
    return board_.status(plans_->Clocks(), Clock::now());
  }
  bool ready() const { return board_.ready(); }  // up, no stage is suspect
  GatewayRole role() const { return board_.role(); }

 private:
  // `connections`: by StageProcess::id.
  PipelineAssembler(PipelineOptions options, StageConnections connections);

  // The thread "pipeline".
  void Run();
  // Runs the next event, if one comes until `tick` is due, and what is due.
  void RunOnce(TimePoint& next_tick);
  void OnControl(uint64_t link_id, const v1::ControlResponse& response,
                 int64_t received_ns);
  void OnException(const Status& what);
  void OnBreak(const Status& why);
  OwnerSigns AskOwner();

  // Carries out all that is decided.
  void CarryOut();
  void Do(const act::OpenControl& open);
  void Do(const act::EndControl& end);
  void Do(const act::SendHeartbeat& heartbeat);
  void Do(const act::SendLoad& load);
  void Do(const act::SendAssign& assign);
  void Do(const act::SendDrain& drain);
  void Do(const act::SetHolders& holders);
  void Do(const act::OpenPlans& open);
  void Do(const act::LetPlansPass&);
  void Do(const act::ClosePlans& close);
  void Do(const act::TellUp& up);
  void Do(const act::TellLost& lost);
  void Do(const act::TellLeaving& leaving);
  void Do(const act::WriteLog& line);
  // Names those whose keys and values the stage copies.
  void AddDonors(const act::SendAssign& what, v1::Assign* assign) const;
  // The facts of a process, from its latest Welcome.
  const StageProcess& process(size_t id) const;

  // Shows the status.
  void Publish();
  // The same, after a look at who leads.
  void Lead();

  const PipelineOptions options_;
  const v1::Hello hello_;  // with the run's secret, for the stages alone
  PipelineObserver* observer_ = nullptr;  // since Start
  const std::shared_ptr<PipelineEvents> events_;
  const StageConnections connections_;
  const std::shared_ptr<PlanChannel> plans_;
  NamedThread thread_;
  std::atomic<bool> stopping_{false};
  LogLimit exceptions_log_{8, std::chrono::seconds(1)};
  StatusBoard board_;

  // The thread "pipeline" from here on.
  ClusterDecider decider_;
  wire::PipelineName name_;  // of the epoch that is up or being assigned
  wire::PipelineName up_;    // of the latest pipeline
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_ASSEMBLER_H_
