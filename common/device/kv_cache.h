#ifndef SLUICE_COMMON_DEVICE_KV_CACHE_H_
#define SLUICE_COMMON_DEVICE_KV_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/core/ids.h"
#include "common/device/backend.h"

namespace sluice {

// Keys and values of one rank's heads in a stage's layers: blocks of
// kBlockTokens tokens, F32. Which block holds what is the gateway's business;
// a block id means the same slot in every layer of a KV group. The i-th layers
// of all groups share memory, see kv_layout.h.
class KvCache {
 public:
  // `layer_groups`: KV group of each layer.
  KvCache(Backend& backend, const std::vector<int32_t>& layer_groups,
          int64_t num_blocks, int64_t num_kv_heads, int64_t head_dim)
      : num_blocks_(num_blocks) {
    const size_t bytes = LayerBytes(num_blocks, num_kv_heads, head_dim) / 2;
    std::map<int32_t, size_t> seen;  // layers per group
    for (int32_t group : layer_groups) {
      const size_t slab = seen[group]++;
      layers_.push_back({slab, group});
      if (slab < slabs_.size()) continue;
      slabs_.push_back({backend.Allocate(bytes), backend.Allocate(bytes)});
    }
  }

  LayerKv layer(int32_t index) const {
    const Slab& slab = slabs_[layers_[index].slab];
    return {slab.keys->data(), slab.values->data(), num_blocks_,
            layers_[index].group};
  }

  // Keys and values of one slab.
  static size_t LayerBytes(int64_t num_blocks, int64_t num_kv_heads,
                           int64_t head_dim) {
    return 2 * sizeof(float) * num_blocks * kBlockTokens * num_kv_heads *
           head_dim;
  }

 private:
  struct Slab {
    std::unique_ptr<DeviceMemory> keys;
    std::unique_ptr<DeviceMemory> values;
  };
  struct Layer {
    size_t slab;
    int32_t group;
  };
  int64_t num_blocks_;
  std::vector<Slab> slabs_;
  std::vector<Layer> layers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_KV_CACHE_H_
