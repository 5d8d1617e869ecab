#ifndef SLUICE_COMMON_MODEL_CONFIG_KV_LAYOUT_H_
#define SLUICE_COMMON_MODEL_CONFIG_KV_LAYOUT_H_

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "common/base/status.h"
#include "common/core/kv_groups.h"
#include "common/model_config/model_config.h"
#include "common/tensor/weight_format.h"
#include "kernels/weight_type.h"

// Which layers share a KV group (see kv_groups.h), and what a stage's layers
// need of memory.
namespace sluice {

// Refuses heads that are no whole number of the blocks of `type`.
inline Status CheckKvType(const ModelConfig& config, kernels::WeightType type) {
  const int64_t block = FormatOf(type).block_elements;
  for (int32_t i = 0; i < config.num_layers(); ++i) {
    const AttentionConfig& attention = config.layers[i].attention;
    if (attention.is_latent() && block > 1) {
      return InvalidArgument(
          "kv type ", FormatOf(type).name, " is not built for latent attention",
          ": keys and values are one row there; bf16 takes as much memory as ",
          FormatOf(type).name, " keys and values apart");
    }
    const int64_t head_dim = attention.head_dim;
    if (head_dim % block == 0 || !attention.present) continue;
    return InvalidArgument("kv type ", FormatOf(type).name,
                           ": head_dim must be a multiple of ", block, ", is ",
                           head_dim, " in layer ", i);
  }
  return OkStatus();
}

// Returns the layers at which no stage may begin: a layer from there on reads
// keys and values of a layer before, or sees what an indexer before chose.
inline std::vector<bool> UncutLayers(const ModelConfig& config) {
  std::vector<bool> uncut(config.layers.size());
  for (int32_t i = 0; i < config.num_layers(); ++i) {
    const int32_t source = config.layers[i].attention.kv_layer;
    for (int32_t at = source + 1; source >= 0 && at <= i; ++at) {
      uncut[static_cast<size_t>(at)] = true;
    }
    const IndexerConfig& indexer = config.layers[i].attention.latent.indexer;
    if (indexer.top_k > 0 && !indexer.own) uncut[static_cast<size_t>(i)] = true;
  }
  return uncut;
}
// INVALID_ARGUMENT, with the layers, for one of these.
inline Status CheckSharedKv(const ModelConfig& config, int32_t first_layer) {
  const std::vector<bool> uncut = UncutLayers(config);
  const auto at = static_cast<size_t>(first_layer);
  if (at >= uncut.size() || !uncut[at]) return OkStatus();
  if (config.layers[at].attention.is_latent()) {
    return InvalidArgument("no stage of this model may begin at layer ",
                           first_layer,
                           ": it sees the positions that the indexer of a "
                           "layer before chooses");
  }
  const auto begin = std::find(uncut.begin(), uncut.end(), true);
  return InvalidArgument(
      "no stage of this model may begin at layer ", first_layer,
      ": layers from there on read the keys and values of layers before; "
      "layers ",
      begin - uncut.begin() - 1, " to ", config.num_layers() - 1,
      " stay on one stage");
}

// Returns the window of each KV group. Layers with full attention are group 0,
// even without such layers; then comes a group for each window, and one for the
// states that layers carry.
inline std::vector<int32_t> KvWindows(const ModelConfig& config) {
  std::set<int32_t> windows = {0};
  bool has_states = false;
  for (const LayerConfig& layer : config.layers) {
    if (layer.attention.present) windows.insert(layer.attention.window);
    has_states |= layer.state.present();
  }
  std::vector<int32_t> all(windows.begin(), windows.end());
  if (has_states) all.push_back(kStateWindow);
  return all;
}

// Returns the KV group of the states; 0: the model has none.
inline int32_t StateGroup(const ModelConfig& config) {
  const std::vector<int32_t> windows = KvWindows(config);
  return IsState(windows.back()) ? static_cast<int32_t>(windows.size()) - 1 : 0;
}

// Returns the KV group of each of layers [first, last), 0 of those without
// attention.
inline std::vector<int32_t> KvGroups(const ModelConfig& config, int32_t first,
                                     int32_t last) {
  const std::vector<int32_t> windows = KvWindows(config);
  std::vector<int32_t> groups;
  for (int32_t i = first; i < last; ++i) {
    const AttentionConfig& attention = config.layers[i].attention;
    const int32_t window = attention.present ? attention.window : 0;
    const auto at = std::find(windows.begin(), windows.end(), window);
    groups.push_back(static_cast<int32_t>(at - windows.begin()));
  }
  return groups;
}

// Returns the most blocks of keys and values, over all groups, that one
// sequence holds.
inline int64_t KvBlocksOfOne(const ModelConfig& config, int32_t max_context,
                             int32_t step_tokens) {
  int64_t blocks = 0;
  for (int32_t window : KvWindows(config)) {
    blocks += MostBlocks(window, max_context, step_tokens);
  }
  return blocks;
}

// Returns the most positions, up to `most`, of a single sequence in `blocks`
// blocks.
inline int32_t KvPositionsIn(const ModelConfig& config, int64_t blocks,
                             int32_t step_tokens, int32_t most) {
  int32_t low = 0;  // whole blocks that fit
  int32_t high = BlocksFor(most);
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    const bool fits =
        KvBlocksOfOne(config, middle * kBlockTokens, step_tokens) <= blocks;
    (fits ? low : high) = fits ? middle : middle - 1;
  }
  return std::min(most, low * kBlockTokens);
}

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_KV_LAYOUT_H_
