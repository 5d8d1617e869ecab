#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_CLUSTER_DECIDER_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_CLUSTER_DECIDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/gateway_role.h"
#include "common/core/stage_identity.h"
#include "common/pipeline/gateway/cluster_actions.h"
#include "common/pipeline/gateway/leadership.h"
#include "common/pipeline/gateway/pipeline_options.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "common/pipeline/gateway/stage_holds.h"
#include "common/pipeline/gateway/stage_places.h"
#include "common/pipeline/gateway/stage_resplit.h"
#include "common/wire/stage.h"

namespace sluice {

enum class PipelinePhase {
  kGathering,  // a stage has not sent Welcome, or a retry is due later
  kAssigning,  // last stage first
  kOpening,    // the channel of plans
  kUp,
};

// What the pipeline's owner says of itself, at one moment.
struct OwnerSigns {
  bool is_idle = true;     // PipelineObserver::IsIdle
  bool is_stuck = false;   // PipelineObserver::IsStuck
  int64_t pause_cost = 0;  // PipelineObserver::PauseCost
};

// Decides what a gateway does with its stages: takes hold of them, gives each
// its place in an epoch, finds out who is lost, who takes a place, when the
// layers are split anew and when a process joins. Messages, ends of streams and
// the time come in as values. Actions come out, in order, and the caller
// carries them out. The class has no stream, no clock and no thread. It copies
// `options`, and reads the peer timeout alone of their transport.
//
// One thread calls it. The thread carries out all actions before it says more,
// with two exceptions. While it carries out an action it may call Lead, which
// adds no action, and OnPlansEnd where OpenPlans fails. After an exception it
// may call OnBreak before it carries out the actions that are left.
class ClusterDecider {
 public:
  ClusterDecider(const PipelineOptions& options, TimePoint now);
  ClusterDecider(const ClusterDecider&) = delete;
  ClusterDecider& operator=(const ClusterDecider&) = delete;

  // Returns the next thing to do; nothing: all is done.
  std::optional<act::Action> Next() { return out_.Pop(); }

  // Streams and messages ------------------------------------------------------

  // Returns the index of the stage with Control stream `link_id`, for the
  // methods below; nothing: the stream is not the stage's any more.
  std::optional<size_t> IndexOf(uint64_t link_id) const {
    return places_.IndexOf(link_id);
  }
  // An error: the gateway cannot work with the Welcome.
  void OnWelcome(size_t index, StatusOr<StageWelcome> welcome, TimePoint now);
  // Also of a heartbeat that is not outstanding, and of unknown messages.
  void OnHeard(size_t index, TimePoint now) { stages_[index]->OnHeard(now); }
  void OnHeartbeat(size_t index, const StageLoad& load, Duration rtt) {
    stages_[index]->OnHeartbeat(load, rtt);
  }
  void OnAssigned(size_t index, Epoch epoch, const KvAnswer& kv,
                  const Status& status, TimePoint now);
  void OnFailure(size_t index, Epoch epoch, v1::FailureSide side,
                 const Status& why, TimePoint now);
  // Ignored before BeginDrain: the message may be the answer to the gateway
  // that held the stage before.
  void OnDrained(size_t index) {
    if (draining_) stages_[index]->OnDrained();
  }
  // The stage was told to end; ReleaseLeaving follows.
  void OnDraining(size_t index, Duration remaining, TimePoint now);
  // Has the place or the layers of a stage that was told to end moved to other
  // processes, and releases the stage once they have its keys and values, or
  // nothing needs it.
  void ReleaseLeaving(size_t index, const OwnerSigns& owner, TimePoint now);
  // The stage's stream has ended.
  void OnEnd(size_t index, const Status& why, TimePoint now) {
    EndStage(index, why, std::nullopt, now);
  }
  // The stream of steps of `epoch` stands.
  void OnPlansOpen(Epoch epoch, TimePoint now);
  // A stream of plans or results of `epoch` broke because of place `index`.
  void OnPlansEnd(Epoch epoch, size_t index, const Status& why, TimePoint now);
  // The present pipeline cannot go on.
  void OnBreak(const Status& why, TimePoint now) { Lose(0, why, now); }

  // Time ----------------------------------------------------------------------

  // Once per heartbeat or more often. `passed`: when the latest result came.
  void Tick(TimePoint now, TimePoint passed, const OwnerSigns& owner);
  // When Raise is due; nothing: no term is being raised.
  std::optional<TimePoint> next_raise() const { return holds_.next_raise(); }
  // Goes on raising terms, if it is due.
  void Raise(TimePoint now);
  // Takes in what the other gateways say. Returns whether this one led until
  // now and another one does from here on.
  bool Lead(TimePoint now, PeerLead peers);

  // The gateway ends ----------------------------------------------------------

  // Asks the stages to finish their steps. No pipeline is built any more.
  void BeginDrain();
  // Whether they have.
  bool drained() const { return draining_ && places_.drained(); }
  // Releases all stages.
  void Stop(TimePoint now);

  // State ---------------------------------------------------------------------

  bool up() const { return phase_ == PipelinePhase::kUp; }
  PipelinePhase phase() const { return phase_; }
  // The one that is up or being assigned, or the latest one.
  Epoch epoch() const { return places_.epoch(); }
  const StagePlaces& places() const { return places_; }
  GatewayRole role() const { return leadership_.role(); }
  // Returns what people see, but for clocks. `passed`: as for Tick.
  PipelineStatus Report(TimePoint now, TimePoint passed) const;

 private:
  using Phase = PipelinePhase;

  // Takes the stages that it may hold, in order, and lets go of the others.
  void TakeStages(TimePoint now);
  // Loses the pipeline, if there is one, and forgets the stage's stream.
  // `absence`: as for StageProcess::OnEnd.
  void EndStage(size_t index, const Status& why, std::optional<Absence> absence,
                TimePoint now);
  // The same for a stream that the gateway itself ends.
  void Release(size_t index, const Status& why, act::Ending how,
               std::optional<Absence> absence, TimePoint now);
  // While one is up: loses a stage that holds up others, lets a process join.
  void WatchUp(const OwnerSigns& owner, TimePoint now);
  // While no pipeline is up: fills the places, and begins an epoch once every
  // place has its process. `may_fill`: else processes keep their places.
  void Gather(TimePoint now, bool may_fill);
  // Joins the stages to a pipeline and begins an epoch, if they fit.
  void BeginAssigning(TimePoint now);
  // Gives joined_ the limits of the pipeline that ended by plan, where they are
  // not above its own: with other ones all is computed again. Else nothing is
  // copied.
  void KeepLimits();
  // Tells the owner, once in a pipeline, that the stage's sequences have to
  // end.
  void TellLeaving(size_t index);
  // Moves the place of a stage that was told to end to a spare that holds its
  // layers, or its layers to the others. Returns false where that cannot be, or
  // not yet.
  bool MoveAway(size_t index, const OwnerSigns& owner, TimePoint now);
  // Whether a spare, or the others, can have the layers of place `index`, and
  // none of the others was told to end, too.
  bool CanMoveAway(size_t index) const;
  // Assigns the epoch to place assigning_.
  void AssignNext(TimePoint now);
  // The pipeline cannot go on because of stage `index`. `peer`: of a stream
  // that broke (see StagePlaces::OnStreamBroken).
  void Lose(size_t index, const Status& why, TimePoint now,
            const std::optional<std::string>& peer = std::nullopt);
  // Ends the epoch because of message_, by choice if `is_planned`.
  void EndEpoch(bool is_planned, TimePoint now);
  void SetHolders();

  const PipelineOptions options_;
  act::Outbox out_;
  StageHolds holds_;
  StagePlaces places_;
  StageResplit resplit_;
  const StageProcesses& stages_;  // places_.stages()
  Leadership leadership_;
  bool draining_ = false;
  PipelinePhase phase_ = Phase::kGathering;
  StageFacts joined_;
  std::optional<StageFacts> model_;  // the latest joined_
  PlanLimits up_limits_;             // of the latest pipeline that was up
  size_t assigning_ = 0;             // the stage whose answer is awaited
  TimePoint assign_at_{};            // not before
  Duration assign_backoff_{};
  TimePoint phase_deadline_{};  // of kAssigning and kOpening
  TimePoint down_since_;        // unless kUp
  bool was_up_ = false;         // at some time
  bool told_leaving_ = false;   // in the present pipeline
  TimePoint told_to_end_{};     // when a stage was, last
  Duration last_recovery_{};    // of a pipeline that had been up
  TimePoint heartbeat_at_{};
  uint64_t heartbeats_ = 0;
  std::string message_ = "connecting to the stages";
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_CLUSTER_DECIDER_H_
