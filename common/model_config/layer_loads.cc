#include "common/model_config/layer_loads.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "common/core/ids.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/kv_layout.h"
#include "common/model_config/layer_names.h"
#include "common/model_config/model_config.h"
#include "common/model_config/rank_heads.h"

namespace sluice {
namespace {

using weights::DType;
using weights::TensorInfo;

bool IsVector(const TensorInfo& tensor) { return tensor.shape.size() < 2; }

// Whether a matrix stays BF16: if all do that make one weight with it.
bool KeepsBf16(const TensorInfo& tensor, const weights::ModelFile& model) {
  static const std::vector<std::vector<std::string_view>> kFused = {
      {".q_proj.", ".k_proj.", ".v_proj."}, {".gate_proj.", ".up_proj."}};
  if (tensor.dtype != DType::kBF16) return false;
  for (const std::vector<std::string_view>& names : kFused) {
    for (const std::string_view own : names) {
      const size_t at = tensor.name.find(own);
      if (at == std::string::npos) continue;
      for (const std::string_view other : names) {
        std::string name = tensor.name;
        name.replace(at, own.size(), other);
        const TensorInfo* beside = model.Find(name);
        if (beside != nullptr && beside->dtype != DType::kBF16) return false;
      }
    }
  }
  return true;
}

// As WeightLoader and ExpertLoader take it to memory.
uint64_t LoadedBytes(const TensorInfo& tensor, const weights::ModelFile& model,
                     bool always_f32, WeightsMode mode) {
  if (tensor.dtype == DType::kU8 && mode == WeightsMode::kAuto) {
    return static_cast<uint64_t>(tensor.stored_bytes());
  }
  always_f32 |= IsVector(tensor) || mode == WeightsMode::kF32;
  const bool bf16 =
      !always_f32 && (mode == WeightsMode::kBf16 || KeepsBf16(tensor, model));
  const uint64_t element = bf16 ? 2 : 4;
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

int32_t RanksOf(const ModelConfig& config, const LayerLoadOptions& options) {
  return std::clamp(options.ranks, 1, NumShards(config));
}

// On all ranks: one that is read by several is on each of them.
int64_t KvHeadsOf(const ModelConfig& config, int32_t ranks) {
  int64_t heads = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const RankHeads own = HeadsOf(config, ranks, rank);
    heads += own.kv_end - own.kv_begin;
  }
  return heads;
}

std::vector<uint64_t> KvBytes(const ModelConfig& config,
                              const LayerLoadOptions& options) {
  const int32_t most = std::min(config.max_position_embeddings, kMaxContext);
  const int32_t context = std::min(
      options.max_context > 0 ? options.max_context : kDefaultMaxContext, most);
  const int32_t step = std::clamp(options.max_step_tokens, 1, kMostStepTokens);
  const int64_t blocks =
      options.kv_blocks > 0 ? std::min<int64_t>(options.kv_blocks, kMaxKvBlocks)
                            : KvBlocksOfOne(config, context, step);
  // Keys and values, F32 (common/device/kv_cache.h).
  const int64_t layer = 2 * int64_t{sizeof(float)} * blocks * kBlockTokens *
                        KvHeadsOf(config, RanksOf(config, options)) *
                        int64_t{config.head_dim};
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
  if (is_first && range.last == num_layers()) bytes.weights += tied_again;
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
  const int32_t ranks = RanksOf(config, options);
  const auto kv_heads = static_cast<uint64_t>(KvHeadsOf(config, ranks));
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
    uint64_t bytes = LoadedBytes(*found, model, always_f32, options.weights);
    const bool is_router = always_f32 && !of_expert;
    if (is_router || IsVector(*found)) {
      bytes *= static_cast<uint64_t>(ranks);
    } else if (name.starts_with("self_attn.k_proj.") ||
               name.starts_with("self_attn.v_proj.")) {
      bytes = bytes / static_cast<uint64_t>(config.num_kv_heads) * kv_heads;
    }
    if (layer >= 0) {
      (of_expert ? experts : loads.layers)[static_cast<size_t>(layer)] += bytes;
    } else if (wanted.name.starts_with("model.embed_tokens.")) {
      loads.embedding += bytes;
    } else {
      loads.head += bytes;
    }
  }
  if (loads.tied && config.vocab_size > 0) {
    // Rank 0 has the embedding, the others their rows of it.
    const auto vocab = static_cast<uint64_t>(config.vocab_size);
    const auto own = static_cast<uint64_t>(CutAt(config.vocab_size, ranks, 1));
    loads.tied_again = loads.embedding / vocab * (vocab - own);
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
