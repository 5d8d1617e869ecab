#ifndef SLUICE_COMMON_MODEL_CONFIG_KV_LAYOUT_H_
#define SLUICE_COMMON_MODEL_CONFIG_KV_LAYOUT_H_

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "common/core/kv_groups.h"
#include "common/model_config/model_config.h"

// Which of a model's layers share a KV group (see kv_groups.h), and what a
// stage's layers take of memory.
namespace sluice {

// Window of each of the model's KV groups: the layers that see all come first,
// also where there are none, then those of each window there is.
inline std::vector<int32_t> KvWindows(const ModelConfig& config) {
  std::set<int32_t> windows = {0};
  for (const LayerConfig& layer : config.layers) {
    windows.insert(layer.attention.window);
  }
  return {windows.begin(), windows.end()};
}

// KV group of each of layers [first, last).
inline std::vector<int32_t> KvGroups(const ModelConfig& config, int32_t first,
                                     int32_t last) {
  const std::vector<int32_t> windows = KvWindows(config);
  std::vector<int32_t> groups;
  for (int32_t i = first; i < last; ++i) {
    const int32_t window = config.layers[i].attention.window;
    const auto at = std::lower_bound(windows.begin(), windows.end(), window);
    groups.push_back(static_cast<int32_t>(at - windows.begin()));
  }
  return groups;
}

// Most blocks, of all groups together, that one sequence holds.
inline int64_t KvBlocksOfOne(const ModelConfig& config, int32_t max_context,
                             int32_t step_tokens) {
  int64_t blocks = 0;
  for (int32_t window : KvWindows(config)) {
    blocks += MostBlocks(window, max_context, step_tokens);
  }
  return blocks;
}

// Most positions, up to `most`, of one sequence alone in so many blocks.
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
