#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_ASSEMBLER_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_ASSEMBLER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/log_limit.h"
#include "common/base/status.h"
#include "common/concurrency/named_thread.h"
#include "common/core/gateway_role.h"
#include "common/core/step_plan.h"
#include "common/pipeline/gateway/leadership.h"
#include "common/pipeline/gateway/pipeline_events.h"
#include "common/pipeline/gateway/pipeline_observer.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "common/pipeline/gateway/plan_channel.h"
#include "common/pipeline/gateway/stage_connection.h"
#include "common/pipeline/gateway/stage_holds.h"
#include "common/pipeline/gateway/stage_places.h"
#include "common/pipeline/gateway/stage_resplit.h"
#include "common/pipeline/gateway/status_board.h"
#include "common/rpc/transport_options.h"

namespace sluice {

struct PipelineOptions {
  // The first process of each place: "host:port" or "unix:PATH".
  std::vector<std::string> stages;
  // Processes that may take any place whose own process is lost; they load the
  // layers of the place.
  std::vector<std::string> spares = {};
  // The layers of every place; empty: those that the stages hold.
  std::vector<StagePlace> places = {};
  ReplicaId replica;
  // Whether plans may name tokens that are not known yet: then the first of
  // several stages reads them from the last one.
  bool steps_ahead = false;
  std::string gateway_id;  // of this run, for people; empty: random
  std::string build;       // for people, shown by the stages
  // transport.peer_timeout: silence after which a connection is given up.
  rpc::TransportOptions transport;
  // Silence after which a stage of the pipeline is lost; at most peer_timeout.
  Duration lost_after = std::chrono::milliseconds(2500);
  Duration suspect_after = std::chrono::seconds(2);
  Duration heartbeat = std::chrono::milliseconds(250);
  // Silence of this gateway after which the stages are another gateway's that
  // asks for them; zero: the stages' peer timeout.
  Duration lease{};
  // When the stages that are there split the layers anew.
  ResplitOptions resplit;
  // Whether this gateway speaks for the stages' model; may be empty. A refusal
  // is shown and tried again when a stage has changed.
  std::function<Status(const StageFacts&)> check_model;
};

enum class PipelinePhase {
  kGathering,  // a stage has not sent Welcome, or a retry is due later
  kAssigning,  // last stage first
  kOpening,    // the channel of plans
  kUp,
};

// The gateway's end of one replica: connects to all stages, gives each its
// place in an epoch (a layer range and a successor), opens the channel of plans
// and results, and builds the pipeline anew when a stage was lost. One thread,
// "pipeline", owns its state; gRPC's threads leave events for it.
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
  using Phase = PipelinePhase;
  PipelineAssembler(PipelineOptions options, StageConnections stages);

  // The thread "pipeline".
  void Run();
  void Tick(TimePoint now);
  // Takes the stages that it may hold, in order, and lets go of the others.
  void TakeStages(TimePoint now);
  void OnControl(size_t index, const v1::ControlResponse& response,
                 int64_t received_ns);
  void OnWelcome(size_t index);
  void OnAssigned(size_t index, const v1::Assigned& assigned);
  void OnFailure(size_t index, const v1::Failure& failure);
  // Loses the pipeline, if there is one, and forgets the stage's stream.
  // Returns the stream, for the caller to half-close or cancel. `absence`: as
  // for StageConnection::End.
  std::shared_ptr<ControlLink> EndStage(
      size_t index, const Status& why,
      std::optional<Absence> absence = std::nullopt);
  // Releases a stage that was told to end, once nothing needs it, or a spare
  // takes its place.
  void ReleaseLeaving(size_t index);
  // While one is up: loses a stage that holds up others, lets a process join.
  void WatchUp(TimePoint now);
  // While no pipeline is up: fills the places, and begins an epoch once every
  // place has its process. `may_fill`: else processes keep their places.
  void Gather(TimePoint now, bool may_fill);
  // Joins the stages to a pipeline and begins an epoch, if they fit.
  void BeginAssigning(TimePoint now);
  void OnUp(Epoch epoch);
  // The pipeline cannot go on because of stage `index`. `peer`: of a stream
  // that broke (see StagePlaces::OnStreamBroken).
  void Lose(size_t index, const Status& why,
            const std::optional<std::string>& peer = std::nullopt);
  // Ends the epoch because of message_, by choice if `is_planned`.
  void EndEpoch(bool is_planned);
  void OnException(const Status& what);
  void Publish();

  const PipelineOptions options_;
  PipelineObserver* observer_ = nullptr;  // since Start
  const std::shared_ptr<PipelineEvents> events_;
  StageHolds holds_;
  StagePlaces places_;
  StageResplit resplit_;
  const StageConnections& stages_;  // places_.stages()
  const std::shared_ptr<PlanChannel> plans_;
  NamedThread thread_;
  std::atomic<bool> stopping_{false};
  LogLimit exceptions_log_{8, std::chrono::seconds(1)};

  StatusBoard board_;

  // The thread "pipeline" from here on.
  bool draining_ = false;
  PipelinePhase phase_ = Phase::kGathering;
  StageFacts joined_;
  std::optional<StageFacts> model_;  // the latest joined_
  Leadership leadership_;
  wire::PipelineName name_;  // of the epoch that is up or being assigned
  size_t assigning_ = 0;     // the stage whose answer is awaited
  TimePoint assign_at_{};    // not before
  Duration assign_backoff_{};
  TimePoint phase_deadline_{};           // of kAssigning and kOpening
  TimePoint down_since_ = Clock::now();  // unless kUp
  bool was_up_ = false;                  // at some time
  Duration last_recovery_{};             // of a pipeline that had been up
  TimePoint heartbeat_at_{};
  uint64_t heartbeats_ = 0;
  std::string message_ = "connecting to the stages";
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_PIPELINE_ASSEMBLER_H_
