#include "common/model/step_sampler.h"

#include <utility>

#include "common/model/sampler.h"

namespace sluice {

StepSampler::StepSampler(const std::vector<Stage::ChunkInput>& chunks)
    : chunks_(chunks) {
  int32_t first_row = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& chunk = *chunks[i].chunk;
    const auto count = static_cast<int32_t>(chunk.tokens.size());
    if (chunk.logits != LogitsWanted::kNone) {
      results_.emplace_back().sequence = chunk.sequence;
      const int32_t begin = chunk.logits == LogitsWanted::kAll ? 0 : count - 1;
      for (int32_t row = begin; row < count; ++row) {
        rows_.push_back(first_row + row);
        infos_.push_back(
            {i, results_.size() - 1, chunk.start + row, row == count - 1});
      }
    }
    first_row += count;
  }
}

StepSampler::Outcome StepSampler::Judge(const Row& row,
                                        std::span<const float> logits) const {
  const Chunk& chunk = *chunks_[row.chunk].chunk;
  const Stage::SequenceState& state = *chunks_[row.chunk].state;
  const int32_t next = row.position + 1;
  Outcome outcome;
  if (chunk.logits == LogitsWanted::kAll && next < state.num_prompt_tokens) {
    auto told = DescribeToken(logits, state.tokens[next],
                              state.sampling.prompt_logprobs);
    if (!told.ok()) {
      outcome.status = told.status();
      return outcome;
    }
    outcome.prompt.push_back(*std::move(told));
  }
  if (chunk.samples && row.is_last) {
    const std::span<const TokenId> history(state.tokens.data(), next);
    auto drawn = Sample(logits, state.sampling,
                        {next, history, state.num_prompt_tokens,
                         state.counts ? &*state.counts : nullptr});
    if (!drawn.ok()) {
      outcome.status = drawn.status();
      return outcome;
    }
    outcome.sampled.push_back(*std::move(drawn));
  }
  return outcome;
}

void StepSampler::Consume(const kernels::Context& context, int32_t begin,
                          kernels::ConstMatrix logits) {
  const auto row_of = [&](int64_t i) {
    return std::span<const float>(logits.row(i), logits.cols);
  };
  std::vector<Outcome> outcomes(logits.rows);
  kernels::ParallelFor(context, static_cast<int>(logits.rows), [&](int i) {
    outcomes[i] = Judge(infos_[begin + i], row_of(i));
  });
  for (int64_t i = 0; i < logits.rows; ++i) {
    const Row& info = infos_[begin + i];
    SequenceResult& result = results_[info.result];
    if (!outcomes[i].status.ok()) {
      if (result.status.ok()) result.status = outcomes[i].status;
      continue;
    }
    for (auto& told : outcomes[i].prompt) {
      result.prompt.push_back(std::move(told));
    }
    for (auto& drawn : outcomes[i].sampled) {
      result.sampled.push_back(std::move(drawn));
    }
    if (chunks_[info.chunk].state->sampling.return_logits) {
      const auto row = row_of(i);
      result.logits.insert(result.logits.end(), row.begin(), row.end());
    }
  }
}

}  // namespace sluice
