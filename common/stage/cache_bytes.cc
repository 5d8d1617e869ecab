#include "common/stage/cache_bytes.h"

#include "common/device/kv_cache.h"
#include "common/model_config/kv_layout.h"

namespace sluice {

uint64_t BytesPerBlock(const StageRange& range, const ModelConfig& config,
                       const std::vector<RankPlan>& plans, ElementType type) {
  const std::vector<int32_t> groups =
      KvGroups(config, range.first_layer, range.last_layer);
  uint64_t bytes = 0;
  for (const RankPlan& plan : plans) {
    std::vector<KvLayer> layers;
    for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
      const int32_t group = groups[i - range.first_layer];
      const AttentionConfig& attention = config.layers[i].attention;
      const IndexerConfig& indexer = attention.latent.indexer;
      const KvCache::Layer layer = {
          group, attention.kv_layer < 0 ? plan.layers[i].num_kv_heads() : 0,
          attention.head_dim, !attention.is_latent(),
          indexer.own ? indexer.head_dim : 0};
      layers.push_back({group, layer.block_bytes(type)});
    }
    bytes += KvBytes(layers);
  }
  return bytes;
}

uint64_t BytesPerState(const StageRange& range,
                       const std::vector<RankPlan>& plans) {
  uint64_t bytes = 0;
  for (const RankPlan& plan : plans) {
    for (int32_t i = range.first_layer; i < range.last_layer; ++i) {
      const kernels::StateShape& shape = plan.layers[i].mixer.shape;
      bytes += sizeof(float) *
               static_cast<uint64_t>(shape.block_floats(kBlockTokens));
    }
  }
  return bytes;
}

}  // namespace sluice
