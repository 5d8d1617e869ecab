#ifndef SLUICE_COMMON_ENGINE_SCHEDULER_H_
#define SLUICE_COMMON_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/generate_request.h"
#include "common/core/step_plan.h"
#include "common/engine/admission.h"
#include "common/engine/batch_policy.h"
#include "common/engine/constraint_steps.h"
#include "common/engine/scheduler_state.h"
#include "common/engine/step_clock.h"

namespace sluice {

// A sequence waits until it can be computed again.
struct SuspendEvent {};

// An event of a sequence: tokens, a wait, or its end, after which none follows.
struct SequenceEvent {
  SequenceEvent(const Sequence& of, TokenEvent event)
      : sequence(of.id), sink(of.sink), what(std::move(event)) {}
  SequenceEvent(const Sequence& of, FinalEvent event)
      : sequence(of.id),
        sink(of.sink),
        request_id(of.request.request_id),
        what(std::move(event)) {}

  SequenceEvent(const Sequence& of, SuspendEvent event)
      : sequence(of.id), sink(of.sink), what(event) {}

  SequenceId sequence;
  std::shared_ptr<TokenSink> sink;
  std::string request_id;  // of an end
  std::variant<TokenEvent, SuspendEvent, FinalEvent> what;
};
using SequenceEvents = std::vector<SequenceEvent>;

// The state machine of one replica's sequences: admits, plans, commits, ends.
// No thread, no clock of its own, no I/O. The engine loop owns it and gives
// events to sinks. BatchPolicy and BatchBuilder decide what goes into a plan.
//
// Several plans may be in flight; every stage takes them in step order. A
// sequence is in at most two sampling plans: the second one goes ahead, its
// chunk is the token that the first one samples. If that token ends the
// sequence, the row of the second plan is dropped. A preempted sequence starts
// again only when no plan carries it.
class Scheduler {
 public:
  // Counts into `counters`, which must outlive it. Begins without a pipeline.
  // `notice` says that OnConstraintReady has to be called.
  Scheduler(
      const EngineOptions& options, EngineCounters* counters,
      ConstraintSteps::Notice notice = [](SequenceId) {})
      : constraints_(std::move(notice)),
        state_(options, counters),
        policy_(state_) {}

  // Plans are for this pipeline from now on. Suspended sequences are computed
  // again; one that does not fit ends with UNAVAILABLE, at the latest with its
  // last token that does. The pipeline's KV cache is that of the last one but
  // for the `lost` stages; it is empty if the limits differ.
  SequenceEvents Attach(Epoch epoch, const PlanLimits& limits, int num_stages,
                        const LostStages& lost = {});
  // The pipeline is lost: sequences keep their tokens and wait for Attach. A
  // sequence that was computed by more than max_replays lost pipelines ends
  // with UNAVAILABLE; a planned loss does not count. Needs attached().
  SequenceEvents Suspend(const Status& why, bool is_planned = false);
  // Ends all sequences with kError and `why`, and forgets the pipeline.
  SequenceEvents Detach(const Status& why);
  // Queued sequences wait for the next Attach; the others go on.
  void HoldStarts() { state_.holds_starts = true; }

  // Queues a sequence, whose events name `sink`. Needs an `id` above all
  // earlier ones, and CheckRequest(request, limits) OK. Changes nothing if it
  // throws; after an exception of another method only Detach makes sense.
  void Add(SequenceId id, GenerateRequest request,
           std::shared_ptr<TokenSink> sink) {
    state_.sequences.Add(id, std::move(request), std::move(sink));
    Sequence& sequence = *state_.sequences.Find(id);
    try {
      constraints_.Advance(sequence, 0);
    } catch (...) {
      state_.sequences.Erase(sequence);
      throw;
    }
  }
  // Ends the sequence if its constraint failed, or is complete. The next Plan
  // may draw its next token.
  SequenceEvents OnConstraintReady(SequenceId id, TimePoint now);
  // Ends a sequence; does nothing if it is not live.
  SequenceEvents End(SequenceId id, FinishReason reason, const Status& status);
  // Ends the sequences past their deadline, with DEADLINE_EXCEEDED.
  SequenceEvents Expire(TimePoint now);

  // Returns the next plan to submit. Nothing: as many as allowed are in flight,
  // or all work waits for a result.
  std::optional<StepPlan> Plan(TimePoint now);

  // Returns a plan of vacant blocks, which shows whether every stage still runs
  // steps. Counters and pace ignore it. Needs quiet().
  StepPlan Probe(TimePoint now);
  bool quiet() const { return attached_ && state_.in_flight.empty(); }

  // Takes in the answer to the oldest plan in flight. Counts and drops a result
  // of another epoch. INTERNAL, without a change: the result does not answer
  // the plan, so the pipeline is broken. A bad part of one sequence ends that
  // sequence alone.
  StatusOr<SequenceEvents> Commit(StepResult result, TimePoint now);

  bool attached() const { return attached_; }
  bool suspended() const { return suspended_; }
  // Returns the live sequence of that id, or null.
  const Sequence* Find(SequenceId id) { return state_.sequences.Find(id); }
  const SchedulerState& state() const { return state_; }
  // For the oldest plan in flight, probes included: the time since which it is
  // awaited, the plans before it answered, and the time that it should take
  // (see EngineProgress). Without a plan TimePoint::max() and zero.
  TimePoint oldest_plan() const {
    return state_.in_flight.empty()
               ? TimePoint::max()
               : clock_.awaited_since(state_.in_flight.front());
  }
  Duration expected_step() const;
  // When Expire or Plan has work without another call; TimePoint::max(): never.
  TimePoint next_deadline() const;
  // Fills in `stats`. Returns the queue that they describe.
  QueueState FillStats(EngineStats& stats) const;
  QueueState Queue() const { return policy_.Queue(); }

  // INTERNAL names the first contradiction. For tests.
  Status CheckIntegrity() const;

 private:
  StepPlan Launch(StepPlan plan, int32_t num_decodes, TimePoint now);
  void CommitChunk(const PlannedChunk& chunk, SequenceResult* result,
                   TimePoint now, SequenceEvents& events);
  bool Retry(Sequence& sequence, const PlannedChunk& chunk, const Status& why,
             TimePoint now, SequenceEvents& events);
  void Deliver(const PlannedChunk& chunk, Sequence& sequence,
               SequenceResult& result, TimePoint now, SequenceEvents& events);
  std::optional<FinalEvent> Append(Sequence& sequence, TokenResult token,
                                   TokenEvent& event);
  SequenceEvents EndWhere(const std::function<Status(Sequence&)>& why);
  void EndSequence(Sequence& sequence, FinalEvent event,
                   SequenceEvents& events);

  ConstraintSteps constraints_;
  SchedulerState state_;
  const BatchPolicy policy_;
  bool attached_ = false;
  bool suspended_ = false;  // a pipeline was lost; the next may follow
  Epoch epoch_;
  int max_plans_seen_ = 0;
  StepClock clock_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_SCHEDULER_H_
