#include "common/tools/measure/stage_steps.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/core/kv_groups.h"

namespace sluice::measure {

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

StageSteps::StageSteps(Stage* stage, int count, int length,
                       const SamplingParams& sampling, int first_block)
    : stage_(*stage),
      states_(static_cast<size_t>(count)),
      chunks_(static_cast<size_t>(count)) {
  const int per_sequence = (length + kBlockTokens - 1) / kBlockTokens;
  const PlanLimits& limits = stage_.info().limits;
  SLUICE_CHECK(first_block + count * per_sequence <= limits.num_blocks);
  for (int i = 0; i < count; ++i) {
    Stage::SequenceState& state = states_[static_cast<size_t>(i)];
    state.sampling = sampling;
    state.sampling.seed = static_cast<uint64_t>(i);
    state.num_prompt_tokens = 1;
    std::vector<BlockId> blocks;
    for (int b = 0; b < per_sequence; ++b) {
      blocks.push_back(BlockId(first_block + i * per_sequence + b));
    }
    // Each group has layers of its own, so the groups may share the ids.
    state.blocks.assign(static_cast<size_t>(limits.num_kv_groups), blocks);
    if (IsState(limits.kv_window(limits.num_kv_groups - 1))) {
      // One block of states is enough: what it has is of the last tokens.
      const int own = first_block / per_sequence + i;
      state.blocks.back().assign(blocks.size(),
                                 BlockId(own % limits.num_state_blocks));
    }
    chunks_[static_cast<size_t>(i)].sequence = SequenceId(i + 1);
  }
  older_chunks_ = chunks_;
}

std::vector<Stage::ChunkInput> StageSteps::Prepare(int tokens,
                                                   bool takes_drawn) {
  std::swap(chunks_, older_chunks_);
  const auto ids =
      static_cast<size_t>(std::min(250, stage_.info().limits.vocab_size));
  std::vector<Stage::ChunkInput> inputs;
  for (size_t i = 0; i < states_.size(); ++i) {
    Chunk& chunk = chunks_[i];
    std::vector<TokenId>& history = states_[i].tokens;
    chunk.start = static_cast<int32_t>(history.size());
    chunk.tokens.clear();
    for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
      chunk.tokens.push_back(static_cast<TokenId>((i * 31 + t * 7) % ids));
    }
    history.insert(history.end(), chunk.tokens.begin(), chunk.tokens.end());
    if (NeedsTokenCounts(states_[i].sampling)) {
      if (!states_[i].counts) states_[i].counts.emplace();
      for (const TokenId id : chunk.tokens) {
        states_[i].counts->AddGenerated(id);
      }
    }
    chunk.logits = LogitsWanted::kLast;
    chunk.samples = true;
    inputs.push_back({&chunk, &states_[i], takes_drawn});
  }
  return inputs;
}

double StageSteps::Step(int tokens) {
  const auto inputs = Prepare(tokens, /*takes_drawn=*/false);
  HiddenStates out;
  std::vector<SequenceResult> results;
  const TimePoint start = Clock::now();
  stage_.Run(inputs, {}, out, results);
  return Seconds(Clock::now() - start);
}

std::vector<double> StageSteps::StepsAhead(int count) {
  SLUICE_CHECK(stage_.overlaps_steps());
  HiddenStates out;
  std::vector<SequenceResult> results;
  std::vector<double> seconds;
  stage_.Begin(Prepare(1, /*takes_drawn=*/false), {});
  TimePoint start = Clock::now();
  for (int i = 1; i <= count; ++i) {
    if (i < count) stage_.Begin(Prepare(1, /*takes_drawn=*/true), {});
    stage_.Finish(out, results);
    const TimePoint stop = Clock::now();
    seconds.push_back(Seconds(stop - start));
    start = stop;
  }
  return seconds;
}

void StageSteps::Rewind(int length) {
  for (Stage::SequenceState& state : states_) {
    SLUICE_CHECK(!state.counts);
    state.tokens.resize(
        std::min(state.tokens.size(), static_cast<size_t>(length)));
  }
}

}  // namespace sluice::measure
