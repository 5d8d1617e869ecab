#include "common/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/engine/request_check.h"

namespace sluice {
namespace {

// It computes nothing.
constexpr Duration kEmptyPlan = std::chrono::milliseconds(1);

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
      blocks_(BlockManager::Options()),
      pace_(options.target_itl) {}

SequenceEvents Scheduler::Attach(Epoch epoch, const PlanLimits& limits,
                                 int num_stages) {
  attached_ = true;
  epoch_ = epoch;
  next_step_ = StepId(0);
  limits_ = limits;
  max_plans_ = options_.max_plans_in_flight > 0 ? options_.max_plans_in_flight
                                                : std::max(num_stages, 1);
  in_flight_.clear();
  // The last first: each goes to the head of those that return.
  while (!running_.empty()) BackToWaiting(*running_.back());
  BlockManager::Options blocks;
  blocks.windows.clear();
  for (int32_t g = 0; g < limits.num_kv_groups; ++g) {
    blocks.windows.push_back(limits.kv_window(g));
  }
  blocks.num_blocks = limits.num_blocks;
  blocks.step_tokens =
      std::min(options_.max_step_tokens, limits.max_step_tokens);
  blocks_ = BlockManager(blocks);
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
  try {
    Sequence& sequence = sequences_[id];
    sequence.id = id;
    sequence.history = &journal_.Open(id, std::move(request));
    sequence.stats.prompt_tokens = sequence.history->num_prompt_tokens;
    sequence.group = GroupOf(sequence);
    line_.Push(sequence);
  } catch (...) {
    journal_.Close(id);
    sequences_.erase(id);
    throw;
  }
}

// That of an earlier choice of the same request and prompt, or a new one.
uint64_t Scheduler::GroupOf(const Sequence& sequence) const {
  const JournalEntry& own = *sequence.history;
  if (own.request.num_choices <= 1) return 0;
  for (const auto& [id, other] : sequences_) {
    const JournalEntry& its = *other.history;
    if (other.group != 0 && its.request.request_id == own.request.request_id &&
        its.request.cache_salt == own.request.cache_salt &&
        its.num_prompt_tokens == own.num_prompt_tokens &&
        std::ranges::equal(its.first(its.num_prompt_tokens), own.tokens)) {
      return other.group;
    }
  }
  return sequence.id.value();
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

// The running sequence that was started last becomes the first to return,
// which keeps both lists in the order of first start. Its sampled tokens are
// in the journal.
void Scheduler::BackToWaiting(Sequence& sequence) {
  SLUICE_CHECK(running_.back() == &sequence);
  running_.pop_back();
  returning_.push_front(&sequence);
  StopRunning(sequence);
}

void Scheduler::StopRunning(Sequence& sequence) {
  blocks_.Release(sequence.tables);
  --sequence.client->running;
  sequence.state = SequenceState::kWaiting;
  sequence.num_computed = 0;
  sequence.num_scheduled = 0;
  pending_ended_.push_back(sequence.id);
}

void Scheduler::EndSequence(Sequence& sequence, FinalEvent event,
                            SequenceEvents& events) {
  if (sequence.state == SequenceState::kRunning) {
    std::erase(running_, &sequence);
    StopRunning(sequence);
  } else if (sequence.in_line) {
    line_.Remove(sequence);
  } else {
    std::erase(returning_, &sequence);
  }
  line_.Ended(sequence);
  if (sequence.stats.completion_tokens > 0) {
    sequence.stats.decode_time = sequence.last_token - sequence.first_token;
  }
  if (event.reason != FinishReason::kError && sequence.was_started) {
    pace_.OnEnd(sequence.stats.completion_tokens);
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
  stats.waiting = static_cast<int>(num_waiting());
  stats.blocks_total = blocks_.num_blocks();
  stats.blocks_used = blocks_.num_blocks() - blocks_.num_free();
  stats.plans_in_flight = static_cast<int>(
      std::count_if(in_flight_.begin(), in_flight_.end(),
                    [](const PlanInFlight& plan) { return !plan.is_probe; }));
  stats.max_plans_in_flight_seen = max_plans_seen_;
  stats.last_step_time = last_step_time_;
  const QueueState queue = Queue();
  stats.waiting_tokens = queue.prompt_tokens;
  stats.waiting_bytes = WaitingBytes();
  stats.promised_wait = PromisedWait(queue);
  stats.prompt_budget = PromptBudget();
  if (queue.rates_known) {
    stats.prompt_tokens_per_second = 1 / queue.prompt_seconds;
    stats.decode_tokens_per_second = 1 / queue.decode_seconds;
  }
}

Duration Scheduler::expected_step() const {
  const PlanInFlight& plan = in_flight_.front();
  if (plan.chunks.empty()) return kEmptyPlan;
  return pace_.expected(plan.num_decodes, plan.prompt_tokens);
}

// Prompt tokens of a plan at present, those without any aside.
int32_t Scheduler::PromptBudget() const {
  const int32_t full =
      std::min(options_.max_step_tokens, limits_.max_step_tokens);
  return num_decoding() == 0 ? full
                             : std::min(full, pace_.prompt_budget(Crowd()));
}

// The same of prompts that are owed that share of the time.
int32_t Scheduler::OwedBudget(double share) const {
  return std::max(pace_.prompt_budget(Crowd()), pace_.share_budget(share));
}

// Choices of one prompt have a history each.
int64_t Scheduler::WaitingBytes() const {
  int64_t tokens = 0;
  for (const Sequence* sequence : returning_) tokens += sequence->num_tokens();
  for (const auto& client : line_.clients()) {
    for (const Sequence* sequence : client->waiting) {
      tokens += sequence->num_tokens();
    }
  }
  return tokens * static_cast<int64_t>(sizeof(TokenId));
}

QueueState Scheduler::Queue() const {
  QueueState queue;
  queue.waiting = static_cast<int>(num_waiting());
  for (const Sequence* sequence : returning_) {
    queue.prompt_tokens += sequence->num_tokens();
  }
  queue.places = max_running();
  for (const auto& client : line_.clients()) {
    QueueState::Client& own = queue.clients.emplace_back();
    own.name = client->name;
    own.running = client->running;
    own.waiting = static_cast<int>(client->waiting.size());
    for (const Sequence* sequence : client->waiting) {
      own.prompt_tokens +=
          PromptWork(sequence->history->request, sequence->num_tokens());
    }
    queue.prompt_tokens += own.prompt_tokens;
  }
  if (!admission_blocked_) {
    queue.free_places = max_running() - static_cast<int>(running_.size());
  }
  queue.rates_known = pace_.known();
  queue.prompt_seconds = pace_.prompt_seconds();
  queue.shared_prompt_seconds = queue.owed_prompt_seconds =
      queue.prompt_seconds;
  queue.decode_seconds = pace_.decode_seconds();
  queue.completion_tokens = pace_.completion_tokens();
  // Each plan of so many prompt tokens carries all decodes along.
  if (const int32_t decoding = num_decoding(); decoding > 0) {
    const double decodes = decoding * queue.decode_seconds;
    const double clients = double(std::max<size_t>(queue.clients.size(), 2));
    queue.shared_prompt_seconds += decodes / PromptBudget();
    queue.owed_prompt_seconds += decodes / OwedBudget(1 / clients);
  }
  return queue;
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
  for (size_t g = 0; g < sequence.tables.size(); ++g) {
    const BlockTable& table = sequence.tables[g];
    const size_t needed =
        static_cast<size_t>(BlocksFor(sequence.num_scheduled));
    if (table.blocks.size() != needed) {
      return Internal("has ", table.blocks.size(), " blocks, needs ", needed);
    }
    const int32_t window = limits_.kv_window(static_cast<int32_t>(g));
    const int32_t behind = BlocksBehind(window, sequence.num_scheduled);
    if (table.num_gone > behind) {
      return Internal("let go of ", table.num_gone, " blocks of KV group ", g,
                      ", may of ", behind);
    }
  }
  return OkStatus();
}

// Running, then returning, in the order of first start; then the line.
Status Scheduler::CheckIntegrity() const {
  std::vector<const Sequence*> started(running_.begin(), running_.end());
  started.insert(started.end(), returning_.begin(), returning_.end());
  size_t in_line = 0, live = 0;
  for (const auto& client : line_.clients()) {
    in_line += client->waiting.size();
    live += static_cast<size_t>(client->live);
    const auto running = std::count_if(
        running_.begin(), running_.end(),
        [&](const Sequence* s) { return s->client == client.get(); });
    if (running != client->running) {
      return Internal("client ", client->name, " counts ", client->running,
                      " running sequences, has ", running);
    }
    for (const Sequence* sequence : client->waiting) {
      if (!sequence->in_line || sequence->client != client.get() ||
          sequence->state != SequenceState::kWaiting ||
          sequence->history->request.client != client->name) {
        return Internal("sequence ", sequence->id, " waits in a wrong line");
      }
    }
  }
  if (started.size() + in_line != sequences_.size() ||
      in_line != line_.size() || live != sequences_.size() ||
      journal_.size() != sequences_.size()) {
    return Internal(running_.size(), " running, ", returning_.size(),
                    " returning and ", in_line, " waiting sequences of ",
                    sequences_.size(), ", ", journal_.size(), " journalled");
  }
  uint64_t ticket = 0;
  for (size_t i = 0; i < started.size(); ++i) {
    const bool runs = i < running_.size();
    if (started[i]->ticket <= std::exchange(ticket, started[i]->ticket) ||
        runs != (started[i]->state == SequenceState::kRunning)) {
      return Internal("sequence ", started[i]->id, " is out of order");
    }
  }
  std::vector<const std::vector<BlockTable>*> tables;
  for (const auto& [id, sequence] : sequences_) {
    SLUICE_RETURN_IF_ERROR(Annotate(CheckSequence(sequence), "sequence ", id));
    if (sequence.state == SequenceState::kRunning) {
      tables.push_back(&sequence.tables);
    }
  }
  return blocks_.CheckIntegrity(tables);
}

}  // namespace sluice
