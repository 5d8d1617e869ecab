#ifndef SLUICE_COMMON_ENGINE_SCHEDULER_H_
#define SLUICE_COMMON_ENGINE_SCHEDULER_H_

#include <algorithm>
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
#include "common/engine/scheduler_state.h"

namespace sluice {

// What happened to a sequence: tokens, or its end. After the end nothing.
struct SequenceEvent {
  SequenceEvent(const Sequence& of, TokenEvent event)
      : sequence(of.id), sink(of.sink), what(std::move(event)) {}
  SequenceEvent(const Sequence& of, FinalEvent event)
      : sequence(of.id),
        sink(of.sink),
        request_id(of.request.request_id),
        what(std::move(event)) {}

  SequenceId sequence;
  std::shared_ptr<TokenSink> sink;
  std::string request_id;  // of an end
  std::variant<TokenEvent, FinalEvent> what;
};
using SequenceEvents = std::vector<SequenceEvent>;

// The state machine of one replica's sequences: admits, plans, commits, ends.
// No thread, no clock of its own, no I/O. The engine loop owns it and gives
// events to sinks. What goes into a plan: see BatchPolicy and BatchBuilder.
//
// Several plans may be in flight; every stage takes them in step order. A
// sequence is in at most two plans that sample: the second one goes ahead, its
// chunk is the token that the first one samples. If that token turns out to end
// the sequence, the row of the second plan is dropped. A preempted sequence
// starts again only when no plan carries it.
class Scheduler {
 public:
  // Counts into `counters`, which must outlive it. No pipeline yet.
  Scheduler(const EngineOptions& options, EngineCounters* counters)
      : state_(options, counters), policy_(state_) {}

  // Plans are for this pipeline from now on; its KV cache is empty. Live
  // sequences wait, to be computed again; those that cannot fit any more end
  // with UNAVAILABLE.
  SequenceEvents Attach(Epoch epoch, const PlanLimits& limits, int num_stages);
  // Ends everything with kError and `why`, forgets the pipeline.
  SequenceEvents Detach(const Status& why);

  // Queues a sequence, whose events name `sink`. `id` is above all earlier
  // ones, and CheckRequest(request, limits) is OK. If it throws nothing has
  // changed; after an exception of another method only Detach makes sense.
  void Add(SequenceId id, GenerateRequest request,
           std::shared_ptr<TokenSink> sink) {
    state_.sequences.Add(id, std::move(request), std::move(sink));
  }
  // Ends a sequence; nothing if it is not live.
  SequenceEvents End(SequenceId id, FinishReason reason, const Status& status);
  // Ends those whose deadline has passed, with DEADLINE_EXCEEDED.
  SequenceEvents Expire(TimePoint now);

  // The next plan to submit. Nothing: as many as allowed are in flight, or
  // there is nothing to do until a result comes.
  std::optional<StepPlan> Plan(TimePoint now);

  // An empty plan, which asks whether every stage still does steps. It is no
  // step to counters and pace. Only while quiet().
  StepPlan Probe(TimePoint now);
  bool quiet() const { return attached_ && state_.in_flight.empty(); }

  // Takes in the answer to the oldest plan in flight. A result of another
  // epoch is counted and dropped. One that does not answer the plan changes
  // nothing: INTERNAL, the pipeline is broken. What is wrong with a single
  // sequence's part ends that sequence alone.
  StatusOr<SequenceEvents> Commit(StepResult result, TimePoint now);

  bool attached() const { return attached_; }
  // The live sequence of that id, or null.
  const Sequence* Find(SequenceId id) { return state_.sequences.Find(id); }
  const SchedulerState& state() const { return state_; }
  // Of the oldest plan in flight, probes included: since when it is waited
  // for, the plans before it answered; and what it should take (see
  // EngineProgress). Without a plan TimePoint::max() and zero.
  TimePoint oldest_plan() const {
    return state_.in_flight.empty()
               ? TimePoint::max()
               : std::max(state_.in_flight.front().submitted, last_result_);
  }
  Duration expected_step() const;
  TimePoint next_deadline() const;  // TimePoint::max(): there is none
  // Returns the queue that the stats tell of.
  QueueState FillStats(EngineStats& stats) const;
  QueueState Queue() const { return policy_.Queue(); }

  // INTERNAL naming the first contradiction. For tests.
  Status CheckIntegrity() const;

 private:
  StepPlan Launch(StepPlan plan, int32_t num_decodes, TimePoint now);
  void CommitChunk(const PlannedChunk& chunk, SequenceResult* result,
                   TimePoint now, SequenceEvents& events);
  void Deliver(const PlannedChunk& chunk, Sequence& sequence,
               SequenceResult& result, TimePoint now, SequenceEvents& events);
  std::optional<FinalEvent> Append(Sequence& sequence, TokenResult token,
                                   TokenEvent& event);
  SequenceEvents EndWhere(const std::function<Status(const Sequence&)>& why);
  void EndSequence(Sequence& sequence, FinalEvent event,
                   SequenceEvents& events);

  SchedulerState state_;
  const BatchPolicy policy_;
  bool attached_ = false;
  Epoch epoch_;
  int max_plans_seen_ = 0;
  Duration last_step_time_{};
  TimePoint last_result_{};  // of any plan
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_SCHEDULER_H_
