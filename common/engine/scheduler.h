#ifndef SLUICE_COMMON_ENGINE_SCHEDULER_H_
#define SLUICE_COMMON_ENGINE_SCHEDULER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
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
#include "common/engine/block_manager.h"
#include "common/engine/engine_options.h"
#include "common/engine/engine_stats.h"
#include "common/engine/journal.h"
#include "common/engine/plan_in_flight.h"
#include "common/engine/sequence.h"
#include "common/engine/step_pace.h"
#include "common/engine/waiting_line.h"

namespace sluice {

// What happened to a sequence: tokens, or its end. After the end nothing.
struct SequenceEvent {
  SequenceEvent(SequenceId id, TokenEvent event)
      : sequence(id), what(std::move(event)) {}
  SequenceEvent(SequenceId id, FinalEvent event)
      : sequence(id), what(std::move(event)) {}

  SequenceId sequence;
  std::variant<TokenEvent, FinalEvent> what;
};
using SequenceEvents = std::vector<SequenceEvent>;

// Decides what each forward pass computes. A state machine: no thread, no
// clock of its own, no I/O. The engine loop owns it and gives events to sinks.
//
// Who starts next among the waiting: see WaitingLine; the choices of one
// request wait until the one that leads has computed their prompt. A plan
// takes decodes first, then prompt chunks and new sequences. When blocks run
// out, the running sequence that was started last gives its own back and is
// computed again later, from the journal: it returns before anybody new
// starts, so the running ones are always those that were started first.
//
// Clients that want more places or blocks than there are get equal shares: a
// sequence of a client that holds more gives its own away to a client that
// holds less and waits, and goes back to the head of its own client's line.
// While one client alone is there it may have everything.
//
// Several plans may be in flight; every stage takes them in step order. So
// chunks of one prompt may go out in consecutive plans, and freed blocks may
// be handed out at once (see BlockManager). A sequence is in at most one plan
// that samples, and a preempted one starts again only when no plan carries it.
class Scheduler {
 public:
  // Counts into `counters`, which must outlive it. No pipeline yet.
  Scheduler(const EngineOptions& options, EngineCounters* counters);

  // Plans are for this pipeline from now on; its KV cache is empty. Live
  // sequences go back to waiting, to be computed again; those that cannot
  // fit any more end with UNAVAILABLE.
  SequenceEvents Attach(Epoch epoch, const PlanLimits& limits, int num_stages);
  // Ends everything with kError and `why`, forgets the pipeline.
  SequenceEvents Detach(const Status& why);

  // Queues a sequence. `id` is above all earlier ones, and
  // CheckRequest(request, limits) is OK. If it throws nothing has changed;
  // after an exception of another method only Detach makes sense.
  void Add(SequenceId id, GenerateRequest request);
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
  bool quiet() const { return attached_ && in_flight_.empty(); }

  // Takes in the answer to the oldest plan in flight. A result of another
  // epoch is counted and dropped. One that does not answer the plan changes
  // nothing: INTERNAL, the pipeline is broken. What is wrong with a single
  // sequence's part ends that sequence alone.
  StatusOr<SequenceEvents> Commit(StepResult result, TimePoint now);

  bool attached() const { return attached_; }
  size_t num_live() const { return sequences_.size(); }
  size_t num_running() const { return running_.size(); }
  size_t num_waiting() const { return returning_.size() + line_.size(); }
  size_t plans_in_flight() const { return in_flight_.size(); }
  // Whether the last Plan wanted to admit a sequence and could not.
  bool admission_blocked() const { return admission_blocked_; }
  // Of the oldest plan in flight, probes included: since when it is waited
  // for, the plans before it answered; and what it should take (see
  // EngineProgress).
  TimePoint oldest_plan() const {
    return std::max(in_flight_.front().submitted, last_result_);
  }
  Duration expected_step() const;
  std::optional<TimePoint> next_deadline() const;
  void FillStats(EngineStats& stats) const;
  QueueState Queue() const;

  // INTERNAL naming the first contradiction. For tests.
  Status CheckIntegrity() const;

 private:
  struct Draft;  // a plan being built

  void PlanDecodes(Draft& draft);
  void PlanSparing(Draft& draft);
  void PlanPrompts(Draft& draft);
  void PlanPrompt(Draft& draft, Sequence& sequence);
  int32_t PromptBudget() const;
  int32_t OwedBudget(double share) const;
  int64_t WaitingBytes() const;
  int32_t num_decoding() const;
  int32_t Crowd() const;
  int32_t max_running() const;
  void Admit(Draft& draft, int32_t keep);
  Sequence* NextInLine();
  Sequence* NextToStart(const Draft& draft);
  bool MayStart(const Sequence& sequence) const;
  bool Start(Draft& draft, Sequence& sequence, int32_t budget);
  void FirstStart(Draft& draft, Sequence& sequence, int32_t skipped);
  std::optional<std::string> SaltOf(const Sequence& sequence) const;
  uint64_t GroupOf(const Sequence& sequence) const;
  int32_t NextChunkSize(const Sequence& sequence, int32_t budget) const;
  bool AddChunk(Draft& draft, Sequence& sequence, int32_t count);
  bool GrowTables(Draft& draft, Sequence& sequence, int32_t num_tokens);
  StepPlan Finish(Draft draft);

  // What each client may hold while another waits, and whether one holds less
  // of everything, or more of anything.
  bool IsContended() const;
  int32_t PlacesEach() const;
  int32_t BlocksEach() const;
  int32_t BlocksOf(const ClientShare& client) const;
  bool HasLess(const ClientShare& client) const;
  bool HasMore(const ClientShare& client) const;
  bool HadItsTurn(const Sequence& sequence, TimePoint now) const;
  std::pair<const ClientShare*, int32_t> MostDecodes(int groups,
                                                     bool beside_owed) const;
  const ClientShare* LargestClient() const;
  double NoteOwed();
  bool OneWithLessWaits() const;
  bool MakeWay(Draft& draft);
  bool ReturnInTurn(const Draft& draft);
  Sequence* GivesWay(const Draft& draft) const;
  Sequence* LosesBlocks() const;
  void Preempt(Draft& draft, Sequence& victim);
  void Yield(Draft& draft, Sequence& victim);
  void TakeOut(Draft& draft, Sequence& victim);
  void ForgetStart(Draft& draft, const Sequence& victim);

  void CommitChunk(const PlannedChunk& chunk, SequenceResult* result,
                   TimePoint now, SequenceEvents& events);
  void Deliver(const PlannedChunk& chunk, Sequence& sequence,
               SequenceResult& result, TimePoint now, SequenceEvents& events);

  Sequence* Find(SequenceId id);
  void BackToWaiting(Sequence& sequence);
  void StopRunning(Sequence& sequence);
  void EndSequence(Sequence& sequence, FinalEvent event,
                   SequenceEvents& events);
  Status CheckSequence(const Sequence& sequence) const;

  const EngineOptions options_;
  EngineCounters* const counters_;

  bool attached_ = false;
  Epoch epoch_;
  StepId next_step_;
  PlanLimits limits_;
  int max_plans_ = 1;

  Journal journal_;
  BlockManager blocks_;
  std::map<SequenceId, Sequence> sequences_;  // oldest first; stable addresses
  std::vector<Sequence*> running_;            // in the order of their tickets
  std::deque<Sequence*> returning_;           // the same; preempted
  WaitingLine line_;                          // new, or gave their place away
  uint64_t last_ticket_ = 0;
  std::deque<PlanInFlight> in_flight_;
  std::vector<SequenceId> pending_ended_;  // for the next plan
  bool admission_blocked_ = false;
  int max_plans_seen_ = 0;
  Duration last_step_time_{};
  StepPace pace_;
  TimePoint last_result_{};  // of any plan
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_SCHEDULER_H_
