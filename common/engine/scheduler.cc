#include "common/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/engine/request_check.h"

namespace sluice {
namespace {

void CountEnd(FinishReason reason, EngineCounters& counters) {
  switch (reason) {
    case FinishReason::kStop:
      ++counters.finished_stop;
      return;
    case FinishReason::kLength:
      ++counters.finished_length;
      return;
    case FinishReason::kCancelled:
      ++counters.finished_cancelled;
      return;
    case FinishReason::kError:
      ++counters.finished_error;
      return;
  }
}

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, EngineCounters* counters)
    : options_(options),
      counters_(counters),
      blocks_({.prefix_cache = options.prefix_cache}) {}

SequenceEvents Scheduler::Attach(Epoch epoch, const PlanLimits& limits,
                                 int num_stages) {
  attached_ = true;
  epoch_ = epoch;
  next_step_ = StepId(0);
  limits_ = limits;
  max_plans_ = options_.max_plans_in_flight > 0 ? options_.max_plans_in_flight
                                                : std::max(num_stages, 1);
  in_flight_.clear();
  // Youngest first: each goes to the head of the waiting.
  while (!running_.empty()) BackToWaiting(*running_.back());
  blocks_ = BlockManager({.num_groups = std::max(limits.num_kv_groups, 1),
                          .num_blocks = limits.num_blocks,
                          .prefix_cache = options_.prefix_cache});
  pending_ended_.clear();  // a new epoch's stages know nobody
  SequenceEvents events;
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    Sequence& sequence = (it++)->second;
    sequence.plans_in_flight = 0;
    sequence.sampling_in_flight = false;
    const Status fits = CheckFits(sequence.history->num_prompt_tokens,
                                  sequence.history->request.max_tokens, limits);
    if (fits.ok()) continue;
    EndSequence(sequence,
                {.reason = FinishReason::kError,
                 .status = Unavailable("the rebuilt pipeline is too small: ",
                                       Message(fits))},
                events);
  }
  return events;
}

SequenceEvents Scheduler::Detach(const Status& why) {
  SequenceEvents events;
  while (!sequences_.empty()) {
    EndSequence(sequences_.begin()->second,
                {.reason = FinishReason::kError, .status = why}, events);
  }
  in_flight_.clear();
  pending_ended_.clear();
  attached_ = false;
  admission_blocked_ = false;
  limits_ = PlanLimits();
  blocks_.Reset(0);
  return events;
}

void Scheduler::Add(SequenceId id, GenerateRequest request) {
  SLUICE_CHECK(sequences_.empty() || sequences_.rbegin()->first < id);
  Sequence& sequence = sequences_[id];
  sequence.id = id;
  sequence.history = &journal_.Open(id, std::move(request));
  sequence.stats.prompt_tokens = sequence.history->num_prompt_tokens;
  waiting_.push_back(&sequence);
}

SequenceEvents Scheduler::End(SequenceId id, FinishReason reason,
                              const Status& status) {
  SequenceEvents events;
  if (Sequence* sequence = Find(id)) {
    EndSequence(*sequence, {.reason = reason, .status = status}, events);
  }
  return events;
}

SequenceEvents Scheduler::Expire(TimePoint now) {
  SequenceEvents events;
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    Sequence& sequence = (it++)->second;  // EndSequence erases it
    const std::optional<TimePoint>& deadline =
        sequence.history->request.deadline;
    if (!deadline || *deadline > now) continue;
    EndSequence(sequence,
                {.reason = FinishReason::kError,
                 .status = DeadlineExceeded(
                     "the request's deadline passed after ",
                     sequence.stats.completion_tokens, " tokens")},
                events);
  }
  return events;
}

std::optional<TimePoint> Scheduler::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [id, sequence] : sequences_) {
    const std::optional<TimePoint>& deadline =
        sequence.history->request.deadline;
    if (deadline && (!next || *deadline < *next)) next = deadline;
  }
  return next;
}

Sequence* Scheduler::Find(SequenceId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

// The youngest running sequence becomes the oldest waiting one, which keeps
// both lists in the order of arrival. Its sampled tokens are in the journal.
void Scheduler::BackToWaiting(Sequence& sequence) {
  SLUICE_CHECK(running_.back() == &sequence);
  running_.pop_back();
  waiting_.push_front(&sequence);
  blocks_.Release(sequence.tables);
  sequence.state = SequenceState::kWaiting;
  sequence.num_computed = 0;
  sequence.num_scheduled = 0;
  pending_ended_.push_back(sequence.id);
}

void Scheduler::EndSequence(Sequence& sequence, FinalEvent event,
                            SequenceEvents& events) {
  if (sequence.state == SequenceState::kRunning) {
    std::erase(running_, &sequence);
    blocks_.Release(sequence.tables);
    pending_ended_.push_back(sequence.id);
  } else {
    std::erase(waiting_, &sequence);
  }
  if (sequence.stats.completion_tokens > 0) {
    sequence.stats.decode_time = sequence.last_token - sequence.first_token;
  }
  CountEnd(event.reason, *counters_);
  event.stats = sequence.stats;
  events.emplace_back(sequence.id, std::move(event));
  journal_.Close(sequence.id);
  sequences_.erase(sequence.id);
}

void Scheduler::FillStats(EngineStats& stats) const {
  static_cast<EngineCounters&>(stats) = *counters_;
  stats.running = static_cast<int>(running_.size());
  stats.waiting = static_cast<int>(waiting_.size());
  stats.blocks_total = blocks_.num_blocks();
  stats.blocks_used = blocks_.num_blocks() - blocks_.num_free();
  stats.plans_in_flight = static_cast<int>(in_flight_.size());
  stats.max_plans_in_flight_seen = max_plans_seen_;
  stats.last_step_time = last_step_time_;
}

Status Scheduler::CheckSequence(const Sequence& sequence) const {
  const auto in_flight_of = [&](bool sampling) {
    int count = 0;
    for (const PlanInFlight& plan : in_flight_) {
      for (const PlannedChunk& chunk : plan.chunks) {
        if (chunk.sequence != sequence.id) continue;
        count += !sampling || chunk.samples ? 1 : 0;
      }
    }
    return count;
  };
  if (in_flight_of(false) != sequence.plans_in_flight ||
      in_flight_of(true) != (sequence.sampling_in_flight ? 1 : 0)) {
    return Internal("counts ", sequence.plans_in_flight, " plans in flight");
  }
  if (sequence.num_computed > sequence.num_scheduled ||
      sequence.num_scheduled > sequence.num_tokens()) {
    return Internal("computed ", sequence.num_computed, ", scheduled ",
                    sequence.num_scheduled, ", tokens ", sequence.num_tokens());
  }
  if (sequence.state == SequenceState::kWaiting) {
    if (sequence.tables.empty() && sequence.num_scheduled == 0) {
      return OkStatus();
    }
    return Internal("waits and holds blocks");
  }
  for (const BlockTable& table : sequence.tables) {
    const size_t needed =
        static_cast<size_t>(BlocksFor(sequence.num_scheduled));
    if (table.blocks.size() != needed) {
      return Internal("has ", table.blocks.size(), " blocks, needs ", needed);
    }
  }
  return OkStatus();
}

Status Scheduler::CheckIntegrity() const {
  std::vector<const Sequence*> in_order(running_.begin(), running_.end());
  in_order.insert(in_order.end(), waiting_.begin(), waiting_.end());
  if (in_order.size() != sequences_.size() ||
      journal_.size() != sequences_.size()) {
    return Internal(running_.size(), " running and ", waiting_.size(),
                    " waiting sequences of ", sequences_.size(), ", ",
                    journal_.size(), " journalled");
  }
  std::vector<const std::vector<BlockTable>*> tables;
  size_t index = 0;
  for (const auto& [id, sequence] : sequences_) {
    const bool runs = index < running_.size();
    if (in_order[index++] != &sequence ||
        runs != (sequence.state == SequenceState::kRunning)) {
      return Internal("sequence ", id, " is out of the order of arrival");
    }
    SLUICE_RETURN_IF_ERROR(Annotate(CheckSequence(sequence), "sequence ", id));
    if (runs) tables.push_back(&sequence.tables);
  }
  return blocks_.CheckIntegrity(tables);
}

}  // namespace sluice
