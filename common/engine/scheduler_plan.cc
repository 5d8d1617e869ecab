// What goes into a plan. See the class comment for the order.
#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/engine/scheduler.h"

namespace sluice {
namespace {

constexpr int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// A decode is the one position whose logits give the next token.
bool IsDecoding(const Sequence& sequence) {
  return sequence.sampling_in_flight || sequence.remaining() == 1;
}

}  // namespace

struct Scheduler::Draft {
  TimePoint now;
  StepPlan plan;
  int32_t budget = 0;  // tokens that still fit
  bool has_decodes = false;
  bool preempted = false;
};

std::optional<StepPlan> Scheduler::Plan(TimePoint now) {
  if (!attached_) return std::nullopt;
  if (in_flight_.size() >= static_cast<size_t>(max_plans_)) return std::nullopt;
  Draft draft;
  draft.now = now;
  draft.budget = std::min(options_.max_step_tokens, limits_.max_step_tokens);
  PlanDecodes(draft);
  PlanPrefills(draft);
  Admit(draft);
  if (draft.plan.chunks.empty()) {
    // Ends ride on the next plan that computes something; a plan of its own
    // would take its place in the pipeline. When all is quiet they get one.
    if (pending_ended_.empty() || !in_flight_.empty()) return std::nullopt;
  }
  return Finish(std::move(draft));
}

// To keep N stages busy, N plans must carry decodes, each about an Nth of
// them; but plans with few decodes cost as much as plans with some, so there
// are no more groups than keep `min_decode_batch` each. At most that many
// plans in flight carry decodes: a sequence that becomes ready meanwhile waits
// for the next of them to come back and joins it, so groups merge again when
// sequences end. The longest idle go first, so nobody is left out.
void Scheduler::PlanDecodes(Draft& draft) {
  int decoding = 0;
  std::vector<Sequence*> ready;
  for (Sequence* sequence : running_) {
    if (!IsDecoding(*sequence)) continue;
    ++decoding;
    if (sequence->remaining() == 1) ready.push_back(sequence);
  }
  if (ready.empty()) return;
  const int batch =
      std::max(CeilDiv(decoding, max_plans_), options_.min_decode_batch);
  const int groups = CeilDiv(decoding, batch);
  const auto carrying =
      std::count_if(in_flight_.begin(), in_flight_.end(),
                    [](const PlanInFlight& plan) { return plan.has_decodes; });
  if (carrying >= groups) return;
  std::stable_sort(ready.begin(), ready.end(),
                   [](const Sequence* a, const Sequence* b) {
                     return a->last_step < b->last_step;
                   });
  int room = CeilDiv(decoding, groups);
  for (Sequence* sequence : ready) {
    if (room == 0 || draft.budget == 0) break;
    // An older one may have taken its blocks a moment ago.
    if (sequence->state != SequenceState::kRunning) continue;
    if (!AddChunk(draft, *sequence, 1)) continue;
    draft.has_decodes = true;
    --room;
  }
}

void Scheduler::PlanPrefills(Draft& draft) {
  // By index: AddChunk may take sequences off the end.
  for (size_t i = 0; i < running_.size() && draft.budget > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.remaining() < 2) continue;
    AddChunk(draft, sequence, NextChunkSize(sequence, draft.budget));
  }
}

void Scheduler::Admit(Draft& draft) {
  admission_blocked_ = false;
  const size_t max_running = static_cast<size_t>(
      std::min(options_.max_running, limits_.max_sequences));
  while (!waiting_.empty() && draft.budget > 0) {
    Sequence& head = *waiting_.front();
    // Blocks were short a moment ago; or plans still carry the head's former
    // life, whose last token may be on its way.
    if (draft.preempted || head.plans_in_flight > 0 ||
        running_.size() >= max_running || !Start(draft, head)) {
      admission_blocked_ = true;
      return;
    }
  }
}

// Admits the head of the waiting if its whole history fits beside what the
// running ones still need for theirs, and a block for each to go on with: it
// would be the first to be preempted otherwise.
bool Scheduler::Start(Draft& draft, Sequence& sequence) {
  const JournalEntry& history = *sequence.history;
  const int32_t num_tokens = history.num_tokens();
  const int32_t may_skip =
      sequence.wants_all_logits() ? sequence.logits_done : num_tokens;
  sequence.tables =
      blocks_.Open(history.request.cache_salt, history.first(may_skip));
  const int32_t hit_blocks =
      static_cast<int32_t>(sequence.tables[0].blocks.size());
  int32_t needed = BlocksFor(num_tokens) - hit_blocks;
  for (const Sequence* other : running_) {
    needed += BlocksFor(other->num_tokens()) -
              static_cast<int32_t>(other->tables[0].blocks.size()) + 1;
  }
  if (blocks_.num_free() < needed) {
    blocks_.Release(sequence.tables);
    return false;
  }
  waiting_.pop_front();
  running_.push_back(&sequence);
  sequence.state = SequenceState::kRunning;
  // A full hit computes its last token again: its logits are wanted.
  const int32_t skipped = std::min(hit_blocks * kBlockTokens, num_tokens - 1);
  sequence.num_computed = sequence.num_scheduled = skipped;

  StartedSequence started = journal_.Replay(sequence.id);
  for (const BlockTable& table : sequence.tables) {
    started.blocks.push_back(table.blocks);
  }
  draft.plan.started.push_back(std::move(started));
  const int32_t count = NextChunkSize(sequence, draft.budget);
  if (!sequence.was_started) {
    sequence.was_started = true;
    sequence.first_schedule = draft.now;
    sequence.stats.queue_time = draft.now - history.request.arrival;
    sequence.stats.cached_tokens = skipped;
    counters_->prompt_tokens += static_cast<uint64_t>(num_tokens);
    if (options_.prefix_cache) {
      counters_->prefix_query_tokens += static_cast<uint64_t>(may_skip);
      counters_->prefix_hit_tokens += static_cast<uint64_t>(skipped);
    }
    if (skipped + count < num_tokens) ++counters_->split_prefills;
  }
  SLUICE_CHECK(AddChunk(draft, sequence, count));
  return true;
}

int32_t Scheduler::NextChunkSize(const Sequence& sequence,
                                 int32_t budget) const {
  int32_t count = std::min(sequence.remaining(), budget);
  if (options_.prefill_chunk > 0) {
    count = std::min(count, options_.prefill_chunk);
  }
  // A recompute asks for no logits twice: its chunks end where those begin
  // that were not delivered yet.
  const int32_t known = sequence.logits_done - sequence.num_scheduled;
  if (sequence.wants_all_logits() && known > 0) count = std::min(count, known);
  return count;
}

// False if the sequence cannot have blocks for `count` more tokens now.
bool Scheduler::AddChunk(Draft& draft, Sequence& sequence, int32_t count) {
  std::vector<size_t> before;
  for (const BlockTable& table : sequence.tables) {
    before.push_back(table.blocks.size());
  }
  const int32_t start = sequence.num_scheduled;
  const int32_t end = start + count;
  if (!GrowTables(draft, sequence, end)) return false;
  const JournalEntry& history = *sequence.history;
  Chunk chunk;
  chunk.sequence = sequence.id;
  chunk.start = start;
  const auto tokens = history.first(end).subspan(static_cast<size_t>(start));
  chunk.tokens.assign(tokens.begin(), tokens.end());
  chunk.samples = end == history.num_tokens() && history.request.max_tokens > 0;
  if (sequence.wants_all_logits() && start >= sequence.logits_done &&
      start < history.num_prompt_tokens) {
    chunk.logits = LogitsWanted::kAll;
  } else if (chunk.samples) {
    chunk.logits = LogitsWanted::kLast;
  }
  for (size_t g = 0; g < before.size(); ++g) {
    const std::vector<BlockId>& blocks = sequence.tables[g].blocks;
    chunk.new_blocks.emplace_back(
        blocks.begin() + static_cast<ptrdiff_t>(before[g]), blocks.end());
  }
  sequence.num_scheduled = end;
  draft.budget -= count;
  draft.plan.chunks.push_back(std::move(chunk));
  return true;
}

// Takes blocks from younger sequences while there are any. The youngest
// itself waits, with what it has, until others end or need its blocks. The
// oldest is never refused: alone, every sequence fits.
bool Scheduler::GrowTables(Draft& draft, Sequence& sequence,
                           int32_t num_tokens) {
  while (!blocks_.Grow(sequence.tables, num_tokens)) {
    if (running_.back() == &sequence) return false;
    Preempt(draft, *running_.back());
  }
  return true;
}

void Scheduler::Preempt(Draft& draft, Sequence& victim) {
  std::vector<Chunk>& chunks = draft.plan.chunks;
  const auto chunk =
      std::find_if(chunks.begin(), chunks.end(),
                   [&](const Chunk& c) { return c.sequence == victim.id; });
  if (chunk != chunks.end()) {
    draft.budget += static_cast<int32_t>(chunk->tokens.size());
    chunks.erase(chunk);
  }
  BackToWaiting(victim);
  draft.preempted = true;
  ++victim.stats.preemptions;
  ++counters_->preemptions;
}

StepPlan Scheduler::Finish(Draft draft) {
  StepPlan& plan = draft.plan;
  plan.replica = options_.replica;
  plan.epoch = epoch_;
  plan.step_id = next_step_;
  ++next_step_;
  plan.ended = std::exchange(pending_ended_, {});
  PlanInFlight record;
  record.step_id = plan.step_id;
  record.has_decodes = draft.has_decodes;
  record.submitted = draft.now;
  for (const Chunk& chunk : plan.chunks) {
    Sequence& sequence = *Find(chunk.sequence);
    ++sequence.plans_in_flight;
    sequence.sampling_in_flight |= chunk.samples;
    sequence.last_step = plan.step_id;
    record.chunks.push_back({chunk.sequence, chunk.start,
                             static_cast<int32_t>(chunk.tokens.size()),
                             chunk.logits, chunk.samples});
  }
  in_flight_.push_back(std::move(record));
  max_plans_seen_ =
      std::max(max_plans_seen_, static_cast<int>(in_flight_.size()));
  return std::move(draft.plan);
}

}  // namespace sluice
