// What goes into a plan. See the class comment for the order.
#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/engine/scheduler.h"
#include "common/engine/scheduler_draft.h"

namespace sluice {
namespace {

// From so many tokens on a plan's prompt tokens are shared out.
constexpr int32_t kShared = 32;

constexpr int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// A decode is the one position whose logits give the next token.
bool IsDecoding(const Sequence& sequence) {
  return sequence.sampling_in_flight || sequence.remaining() == 1;
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

}  // namespace

std::optional<StepPlan> Scheduler::Plan(TimePoint now) {
  if (!attached_) return std::nullopt;
  if (in_flight_.size() >= static_cast<size_t>(max_plans_)) return std::nullopt;
  Draft draft;
  draft.now = now;
  draft.budget = std::min(options_.max_step_tokens, limits_.max_step_tokens);
  // While nobody decodes a plan is as large as may be.
  const bool spares = num_decoding() > 0;
  draft.owed_share = NoteOwed();
  PlanDecodes(draft);
  const int32_t unbounded = draft.budget;
  if (spares) {
    PlanSparing(draft);
  } else {
    PlanPrompts(draft);
  }
  if (draft.plan.chunks.empty() && in_flight_.empty()) {
    // Who decodes has no block to go on: prompts need not spare anybody.
    draft.budget = unbounded;
    draft.prompts = Draft::Prompts::kAll;
    PlanPrompts(draft);
  }
  if (draft.plan.chunks.empty()) {
    // Ends ride on the next plan that computes something; a plan of its own
    // would take its place in the pipeline. When all is quiet they get one.
    if (pending_ended_.empty() || !in_flight_.empty()) return std::nullopt;
  }
  return Finish(std::move(draft));
}

StepPlan Scheduler::Probe(TimePoint now) {
  SLUICE_CHECK(quiet());
  const int seen = max_plans_seen_;
  Draft draft;
  draft.now = now;
  StepPlan plan = Finish(std::move(draft));
  in_flight_.back().is_probe = true;
  max_plans_seen_ = seen;
  return plan;
}

// No more prompt tokens than the decodes in the plan are asked to bear. Those
// that are owed come first, and are more while their own clients decode
// nothing. The others keep a quarter of theirs.
void Scheduler::PlanSparing(Draft& draft) {
  const int32_t unbounded = draft.budget;
  const bool none = pace_.wants_plain_plan() ||
                    (draft.decodes.empty() && !pace_.allows_company());
  int32_t budget = none ? 0 : std::min(unbounded, pace_.prompt_budget(Crowd()));
  if (!none && draft.owed_share > 0) {
    const bool own_decode = std::any_of(
        running_.begin(), running_.end(),
        [](const Sequence* s) { return s->client->is_owed && IsDecoding(*s); });
    const int32_t owed =
        own_decode ? budget : std::min(unbounded, OwedBudget(draft.owed_share));
    draft.budget = owed;
    draft.prompts = Draft::Prompts::kOwed;
    PlanPrompts(draft);
    const int32_t used = owed - draft.budget;
    budget = std::min(unbounded - used, std::max(budget - used, budget / 4));
    draft.prompts = Draft::Prompts::kOthers;
  }
  draft.budget = budget;
  PlanPrompts(draft);
}

// To keep N stages busy, N plans must carry decodes, each about an Nth of
// them; but plans with few decodes cost as much as plans with some, so there
// are no more groups than keep `min_decode_batch` each. At most that many
// plans in flight carry decodes: a sequence that becomes ready meanwhile waits
// for the next of them to come back and joins it, so groups merge again when
// sequences end. The longest idle go first, so nobody is left out.
void Scheduler::PlanDecodes(Draft& draft) {
  const int decoding = num_decoding();
  std::vector<Sequence*> ready;
  for (Sequence* sequence : running_) {
    if (sequence->remaining() == 1) ready.push_back(sequence);
  }
  if (ready.empty()) return;
  const int batch =
      std::max(CeilDiv(decoding, max_plans_), options_.min_decode_batch);
  const int groups = CeilDiv(decoding, batch);
  const auto carrying = std::count_if(
      in_flight_.begin(), in_flight_.end(),
      [](const PlanInFlight& plan) { return plan.num_decodes > 0; });
  if (carrying >= groups) return;
  std::stable_sort(ready.begin(), ready.end(),
                   [](const Sequence* a, const Sequence* b) {
                     return a->last_step < b->last_step;
                   });
  int room = CeilDiv(decoding, groups);
  const auto [most, limit] = MostDecodes(groups, draft.owed_share > 0);
  int left = limit;
  for (Sequence* sequence : ready) {
    if (room == 0 || draft.budget == 0) break;
    // An older one may have taken its blocks a moment ago.
    if (sequence->state != SequenceState::kRunning) continue;
    if (sequence->client == most && left == 0) continue;
    if (!AddChunk(draft, *sequence, 1)) continue;
    if (sequence->client == most) --left;
    draft.decodes.push_back(sequence->id);
    --room;
  }
}

int32_t Scheduler::num_decoding() const {
  return static_cast<int32_t>(
      std::count_if(running_.begin(), running_.end(),
                    [](const Sequence* s) { return IsDecoding(*s); }));
}

// Short prompts that are to be computed, as far as the number matters. Those
// of the largest client do not count: it is no crowd to the others.
int32_t Scheduler::Crowd() const {
  const ClientShare* const largest = LargestClient();
  int32_t crowd = 0;
  const auto count = [&](const Sequence& sequence) {
    const int32_t tokens = sequence.remaining();
    if (sequence.client == largest) return;
    crowd += tokens >= 2 && tokens <= kShortPrompt ? 1 : 0;
  };
  for (const Sequence* sequence : running_) count(*sequence);
  for (const Sequence* sequence : returning_) count(*sequence);
  for (const auto& client : line_.clients()) {
    for (const Sequence* sequence : client->waiting) {
      if (client.get() == largest || crowd >= StepPace::kLargestCrowd) break;
      count(*sequence);
    }
  }
  return crowd;
}

int32_t Scheduler::max_running() const {
  return attached_ ? std::min(options_.max_running, limits_.max_sequences)
                   : options_.max_running;
}

// The prompt that was started first gets half of the budget, so that no crowd
// of short ones holds up a long one; of the rest one half is for sequences
// that start now, then comes whoever has the least left to compute, so that no
// long ones hold up a short one. What one does not need the next ones get. A
// budget too small to be shared goes to either side in turn.
void Scheduler::PlanPrompts(Draft& draft) {
  std::vector<Sequence*> prompts;
  for (Sequence* sequence : running_) {
    const bool is_other =
        draft.prompts != Draft::Prompts::kAll &&
        IsOwed(*sequence) != (draft.prompts == Draft::Prompts::kOwed);
    if (sequence->remaining() >= 2 && !is_other) prompts.push_back(sequence);
  }
  if (prompts.empty()) return Admit(draft, 0);
  Sequence& first = *prompts.front();
  const bool whole = draft.budget < kShared;
  int32_t kept = (draft.budget + 1) / 2;
  if (whole) kept = next_step_.value() % 2 == 0 ? draft.budget : 0;
  kept = std::min(kept, NextChunkSize(first, draft.budget));
  draft.budget -= kept;
  prompts.erase(prompts.begin());
  Admit(draft, prompts.empty() || whole ? 0 : draft.budget / 2);
  std::stable_sort(prompts.begin(), prompts.end(),
                   [](const Sequence* a, const Sequence* b) {
                     return a->remaining() < b->remaining();
                   });
  for (Sequence* sequence : prompts) PlanPrompt(draft, *sequence);
  draft.budget += kept;
  PlanPrompt(draft, first);
}

void Scheduler::PlanPrompt(Draft& draft, Sequence& sequence) {
  // An older one may have taken its blocks a moment ago.
  if (draft.budget <= 0 || sequence.state != SequenceState::kRunning) return;
  AddChunk(draft, sequence, NextChunkSize(sequence, draft.budget));
}

// Takes in new sequences while more than `keep` of the budget is left. Whoever
// was preempted returns first; nobody new starts before.
void Scheduler::Admit(Draft& draft, int32_t keep) {
  if (draft.budget <= keep) return;
  admission_blocked_ = false;
  while (draft.budget > keep) {
    const bool returns = !returning_.empty();
    if (!returns && line_.empty()) return;
    const bool owed = draft.prompts == Draft::Prompts::kOwed;
    if (owed && !NextToStart(draft)) return;
    // Blocks were short a moment ago.
    bool blocked =
        draft.preempted || static_cast<int>(running_.size()) >= max_running();
    if (!blocked) {
      Sequence* const next = NextToStart(draft);
      if (next == nullptr) return;
      // Plans still carry its former life, whose last token may be on its way.
      blocked = next->plans_in_flight > 0;
      if (!blocked && Start(draft, *next, draft.budget - keep)) continue;
      if (!blocked && !returns) line_.Pledge(*next);
    }
    admission_blocked_ = true;
    if (draft.preempted || !MakeWay(draft)) return;
  }
}

// Who was preempted, or else has the turn; of those that are owed, if the plan
// is for them now: as long as what starts in it leaves them less than others.
Sequence* Scheduler::NextToStart(const Draft& draft) {
  if (draft.prompts != Draft::Prompts::kOwed) {
    return returning_.empty() ? NextInLine() : returning_.front();
  }
  for (const auto& client : line_.clients()) {
    client->has_less = client->is_owed && HasLess(*client);
  }
  const auto may_start = [this](const Sequence& s) {
    return s.client->has_less && IsOwed(s) && MayStart(s);
  };
  if (returning_.empty()) return line_.Next(may_start);
  Sequence* const next = returning_.front();
  return next->client->has_less && IsOwed(*next) ? next : nullptr;
}

// Not while another choice of its request computes the prompt that it can
// share then, nor before the stages have let go of its former life.
bool Scheduler::MayStart(const Sequence& sequence) const {
  if (sequence.plans_in_flight > 0) return false;
  if (sequence.was_started &&
      std::count(pending_ended_.begin(), pending_ended_.end(), sequence.id)) {
    return false;
  }
  if (sequence.group == 0 || sequence.wants_all_logits()) return true;
  const int32_t shared = sequence.num_tokens() / kBlockTokens * kBlockTokens;
  return std::none_of(running_.begin(), running_.end(), [&](const Sequence* s) {
    return s->group == sequence.group && s->num_computed < shared;
  });
}

// Under which salt its blocks are looked up and found. Without a prefix cache
// the choices of one request find each other's alone. Tenants are apart: what
// was found, and how fast an answer came, tells nothing of another's prompts.
std::optional<std::string> Scheduler::SaltOf(const Sequence& sequence) const {
  const GenerateRequest& request = sequence.history->request;
  if (options_.prefix_cache) {
    return Cat(request.tenant.size(), ":", request.tenant, request.cache_salt);
  }
  if (sequence.group == 0) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(&sequence.group),
                     sizeof(sequence.group));
}

// Runs a waiting sequence if its whole history fits beside what the running
// ones still need for theirs, and a block for each to go on with: it would be
// the first to be preempted otherwise.
bool Scheduler::Start(Draft& draft, Sequence& sequence, int32_t budget) {
  const JournalEntry& history = *sequence.history;
  const int32_t num_tokens = history.num_tokens();
  const int32_t may_skip =
      sequence.wants_all_logits() ? sequence.logits_done : num_tokens;
  sequence.tables = blocks_.Open(SaltOf(sequence), history.first(may_skip));
  const int32_t hit_blocks =
      static_cast<int32_t>(sequence.tables[0].blocks.size());
  int32_t needed = blocks_.Needed(sequence.tables, num_tokens);
  for (const Sequence* other : running_) {
    needed += blocks_.Needed(other->tables, other->num_tokens() + kBlockTokens);
  }
  if (blocks_.num_free() < needed) {
    blocks_.Release(sequence.tables);
    return false;
  }
  // A full hit computes its last token again: its logits are wanted.
  const int32_t skipped = std::min(hit_blocks * kBlockTokens, num_tokens - 1);
  const bool first = !sequence.was_started;
  if (sequence.in_line) {
    line_.Charge(*sequence.client, num_tokens - skipped);
    line_.Remove(sequence);
    sequence.ticket = ++last_ticket_;
  } else {
    returning_.pop_front();
  }
  if (first) FirstStart(draft, sequence, skipped);
  sequence.last_start = draft.now;
  ++sequence.client->running;
  running_.push_back(&sequence);
  sequence.state = SequenceState::kRunning;
  sequence.num_computed = sequence.num_scheduled = skipped;

  StartedSequence started = journal_.Replay(sequence.id);
  for (const BlockTable& table : sequence.tables) {
    started.blocks.emplace_back(table.held().begin(), table.held().end());
  }
  draft.plan.started.push_back(std::move(started));
  const int32_t count = NextChunkSize(sequence, budget);
  if (first && skipped + count < num_tokens) ++counters_->split_prefills;
  SLUICE_CHECK(AddChunk(draft, sequence, count));
  return true;
}

void Scheduler::FirstStart(Draft& draft, Sequence& sequence, int32_t skipped) {
  const GenerateRequest& request = sequence.history->request;
  const int32_t num_tokens = sequence.num_tokens();
  sequence.was_started = true;
  sequence.first_schedule = draft.now;
  sequence.stats.queue_time = draft.now - request.arrival;
  sequence.stats.cached_tokens = skipped;
  counters_->prompt_tokens += static_cast<uint64_t>(num_tokens);
  if (options_.prefix_cache) {
    counters_->prefix_query_tokens += static_cast<uint64_t>(
        sequence.wants_all_logits() ? sequence.logits_done : num_tokens);
    counters_->prefix_hit_tokens += static_cast<uint64_t>(skipped);
  }
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

StepPlan Scheduler::Finish(Draft draft) {
  StepPlan& plan = draft.plan;
  plan.replica = options_.replica;
  plan.epoch = epoch_;
  plan.step_id = next_step_;
  ++next_step_;
  plan.ended = std::exchange(pending_ended_, {});
  PlanInFlight record;
  record.step_id = plan.step_id;
  record.num_decodes = static_cast<int32_t>(draft.decodes.size());
  record.prompt_tokens = plan.num_tokens() - record.num_decodes;
  record.submitted = draft.now;
  for (const Chunk& chunk : plan.chunks) {
    Sequence& sequence = *Find(chunk.sequence);
    ++sequence.plans_in_flight;
    sequence.sampling_in_flight |= chunk.samples;
    sequence.last_step = plan.step_id;
    record.chunks.push_back({chunk.sequence, chunk.start,
                             static_cast<int32_t>(chunk.tokens.size()),
                             chunk.logits, chunk.samples});
    if (sequence.history->request.trace) AddToTrace(chunk, plan);
  }
  // Decodes under way together with prompts alone, whichever came first.
  const bool prompts_alone =
      record.num_decodes == 0 && record.prompt_tokens > 0;
  for (PlanInFlight& other : in_flight_) {
    if (prompts_alone) other.had_company = true;
    if (other.num_decodes == 0 && other.prompt_tokens > 0) {
      record.had_company = true;
    }
  }
  in_flight_.push_back(std::move(record));
  max_plans_seen_ =
      std::max(max_plans_seen_, static_cast<int>(in_flight_.size()));
  return std::move(draft.plan);
}

}  // namespace sluice
