#include "common/stage/step_sampler.h"

#include <utility>

namespace sluice {

StepSampler::StepSampler(const std::vector<Stage::ChunkInput>& chunks,
                         int64_t vocab_size)
    : vocab_size_(vocab_size) {
  int32_t first_row = 0;
  for (const Stage::ChunkInput& input : chunks) {
    const Chunk& chunk = *input.chunk;
    const auto count = static_cast<int32_t>(chunk.tokens.size());
    if (chunk.logits != LogitsWanted::kNone) {
      results_.emplace_back().sequence = chunk.sequence;
      const int32_t begin = chunk.logits == LogitsWanted::kAll ? 0 : count - 1;
      for (int32_t row = begin; row < count; ++row) {
        AddRow(input, chunk.start + row, row == count - 1);
        rows_.push_back(first_row + row);
      }
    }
    first_row += count;
  }
}

// The logits of the token at `position`, the chunk's last or not.
void StepSampler::AddRow(const Stage::ChunkInput& input, int32_t position,
                         bool is_last) {
  const Chunk& chunk = *input.chunk;
  const Stage::SequenceState& state = *input.state;
  const auto row = static_cast<int32_t>(rows_.size());
  const size_t result = results_.size() - 1;
  const int32_t next = position + 1;
  if (chunk.logits == LogitsWanted::kAll && next < state.num_prompt_tokens) {
    asks_.push_back({row,
                     {.token = state.tokens[next],
                      .num_top = state.sampling.prompt_logprobs}});
    results_of_.push_back(result);
  }
  if (chunk.samples && is_last) {
    asks_.push_back({row,
                     {.params = &state.sampling,
                      .point = {next, std::span(state.tokens.data(), next),
                                state.num_prompt_tokens,
                                state.counts ? &*state.counts : nullptr}}});
    results_of_.push_back(result);
  }
  if (state.sampling.return_logits) {
    raw_rows_.push_back(row);
    raw_results_of_.push_back(result);
  }
}

void StepSampler::Request(StepIo& io) {
  answers_.assign(asks_.size(), TokenResult());
  for (const size_t result : raw_results_of_) {
    std::vector<float>& logits = results_[result].logits;
    logits.resize(logits.size() + static_cast<size_t>(vocab_size_));
  }
  size_t behind = 0;  // within the result's logits
  for (size_t i = 0; i < raw_rows_.size(); ++i) {
    const size_t result = raw_results_of_[i];
    if (i == 0 || result != raw_results_of_[i - 1]) behind = 0;
    raw_logits_.push_back(
        {raw_rows_[i], results_[result].logits.data() + behind});
    behind += static_cast<size_t>(vocab_size_);
  }
  io.asks = asks_;
  io.answers = answers_;
  io.raw_logits = raw_logits_;
}

std::vector<SequenceResult> StepSampler::Finish() {
  for (size_t i = 0; i < asks_.size(); ++i) {
    SequenceResult& result = results_[results_of_[i]];
    if (answers_[i].ok()) {
      auto& told =
          asks_[i].ask.params == nullptr ? result.prompt : result.sampled;
      told.push_back(*std::move(answers_[i]));
    } else if (result.status.ok()) {
      result.status = answers_[i].status();
    }
  }
  for (SequenceResult& result : results_) {
    if (!result.status.ok()) result.logits.clear();
  }
  return std::move(results_);
}

}  // namespace sluice
