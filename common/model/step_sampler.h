#ifndef SLUICE_COMMON_MODEL_STEP_SAMPLER_H_
#define SLUICE_COMMON_MODEL_STEP_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/core/step_plan.h"
#include "common/model/stage.h"
#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice {

// Turns one step's logits rows into its sequences' results: prompt logprobs,
// drawn tokens, raw rows. Used by the stage's thread; rows are spread over
// the team, and each depends on nothing but itself.
class StepSampler {
 public:
  // `chunks` must outlive the sampler.
  explicit StepSampler(const std::vector<Stage::ChunkInput>& chunks);

  // Rows of the step that want logits, rising.
  std::span<const int32_t> rows() const { return rows_; }

  // Takes logits of rows()[begin ..], one after another.
  void Consume(const kernels::Context& context, int32_t begin,
               kernels::ConstMatrix logits);

  // One result per chunk with logits wanted, in the chunks' order.
  std::vector<SequenceResult> Finish() { return std::move(results_); }

 private:
  struct Row {
    size_t chunk = 0;
    size_t result = 0;
    int32_t position = 0;  // of the token whose logits these are
    bool is_last = false;  // of its chunk
  };
  // What one row of logits says.
  struct Outcome {
    Status status;
    std::vector<TokenResult> prompt;
    std::vector<TokenResult> sampled;
  };
  Outcome Judge(const Row& row, std::span<const float> logits) const;

  const std::vector<Stage::ChunkInput>& chunks_;
  std::vector<int32_t> rows_;
  std::vector<Row> infos_;  // of rows_
  std::vector<SequenceResult> results_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_STEP_SAMPLER_H_
