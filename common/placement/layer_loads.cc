#include "common/placement/layer_loads.h"

#include <algorithm>

#include "common/core/ids.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/kv_layout.h"
#include "common/model_config/rank_plan.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/weight_format.h"

namespace sluice {
namespace {

using weights::TensorInfo;

// Returns how many of the layer's experts stay on the stage.
uint64_t LocalExperts(const ModelConfig& config,
                      const ExpertPlacement* placement, int32_t layer) {
  const int32_t experts = config.layers[layer].moe.num_experts;
  if (placement == nullptr) return static_cast<uint64_t>(experts);
  uint64_t local = 0;
  for (const ExpertRange& range : placement->Local(layer, experts)) {
    local += static_cast<uint64_t>(range.size());
  }
  return local;
}

// Returns the bytes of keys and values per layer
// (common/device/kv_cache.h).
std::vector<uint64_t> LayerKvBytes(const ModelConfig& config,
                                   const weights::ModelFile& model,
                                   const LayerLoadOptions& options,
                                   const std::vector<int64_t>& kv_heads) {
  const auto kept = KvTypeOf(options.kv_type, config, model, options.weights);
  const int32_t most = std::min(config.max_position_embeddings, kMaxContext);
  const int32_t context = std::min(
      options.max_context > 0 ? options.max_context : kDefaultMaxContext, most);
  const int32_t step = std::clamp(options.max_step_tokens, 1, kMaxStepTokens);
  const int64_t blocks =
      options.kv_blocks > 0 ? std::min<int64_t>(options.kv_blocks, kMaxKvBlocks)
                            : KvBlocksOfOne(config, context, step);
  std::vector<uint64_t> bytes;
  for (size_t i = 0; i < kv_heads.size(); ++i) {
    const AttentionConfig& attention = config.layers[i].attention;
    bytes.push_back(FormatOf(kept).bytes(blocks * kBlockTokens * kv_heads[i] *
                                         attention.cached_size() /
                                         attention.num_kv_heads));
  }
  return bytes;
}

// Counts the weights of a stage, over all its ranks.
struct WeightCounter {
  const ModelConfig& config;
  const weights::ModelFile& model;
  const WeightsMode mode;
  const uint64_t ranks;
  const std::vector<int64_t>& kv_heads;  // per layer, over all ranks

  // Returns the bytes in `layer`, all experts included.
  uint64_t BytesOf(const WeightRows& weight, int32_t layer) const {
    const int32_t copies =
        weight.first().per_expert() ? config.layers[layer].moe.num_experts : 1;
    uint64_t bytes = 0;
    for (int32_t expert = 0; expert < copies; ++expert) {
      bytes += BytesOfOne(weight, layer, expert);
    }
    return bytes;
  }

  uint64_t BytesOfOne(const WeightRows& weight, int32_t layer,
                      int32_t expert) const {
    const auto types = TypesOf(weight, layer, model, mode, expert);
    uint64_t bytes = 0;
    for (size_t i = 0; i < types.size(); ++i) {
      const TensorRow* row = weight.rows[i];
      const WeightFormat& format = FormatOf(types[i]);
      const TensorInfo* found = model.Find(NameOf(*row, layer, expert));
      if (found == nullptr) continue;
      const uint64_t all = format.bytes(found->elements());
      const uint64_t taken =
          layer < 0 ? all : TakenOf(*row, config.layers[layer], all);
      bytes += OnAllRanks(*row, layer, taken);
    }
    return bytes;
  }

  uint64_t OnAllRanks(const TensorRow& row, int32_t layer,
                      uint64_t bytes) const {
    if (IsEmbedding(row.place)) return bytes;  // on rank 0
    if (row.is_vector() || row.cut == RankCut::kNone) return bytes * ranks;
    if (!row.shape.starts_with('K')) return bytes;
    return bytes / config.layers[layer].attention.num_kv_heads *
           kv_heads[layer];
  }
};

}  // namespace

StageBytes LayerLoads::Of(const LayerRange& range) const {
  StageBytes bytes;
  std::vector<KvLayer> kept;
  for (int32_t i = range.first; i < range.last; ++i) {
    bytes.weights += layers[i];
    if (!states.empty()) bytes.state += states[i];
    if (kv.empty()) continue;
    kept.push_back({kv_groups.empty() ? 0 : kv_groups[i], kv[i]});
  }
  bytes.kv = KvBytes(kept) + kLeastStateBlocks * bytes.state;
  const bool is_first = range.first == 0;
  if (is_first) bytes.weights += embedding + first;
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
  const size_t num_layers = config.layers.size();
  const auto formats = ColumnFormatsOf(config, model, options.weights);
  const int32_t ranks =
      std::clamp(options.ranks, 1, MostRanks(config, formats));
  std::vector<int64_t> kv_heads;
  for (size_t i = 0; i < num_layers; ++i) {
    const bool has_kv = config.layers[i].attention.kv_layer < 0;
    kv_heads.push_back(
        has_kv ? KvHeadsOnRanks(config.layers[i], formats[i], ranks) : 0);
  }
  loads.layers.resize(num_layers);
  loads.kv = LayerKvBytes(config, model, options, kv_heads);
  loads.kv_groups = KvGroups(config, 0, config.num_layers());
  if (StateGroup(config) > 0) {
    for (const LayerConfig& layer : config.layers) {
      // The ranks together have the heads once.
      loads.states.push_back(
          layer.state.present()
              ? sizeof(float) *
                    static_cast<uint64_t>(
                        layer.state.mixer.shape.block_floats(kBlockTokens))
              : 0);
    }
  }
  loads.uncut = UncutLayers(config);
  loads.tied = config.tie_word_embeddings;
  const WeightCounter counter = {config, model, options.weights,
                                 static_cast<uint64_t>(ranks), kv_heads};
  const ExpertStorage storage = ExpertStorageOf(config, model);
  std::vector<uint64_t> experts(num_layers);
  for (const WeightRows& weight : WeightsOf(config, -1, storage)) {
    (weight.place == WeightPlace::kEmbedding ? loads.embedding
     : IsOfFirstStage(weight.place)          ? loads.first
                                             : loads.head) +=
        counter.BytesOf(weight, -1);
  }
  for (int32_t layer = 0; layer < config.num_layers(); ++layer) {
    for (const WeightRows& weight : WeightsOf(config, layer, storage)) {
      const bool of_expert = weight.first().cut == RankCut::kExperts;
      (of_expert ? experts : loads.layers)[static_cast<size_t>(layer)] +=
          counter.BytesOf(weight, layer);
    }
  }
  if (loads.tied && config.vocab_size > 0) {
    // Rank 0 holds the embedding, the other ranks hold their rows of a tied
    // head.
    const auto vocab = static_cast<uint64_t>(config.vocab_size);
    const auto own = static_cast<uint64_t>(CutAt(config.vocab_size, ranks, 1));
    loads.tied_again = loads.embedding / vocab * (vocab - own);
  }
  for (int32_t i = 0; i < config.num_layers(); ++i) {
    if (!config.is_sparse(i)) continue;
    loads.layers[i] += experts[i] / config.layers[i].moe.num_experts *
                       LocalExperts(config, options.placement, i);
  }
  return loads;
}

}  // namespace sluice
