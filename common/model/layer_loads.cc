#include "common/model/layer_loads.h"

#include <algorithm>
#include <string_view>

#include "common/core/ids.h"
#include "common/model/expert_placement.h"
#include "common/model/kv_layout.h"
#include "common/model/layer_names.h"
#include "common/model/model_config.h"

namespace sluice {
namespace {

using weights::DType;
using weights::TensorInfo;

// Tokens of one sequence in a step, where nobody says otherwise.
constexpr int32_t kStepTokens = 512;

// As WeightLoader and ExpertLoader take it to memory.
uint64_t LoadedBytes(const TensorInfo& tensor, bool always_f32,
                     WeightsMode mode) {
  if (tensor.dtype == DType::kU8 && mode == WeightsMode::kAuto) {
    return static_cast<uint64_t>(tensor.stored_bytes());
  }
  const bool bf16 =
      mode == WeightsMode::kBf16 ||
      (mode == WeightsMode::kAuto && tensor.dtype == DType::kBF16);
  const bool is_vector = tensor.shape.size() < 2;
  const uint64_t element = bf16 && !is_vector && !always_f32 ? 2 : 4;
  const auto elements = static_cast<uint64_t>(tensor.elements());
  if (tensor.dtype != DType::kU8) return element * elements;
  // MXFP4, widened: two elements in a byte of blocks, scales are used up.
  return tensor.name.ends_with("_blocks") ? element * 2 * elements : 0;
}

// Of `experts` of the layer, how many stay on the stage.
uint64_t LocalExperts(const ModelConfig& config,
                      const ExpertPlacement* placement, int32_t layer) {
  const int32_t experts = config.moe.num_experts;
  if (placement == nullptr) return static_cast<uint64_t>(experts);
  uint64_t local = 0;
  for (const ExpertRange& range : placement->Local(layer, experts)) {
    local += static_cast<uint64_t>(range.size());
  }
  return local;
}

std::vector<uint64_t> KvBytes(const ModelConfig& config,
                              const LayerLoadOptions& options) {
  const int32_t most =
      std::min(config.max_position_embeddings, kDefaultMaxContext);
  const int32_t context = options.max_context > 0 ? options.max_context : most;
  const int64_t blocks = options.kv_blocks > 0
                             ? options.kv_blocks
                             : KvBlocksOfOne(config, context, kStepTokens);
  // Keys and values, F32 (common/model/kv_cache.h).
  const int64_t layer = 2 * int64_t{sizeof(float)} * blocks * kBlockTokens *
                        int64_t{config.kv_size()};
  return std::vector<uint64_t>(static_cast<size_t>(config.num_layers),
                               static_cast<uint64_t>(layer));
}

}  // namespace

StageBytes LayerLoads::Of(const LayerRange& range) const {
  StageBytes bytes;
  std::vector<uint64_t> groups;  // keys and values of each
  for (int32_t i = range.first; i < range.last; ++i) {
    const auto at = static_cast<size_t>(i);
    bytes.weights += layers[at];
    if (kv.empty()) continue;
    const auto group =
        kv_groups.empty() ? 0 : static_cast<size_t>(kv_groups[at]);
    if (group >= groups.size()) groups.resize(group + 1);
    groups[group] += kv[at];
    bytes.kv = std::max(bytes.kv, groups[group]);
  }
  const bool is_first = range.first == 0;
  if (is_first) bytes.weights += embedding;
  if (range.last == num_layers()) {
    bytes.weights += head;
    if (tied && !is_first) bytes.weights += embedding;
  }
  return bytes;
}

LayerLoads LoadsOf(const ModelConfig& config, const weights::ModelFile& model,
                   const LayerLoadOptions& options) {
  LayerLoads loads;
  const auto num_layers = static_cast<size_t>(config.num_layers);
  loads.layers.resize(num_layers);
  loads.kv = KvBytes(config, options);
  loads.kv_groups = KvGroups(config, 0, config.num_layers);
  loads.tied = config.tie_word_embeddings;
  std::vector<uint64_t> experts(num_layers);
  for (const TensorInfo& wanted :
       ExpectedTensors(config, ExpertStorageOf(config, model))) {
    const TensorInfo* found = model.Find(wanted.name);
    if (found == nullptr) continue;
    std::string_view name;
    const int32_t layer = LayerOfTensor(wanted.name, name);
    const bool of_expert = name.starts_with("mlp.experts.");
    const bool always_f32 = of_expert
                                ? name.ends_with("_bias")
                                : config.moe.num_experts > 0 && layer >= 0 &&
                                      name.starts_with(config.moe.router + ".");
    const uint64_t bytes = LoadedBytes(*found, always_f32, options.weights);
    if (layer >= 0) {
      (of_expert ? experts : loads.layers)[static_cast<size_t>(layer)] += bytes;
    } else if (wanted.name.starts_with("model.embed_tokens.")) {
      loads.embedding += bytes;
    } else {
      loads.head += bytes;
    }
  }
  for (int32_t i = 0; i < config.num_layers; ++i) {
    if (!config.is_sparse(i)) continue;
    const auto at = static_cast<size_t>(i);
    loads.layers[at] += experts[at] /
                        static_cast<uint64_t>(config.moe.num_experts) *
                        LocalExperts(config, options.placement, i);
  }
  return loads;
}

}  // namespace sluice
