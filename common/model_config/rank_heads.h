#ifndef SLUICE_COMMON_MODEL_CONFIG_RANK_HEADS_H_
#define SLUICE_COMMON_MODEL_CONFIG_RANK_HEADS_H_

#include <algorithm>
#include <cstdint>

#include "common/model_config/model_config.h"

namespace sluice {

// Most logical shards of a row-parallel product, and so the most ranks.
inline constexpr int32_t kMaxShards = 16;

// Shards of this model.
inline int32_t NumShards(const ModelConfig& config) {
  return static_cast<int32_t>(std::min<int64_t>(kMaxShards, config.num_heads));
}

// Start of part `index` when `total` things are cut into `parts`.
inline int64_t CutAt(int64_t total, int64_t parts, int64_t index) {
  return total * index / parts;
}

// Attention heads [begin, end) of one rank: query heads, and the kv heads that
// these read, which other ranks may hold as well.
struct RankHeads {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t kv_begin = 0;
  int64_t kv_end = 0;
};

// Of rank `rank` of `ranks`, 1 to NumShards.
inline RankHeads HeadsOf(const ModelConfig& config, int32_t ranks,
                         int32_t rank) {
  const int64_t shards = NumShards(config);
  const int64_t group = config.num_heads / config.num_kv_heads;
  RankHeads heads;
  heads.begin = CutAt(config.num_heads, shards, CutAt(shards, ranks, rank));
  heads.end = CutAt(config.num_heads, shards, CutAt(shards, ranks, rank + 1));
  heads.kv_begin = heads.begin / group;
  heads.kv_end = (heads.end - 1) / group + 1;
  return heads;
}

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_RANK_HEADS_H_
