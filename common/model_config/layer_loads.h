#ifndef SLUICE_COMMON_MODEL_CONFIG_LAYER_LOADS_H_
#define SLUICE_COMMON_MODEL_CONFIG_LAYER_LOADS_H_

#include <cstdint>
#include <vector>

#include "common/model_config/layer_split.h"
#include "common/model_config/weights_mode.h"
#include "common/weights/model_file.h"

namespace sluice {

struct ExpertPlacement;
struct ModelConfig;

// The default context of a split over stages, for a model with more positions:
// a constant, so that all machines compute the same split. A stage may take
// more than its share of the memory for a context of this size.
inline constexpr int32_t kDefaultMaxContext = 8192;
// Most of them: the angles of kernels/rope.h are exact below 2^20 radians.
inline constexpr int32_t kMaxContext = 1 << 20;
// Most KV blocks of a stage.
inline constexpr int64_t kMaxKvBlocks = int64_t{1} << 24;
// Most tokens of a step.
inline constexpr int32_t kMostStepTokens = 1 << 16;

// Bytes of one stage.
struct StageBytes {
  uint64_t weights = 0;
  uint64_t kv = 0;
  uint64_t total() const { return weights + kv; }
};

// What a stage holds for each of a model's layers, in bytes, all its ranks
// together. A value.
struct LayerLoads {
  // Weights of every layer as they are computed with, without remote experts.
  std::vector<uint64_t> layers;
  // Keys and values of every layer; empty: none. Layers of different KV groups
  // share memory (KvBytes of common/core/kv_groups.h).
  std::vector<uint64_t> kv;
  std::vector<int32_t> kv_groups;  // of every layer; empty: all of group 0
  uint64_t embedding = 0;          // on the stage with the first layer
  uint64_t head = 0;               // final norm and lm_head, with the last one
  // The head is the embedding: the last stage has that too, but once.
  bool tied = false;
  // Rows of a tied head that ranks hold beside the embedding where both are on
  // one stage.
  uint64_t tied_again = 0;

  int32_t num_layers() const { return static_cast<int32_t>(layers.size()); }
  // Of a stage with these layers.
  StageBytes Of(const LayerRange& range) const;
};

struct LayerLoadOptions {
  WeightsMode weights = WeightsMode::kAuto;
  // Null or without layers: every expert is on its stage.
  const ExpertPlacement* placement = nullptr;
  // Of all KV groups together; 0: those of one sequence of max_context.
  int32_t kv_blocks = 0;
  int32_t max_context = 0;  // 0: the model's, at most kDefaultMaxContext
  int32_t max_step_tokens = 512;
  int32_t ranks = 1;  // of every stage
};

// Reads no tensor, and takes one that is missing for empty, a number beyond its
// limits for the nearest within: loading names them. Exact for matrices; of
// vectors every rank is taken to hold the whole.
LayerLoads LoadsOf(const ModelConfig& config, const weights::ModelFile& model,
                   const LayerLoadOptions& options);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_LAYER_LOADS_H_
