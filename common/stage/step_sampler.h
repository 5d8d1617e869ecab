#ifndef SLUICE_COMMON_STAGE_STEP_SAMPLER_H_
#define SLUICE_COMMON_STAGE_STEP_SAMPLER_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/core/step_plan.h"
#include "common/sampling/sampler.h"
#include "common/stage/stage.h"
#include "kernels/context.h"
#include "kernels/views.h"

namespace sluice {

// Turns one step's logits rows into its sequences' results: prompt logprobs,
// drawn tokens, raw rows. Used by the stage's thread. Rows are spread over
// the team, where they are fewer than it has threads also the parts of each,
// and each row depends on nothing but itself.
class StepSampler {
 public:
  // `chunks` and `samplers` must outlive the StepSampler. The samplers' memory
  // is used from step to step; there will be one for each thread of the team.
  StepSampler(const std::vector<Stage::ChunkInput>& chunks,
              std::vector<Sampler>& samplers);

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
  // What is asked of a row, and the answer.
  struct Job {
    int64_t row = 0;  // of Consume's logits
    TokenAsk ask;
    StatusOr<TokenResult> told = TokenResult();
  };
  void AddJobs(const Row& row, int64_t index, std::span<const float> logits);
  void RunSide(const kernels::Context& context, std::span<Job> jobs);
  void RunSplit(const kernels::Context& context, std::span<Job> jobs);
  void Take(const Row& row, Job& job);

  const std::vector<Stage::ChunkInput>& chunks_;
  std::vector<Sampler>& samplers_;
  std::vector<int32_t> rows_;
  std::vector<Row> infos_;  // of rows_
  std::vector<Job> jobs_;
  std::vector<SequenceResult> results_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_STEP_SAMPLER_H_
