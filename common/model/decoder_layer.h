#ifndef SLUICE_COMMON_MODEL_DECODER_LAYER_H_
#define SLUICE_COMMON_MODEL_DECODER_LAYER_H_

#include <vector>

#include "common/collective/communicator.h"
#include "common/model/backend.h"
#include "common/model/rank_plan.h"
#include "common/model/stage_weights.h"

namespace sluice {

// Who computes: one rank's device, its peers and its share.
struct RankContext {
  Backend& backend;
  Communicator& communicator;
  const RankPlan& plan;
};

// What this rank finishes of a row-parallel product: one matrix [T, H] per
// node of its shards, as written by the backend and as read by the
// communicator.
struct PartialSums {
  std::vector<kernels::Matrix> out;
  std::vector<kernels::ConstMatrix> in;
};

// Values inside a layer, one set per rank, used by all layers in turn.
struct LayerActivations {
  kernels::Matrix qkv;        // [T, (N + 2K) D]
  kernels::Matrix attention;  // [T, N D]
  kernels::Matrix gate_up;    // [T, 2F]
  kernels::Matrix mlp;        // [T, F]
  PartialSums attention_sums;
  PartialSums mlp_sums;
};

// One Llama decoder layer over the residual x [T, H], in place; every rank
// holds the whole residual.
void RunDecoderLayer(const RankContext& rank, const LayerWeights& weights,
                     const LayerKv& kv, const LayerActivations& a,
                     kernels::Matrix x);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_DECODER_LAYER_H_
