#ifndef SLUICE_COMMON_MODEL_DECODER_LAYER_H_
#define SLUICE_COMMON_MODEL_DECODER_LAYER_H_

#include <vector>

#include "common/collective/communicator.h"
#include "common/device/backend.h"
#include "common/model/expert_owner.h"
#include "common/model/stage_weights.h"
#include "common/model_config/rank_plan.h"

namespace sluice {

// Who computes: one rank's device, its peers and its share; and of which step,
// with the rows of it that failed so far.
struct RankContext {
  Backend& backend;
  Communicator& communicator;
  const RankPlan& plan;
  const StepName& step;
  std::vector<RowFailure>& failed;
};

// What this rank finishes of a row-parallel product: one matrix [T, H] per
// node of its shards, as written by the backend and as read by the
// communicator.
struct PartialSums {
  std::vector<kernels::Matrix> out;
  std::vector<kernels::ConstMatrix> in;
};

// Who finishes what of one sparse layer's tree over expert ids, this rank's
// part of it: its own experts, and on rank 0 those that are elsewhere.
struct ExpertJoin {
  struct Part {
    ExpertOwner* owner = nullptr;
    std::vector<kernels::Matrix> out;  // [T, H], one per node of the owner
  };
  int32_t layer = 0;  // number within the model
  // Slow ones first: all begin in this order and finish from the end, so that
  // who computes here does it while the others are waited for.
  std::vector<Part> parts;
  // All parts' nodes and sums, rising by expert id, for the communicator.
  std::vector<kernels::TreeNode> nodes;
  std::vector<kernels::ConstMatrix> sums;
};

// Values inside a layer, one set per rank, used by all layers in turn.
struct LayerActivations {
  kernels::Matrix qkv;        // [T, (N + 2K) D]
  kernels::Matrix attention;  // [T, N D]
  kernels::Matrix gate_up;    // [T, 2F]
  kernels::Matrix mlp;        // [T, F]
  PartialSums attention_sums;
  PartialSums mlp_sums;
  // Sparse layers.
  kernels::Matrix normed;          // [T, H]
  kernels::Matrix router_logits;   // [T, E]
  Routing routing;                 // [T, k]
  kernels::Matrix shared_gate_up;  // [T, 2F] of the shared expert
  kernels::Matrix shared_mlp;      // [T, F]
  PartialSums shared_sums;
  kernels::Matrix mixed;            // [T, H]
  std::vector<ExpertJoin> experts;  // per layer of the stage
};

// One decoder layer, dense or sparse, over the residual x [T, H], in place;
// every rank holds the whole residual. `index`: which of the stage's layers.
void RunDecoderLayer(const RankContext& rank, const LayerWeights& weights,
                     const LayerKv& kv, int32_t index,
                     const LayerActivations& a, kernels::Matrix x);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_DECODER_LAYER_H_
