#include "common/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/engine/batch_builder.h"

namespace sluice {
namespace {

// The time that an empty plan may take: it computes nothing.
constexpr Duration kEmptyPlan = std::chrono::milliseconds(1);

uint64_t& EndsOf(FinishReason reason, EngineCounters& counters) {
  switch (reason) {
    case FinishReason::kStop:
      return counters.finished_stop;
    case FinishReason::kLength:
      return counters.finished_length;
    case FinishReason::kCancelled:
      return counters.finished_cancelled;
    case FinishReason::kError:
      break;
  }
  return counters.finished_error;
}

void AddToTrace(const Chunk& chunk, StepPlan& plan) {
  if (!plan.trace) {
    StepTrace& trace = plan.trace.emplace();
    trace.step_id = plan.step_id;
    trace.num_sequences = static_cast<int32_t>(plan.chunks.size());
    trace.num_tokens = plan.num_tokens();
  }
  plan.trace->chunks.push_back({chunk.sequence, chunk.start,
                                static_cast<int32_t>(chunk.tokens.size()),
                                chunk.samples});
}

// Notes in both plans, which are in flight together, that the other one is of
// prompts alone. Not where the later plan waits for the earlier one.
void MarkConcurrent(PlanInFlight& earlier, PlanInFlight& later) {
  if (later.follows == earlier.step_id) return;
  const auto has_prompts_alone = [](const PlanInFlight& one) {
    return one.num_decodes == 0 && one.prompt_tokens > 0;
  };
  earlier.concurrent_prefill |= has_prompts_alone(later);
  later.concurrent_prefill |= has_prompts_alone(earlier);
}

// Notes in `record`, of a new plan, and in the plans in flight what they are to
// each other.
void NoteOthers(SchedulerState& state, PlanInFlight& record) {
  const bool is_ahead = std::ssize(state.in_flight) >= state.max_plans;
  if (is_ahead && !record.follows) {
    record.follows = state.in_flight.front().step_id;
  }
  for (PlanInFlight& other : state.in_flight) MarkConcurrent(other, record);
}

Status CheckSequence(const Sequence& sequence, const SchedulerState& state) {
  int carried = 0, sampling = 0;
  for (const PlanInFlight& plan : state.in_flight) {
    for (const PlannedChunk& chunk : plan.chunks) {
      if (chunk.sequence != sequence.id) continue;
      ++carried;
      sampling += chunk.samples ? 1 : 0;
    }
  }
  if (carried != sequence.plans_in_flight ||
      sampling != sequence.sampling_in_flight || sampling > 2) {
    return Internal("counts ", sequence.plans_in_flight, " plans in flight, ",
                    sequence.sampling_in_flight, " of which sample");
  }
  const int32_t ahead = sampling == 2 ? 1 : 0;
  const bool runs = sequence.state == SequenceState::kRunning;
  if (sequence.num_computed > sequence.num_scheduled ||
      sequence.num_told > sequence.num_scheduled ||
      (runs && ahead == 1 && sequence.remaining() != -1) ||
      sequence.num_scheduled > sequence.num_tokens() + ahead) {
    return Internal("computed ", sequence.num_computed, ", scheduled ",
                    sequence.num_scheduled, ", tokens ", sequence.num_tokens());
  }
  for (size_t g = 0; g < sequence.tables.size(); ++g) {
    const BlockTable& table = sequence.tables[g];
    const auto needed = static_cast<size_t>(
        BlocksFor(std::max(sequence.num_scheduled, sequence.num_reserved)));
    if (table.blocks.size() != needed) {
      return Internal("has ", table.blocks.size(), " blocks, needs ", needed);
    }
    const int32_t window = state.limits.kv_window(static_cast<int32_t>(g));
    const int32_t behind = BlocksBehind(window, sequence.num_told);
    if (table.num_evicted > behind) {
      return Internal("gave back ", table.num_evicted, " blocks of KV group ",
                      g, ", may give ", behind);
    }
  }
  return OkStatus();
}

SequenceStats FinalStats(const Sequence& sequence) {
  SequenceStats stats = sequence.stats;
  if (stats.completion_tokens > 0) {
    stats.decode_time = sequence.last_token - sequence.first_token;
  }
  return stats;
}

// What the record of a plan in flight keeps of a chunk.
PlannedChunk RecordOf(const Chunk& chunk) {
  const auto drafts = chunk.tokens.end() - chunk.num_draft_tokens;
  return {chunk.sequence,
          chunk.start,
          static_cast<int32_t>(drafts - chunk.tokens.begin()),
          {drafts, chunk.tokens.end()},
          chunk.logits,
          chunk.samples,
          chunk.replay};
}

// Counts a lost pipeline for every sequence that its plans in flight carried:
// any of them may be what the pipeline died of.
void NoteLosses(SchedulerState& state) {
  std::vector<SequenceId> carried;
  for (const PlanInFlight& plan : state.in_flight) {
    for (const PlannedChunk& chunk : plan.chunks) {
      carried.push_back(chunk.sequence);
    }
  }
  std::ranges::sort(carried);
  carried.erase(std::unique(carried.begin(), carried.end()), carried.end());
  for (const SequenceId id : carried) {
    Sequence* const sequence = state.sequences.Find(id);
    if (sequence == nullptr) continue;
    ++sequence->losses;
    sequence->lost_end =
        std::max(sequence->lost_end,
                 std::min(sequence->num_scheduled, sequence->num_tokens()));
  }
}

// Returns the blocks of a pipeline with these limits.
BlockManager::Options BlocksOf(const PlanLimits& limits, int32_t step_tokens) {
  BlockManager::Options blocks;
  blocks.windows.clear();
  for (int32_t g = 0; g < limits.num_kv_groups; ++g) {
    blocks.windows.push_back(limits.kv_window(g));
  }
  blocks.num_blocks = limits.num_blocks;
  blocks.num_state_blocks = limits.num_state_blocks;
  blocks.step_tokens = step_tokens;
  return blocks;
}

// Bounds a sequence by what a rebuilt pipeline holds of it. UNAVAILABLE if that
// has no room for its next token.
Status FitRebuilt(Sequence& sequence, const PlanLimits& limits) {
  GenerateRequest& request = sequence.request;
  request.max_tokens = sequence.max_tokens_asked;
  sequence.cut_by = OkStatus();
  const Status fits =
      CheckFits(sequence.num_prompt_tokens, request.max_tokens, limits);
  if (fits.ok()) return fits;
  const Status small =
      Unavailable("the rebuilt pipeline is too small: ", Message(fits));
  const int64_t most =
      std::min<int64_t>(limits.max_context, MaxPositions(limits) + 1) -
      sequence.num_prompt_tokens;
  if (most <= sequence.num_emitted()) return small;
  request.max_tokens = static_cast<int32_t>(most);
  sequence.cut_by = small;
  return OkStatus();
}

// UNAVAILABLE if the sequence was computed by more than `limit` lost pipelines,
// the latest of which was lost because of `why`.
Status CheckLosses(const Sequence& sequence, int limit, const Status& why) {
  if (sequence.losses <= limit) return OkStatus();
  return Unavailable("replayed too often: ", sequence.losses,
                     " pipelines were lost while they computed this request, "
                     "limit ",
                     limit, "; the latest: ", Message(why));
}

void FillQueueStats(const QueueState& queue, EngineStats& stats) {
  stats.waiting_tokens = queue.prompt_tokens;
  stats.waiting_bytes =
      queue.history_tokens * static_cast<int64_t>(sizeof(TokenId));
  stats.promised_wait = PromisedWait(queue);
  if (!queue.rates_known) return;
  stats.prompt_tokens_per_second = 1 / queue.prompt_seconds;
  stats.decode_tokens_per_second = 1 / queue.decode_seconds;
}

// Fills in what `state` alone tells.
void FillStoreStats(const SchedulerState& state, EngineStats& stats) {
  const SequenceStore& sequences = state.sequences;
  static_cast<EngineCounters&>(stats) = *state.counters;
  stats.running = static_cast<int>(sequences.running().size());
  stats.waiting = static_cast<int>(sequences.num_waiting());
  stats.rests = state.holds_starts && state.in_flight.empty() &&
                sequences.running().empty() && sequences.preempted().empty();
  stats.blocks_total = sequences.blocks().num_blocks();
  stats.blocks_used = stats.blocks_total - sequences.blocks().num_free();
  stats.plans_in_flight = static_cast<int>(
      std::count_if(state.in_flight.begin(), state.in_flight.end(),
                    [](const PlanInFlight& plan) { return !plan.is_probe; }));
}

// Returns a plan that does nothing but tell which blocks hold nothing.
StepPlan VacantPlan(SchedulerState& state, TimePoint now) {
  StepPlan plan;
  plan.vacant = state.sequences.TakeVacant(now, state.options.prefix_idle);
  return plan;
}

}  // namespace

SequenceEvents Scheduler::Attach(Epoch epoch, const PlanLimits& limits,
                                 int num_stages, const LostStages& lost) {
  attached_ = true;
  const bool keeps = suspended_ && lost.has_value() && limits == state_.limits;
  if (std::exchange(suspended_, false)) ++state_.counters->recoveries;
  epoch_ = epoch;
  state_.next_step = StepId(0);
  state_.limits = limits;
  state_.max_plans = state_.options.max_plans_in_flight > 0
                         ? state_.options.max_plans_in_flight
                         : std::max(num_stages, 1);
  state_.in_flight.clear();
  state_.holds_starts = false;
  if (!keeps) {
    state_.sequences.Reset(BlocksOf(limits, state_.max_step_tokens()));
  }
  if (keeps) state_.sequences.blocks().MakeStale(*lost);
  return EndWhere([&](Sequence& s) { return FitRebuilt(s, limits); });
}

SequenceEvents Scheduler::Suspend(const Status& why, bool is_planned) {
  SLUICE_CHECK(attached_);
  attached_ = false;
  suspended_ = true;
  if (!is_planned) NoteLosses(state_);
  state_.in_flight.clear();
  state_.admission_blocked = false;
  constraints_.Release();
  state_.sequences.Suspend(
      [this](const Sequence& sequence) { return policy_.RunsAlone(sequence); },
      is_planned);
  return EndWhere([&](const Sequence& sequence) {
    return CheckLosses(sequence, state_.options.max_replays, why);
  });
}

SequenceEvents Scheduler::Detach(const Status& why) {
  SequenceEvents events = EndWhere([&](const Sequence&) { return why; });
  state_.sequences.Reset(BlockManager::Options());
  state_.in_flight.clear();
  state_.admission_blocked = false;
  state_.limits = PlanLimits();
  state_.holds_starts = false;
  attached_ = suspended_ = false;
  return events;
}

SequenceEvents Scheduler::End(SequenceId id, FinishReason reason,
                              const Status& status) {
  SequenceEvents events;
  if (Sequence* sequence = state_.sequences.Find(id)) {
    EndSequence(*sequence, {.reason = reason, .status = status}, events);
  }
  return events;
}

SequenceEvents Scheduler::OnConstraintReady(SequenceId id, TimePoint now) {
  SequenceEvents events;
  Sequence* const sequence = state_.sequences.Find(id);
  if (sequence == nullptr) return events;
  auto end = constraints_.Take(*sequence, state_.limits.vocab_size, now);
  if (end) EndSequence(*sequence, *std::move(end), events);
  return events;
}

SequenceEvents Scheduler::Expire(TimePoint now) {
  return EndWhere([&](const Sequence& sequence) {
    if (sequence.request.deadline.value_or(TimePoint::max()) > now) {
      return OkStatus();
    }
    return DeadlineExceeded("the request's deadline passed after ",
                            sequence.stats.completion_tokens, " tokens");
  });
}

// Ends the sequences for which `why` returns an error, with that error.
SequenceEvents Scheduler::EndWhere(
    const std::function<Status(Sequence&)>& why) {
  SequenceEvents events;
  auto& sequences = state_.sequences.all();
  for (auto it = sequences.begin(); it != sequences.end();) {
    Sequence& sequence = (it++)->second;  // EndSequence erases it
    const Status status = why(sequence);
    if (status.ok()) continue;
    EndSequence(sequence, {.reason = FinishReason::kError, .status = status},
                events);
  }
  return events;
}

TimePoint Scheduler::next_deadline() const {
  TimePoint next = TimePoint::max();
  for (const auto& [id, sequence] : state_.sequences.all()) {
    next = std::min(next, sequence.request.deadline.value_or(next));
  }
  return std::min({next, constraints_.held_until(), state_.retries.next()});
}

std::optional<StepPlan> Scheduler::Plan(TimePoint now) {
  const size_t in_flight = state_.in_flight.size();
  const auto most = static_cast<size_t>(state_.max_plans);
  constraints_.Release();
  state_.retries.Release(now);
  if (!attached_ || in_flight > most ||
      (in_flight == most && !policy_.GoesAhead() && !PromptsGoAhead(state_)) ||
      constraints_.HoldsPlan(state_.sequences.running(), now)) {
    return std::nullopt;
  }
  BatchBuilder builder(state_, policy_, now);
  builder.Build();
  StepPlan plan = builder.TakePlan();
  // Ends ride on the next plan that computes something; a plan of their own
  // would take its place in the pipeline. With no plan in flight they get one.
  if (plan.chunks.empty() &&
      (state_.sequences.stopped().empty() || in_flight > 0)) {
    return std::nullopt;
  }
  return Launch(std::move(plan), builder.num_decodes(), now);
}

StepPlan Scheduler::Probe(TimePoint now) {
  SLUICE_CHECK(quiet());
  const int seen = max_plans_seen_;
  StepPlan plan = Launch(VacantPlan(state_, now), 0, now);
  state_.in_flight.back().is_probe = true;
  max_plans_seen_ = seen;
  return plan;
}

// Numbers the plan and records it as in flight.
StepPlan Scheduler::Launch(StepPlan plan, int32_t num_decodes, TimePoint now) {
  plan.replica = state_.options.replica;
  plan.epoch = epoch_;
  plan.step_id = state_.next_step;
  ++state_.next_step;
  plan.ended = std::exchange(state_.sequences.stopped(), {});
  PlanInFlight record;
  record.step_id = plan.step_id;
  record.num_decodes = num_decodes;
  record.prompt_tokens = -num_decodes;
  record.submitted = now;
  for (const Chunk& chunk : plan.chunks) {
    Sequence& sequence = *state_.sequences.Find(chunk.sequence);
    ++sequence.plans_in_flight;
    sequence.sampling_in_flight += chunk.samples ? 1 : 0;
    if (chunk.sampled_by) record.follows = chunk.sampled_by;
    sequence.last_step = plan.step_id;
    record.chunks.push_back(RecordOf(chunk));
    if (chunk.replay) plan.replay_at = state_.sequences.blocks().replay_at();
    record.prompt_tokens += record.chunks.back().count;
    if (sequence.request.trace) AddToTrace(chunk, plan);
  }
  NoteOthers(state_, record);
  state_.in_flight.push_back(std::move(record));
  max_plans_seen_ =
      std::max(max_plans_seen_, static_cast<int>(state_.in_flight.size()));
  return plan;
}

void Scheduler::EndSequence(Sequence& sequence, FinalEvent event,
                            SequenceEvents& events) {
  if (event.reason != FinishReason::kError && sequence.was_started) {
    state_.pace.OnEnd(sequence.stats.completion_tokens);
  }
  state_.retries.Forget(sequence);
  ++EndsOf(event.reason, *state_.counters);
  event.stats = FinalStats(sequence);
  events.emplace_back(sequence, std::move(event));
  state_.sequences.Erase(sequence);
}

Duration Scheduler::expected_step() const {
  if (state_.in_flight.empty()) return Duration::zero();
  const PlanInFlight& plan = state_.in_flight.front();
  if (plan.chunks.empty()) return kEmptyPlan;
  return state_.pace.expected(plan.num_decodes, plan.prompt_tokens);
}

QueueState Scheduler::FillStats(EngineStats& stats) const {
  FillStoreStats(state_, stats);
  stats.suspended = suspended_ ? static_cast<int>(state_.sequences.all().size())
                               : state_.retries.num_failing();
  stats.max_plans_in_flight_seen = max_plans_seen_;
  stats.last_step_time = clock_.last_step;
  const QueueState queue = Queue();
  FillQueueStats(queue, stats);
  stats.prompt_budget = policy_.PromptBudget();
  return queue;
}

Status Scheduler::CheckIntegrity() const {
  SLUICE_RETURN_IF_ERROR(state_.sequences.CheckIntegrity());
  for (const auto& [id, sequence] : state_.sequences.all()) {
    SLUICE_RETURN_IF_ERROR(
        Annotate(CheckSequence(sequence, state_), "sequence ", id));
  }
  return OkStatus();
}

}  // namespace sluice
