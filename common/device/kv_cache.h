#ifndef SLUICE_COMMON_DEVICE_KV_CACHE_H_
#define SLUICE_COMMON_DEVICE_KV_CACHE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "common/core/ids.h"
#include "common/device/backend.h"

namespace sluice {

// Keys and values of one rank's heads in a stage's layers: blocks of
// kBlockTokens tokens, of the type that the backend keeps. The gateway assigns
// blocks; a block id means the same slot in every layer of a KV group. The i-th
// layers of all groups share memory, see model_config/kv_layout.h.
class KvCache {
 public:
  // The shape of one layer.
  struct Shape {
    int64_t num_blocks = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    // Of keys and values together.
    size_t bytes(ElementType type) const {
      return 2 * BytesOf(type) * num_blocks * kBlockTokens * num_kv_heads *
             head_dim;
    }
  };

  // `layer_groups`: KV group of each layer.
  KvCache(Backend& backend, const std::vector<int32_t>& layer_groups,
          const Shape& shape) {
    const ElementType type = backend.info().kv_type;
    const size_t bytes = shape.bytes(type) / 2;
    std::map<int32_t, size_t> seen;  // layers per group
    for (int32_t group : layer_groups) {
      const size_t slab = seen[group]++;
      if (slab == slabs_.size()) {
        slabs_.push_back({backend.Allocate(bytes), backend.Allocate(bytes)});
      }
      layers_.push_back({slabs_[slab].keys.data(), slabs_[slab].values.data(),
                         type, shape.num_blocks, group});
    }
  }

  const LayerKv& layer(int32_t index) const { return layers_[index]; }

 private:
  struct Slab {
    DeviceMemory keys;
    DeviceMemory values;
  };
  std::vector<Slab> slabs_;
  std::vector<LayerKv> layers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_KV_CACHE_H_
