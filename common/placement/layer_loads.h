#ifndef SLUICE_COMMON_PLACEMENT_LAYER_LOADS_H_
#define SLUICE_COMMON_PLACEMENT_LAYER_LOADS_H_

#include <cstdint>
#include <vector>

#include "common/model_config/weights_mode.h"
#include "common/placement/layer_split.h"
#include "common/weights/model_file.h"

namespace sluice {

struct ExpertPlacement;
struct ModelConfig;

// The default context of a split over stages for a model with more positions. A
// constant gives the same split on all machines. A stage may use more than its
// share of memory for this context.
inline constexpr int32_t kDefaultMaxContext = 8192;
// The largest context: the angles of kernels/rope.h are exact below 2^20
// radians.
inline constexpr int32_t kMaxContext = 1 << 20;
// The most KV blocks of a stage.
inline constexpr int64_t kMaxKvBlocks = int64_t{1} << 24;
// The most tokens of a step.
inline constexpr int32_t kMaxStepTokens = 1 << 16;

// Bytes of one stage.
struct StageBytes {
  uint64_t weights = 0;
  uint64_t kv = 0;     // kLeastStateBlocks blocks of states included
  uint64_t state = 0;  // of one block of states
  uint64_t total() const { return weights + kv; }
};

// The bytes that a stage holds for each layer of a model, over all its ranks. A
// value.
struct LayerLoads {
  // Weights per layer in the computed formats, without remote experts.
  std::vector<uint64_t> layers;
  // Keys and values per layer; empty: none. Layers of different KV groups share
  // memory (KvBytes of common/core/kv_groups.h).
  std::vector<uint64_t> kv;
  std::vector<int32_t> kv_groups;  // per layer; empty: all in group 0
  // One block of states per layer; empty: none.
  std::vector<uint64_t> states;
  // Per layer: no stage may begin there (kv_layout.h); empty: any may.
  std::vector<bool> uncut;
  uint64_t embedding = 0;  // on the first stage
  uint64_t first = 0;      // further weights of the first stage
  uint64_t head = 0;       // final norm and lm_head, on the last stage
  // The head is the embedding: the last stage holds the embedding, once.
  bool tied = false;
  // Rows of a tied head that ranks hold beside the embedding if one stage has
  // both.
  uint64_t tied_again = 0;

  int32_t num_layers() const { return static_cast<int32_t>(layers.size()); }
  // Returns the bytes of a stage with the layers of `range`.
  StageBytes Of(const LayerRange& range) const;
};

struct LayerLoadOptions {
  WeightsMode weights = WeightsMode::kAuto;
  // Null or without layers: every expert stays on its stage.
  const ExpertPlacement* placement = nullptr;
  // Over all KV groups; 0: the blocks of one sequence of max_context.
  int32_t kv_blocks = 0;
  int32_t max_context = 0;  // 0: the model's, at most kDefaultMaxContext
  int32_t max_step_tokens = 512;
  int32_t ranks = 1;  // per stage
  KvChoice kv_type = kernels::WeightType::kF32;
};

// Counts without reading a tensor. A missing tensor counts as empty, and a
// number beyond its limits counts as the nearest within: loading refuses both.
// Matrices are exact; every rank counts each vector whole.
LayerLoads LoadsOf(const ModelConfig& config, const weights::ModelFile& model,
                   const LayerLoadOptions& options);

}  // namespace sluice

#endif  // SLUICE_COMMON_PLACEMENT_LAYER_LOADS_H_
