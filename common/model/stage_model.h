#ifndef SLUICE_COMMON_MODEL_STAGE_MODEL_H_
#define SLUICE_COMMON_MODEL_STAGE_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/collective/communicator.h"
#include "common/device/backend.h"
#include "common/device/kv_cache.h"
#include "common/model/decoder_layer.h"
#include "common/model/expert_owner.h"
#include "common/model/stage_weights.h"
#include "common/model_config/rank_plan.h"

namespace sluice {

// Shapes of a stage's step that all its ranks share.
struct StageModelShape {
  StageRange range;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int32_t max_step_tokens = 0;
  int64_t kv_blocks = 0;
  int64_t shared_intermediate_size = 0;  // of all ranks; 0: no shared expert
  int32_t experts_per_token = 0;
  // Per layer of the stage: tokens seen (0: all) and KV group.
  std::vector<int32_t> windows;
  std::vector<int32_t> kv_groups;
};

// One rank's part of a stage: its slice of the layers, its heads' KV cache
// and the activations between operations, all allocated once. Used by the
// rank's thread alone; every rank makes the same calls in the same order.
class StageModel {
 public:
  // What it works with; must outlive it.
  struct Surroundings {
    Backend* backend = nullptr;
    Communicator* communicator = nullptr;
    // Asked for the experts that no rank holds, by this one; may be null.
    ExpertOwner* elsewhere = nullptr;
  };
  StageModel(const StageModelShape& shape, const BackendShape& rank_shape,
             RankPlan plan, RankWeights weights,
             const Surroundings& surroundings);

  // Runs the layers over the step's tokens. `hidden_in` [T, H] is the stage
  // before's residual, null on the first stage, which embeds token_ids. A
  // non-null `hidden_out` gets this stage's residual.
  void Forward(const StepInputs& step, const float* hidden_in,
               float* hidden_out);

  // Rows of the last Forward whose experts this rank asked elsewhere and got
  // no answer for; a row may stand there for several layers. What was
  // computed for them is without meaning, their keys and values too.
  const std::vector<RowFailure>& failed_rows() const { return failed_rows_; }

  // Last stage, after Forward: logits of up to max_logits_rows() of the
  // step's logits rows, from `begin` on. Rank 0 gets [n, V] in host memory,
  // valid until its next call; the other ranks get nothing.
  kernels::ConstMatrix Logits(const StepInputs& step, int32_t begin);
  int32_t max_logits_rows() const { return max_logits_rows_; }

 private:
  kernels::Matrix AllocateMatrix(int64_t rows, int64_t cols);
  PartialSums AllocateSums(const RowShards& shards);
  void AllocateSparse();
  // Lays out which owner finishes what of each sparse layer's experts.
  void PlanExperts();
  void SetRows(int32_t num_tokens);
  void Embed(const StepInputs& step);

  const StageModelShape shape_;
  const RankPlan plan_;
  const RankWeights weights_;
  Backend& backend_;
  Communicator& communicator_;
  ExpertOwner* const elsewhere_;
  KvCache kv_;
  int32_t max_logits_rows_ = 0;

  std::vector<std::unique_ptr<DeviceMemory>> memory_;  // behind the matrices
  kernels::Matrix hidden_;                             // x [T, H]
  LayerActivations activations_;
  std::unique_ptr<LocalExperts> own_experts_;
  std::vector<RowFailure> failed_rows_;
  kernels::Matrix own_logits_;  // [max_logits_rows, V of this rank]
  kernels::Matrix all_logits_;  // rank 0: [max_logits_rows, V]
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_STAGE_MODEL_H_
