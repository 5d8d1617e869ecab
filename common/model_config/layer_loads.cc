#include "common/model_config/layer_loads.h"

#include <algorithm>
#include <utility>

#include "common/core/ids.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/kv_layout.h"
#include "common/model_config/rank_heads.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/weight_format.h"

namespace sluice {
namespace {

using weights::DType;
using weights::TensorInfo;

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

// Counts weights as a stage's ranks together hold them.
struct WeightCounter {
  const ModelConfig& config;
  const weights::ModelFile& model;
  const WeightsMode mode;
  const uint64_t ranks;
  const uint64_t kv_heads;  // on all ranks

  // Of `layer`, every expert included.
  uint64_t BytesOf(const WeightRows& weight, int32_t layer) const {
    const int32_t copies =
        weight.first().per_expert() ? config.moe.num_experts : 1;
    uint64_t bytes = 0;
    for (int32_t expert = 0; expert < copies; ++expert) {
      bytes += BytesOfOne(weight, layer, expert);
    }
    return bytes;
  }

  uint64_t BytesOfOne(const WeightRows& weight, int32_t layer,
                      int32_t expert) const {
    std::vector<std::pair<const TensorRow*, int64_t>> elements;
    std::vector<DType> stored;
    for (const TensorRow* row : weight.rows) {
      const TensorInfo* found = model.Find(NameOf(*row, layer, expert));
      if (found == nullptr) continue;
      elements.emplace_back(row, WeightElements(*row, found->elements()));
      stored.push_back(found->dtype);
    }
    const WeightFormat& format =
        FormatOf(weight.first().is_f32() ? kernels::WeightType::kF32
                                         : ComputedType(mode, stored));
    uint64_t bytes = 0;
    for (const auto& [row, count] : elements) {
      bytes += OnAllRanks(*row, format.bytes(count));
    }
    return bytes;
  }

  uint64_t OnAllRanks(const TensorRow& row, uint64_t bytes) const {
    if (row.place == WeightPlace::kEmbedding) return bytes;  // rank 0 alone
    if (row.is_vector() || row.cut == RankCut::kNone) return bytes * ranks;
    if (!row.shape.starts_with('K')) return bytes;
    return bytes / static_cast<uint64_t>(config.num_kv_heads) * kv_heads;
  }
};

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
  const WeightCounter counter = {
      config, model, options.weights, static_cast<uint64_t>(ranks),
      static_cast<uint64_t>(KvHeadsOf(config, ranks))};
  const ExpertStorage storage = ExpertStorageOf(config, model);
  std::vector<uint64_t> experts(num_layers);
  for (const WeightRows& weight : WeightsOf(config, -1, storage)) {
    const bool is_embedding = weight.place == WeightPlace::kEmbedding;
    (is_embedding ? loads.embedding : loads.head) +=
        counter.BytesOf(weight, -1);
  }
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const WeightRows& weight : WeightsOf(config, layer, storage)) {
      const bool of_expert = weight.first().cut == RankCut::kExperts;
      (of_expert ? experts : loads.layers)[static_cast<size_t>(layer)] +=
          counter.BytesOf(weight, layer);
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
