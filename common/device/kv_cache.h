#ifndef SLUICE_COMMON_DEVICE_KV_CACHE_H_
#define SLUICE_COMMON_DEVICE_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "common/core/ids.h"
#include "common/core/step_plan.h"
#include "common/device/backend.h"

namespace sluice {

// Keys and values of one rank's heads in a stage's layers: blocks of
// kBlockTokens tokens, of the backend's type. The gateway assigns blocks; a
// block id means the same slot in every layer of a KV group. The n-th layers of
// all groups share memory where their sizes agree (KvBytes of
// common/core/kv_groups.h). Blocks of states have ids of their own, and share
// no memory.
class KvCache {
 public:
  // One layer's heads on this rank.
  struct Layer {
    int32_t group = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    int64_t state_floats =
        0;  // of a block of the layer's state; 0: it has none
    // Of the keys and values of one block together.
    uint64_t block_bytes(ElementType type) const {
      return 2 * KvBytesOf(type, kBlockTokens * num_kv_heads * head_dim);
    }
  };

  // The blocks of states, and their KV group.
  struct States {
    int64_t num_blocks;
    int32_t group;
  };

  KvCache(Backend& backend, std::span<const Layer> layers, int64_t num_blocks)
      : KvCache(backend, layers, num_blocks, States{0, 0}) {}
  KvCache(Backend& backend, std::span<const Layer> layers, int64_t num_blocks,
          const States& states)
      : num_blocks_(num_blocks) {
    const ElementType type = backend.info().kv_type;
    std::map<std::pair<int32_t, uint64_t>, size_t> seen;  // by group and size
    std::map<std::pair<uint64_t, size_t>, Slab> slabs;    // by size and number
    for (const Layer& layer : layers) {
      const uint64_t size = layer.block_bytes(type);
      const size_t bytes = size / 2 * num_blocks;
      Slab& slab = slabs[{size, seen[{layer.group, size}]++}];
      if (slab.keys.data() == nullptr) {
        slab = {backend.Allocate(bytes), backend.Allocate(bytes)};
      }
      layers_.push_back({slab.keys.data(), slab.values.data(), type, num_blocks,
                         layer.group});
    }
    for (auto& [place, slab] : slabs) slabs_.push_back(std::move(slab));
    for (const Layer& layer : layers) {
      LayerState& state = states_.emplace_back(
          LayerState{nullptr, states.num_blocks, states.group});
      if (layer.state_floats == 0) continue;
      state_memory_.push_back(backend.Allocate(
          sizeof(float) *
          static_cast<size_t>(layer.state_floats * states.num_blocks)));
      state.data = state_memory_.back().data();
    }
  }

  // Gives the memory of these blocks back; they hold nothing.
  void GiveBack(Backend& backend, const BlockRange& range) {
    for (const Slab& slab : slabs_) {
      for (const DeviceMemory* memory : {&slab.keys, &slab.values}) {
        const size_t block = memory->bytes() / static_cast<size_t>(num_blocks_);
        auto* const data = static_cast<std::byte*>(memory->data());
        backend.GiveBack(data + block * static_cast<size_t>(range.begin),
                         block * static_cast<size_t>(range.end - range.begin));
      }
    }
  }

  const LayerKv& layer(int32_t index) const { return layers_[index]; }
  const LayerState& state(int32_t index) const { return states_[index]; }

 private:
  struct Slab {
    DeviceMemory keys;
    DeviceMemory values;
  };
  const int64_t num_blocks_;
  std::vector<Slab> slabs_;
  std::vector<LayerKv> layers_;
  std::vector<DeviceMemory> state_memory_;
  std::vector<LayerState> states_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_KV_CACHE_H_
