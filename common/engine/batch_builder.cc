#include "common/engine/batch_builder.h"

#include <algorithm>
#include <iterator>

#include "common/base/cat.h"
#include "common/base/check.h"

namespace sluice {
namespace {

// Prompt tokens of a plan from which the plan is shared among prompts.
constexpr int32_t kShared = 32;

// The most runs of the masks of a chunk behind `step`.
size_t RunsOf(const ConstraintStep& step) {
  return step.forced.size() + 1 + (step.mask ? step.mask->runs.size() : 0);
}

// Calls `reserve`, which grows `tables`, and appends the new blocks to `added`,
// one entry per table. Returns false, and appends none, if `reserve` does.
template <typename Reserve>
bool ReserveInto(std::vector<BlockTable>& tables,
                 std::vector<std::vector<BlockId>>& added, Reserve reserve) {
  std::vector<size_t> before;
  for (const BlockTable& table : tables) before.push_back(table.blocks.size());
  if (!reserve()) return false;
  added.resize(before.size());
  for (size_t g = 0; g < before.size(); ++g) {
    const std::vector<BlockId>& blocks = tables[g].blocks;
    added[g].insert(added[g].end(),
                    blocks.begin() + static_cast<ptrdiff_t>(before[g]),
                    blocks.end());
  }
  return true;
}

}  // namespace

void BatchBuilder::Build() {
  // While no sequence decodes, prompts may fill the plan.
  const bool decoding = sequences_.num_decoding() > 0;
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
  if (budget_ <= keep) return;
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
      if (next == nullptr) return;
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
  if (!policy_.IsContended() || !policy_.ClientWithLessWaits()) return false;
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

// Runs a sequence without blocks. Returns false if its history does not fit
// beside what the running sequences still need, and a block for each of them:
// the sequence would be the first to be preempted.
bool BatchBuilder::Start(Sequence& sequence, int32_t budget) {
  BlockManager& blocks = sequences_.blocks();
  const int32_t num_tokens = sequence.num_tokens();
  if (num_tokens == 1 && !MayDraw(sequence)) return false;
  int32_t may_skip =
      sequence.wants_all_logits() ? sequence.logits_done : num_tokens;
  // While a mask is awaited, a chunk before the last token starts the sequence.
  if (!MayDraw(sequence)) may_skip = std::min(may_skip, num_tokens - 2);
  sequence.tables =
      blocks.MatchPrefix(SaltOf(sequence), sequence.first(may_skip));
  const auto hit_blocks =
      static_cast<int32_t>(sequence.tables[0].blocks.size());
  int32_t needed = blocks.Needed(sequence.tables, num_tokens);
  for (const Sequence* other : sequences_.running()) {
    needed += blocks.Needed(other->tables, other->num_tokens() + kBlockTokens);
  }
  if (blocks.num_free() < needed) {
    blocks.Release(sequence.tables);
    return false;
  }
  // A full hit computes its last token again, for its logits.
  const int32_t skipped = std::min(hit_blocks * kBlockTokens, num_tokens - 1);
  if (sequence.state == SequenceState::kQueued) {
    sequences_.queue().Charge(*sequence.client, num_tokens - skipped);
  }
  sequences_.Run(sequence, now_);
  const bool first = !sequence.was_started;
  if (first) CountFirstStart(sequence, skipped);
  sequence.num_computed = sequence.num_scheduled = sequence.num_told = skipped;
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
  if (state_.options.prefill_chunk > 0) {
    count = std::min(count, state_.options.prefill_chunk);
  }
  // Logits that were delivered are not wanted again: a recompute's chunk ends
  // where the missing ones begin.
  const int32_t known = sequence.logits_done - sequence.num_scheduled;
  if (sequence.wants_all_logits() && known > 0) count = std::min(count, known);
  return count;
}

// Adds drafts, from the rows that decodes and prompts leave. Each decode has an
// even share of them, and what the decodes before it left.
void BatchBuilder::AddDrafts() {
  if (!state_.options.propose_drafts && num_runs_ == 0) return;
  int32_t rows = state_.max_step_tokens() - plan_.num_tokens();
  // The chunks of decodes come first in the plan.
  for (int32_t i = 0; i < num_decodes(); ++i) {
    Chunk& chunk = plan_.chunks[static_cast<size_t>(i)];
    AddDrafts(chunk, rows / (num_decodes() - i));
    rows -= chunk.num_draft_tokens;
  }
  // A chunk that ends a prompt has forced tokens alone.
  for (size_t i = decodes_.size(); i < plan_.chunks.size(); ++i) {
    Chunk& chunk = plan_.chunks[i];
    if (chunk.masks.empty()) continue;
    AddDrafts(chunk, rows);
    rows -= chunk.num_draft_tokens;
  }
}

// Adds at most `room` drafts to a chunk, within the request's and the
// context's limits. Adds none if blocks for all of them are not free.
void BatchBuilder::AddDrafts(Chunk& chunk, int32_t room) {
  Sequence& sequence = *sequences_.Find(chunk.sequence);
  const int32_t emitted = sequence.num_emitted();
  const int32_t limit = std::min(
      {kMaxDraftTokens, room, sequence.request.max_tokens - emitted - 1,
       state_.limits.max_context - sequence.num_tokens() - 1});
  if (limit <= 0 || chunk.logits != LogitsWanted::kLast) return;
  std::vector<TokenId> drafts = ProposedFor(sequence, limit);
  if (drafts.empty()) return;
  SLUICE_CHECK(std::ssize(drafts) <= limit);
  const auto unknown =
      std::find_if(drafts.begin(), drafts.end(), [&](TokenId token) {
        return token < 0 || token >= state_.limits.vocab_size;
      });
  drafts.erase(unknown, drafts.end());
  const int32_t end =
      sequence.num_scheduled + static_cast<int32_t>(drafts.size());
  const auto reserve = [&] {
    return sequences_.blocks().Reserve(sequence.tables, end);
  };
  if (!ReserveInto(sequence.tables, chunk.new_blocks, reserve)) return;
  chunk.tokens.insert(chunk.tokens.end(), drafts.begin(), drafts.end());
  chunk.num_draft_tokens = static_cast<int32_t>(drafts.size());
  sequence.num_reserved = std::max(sequence.num_reserved, end);
  if (sequence.is_constrained()) AddMasks(sequence, chunk);
}

// Returns what a constraint forces, or the proposer's guesses.
std::vector<TokenId> BatchBuilder::ProposedFor(const Sequence& sequence,
                                               int32_t limit) const {
  if (sequence.is_constrained()) {
    std::vector<TokenId> forced = sequence.request.constraint->Latest()->forced;
    forced.resize(std::min(forced.size(), static_cast<size_t>(limit)));
    return forced;
  }
  if (!state_.options.propose_drafts || sequence.num_emitted() == 0) return {};
  return state_.options.propose_drafts(sequence.tokens,
                                       sequence.request.sampling, limit);
}

// Sets the masks of a chunk's draws: each forced token alone, and behind the
// last one what the constraint allows.
void BatchBuilder::AddMasks(const Sequence& sequence, Chunk& chunk) {
  const ConstraintStep& step = *sequence.request.constraint->Latest();
  chunk.masks.clear();
  for (int32_t i = 0; i <= chunk.num_draft_tokens; ++i) {
    const auto at = static_cast<size_t>(i);
    if (at < step.forced.size()) {
      const TokenId only = step.forced[at];
      chunk.masks.push_back({.runs = {{only, only + 1}}});
    } else {
      chunk.masks.push_back(step.mask.value_or(TokenMask{.excludes = true}));
    }
  }
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
  Chunk chunk;
  const auto reserve = [&] { return Reserve(sequence, end); };
  if (!ReserveInto(sequence.tables, chunk.new_blocks, reserve)) return false;
  chunk.sequence = sequence.id;
  chunk.start = start;
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
  } else if (chunk.samples) {
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
