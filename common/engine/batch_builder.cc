#include "common/engine/batch_builder.h"

#include <algorithm>
#include <iterator>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/engine/reserve_into.h"

namespace sluice {
namespace {

// Prompt tokens of a plan from which the plan is shared among prompts.
constexpr int32_t kShared = 32;

// The most runs of the masks of a chunk behind `step`.
size_t RunsOf(const ConstraintStep& step) {
  return step.forced.size() + 1 + (step.mask ? step.mask->runs.size() : 0);
}

// Returns the tokens from the front that a hit may cover: not the last one,
// whose logits are wanted, since a step that fails would spoil a cached block.
// While a mask is awaited, a chunk before the last token starts the sequence.
std::span<const TokenId> MaySkip(const Sequence& sequence, bool may_draw) {
  const int32_t all = sequence.num_tokens();
  const int32_t most = std::max(all - (may_draw ? 1 : 2), 0);
  return sequence.first(sequence.wants_all_logits()
                            ? std::min(sequence.logits_done, most)
                            : most);
}

}  // namespace

void BatchBuilder::Build() {
  Sequence* const alone = policy_.NextAlone();
  if (alone != nullptr && BuildAlone(*alone)) return;
  // While no sequence decodes, prompts may fill the plan. So may replays: a
  // slow decode is less than another one's pause.
  const bool decoding =
      sequences_.num_decoding() > 0 && !sequences_.await_replays();
  const uint64_t evictions = sequences_.blocks().evictions();
  owed_share_ = policy_.NoteOwed();
  AddDecodes();
  const int32_t unbounded = budget_;
  if (decoding) {
    AddPromptsBesideDecodes();
  } else {
    AddPrompts(Prompts::kAll);
  }
  if (plan_.chunks.empty() && state_.in_flight.empty()) {
    // No decode gets a block: prompts may fill the plan.
    budget_ = unbounded;
    AddPrompts(Prompts::kAll);
  }
  AddDrafts();
  state_.counters->cache_evictions +=
      sequences_.blocks().evictions() - evictions;
}

// Fills the plan with the sequence alone, or with nothing while other plans are
// in flight. Returns false if the sequence has no blocks to start.
bool BatchBuilder::BuildAlone(Sequence& sequence) {
  for (const PlanInFlight& plan : state_.in_flight) {
    for (const PlannedChunk& chunk : plan.chunks) {
      if (chunk.sequence != sequence.id) return true;
    }
  }
  if (sequence.state != SequenceState::kRunning) {
    if (state_.retries.holds_starts()) return false;
    if (sequence.plans_in_flight > 0) return true;
    return !AwaitsReplay(sequence) && Start(sequence, budget_);
  }
  if (sequence.remaining() == 1 && AddChunk(sequence, 1)) {
    decodes_.push_back(sequence.id);
  } else if (sequence.remaining() > 1) {
    AddChunk(sequence, NextChunkSize(sequence, budget_));
  }
  return true;
}

void BatchBuilder::AddDecodes() {
  BatchPolicy::Decodes next = policy_.NextDecodes(owed_share_ > 0);
  for (Sequence* sequence : next.ready) {
    if (next.room == 0 || budget_ == 0) return;
    const bool of_most = sequence->client == next.most;
    if (of_most && next.room_of_most == 0) continue;
    if (!AddChunk(*sequence, 1)) continue;
    if (of_most) --next.room_of_most;
    decodes_.push_back(sequence->id);
    --next.room;
  }
}

// Prompts get what the pace allows beside decodes. Owed prompts come first,
// with more while their clients decode nothing. The others keep a quarter of
// the budget.
void BatchBuilder::AddPromptsBesideDecodes() {
  const int32_t unbounded = budget_;
  const bool none = policy_.KeepsPromptsOut(!decodes_.empty());
  // The decodes of this plan no longer count as decoding, so not PromptBudget.
  int32_t budget =
      none ? 0 : std::min(unbounded, policy_.PromptBudgetBesideDecodes());
  Prompts rest = Prompts::kAll;
  if (!none && owed_share_ > 0) {
    const bool own_decode =
        std::ranges::any_of(sequences_.running(), [](const Sequence* s) {
          return s->client->is_owed && s->is_decoding();
        });
    const int32_t owed =
        own_decode ? budget
                   : std::min(unbounded, policy_.OwedBudget(owed_share_));
    budget_ = owed;
    AddPrompts(Prompts::kOwed);
    const int32_t used = owed - budget_;
    budget = std::min(unbounded - used, std::max(budget - used, budget / 4));
    rest = Prompts::kOthers;
  }
  budget_ = budget;
  AddPrompts(rest);
}

// The prompt that started first gets half of the budget, so that many short
// prompts do not hold up a long one. Half of the rest is for sequences that
// start now, the other half for prompts with the fewest tokens left. Each
// passes on what it does not need. A budget below kShared goes to either half
// in turn.
void BatchBuilder::AddPrompts(Prompts kind) {
  std::vector<Sequence*> prompts;
  std::ranges::copy_if(
      sequences_.running(), std::back_inserter(prompts), [&](Sequence* s) {
        return s->remaining() >= 2 && (kind == Prompts::kAll ||
                                       IsOwed(*s) == (kind == Prompts::kOwed));
      });
  if (prompts.empty()) return Admit(kind, 0);
  Sequence& first = *prompts.front();
  const bool whole = budget_ < kShared;
  int32_t kept = (budget_ + 1) / 2;
  if (whole) kept = state_.next_step.value() % 2 == 0 ? budget_ : 0;
  kept = std::min(kept, NextChunkSize(first, budget_));
  budget_ -= kept;
  prompts.erase(prompts.begin());
  Admit(kind, prompts.empty() || whole ? 0 : budget_ / 2);
  std::stable_sort(prompts.begin(), prompts.end(),
                   [](const Sequence* a, const Sequence* b) {
                     return a->remaining() < b->remaining();
                   });
  const auto add = [&](Sequence& sequence) {
    if (budget_ > 0) AddChunk(sequence, NextChunkSize(sequence, budget_));
  };
  for (Sequence* sequence : prompts) add(*sequence);
  budget_ += kept;
  add(first);
}

// Starts sequences while more than `keep` of the budget is left.
void BatchBuilder::Admit(Prompts kind, int32_t keep) {
  if (budget_ <= keep || state_.retries.holds_starts()) return;
  const bool owed = kind == Prompts::kOwed;
  state_.admission_blocked = false;
  while (budget_ > keep) {
    const bool preempted = !sequences_.preempted().empty();
    if (!preempted && sequences_.queue().empty()) return;
    if (owed && policy_.NextToStart(owed) == nullptr) return;
    // Blocks were short in this plan.
    bool blocked =
        preempted_ || std::ssize(sequences_.running()) >= state_.max_running();
    if (!blocked) {
      Sequence* const next = policy_.NextToStart(owed);
      if (next == nullptr || AwaitsReplay(*next)) return;
      // Plans in flight carry its earlier run; its last token may be on its
      // way.
      blocked = next->plans_in_flight > 0;
      if (!blocked && Start(*next, budget_ - keep)) continue;
      if (!blocked && !preempted) sequences_.queue().Reserve(*next);
    }
    state_.admission_blocked = true;
    if (preempted_ || !MakeWay()) return;
  }
}

// Makes room for a waiting client below its share: first preempted sequences of
// other clients that had their turn are queued again, then a running one.
// Returns whether to look again for a sequence to start.
bool BatchBuilder::MakeWay() {
  if (state_.holds_starts || !policy_.IsContended() ||
      !policy_.ClientWithLessWaits()) {
    return false;
  }
  const auto& preempted = sequences_.preempted();
  bool changed = false;
  for (size_t i = preempted.size(); i-- > 0;) {
    Sequence& sequence = *preempted[i];
    if (policy_.HasLess(*sequence.client) ||
        !policy_.HadItsTurn(sequence, now_)) {
      continue;
    }
    sequences_.Requeue(sequence);
    changed = true;
  }
  if (changed) return true;
  if (!preempted.empty() && !policy_.HasLess(*preempted.front()->client)) {
    return false;
  }
  Sequence* const victim = policy_.GivesWay(plan_.started, now_);
  if (victim == nullptr) return false;
  TakeOut(*victim, /*requeue=*/true);
  return true;
}

// Returns the salt under which the sequence's blocks are cached and matched, or
// nothing. Without a prefix cache the choices of a request match one another
// alone. Tenants have different salts: a hit, or a fast answer, tells nothing
// about another tenant's prompts.
std::optional<std::string> BatchBuilder::SaltOf(
    const Sequence& sequence) const {
  const GenerateRequest& request = sequence.request;
  if (state_.options.prefix_cache) {
    return Cat(request.tenant.size(), ":", request.tenant, request.cache_salt);
  }
  if (sequence.group == 0) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(&sequence.group),
                     sizeof(sequence.group));
}

// Whether another sequence replays blocks that this one would have.
bool BatchBuilder::AwaitsReplay(const Sequence& s) const {
  const BlockManager& blocks = sequences_.blocks();
  return blocks.num_stale() > 0 &&
         blocks.AwaitsReplay(SaltOf(s), MaySkip(s, MayDraw(s)));
}

// Gives a sequence the blocks that are cached of it. Returns false, and gives
// none, if its history does not fit: see Start.
bool BatchBuilder::Match(Sequence& sequence, bool may_replay) {
  BlockManager& blocks = sequences_.blocks();
  sequence.tables = blocks.MatchPrefix(
      SaltOf(sequence), MaySkip(sequence, MayDraw(sequence)), may_replay);
  int32_t needed = blocks.Needed(sequence.tables, sequence.num_tokens());
  for (const Sequence* other : sequences_.running()) {
    needed += blocks.Needed(other->tables, other->num_tokens() + kBlockTokens);
  }
  const auto sequences = std::ssize(sequences_.running()) + 1;
  if (blocks.HasRoom(needed, sequences)) return true;
  blocks.Release(sequence.tables);
  return false;
}

// Runs a sequence without blocks. Returns false if its history does not fit
// beside what the running sequences still need, and a block for each of them:
// the sequence would be the first to be preempted.
bool BatchBuilder::Start(Sequence& sequence, int32_t budget) {
  BlockManager& blocks = sequences_.blocks();
  const int32_t num_tokens = sequence.num_tokens();
  if (num_tokens == 1 && !MayDraw(sequence)) return false;
  // A replay may need too many blocks for windowed groups.
  if (!Match(sequence, /*may_replay=*/true) &&
      (blocks.num_stale() == 0 || !Match(sequence, /*may_replay=*/false))) {
    return false;
  }
  const int32_t hit = sequence.tables[0].num_cached * kBlockTokens;
  sequence.replay_end = hit;
  const int32_t skipped = sequence.tables[0].num_whole * kBlockTokens;
  if (sequence.state == SequenceState::kQueued) {
    sequences_.queue().Charge(*sequence.client, num_tokens - skipped);
  }
  sequences_.Run(sequence, now_);
  const bool first = !sequence.was_started;
  if (first) CountFirstStart(sequence, skipped);
  sequence.num_computed = sequence.num_scheduled = sequence.num_told = skipped;
  sequence.num_reserved = hit;
  if (std::exchange(sequence.is_replay, false)) {
    state_.counters->replayed_tokens +=
        static_cast<uint64_t>(num_tokens - skipped);
    state_.counters->kept_tokens +=
        static_cast<uint64_t>(sequence.replay_end - skipped);
  }
  plan_.started.push_back(sequence.Started());
  const int32_t count = NextChunkSize(sequence, budget);
  if (first && skipped + count < num_tokens) ++state_.counters->split_prefills;
  SLUICE_CHECK(AddChunk(sequence, count));
  return true;
}

void BatchBuilder::CountFirstStart(Sequence& sequence, int32_t skipped) {
  EngineCounters& counters = *state_.counters;
  const int32_t num_tokens = sequence.num_tokens();
  sequence.was_started = true;
  sequence.first_schedule = now_;
  sequence.stats.queue_time = now_ - sequence.request.arrival;
  sequence.stats.cached_tokens = skipped;
  counters.prompt_tokens += static_cast<uint64_t>(num_tokens);
  if (state_.options.prefix_cache) {
    counters.prefix_query_tokens += static_cast<uint64_t>(
        sequence.wants_all_logits() ? sequence.logits_done : num_tokens);
    counters.prefix_hit_tokens += static_cast<uint64_t>(skipped);
  }
}

int32_t BatchBuilder::NextChunkSize(const Sequence& sequence,
                                    int32_t budget) const {
  const int32_t awaited = MayDraw(sequence) ? 0 : 1;
  int32_t count = std::min(sequence.remaining() - awaited, budget);
  if (sequence.replays()) {
    count = std::min(count, sequence.replay_end - sequence.num_scheduled);
  }
  if (const int32_t cap = state_.prompt_chunk(); cap > 0) {
    count = std::min(count, cap);
  }
  // Logits that were delivered are not wanted again: a recompute's chunk ends
  // where the missing ones begin.
  const int32_t known = sequence.logits_done - sequence.num_scheduled;
  if (sequence.wants_all_logits() && known > 0) count = std::min(count, known);
  return count;
}

// Whether a chunk may draw the sequence's next token: its mask is there, and
// the plan has room for the mask.
bool BatchBuilder::MayDraw(const Sequence& sequence) const {
  if (!sequence.is_constrained()) return true;
  return sequence.has_step &&
         num_runs_ + RunsOf(*sequence.request.constraint->Latest()) <=
             kMaxMaskRuns;
}

// Adds a chunk of the sequence's next `count` tokens. A token that a plan in
// flight samples gets a placeholder. Returns false, and adds none, without
// blocks for the tokens.
bool BatchBuilder::AddChunk(Sequence& sequence, int32_t count) {
  // An older sequence may have taken its blocks in this plan.
  if (sequence.state != SequenceState::kRunning || count == 0) return false;
  const int32_t start = sequence.num_scheduled;
  const int32_t end = start + count;
  const bool samples =
      end >= sequence.num_tokens() && sequence.request.max_tokens > 0;
  const bool draws_by_mask = samples && sequence.is_constrained();
  if (draws_by_mask && !MayDraw(sequence)) return false;
  const SamplingParams& sampling = sequence.request.sampling;
  Chunk chunk;
  const auto reserve = [&] { return Reserve(sequence, end); };
  if (!ReserveInto(sequence.tables, chunk.new_blocks, reserve)) return false;
  chunk.sequence = sequence.id;
  chunk.start = start;
  chunk.replay = sequence.replays();
  if (start == sequence.num_tokens()) {
    chunk.sampled_by = sequence.last_step;
    chunk.tokens = {0};
  } else {
    const auto tokens = sequence.first(end).subspan(static_cast<size_t>(start));
    chunk.tokens.assign(tokens.begin(), tokens.end());
  }
  chunk.samples = samples;
  if (draws_by_mask) {
    AddMasks(sequence, chunk);
    num_runs_ += RunsOf(*sequence.request.constraint->Latest());
  }
  if (sequence.wants_all_logits() && start >= sequence.logits_done &&
      start < sequence.num_prompt_tokens) {
    chunk.logits = LogitsWanted::kAll;
  } else if (chunk.samples || (sampling.hidden == HiddenWanted::kLast &&
                               end == sequence.num_prompt_tokens)) {
    chunk.logits = LogitsWanted::kLast;
  }
  sequence.num_scheduled = sequence.num_told = end;
  sequence.num_reserved = std::max(sequence.num_reserved, end);
  budget_ -= count;
  plan_.chunks.push_back(std::move(chunk));
  return true;
}

// Grows the sequence's tables, if need be with blocks of younger sequences. The
// youngest sequence waits with the blocks it has. The oldest is never refused:
// alone, every sequence fits. Its own blocks behind a window go first, even
// while plans in flight read them. (Usually they go at commit, for a match.)
bool BatchBuilder::Reserve(Sequence& sequence, int32_t num_tokens) {
  BlockManager& blocks = sequences_.blocks();
  while (!blocks.Reserve(sequence.tables, num_tokens)) {
    if (blocks.EvictBehind(sequence.tables, sequence.num_told)) continue;
    Sequence& victim = *policy_.LosesBlocks();
    if (&victim == &sequence) return false;
    TakeOut(victim, /*requeue=*/&victim != sequences_.running().back());
    preempted_ = true;
  }
  return true;
}

// Takes the blocks of the running `victim` and its chunk in the plan. The
// victim is preempted, which needs the one that started last, or queued again.
void BatchBuilder::TakeOut(Sequence& victim, bool requeue) {
  const auto chunk =
      std::ranges::find(plan_.chunks, victim.id, &Chunk::sequence);
  if (chunk != plan_.chunks.end()) {
    budget_ += static_cast<int32_t>(chunk->tokens.size());
    plan_.chunks.erase(chunk);
    std::erase(decodes_, victim.id);
  }
  ++victim.stats.preemptions;
  ++victim.runs_in_vain;
  ++state_.counters->preemptions;
  if (requeue) {
    ++state_.counters->yields;
    sequences_.Requeue(victim);
  } else {
    sequences_.Preempt(victim);
  }
  // No stage knows a sequence that would have started in this plan.
  const auto is_victim = [&](const StartedSequence& started) {
    return started.sequence == victim.id;
  };
  if (std::erase_if(plan_.started, is_victim) > 0) {
    sequences_.stopped().pop_back();
  }
}

}  // namespace sluice
