#include "common/stage/sequence_table.h"

#include <algorithm>

#include "common/core/kv_groups.h"

namespace sluice {

SequenceTable::SequenceTable(const PlanLimits& limits, bool knows_sampled)
    : limits_(limits),
      knows_sampled_(knows_sampled),
      block_users_(limits.num_blocks, 0),
      block_group_(limits.num_blocks, 0) {}

Status SequenceTable::Apply(const StepPlan& plan,
                            std::optional<StepId> in_flight) {
  LeaveBehind();
  SLUICE_RETURN_IF_ERROR(CheckVacant(plan));
  for (SequenceId id : plan.ended) SLUICE_RETURN_IF_ERROR(End(id));
  for (const StartedSequence& started : plan.started) {
    SLUICE_RETURN_IF_ERROR(StartOne(started));
  }
  for (const Chunk& chunk : plan.chunks) {
    SLUICE_RETURN_IF_ERROR(TakeChunk(chunk, in_flight));
  }
  return OkStatus();
}

Status SequenceTable::CheckVacant(const StepPlan& plan) const {
  for (const BlockRange& range : plan.vacant) {
    for (int32_t block = range.begin; block < range.end; ++block) {
      if (block_users_[static_cast<size_t>(block)] == 0) continue;
      return FailedPrecondition("block ", block,
                                " is vacant, but a sequence has it");
    }
  }
  return OkStatus();
}

// Nothing is known of blocks of states: several entries may name one.
void SequenceTable::LetGo(size_t group, BlockId block) {
  if (IsState(limits_.kv_window(static_cast<int32_t>(group)))) return;
  if (--block_users_[block.value()] == 0) --blocks_alive_;
}

// The last plan runs before the next one, so a sequence's next query is where
// that plan ended.
void SequenceTable::LeaveBehind() {
  for (SequenceId id : advanced_) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) continue;
    Entry& entry = found->second;
    for (size_t g = 0; g < entry.evicted.size(); ++g) {
      const int32_t behind = BlocksBehind(
          limits_.kv_window(static_cast<int32_t>(g)), entry.computed);
      for (int32_t& evicted = entry.evicted[g]; evicted < behind; ++evicted) {
        LetGo(g, std::exchange(entry.state.blocks[g][evicted], BlockId(0)));
      }
    }
  }
  advanced_.clear();
}

Status SequenceTable::End(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) {
    return FailedPrecondition("sequence ", id,
                              " ends, but was never started or has ended");
  }
  const Entry& entry = found->second;
  for (size_t g = 0; g < entry.evicted.size(); ++g) {
    const std::vector<BlockId>& blocks = entry.state.blocks[g];
    for (size_t i = entry.evicted[g]; i < blocks.size(); ++i) {
      LetGo(g, blocks[i]);
    }
  }
  sequences_.erase(found);
  return OkStatus();
}

Status SequenceTable::StartOne(const StartedSequence& started) {
  const auto [at, is_new] = sequences_.try_emplace(started.sequence);
  if (!is_new) {
    return FailedPrecondition("sequence ", started.sequence,
                              " starts, but runs already");
  }
  if (size() > limits_.max_sequences) {
    return FailedPrecondition("sequence ", started.sequence, " starts as the ",
                              size(), "th alive, limit ",
                              limits_.max_sequences);
  }
  Entry& entry = at->second;
  entry.state.sampling = started.sampling;
  entry.state.num_prompt_tokens = started.num_prompt_tokens;
  entry.state.tokens = started.tokens;
  if (knows_sampled_ && NeedsTokenCounts(started.sampling)) {
    entry.state.counts =
        TokenCounts::Of(started.tokens, started.num_prompt_tokens);
  }
  return TakeHits(started, entry);
}

// All groups cover as much as the first one. A windowed group may lack blocks
// at the front.
Status SequenceTable::TakeHits(const StartedSequence& started, Entry& entry) {
  entry.state.blocks.resize(limits_.num_kv_groups);
  entry.evicted.resize(limits_.num_kv_groups);
  const size_t covered = started.blocks.empty() ? 0 : started.blocks[0].size();
  // Of a hit of all tokens the last one runs again, for its logits.
  entry.computed =
      std::min(static_cast<int32_t>(covered) * kBlockTokens,
               static_cast<int32_t>(entry.state.tokens.size()) - 1);
  if (started.replay_from) {
    entry.kept_end = entry.computed;
    entry.computed = *started.replay_from;
  }
  for (size_t g = 1; g < entry.evicted.size(); ++g) {
    const size_t have =
        g < started.blocks.size() ? started.blocks[g].size() : 0;
    const auto behind = static_cast<size_t>(BlocksBehind(
        limits_.kv_window(static_cast<int32_t>(g)), entry.computed));
    if (have > covered || have + behind < covered) {
      return FailedPrecondition("sequence ", started.sequence, " starts with ",
                                have, " blocks in KV group ", g, ", ", covered,
                                " are covered, of which ", behind,
                                " may be missing");
    }
    entry.evicted[g] = static_cast<int32_t>(covered - have);
    entry.state.blocks[g].assign(covered - have, BlockId(0));
  }
  return AppendBlocks(started.blocks, started.sequence, entry);
}

Status SequenceTable::AppendBlocks(
    const std::vector<std::vector<BlockId>>& blocks, SequenceId id,
    Entry& entry) {
  const size_t most =
      (static_cast<size_t>(limits_.max_context) + kBlockTokens - 1) /
      kBlockTokens;
  for (size_t g = 0; g < blocks.size(); ++g) {
    std::vector<BlockId>& table = entry.state.blocks[g];
    if (table.size() + blocks[g].size() > most) {
      return FailedPrecondition("sequence ", id, " would have ",
                                table.size() + blocks[g].size(),
                                " blocks in KV group ", g, ", limit ", most);
    }
    if (IsState(limits_.kv_window(static_cast<int32_t>(g)))) {
      table.insert(table.end(), blocks[g].begin(), blocks[g].end());
      continue;
    }
    for (BlockId block : blocks[g]) {
      int32_t& group = block_group_[block.value()];
      if (block_users_[block.value()] == 0) {
        group = static_cast<int32_t>(g);
        ++blocks_alive_;
      }
      if (group != static_cast<int32_t>(g)) {
        return FailedPrecondition("sequence ", id, " names block ", block,
                                  " in KV group ", g,
                                  ", which a sequence has in KV group ", group);
      }
      ++block_users_[block.value()];
      table.push_back(block);
    }
  }
  peak_blocks_ = std::max(peak_blocks_, blocks_alive_);
  return OkStatus();
}

Status SequenceTable::TakeChunk(const Chunk& chunk,
                                std::optional<StepId> in_flight) {
  const auto found = sequences_.find(chunk.sequence);
  if (found == sequences_.end()) {
    return FailedPrecondition("chunk of sequence ", chunk.sequence,
                              ", which was never started or has ended");
  }
  Entry& entry = found->second;
  SLUICE_RETURN_IF_ERROR(AppendBlocks(chunk.new_blocks, chunk.sequence, entry));
  const int32_t num_accepted = chunk.start - entry.computed;
  if (num_accepted < 0 || num_accepted > entry.num_drafts) {
    return FailedPrecondition("chunk of sequence ", chunk.sequence,
                              " starts at position ", chunk.start, ", ",
                              entry.computed, " are computed");
  }
  Accept(num_accepted, entry);
  const auto end = chunk.start + static_cast<int32_t>(chunk.tokens.size());
  if (chunk.replay != (chunk.start < entry.kept_end) ||
      (chunk.replay && end > entry.kept_end)) {
    return FailedPrecondition("chunk of sequence ", chunk.sequence,
                              " covers positions ", chunk.start, " to ", end,
                              chunk.replay ? " as a replay" : "",
                              ", its kept positions end at ", entry.kept_end);
  }
  for (size_t g = 0; g < entry.state.blocks.size(); ++g) {
    const size_t reach = entry.state.blocks[g].size() * kBlockTokens;
    if (static_cast<size_t>(end) > reach) {
      return FailedPrecondition(
          "chunk of sequence ", chunk.sequence, " ends at position ", end,
          ", its block table in KV group ", g, " reaches ", reach);
    }
  }
  SLUICE_RETURN_IF_ERROR(TakeTokens(chunk, entry));
  entry.awaits_token = chunk.sampled_by && chunk.sampled_by == in_flight;
  entry.num_drafts = chunk.num_draft_tokens;
  entry.computed = end - entry.num_drafts;
  advanced_.push_back(chunk.sequence);
  return OkStatus();
}

// Leaves only the accepted drafts in the history.
void SequenceTable::Accept(int32_t num_accepted, Entry& entry) {
  std::vector<TokenId>& history = entry.state.tokens;
  history.resize(history.size() -
                 static_cast<size_t>(entry.num_drafts - num_accepted));
  entry.computed += num_accepted;
  entry.num_drafts = 0;
}

Status SequenceTable::TakeTokens(const Chunk& chunk, Entry& entry) const {
  std::vector<TokenId>& history = entry.state.tokens;
  const size_t known = chunk.tokens.size() - chunk.num_draft_tokens;
  for (size_t i = 0; i < known; ++i) {
    const size_t position = chunk.start + i;
    if (position > history.size() ||
        (position == history.size() && knows_sampled_ && !chunk.sampled_by)) {
      return FailedPrecondition("chunk of sequence ", chunk.sequence,
                                " has a token at position ", position,
                                ", the history has ", history.size());
    }
    if (position == history.size()) history.push_back(chunk.tokens[i]);
    if (history[position] != chunk.tokens[i]) {
      return FailedPrecondition(
          "chunk of sequence ", chunk.sequence, " has token ", chunk.tokens[i],
          " at position ", position, ", the history has ", history[position]);
    }
  }
  if (chunk.samples && chunk.start + known != history.size()) {
    return FailedPrecondition("chunk of sequence ", chunk.sequence,
                              " samples after position ", chunk.start + known,
                              ", the history has ", history.size());
  }
  history.insert(history.end(), chunk.tokens.begin() + known,
                 chunk.tokens.end());
  return OkStatus();
}

std::vector<Stage::ChunkInput> SequenceTable::Inputs(
    const StepPlan& plan) const {
  std::vector<Stage::ChunkInput> inputs;
  inputs.reserve(plan.chunks.size());
  for (const Chunk& chunk : plan.chunks) {
    const Entry& entry = sequences_.at(chunk.sequence);
    inputs.push_back({&chunk, &entry.state, entry.awaits_token});
  }
  return inputs;
}

bool SequenceTable::CountsTokens(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found != sequences_.end() && found->second.state.counts.has_value();
}

bool SequenceTable::WantsLogits(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found != sequences_.end() &&
         WantsRawRows(found->second.state.sampling);
}

void SequenceTable::Append(const std::vector<SequenceResult>& results) {
  for (const SequenceResult& result : results) {
    const auto found = sequences_.find(result.sequence);
    if (found == sequences_.end()) continue;
    Entry& entry = found->second;
    Stage::SequenceState& state = entry.state;
    if (std::exchange(entry.awaits_token, false)) {
      // A failure leaves the placeholder.
      if (!result.sampled.empty()) {
        state.tokens.back() = result.sampled.back().token;
      }
      continue;
    }
    if (entry.num_drafts > 0) {
      Accept(0, entry);
      // All but the last were drafts, and are computed.
      const auto num_sampled = static_cast<int32_t>(result.sampled.size());
      entry.computed += std::max(num_sampled - 1, 0);
    }
    for (const TokenResult& token : result.sampled) {
      state.tokens.push_back(token.token);
      if (state.counts) state.counts->AddGenerated(token.token);
    }
  }
}

void SequenceTable::Clear() {
  sequences_.clear();
  advanced_.clear();
  std::fill(block_users_.begin(), block_users_.end(), 0);
  blocks_alive_ = 0;
  peak_blocks_ = 0;
}

}  // namespace sluice
