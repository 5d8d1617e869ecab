#ifndef SLUICE_COMMON_MODEL_STAGE_MODEL_H_
#define SLUICE_COMMON_MODEL_STAGE_MODEL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/device/backend.h"
#include "common/device/kv_cache.h"
#include "common/model/decoder_layer.h"
#include "common/model/expert_transport.h"
#include "common/model/stage_weights.h"
#include "common/model_config/rank_plan.h"

namespace sluice {

// Shapes of one rank's part of a stage's step.
struct StageModelShape {
  StageRange range;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int32_t max_step_tokens = 0;
  int64_t kv_blocks = 0;
  int64_t row_size = 0;         // of a row between stages
  int64_t per_layer_input = 0;  // of a layer's own input; 0: none
  float final_norm_eps = 0;
  bool layer_norm = false;  // the final norm, else an RMS norm
  float embedding_scale = 1;
  kernels::ElementMap logits;
  // Per layer of the stage.
  std::vector<LayerSpec> layers;
  std::vector<int32_t> kv_groups;
  int64_t state_blocks = 0;
  int32_t state_group = 0;  // the KV group of states; 0: there is none
};

// Where rows of raw logits go in host memory.
struct RawLogits {
  int32_t row = 0;  // index into StepInputs::logits_rows
  float* to = nullptr;
};

// Where hidden states behind the last norm go in host memory: [n, H] of the
// step's rows [row, row + n).
struct RawHidden {
  int32_t row = 0;
  int32_t count = 0;
  float* to = nullptr;
};

// One step's inputs from the host and outputs to it. `hidden` has the rows [T,
// row_size] of the residual, behind which the layers' own inputs go along: at
// the start those of the stage before, unless this stage is the first, which
// embeds token_ids; at the end those of this stage, unless it is the last. Null
// on a stage that is both. Rank 0 of a backend that shares the host's memory
// works on them in place. All of it must stay in place until the step's end.
struct StepIo {
  float* hidden = nullptr;
  // Last stage: both rising by row, answers one per task.
  std::span<const RowTask> tasks;
  std::span<StatusOr<TokenResult>> answers;
  std::span<const RawLogits> raw_logits;
  std::span<const RawHidden> raw_hidden;
  // Counts computed layers; null: nothing does.
  std::atomic<uint64_t>* layers_done = nullptr;
};

// One rank's part of a stage: its slice of the layers, its heads' KV cache
// and the activations between operations, all allocated once. Used by the
// rank's thread alone; every rank makes the same calls in the same order.
class StageModel {
 public:
  // The StageModel's surroundings, which must outlive it.
  struct Dependencies {
    Backend* backend = nullptr;
    // Reaches the remote experts, for this rank; may be null.
    ExpertTransport* expert_transport = nullptr;
  };
  StageModel(StageModelShape shape, RankPlan plan, RankWeights weights,
             const Dependencies& dependencies);

  // Enqueues one step. Rank 0 alone brings tasks and raw logits, and writes to
  // `hidden`. `step` and what `io` points to stay in place until its End.
  void Begin(const StepInputs& step, const StepIo& io);
  // Whether one more step may begin before End.
  bool overlaps_steps() const {
    return backend_.info().overlaps_steps &&
           activations_.remote_experts == nullptr;
  }
  // Whether End does not wait.
  bool IsDone() { return backend_.StepIsDone(); }
  // Returns when the oldest step that was begun is done.
  StepTimes End() { return backend_.EndStep(); }

  // Rows of the last step whose remote experts gave no answer; a row may be
  // listed for several layers. Their results, keys and values have no meaning.
  const std::vector<RowFailure>& failed_rows() const { return failed_rows_; }

  // Gives the memory of KV blocks back that hold nothing. Between steps; any
  // thread.
  void GiveBack(const BlockRange& range) { kv_.GiveBack(backend_, range); }

  // One block of stage layer `index` on this rank, of keys and values or, of
  // the group of states, of a state. Between steps.
  size_t KvBytes(int32_t index, int32_t group) const;
  void ReadKv(int32_t index, int32_t group, BlockId block, std::byte* out);
  void WriteKv(int32_t index, int32_t group, BlockId block,
               const std::byte* in);

 private:
  DeviceMatrix AllocateMatrix(int64_t rows, int64_t cols,
                              ElementType type = ElementType::kF32);
  // Of stage layer `index`.
  const LayerShare& ShareOf(size_t index) const {
    return plan_.layers[shape_.range.first_layer + index];
  }
  // Hidden states that a step brings, or that go to the next stage.
  void ExpectCopies();
  void AllocateLayers();
  void AllocateStates();
  void AllocateSparse(ExpertTransport* expert_transport);
  // Maps the sums of each sparse layer's experts to nodes.
  void PlanExperts(ExpertTransport* expert_transport);
  void SetRows(int32_t num_tokens);
  // Embeds the step's tokens: the residual and the layers' own inputs.
  void Embed(DeviceMatrix hidden);
  // Returns the columns of the own input of stage layer `index`.
  DeviceMatrix OwnInput(DeviceMatrix hidden, size_t index) const;
  // Computes the logits that rows of the residual `x` need, some rows at a
  // time, and runs each row's tasks.
  void RunLogits(const StepInputs& step, const StepIo& io, DeviceMatrix x);
  // Copies the rows of `x` that are wanted, behind the last norm. On rank 0.
  void CopyHidden(const StepIo& io, DeviceMatrix x);
  NormSpec FinalNorm() const {
    return {weights_.final_norm.data(), shape_.final_norm_eps,
            shape_.layer_norm, weights_.final_norm_bias.data()};
  }

  const StageModelShape shape_;
  const RankPlan plan_;
  const RankWeights weights_;
  Backend& backend_;
  KvCache kv_;

  std::vector<DeviceMemory> memory_;  // behind the matrices
  DeviceMatrix hidden_;               // [T, row_size]: x [T, H] first
  DeviceMatrix inputs_;               // [T, L P]: first stage
  LayerActivations activations_;
  std::vector<RowFailure> failed_rows_;
  DeviceMatrix own_logits_;  // [some rows, V of this rank]
  DeviceMatrix all_logits_;  // rank 0: [some rows, V]
  DeviceMatrix normed_;      // rank 0 of the last stage: [some rows, H]
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_STAGE_MODEL_H_
