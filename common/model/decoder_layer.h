#ifndef SLUICE_COMMON_MODEL_DECODER_LAYER_H_
#define SLUICE_COMMON_MODEL_DECODER_LAYER_H_

#include <memory>
#include <vector>

#include "common/device/backend.h"
#include "common/model/local_experts.h"
#include "common/model/remote_experts.h"
#include "common/model/stage_weights.h"
#include "common/model_config/rank_plan.h"

namespace sluice {

// The constants of one rank's layer, from the model.
struct LayerSpec {
  AttentionSpec attention;
  // RMS norms of q and k over all heads; no heads: none.
  kernels::HeadRuns norm_heads;
  int64_t norm_q_count = 0;  // columns of all ranks' q
  int64_t norm_k_count = 0;
  int32_t kv_layer = 0;      // of the stage: the layer with the keys and values
  float clip_qkv = 0;        // 0: none
  bool gates_heads = false;  // heads times the sigmoid of a gate
  float norm_eps = 0;
  float latent_norm_eps = 0;
  float index_norm_eps = 0;
  bool has_indexer = false;  // of its own
  bool layer_norm = false;   // else RMS norms
  bool parallel = false;     // attention and MLP read the same norm's rows
  bool norms_once = false;   // attention and state do
  float residual_scale = 1;  // of what attention and MLP add
  // The same for each, times its own multiplier.
  float attention_scale = 1;
  float state_scale = 1;
  float mlp_scale = 1;
  float gate_scale = 1;        // of the MLP's gate, before the activation
  Activation activation;       // of the MLP, or of the experts
  kernels::RouterRule router;  // of a sparse layer
};

// One rank's device, and the present step with its failed rows so far.
struct RankContext {
  Backend& backend;
  const StepHeader& step;
  std::vector<RowFailure>& failed;
};

// The nodes of the tree over a sparse layer's expert ids, and their sums.
struct ExpertJoin {
  int32_t layer = 0;                     // number within the model
  std::vector<DeviceMatrix> own;         // sums of LocalExperts' nodes
  std::vector<kernels::TreeNode> nodes;  // own and remote, rising by id
  std::vector<DeviceMatrix> sums;        // of `nodes`, [T, H] each
};

// Values inside latent attention.
struct LatentActivations {
  DeviceMatrix q;         // [T, N (p + r)], if q has a latent row
  DeviceMatrix queries;   // [T, N (r + c)]
  DeviceMatrix weighted;  // [T, N c]: weighted sums of rows of the cache
  // [T, top_k]: the positions that an indexer chose, for the layers behind,
  // too.
  DeviceMatrix chosen;
};

// Values inside a layer, one set per rank, which all layers use in turn: as
// large as the largest layer needs (DeviceMatrix::Packed).
struct LayerActivations {
  DeviceMatrix qkv;        // [T, rows of LayerWeights::qkv]
  DeviceMatrix attention;  // [T, N D], of latent attention [T, N w]
  LatentActivations latent;
  DeviceMatrix gate_up;            // [T, 2F], also of the shared expert
  DeviceMatrix mlp;                // [T, F], also of the shared expert
  std::vector<DeviceMatrix> sums;  // [T, H] per node that the rank finishes
  // [T, 2] per node: sums of the squares of q and of k.
  std::vector<DeviceMatrix> squares;
  DeviceMatrix normed;     // [T, H]: sparse or parallel layers
  DeviceMatrix own_input;  // [T, P]
  // Layers with a state: [T, in_columns], and so on (kernels/state_mixer.h).
  DeviceMatrix state_in;
  DeviceMatrix state_scratch;
  DeviceMatrix state_out;
  // Sparse layers.
  DeviceMatrix shared_gate;         // [T, 1]
  DeviceMatrix router_logits;       // [T, E]
  DeviceRouting routing;            // [T, k]
  DeviceMatrix mixed;               // [T, H]
  std::vector<ExpertJoin> experts;  // per layer of the stage
  std::unique_ptr<LocalExperts> own_experts;
  std::unique_ptr<RemoteExperts> remote_experts;  // null: the stage has all
};

// A layer of the stage.
struct StageLayer {
  size_t index = 0;  // within the stage
  const LayerSpec& spec;
  const LayerShare& share;
  const LayerWeights& weights;
  const LayerKv& kv;
  const LayerState& state;
  DeviceMatrix own_input;  // [T, P]; no data: none
};

// Runs one decoder layer, dense or sparse, over the residual x [T, H], in
// place; every rank holds the whole residual.
void RunDecoderLayer(const RankContext& rank, const StageLayer& layer,
                     const LayerActivations& a, DeviceMatrix x);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_DECODER_LAYER_H_
