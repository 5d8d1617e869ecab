// The arithmetic of the simulation's stages. A row has the digest of the tokens
// up to its position, and the sum of those of all positions up to it. Every
// layer keeps its rows in the slots that the block tables name, reads all slots
// of the history, in a windowed group the window's, in the group of states
// those of the block of the position before and the row before that block, and
// holds them against each other. A slot of another history, a row that was left
// out, came twice or in the place of another one, or a log's row from another
// time changes all that follows, and in the end the tokens: the last layer's
// row draws the token that tests/engine/fake_pipeline.h gives the history, if
// the row is the history's.
#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/core/kv_groups.h"
#include "common/stage/stage.h"
#include "tests/engine/fake_pipeline.h"
#include "tests/engine/fake_stages.h"
#include "tests/simulation/world.h"

namespace sluice {
namespace {

// What is before a block of states, and its slots.
constexpr int32_t kStateSlots = 1 + kBlockTokens;

}  // namespace

Stage::Stage(StageInfo info, Duration step_time, int no_host)
    : info_(std::move(info)),
      step_time_(step_time),
      no_host_(no_host),
      slots_(static_cast<size_t>(info_.last_layer - info_.first_layer) *
             static_cast<size_t>(info_.limits.num_blocks) * kBlockTokens),
      states_(static_cast<size_t>(info_.last_layer - info_.first_layer) *
              static_cast<size_t>(info_.limits.num_state_blocks) *
              kStateSlots) {
  SLUICE_CHECK(sizeof(Row) ==
               sizeof(float) * static_cast<size_t>(info_.hidden_size));
}

bool Stage::HoldsState(int32_t layer) const {
  const int32_t group = layer % info_.limits.num_kv_groups;
  return IsState(info_.limits.kv_window(group));
}

Stage::Row& Stage::BeforeBlock(int32_t layer, const SequenceState& state,
                               int32_t position) {
  const auto group = static_cast<size_t>(layer % info_.limits.num_kv_groups);
  const BlockId block =
      state.blocks[group][static_cast<size_t>(position / kBlockTokens)];
  const int32_t first =
      (layer - info_.first_layer) * info_.limits.num_state_blocks;
  return states_.at(static_cast<size_t>((first + block.value()) * kStateSlots));
}

Stage::Row& Stage::Slot(int32_t layer, const SequenceState& state,
                        int32_t position) {
  if (HoldsState(layer)) {
    return *(&BeforeBlock(layer, state, position) + 1 +
             position % kBlockTokens);
  }
  const auto group = static_cast<size_t>(layer % info_.limits.num_kv_groups);
  const BlockId block =
      state.blocks[group][static_cast<size_t>(position / kBlockTokens)];
  const int32_t slot =
      ((layer - info_.first_layer) * info_.limits.num_blocks + block.value()) *
          kBlockTokens +
      position % kBlockTokens;
  return slots_[static_cast<size_t>(slot)];
}

void Stage::GiveBack(const std::vector<BlockRange>& vacant) {
  const int32_t layers = info_.last_layer - info_.first_layer;
  for (const BlockRange& range : vacant) {
    for (int32_t layer = 0; layer < layers; ++layer) {
      const auto row = [&](int32_t block) {
        return slots_.begin() +
               int64_t{layer * info_.limits.num_blocks + block} * kBlockTokens;
      };
      std::fill(row(range.begin), row(range.end), Row{});
    }
  }
}

size_t Stage::KvBytes(int32_t layer, int32_t group) const {
  if (group != layer % info_.limits.num_kv_groups) return 0;
  return sizeof(Row) *
         static_cast<size_t>(HoldsState(layer) ? kStateSlots : kBlockTokens);
}

Stage::Row* Stage::BlockOf(const KvName& name) {
  const bool is_state = HoldsState(name.layer);
  const int32_t blocks =
      is_state ? info_.limits.num_state_blocks : info_.limits.num_blocks;
  const int32_t rows = is_state ? kStateSlots : kBlockTokens;
  const int32_t block =
      (name.layer - info_.first_layer) * blocks + name.block.value();
  return &(is_state ? states_ : slots_).at(static_cast<size_t>(block * rows));
}

void Stage::ReadKv(const KvName& name, void* out) {
  std::memcpy(out, static_cast<void*>(BlockOf(name)),
              KvBytes(name.layer, name.group));
}

void Stage::WriteKv(const KvName& name, const void* in) {
  std::memcpy(static_cast<void*>(BlockOf(name)), in,
              KvBytes(name.layer, name.group));
}

std::vector<TokenId> Stage::TokensOf(const ChunkInput& input) const {
  if (input.takes_drawn) return {drawn_before_.at(input.chunk->sequence)};
  return input.chunk->tokens;
}

std::vector<TokenId> Stage::HistoryOf(const ChunkInput& input) const {
  const Chunk& chunk = *input.chunk;
  const auto end = chunk.start + static_cast<int32_t>(chunk.tokens.size()) -
                   chunk.num_draft_tokens;
  std::vector<TokenId> history(input.state->tokens.begin(),
                               input.state->tokens.begin() + end);
  if (input.takes_drawn) history.back() = TokensOf(input)[0];
  return history;
}

Stage::Row Stage::ReadBefore(int32_t layer, const SequenceState& state,
                             int32_t position, uint64_t& wrong) {
  const int32_t window =
      info_.limits.kv_window(layer % info_.limits.num_kv_groups);
  Row before = {kNoHistory, 0};
  int32_t first = window > 0 ? std::max(0, position - window + 1) : 0;
  // Whether the row before `first` is known.
  bool is_known = first == 0;
  if (IsState(window) && position > 0) {
    first = (position - 1) / kBlockTokens * kBlockTokens;
    if (first > 0) before = BeforeBlock(layer, state, first);
    is_known = true;
  }
  for (int32_t p = first; p < position; ++p) {
    const Row& slot = Slot(layer, state, p);
    if ((p > first || is_known) && slot.sum != before.sum + Mix(slot.chain)) {
      wrong = Mix(wrong + slot.sum);
    }
    before = slot;
  }
  return before;
}

void Stage::RunLayer(int32_t layer, const ChunkInput& input, Row* rows) {
  const Chunk& chunk = *input.chunk;
  const int32_t window =
      info_.limits.kv_window(layer % info_.limits.num_kv_groups);
  const std::vector<TokenId> tokens = TokensOf(input);
  const auto count = static_cast<int32_t>(tokens.size());
  for (int32_t i = 0; i < count; ++i) {
    const int32_t position = chunk.start + i;
    Row& row = rows[i];
    uint64_t wrong = 0;
    const Row before = ReadBefore(layer, *input.state, position, wrong);
    if (layer == 0) {
      row.chain = Extend(before.chain, tokens[static_cast<size_t>(i)]);
      row.sum = before.sum + Mix(row.chain);
    } else if (window != 1 || position == 0) {
      if (row.sum != before.sum + Mix(row.chain)) wrong = Mix(wrong + row.sum);
    }
    row.chain ^= wrong;
    if (HoldsState(layer) && position % kBlockTokens == 0) {
      BeforeBlock(layer, *input.state, position) = before;
    }
    Slot(layer, *input.state, position) = row;
  }
}

SequenceResult Stage::Sample(const ChunkInput& input, const Row* rows) const {
  const Chunk& chunk = *input.chunk;
  const SequenceState& state = *input.state;
  SequenceResult result;
  result.sequence = chunk.sequence;
  const auto count = static_cast<int32_t>(chunk.tokens.size());
  const int32_t last = count - 1 - chunk.num_draft_tokens;
  const bool all = chunk.logits == LogitsWanted::kAll;
  std::vector<TokenId> history = HistoryOf(input);
  for (int32_t i = last; chunk.samples && i < count; ++i) {
    const uint64_t digest = Digest(history.data(), history.size());
    const auto draw = static_cast<size_t>(i - last);
    TokenId token =
        NextToken(history, state.sampling, info_.limits.vocab_size,
                  chunk.masks.empty() ? nullptr : &chunk.masks.at(draw));
    if (rows[i].chain != digest) {
      token = (token + 1) % info_.limits.vocab_size;
    }
    result.sampled.push_back(
        WithLogprob(token, state.sampling.logprobs, rows[i].chain));
    if (i + 1 == count || chunk.tokens[static_cast<size_t>(i + 1)] != token) {
      break;
    }
    history.push_back(token);
  }
  for (int32_t i = 0; all && i < count; ++i) {
    const int32_t next = chunk.start + i + 1;
    if (state.sampling.prompt_logprobs < 0 || next >= state.num_prompt_tokens) {
      break;
    }
    result.prompt.push_back(WithLogprob(state.tokens[static_cast<size_t>(next)],
                                        state.sampling.prompt_logprobs,
                                        rows[i].chain));
  }
  if (!WantsRawRows(state.sampling)) return result;
  const bool is_hidden = state.sampling.hidden != HiddenWanted::kNone;
  const int32_t first = all ? 0 : last;
  const int32_t logits_rows = all ? count
                              : is_hidden
                                  ? 1
                                  : static_cast<int32_t>(result.sampled.size());
  for (int32_t i = first; i < first + logits_rows; ++i) {
    for (int32_t v = 0; v < info_.limits.vocab_size; ++v) {
      result.logits.push_back(LogitOf(rows[i].chain, v));
    }
  }
  return result;
}

void Stage::Begin(const std::vector<ChunkInput>& chunks, HiddenStates in,
                  const StepHeader&) {
  simulation::World& world = simulation::World::Get();
  SLUICE_CHECK(flights_.size() < (overlaps_steps() ? 2u : 1u));
  Flight& flight = flights_.emplace_back();
  const bool is_alone = info_.is_first() && info_.is_last();
  if (flights_.size() > 1 && !is_alone) ++world.steps_ahead;
  drawn_before_ = std::exchange(drawn_, {});
  size_t num_rows = 0;
  for (const ChunkInput& input : chunks) num_rows += input.chunk->tokens.size();
  std::vector<Row> rows(num_rows);
  if (!info_.is_first() && num_rows > 0) {
    std::memcpy(static_cast<void*>(rows.data()), in.values(),
                sizeof(Row) * num_rows);
  }
  for (int32_t layer = info_.first_layer; layer < info_.last_layer; ++layer) {
    Row* at = rows.data();
    for (const ChunkInput& input : chunks) {
      RunLayer(layer, input, at);
      at += input.chunk->tokens.size();
    }
    ++layers_done_;
  }
  for (const ChunkInput& input : chunks) {
    if (no_host_ == 0 || !world.random().Chance(no_host_)) continue;
    SequenceResult& failed = flight.failed.emplace_back();
    failed.sequence = input.chunk->sequence;
    failed.status = Unavailable("no host");
  }
  if (!info_.is_last()) {
    flight.out =
        HiddenStates(static_cast<int32_t>(num_rows), info_.hidden_size);
    if (num_rows > 0) {
      std::memcpy(flight.out.values(), rows.data(), sizeof(Row) * num_rows);
    }
    return;
  }
  const Row* at = rows.data();
  for (const ChunkInput& input : chunks) {
    if (input.chunk->logits != LogitsWanted::kNone) {
      const SequenceResult& result =
          flight.results.emplace_back(Sample(input, at));
      if (result.sampled.size() == 1 && input.chunk->num_draft_tokens == 0) {
        drawn_[result.sequence] = result.sampled[0].token;
      }
    }
    at += input.chunk->tokens.size();
  }
}

bool Stage::IsDone() {
  constexpr int kMostAsked = 4;
  simulation::World& world = simulation::World::Get();
  world.Sleep(world.random().Up(step_time_) / kMostAsked);
  return ++flights_.front().asked > kMostAsked;
}

void Stage::Finish(HiddenStates& out, std::vector<SequenceResult>& results) {
  simulation::World& world = simulation::World::Get();
  if (flights_.front().asked == 0) {
    world.Sleep(world.random().Up(step_time_) * world.process()->slowness);
  }
  out = std::move(flights_.front().out);
  results = std::move(flights_.front().results);
  failed_ = std::move(flights_.front().failed);
  flights_.pop_front();
}

}  // namespace sluice
