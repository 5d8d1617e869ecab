// The drafts of a plan: what a constraint forces, or the proposer's guesses.
#include <algorithm>

#include "common/base/check.h"
#include "common/engine/batch_builder.h"
#include "common/engine/reserve_into.h"

namespace sluice {

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

}  // namespace sluice
