#ifndef SLUICE_COMMON_STAGE_STEP_SAMPLER_H_
#define SLUICE_COMMON_STAGE_STEP_SAMPLER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/core/step_plan.h"
#include "common/model/stage_model.h"
#include "common/stage/stage.h"

namespace sluice {

// The tasks of one step on its logits rows, and the answers as results of its
// sequences: prompt logprobs, drawn tokens, raw rows. Rows behind a draft are
// drawn from as well, and their tokens are dropped unless the draft is accepted
// (see Chunk). Used by the stage's thread.
class StepSampler {
 public:
  // `chunks` must outlive the StepSampler. Raw rows have `vocab_size` logits,
  // or hidden states of `hidden_size`.
  StepSampler(const std::vector<Stage::ChunkInput>& chunks, int64_t vocab_size,
              int64_t hidden_size);

  // Rows of the step that want logits, rising.
  std::span<const int32_t> rows() const { return rows_; }

  // The row, as an index into rows(), that a sequence's one token is drawn
  // from; -1: it has none, or drafts.
  int32_t DrawnRow(SequenceId sequence) const;

  // Adds the tasks to the step's inputs and outputs. Must outlive the step.
  void Request(StepIo& io);

  // Returns, after the step, one result per chunk with logits wanted, in the
  // chunks' order.
  std::vector<SequenceResult> Finish();

 private:
  // What a task is for.
  struct Place {
    size_t result = 0;  // which of results_
    // The index among the tokens that may be drawn for the chunk, and the draft
    // before it; the first has none.
    int32_t draw = 0;
    TokenId draft = 0;
  };
  // `draw`: the index among the tokens that may be drawn; below 0: no draw.
  void AddRow(const Stage::ChunkInput& input, int32_t position, int32_t draw);

  // Adds the hidden states of `count` rows of the step, from `row` on.
  void AddHidden(int32_t row, int32_t count);

  const int64_t vocab_size_;
  const int64_t hidden_size_;
  std::vector<int32_t> rows_;
  std::vector<RowTask> tasks_;
  std::vector<Place> places_;  // per task
  std::vector<StatusOr<TokenResult>> answers_;
  std::vector<int32_t> raw_rows_;       // indices into rows_, rising
  std::vector<size_t> raw_results_of_;  // per raw row: which of results_
  std::vector<RawLogits> raw_logits_;
  std::vector<RawHidden> raw_hidden_;
  std::vector<SequenceResult> results_;
  std::vector<std::pair<SequenceId, int32_t>> drawn_rows_;  // rising
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_STEP_SAMPLER_H_
