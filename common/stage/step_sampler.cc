#include "common/stage/step_sampler.h"

#include <algorithm>
#include <utility>

namespace sluice {

StepSampler::StepSampler(const std::vector<Stage::ChunkInput>& chunks,
                         int64_t vocab_size, int64_t hidden_size)
    : vocab_size_(vocab_size), hidden_size_(hidden_size) {
  int32_t first_row = 0;
  for (const Stage::ChunkInput& input : chunks) {
    const Chunk& chunk = *input.chunk;
    const auto count = static_cast<int32_t>(chunk.tokens.size());
    if (chunk.logits != LogitsWanted::kNone) {
      results_.emplace_back().sequence = chunk.sequence;
      const int32_t last = count - 1 - chunk.num_draft_tokens;
      int32_t begin = chunk.logits == LogitsWanted::kAll ? 0 : last;
      if (input.state->sampling.hidden != HiddenWanted::kNone) {
        AddHidden(first_row + begin, last + 1 - begin);
        begin = chunk.samples ? last : count;  // the rows need no logits
      }
      for (int32_t row = begin; row < count; ++row) {
        AddRow(input, chunk.start + row, chunk.samples ? row - last : -1);
        rows_.push_back(first_row + row);
      }
    }
    first_row += count;
  }
  std::ranges::sort(drawn_rows_);
}

// Adds the tasks on the logits of the token at `position`.
void StepSampler::AddRow(const Stage::ChunkInput& input, int32_t position,
                         int32_t draw) {
  const Chunk& chunk = *input.chunk;
  const Stage::SequenceState& state = *input.state;
  const auto row = static_cast<int32_t>(rows_.size());
  const size_t result = results_.size() - 1;
  const int32_t next = position + 1;
  if (chunk.logits == LogitsWanted::kAll && next < state.num_prompt_tokens) {
    tasks_.push_back({row,
                      {.token = state.tokens[next],
                       .num_top = state.sampling.prompt_logprobs}});
    places_.push_back({result});
  }
  if (draw >= 0) {
    // The counts are those without drafts.
    const bool counted = state.counts.has_value() && draw == 0;
    tasks_.push_back(
        {row,
         {.params = &state.sampling,
          .point = {next, std::span(state.tokens.data(), next),
                    state.num_prompt_tokens,
                    counted ? &*state.counts : nullptr},
          .mask = chunk.masks.empty() ? nullptr : &chunk.masks[draw]}});
    places_.push_back({result, draw, state.tokens[position]});
    if (draw == 0) drawn_rows_.push_back({chunk.sequence, row});
    if (draw > 0) drawn_rows_.back().second = -1;
  }
  if (state.sampling.return_logits) {
    raw_rows_.push_back(row);
    raw_results_of_.push_back(result);
  }
}

void StepSampler::AddHidden(int32_t row, int32_t count) {
  SequenceResult& result = results_.back();
  result.logits.resize(static_cast<size_t>(count * hidden_size_));
  raw_hidden_.push_back({row, count, result.logits.data()});
}

int32_t StepSampler::DrawnRow(SequenceId sequence) const {
  const auto found = std::ranges::lower_bound(
      drawn_rows_, sequence, {}, [](const auto& drawn) { return drawn.first; });
  return found != drawn_rows_.end() && found->first == sequence ? found->second
                                                                : -1;
}

void StepSampler::Request(StepIo& io) {
  answers_.assign(tasks_.size(), TokenResult());
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
  io.tasks = tasks_;
  io.answers = answers_;
  io.raw_logits = raw_logits_;
  io.raw_hidden = raw_hidden_;
}

std::vector<SequenceResult> StepSampler::Finish() {
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const auto [index, draw, draft] = places_[i];
    SequenceResult& result = results_[index];
    const bool is_draw = tasks_[i].task.params != nullptr;
    auto& told = is_draw ? result.sampled : result.prompt;
    // Nothing is drawn behind a draft that was not accepted.
    if (is_draw && draw > 0 &&
        (std::ssize(told) != draw || told.back().token != draft)) {
      continue;
    }
    if (answers_[i].ok()) {
      told.push_back(*std::move(answers_[i]));
    } else if (result.status.ok()) {
      result.status = answers_[i].status();
    }
  }
  for (const Place& place : places_) {
    if (place.draw == 0) continue;
    SequenceResult& result = results_[place.result];
    const size_t drawn =
        result.sampled.size() * static_cast<size_t>(vocab_size_);
    result.logits.resize(std::min(result.logits.size(), drawn));
  }
  // A failed sequence has its status alone: the stage and SampledTokens must
  // agree on whether it got a token.
  for (SequenceResult& result : results_) {
    if (result.status.ok()) continue;
    result = {.sequence = result.sequence, .status = std::move(result.status)};
  }
  return std::move(results_);
}

}  // namespace sluice
