#ifndef SLUICE_COMMON_MODEL_KV_CACHE_H_
#define SLUICE_COMMON_MODEL_KV_CACHE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/core/ids.h"
#include "common/model/backend.h"

namespace sluice {

// Keys and values of one rank's heads in a stage's layers: blocks of
// kBlockTokens tokens, F32. Which block holds what is the gateway's business;
// a block id means the same slot in every layer of a KV group. All layers are
// in group 0, windowed ones too: these see less of it.
class KvCache {
 public:
  KvCache(Backend& backend, int32_t num_layers, int64_t num_blocks,
          int64_t num_kv_heads, int64_t head_dim)
      : num_blocks_(num_blocks) {
    const size_t bytes = LayerBytes(num_blocks, num_kv_heads, head_dim) / 2;
    for (int32_t i = 0; i < num_layers; ++i) {
      layers_.push_back({backend.Allocate(bytes), backend.Allocate(bytes)});
    }
  }

  LayerKv layer(int32_t index) const {
    const Layer& layer = layers_[index];
    return {layer.keys->data(), layer.values->data(), num_blocks_, 0};
  }

  // Keys and values of one layer.
  static size_t LayerBytes(int64_t num_blocks, int64_t num_kv_heads,
                           int64_t head_dim) {
    return 2 * sizeof(float) * num_blocks * kBlockTokens * num_kv_heads *
           head_dim;
  }

 private:
  struct Layer {
    std::unique_ptr<DeviceMemory> keys;
    std::unique_ptr<DeviceMemory> values;
  };
  int64_t num_blocks_;
  std::vector<Layer> layers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_KV_CACHE_H_
