#ifndef SLUICE_COMMON_DEVICE_KV_CACHE_H_
#define SLUICE_COMMON_DEVICE_KV_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
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
    bool has_values = true;    // else they are parts of the keys
    int64_t index_dim = 0;     // of index keys; 0: none
    int64_t state_floats = 0;  // of a block of the layer's state; 0: none
    // Of the keys of one block.
    uint64_t key_bytes(ElementType type) const {
      return KvBytesOf(type, kBlockTokens * num_kv_heads * head_dim);
    }
    // Of the keys and values of one block together.
    uint64_t block_bytes(ElementType type) const {
      return (has_values ? 2 : 1) * key_bytes(type) + index_bytes(type);
    }
    uint64_t index_bytes(ElementType type) const {
      return KvBytesOf(type, kBlockTokens * index_dim);
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
    using Parts = std::tuple<uint64_t, uint64_t, bool>;
    std::map<std::pair<int32_t, Parts>, size_t> seen;  // by group and parts
    std::map<std::pair<Parts, size_t>, Slab> slabs;    // by parts and number
    for (const Layer& layer : layers) {
      const size_t bytes = layer.key_bytes(type) * num_blocks;
      // Only layers with the same parts share memory.
      const Parts parts = {layer.key_bytes(type), layer.index_bytes(type),
                           layer.has_values};
      Slab& slab = slabs[{parts, seen[{layer.group, parts}]++}];
      if (slab.keys.data() == nullptr) slab.keys = backend.Allocate(bytes);
      if (layer.has_values && slab.values.data() == nullptr) {
        slab.values = backend.Allocate(bytes);
      }
      if (layer.index_dim > 0 && slab.index_keys.data() == nullptr) {
        slab.index_keys =
            backend.Allocate(layer.index_bytes(type) * num_blocks);
      }
      layers_.push_back({slab.keys.data(), slab.values.data(), type, num_blocks,
                         layer.group, slab.index_keys.data()});
      const size_t keys = layer.key_bytes(type);
      parts_.push_back(std::array<Part, 3>{
          Part{slab.keys.data(), keys},
          Part{slab.values.data(), layer.has_values ? keys : 0},
          Part{slab.index_keys.data(), layer.index_bytes(type)}});
    }
    for (auto& [place, slab] : slabs) slabs_.push_back(std::move(slab));
    for (const Layer& layer : layers) {
      LayerState& state = states_.emplace_back(
          LayerState{nullptr, states.num_blocks, states.group});
      state_parts_.emplace_back();
      if (layer.state_floats == 0) continue;
      state_memory_.push_back(backend.Allocate(
          sizeof(float) *
          static_cast<size_t>(layer.state_floats * states.num_blocks)));
      state.data = state_memory_.back().data();
      state_parts_.back().bytes =
          sizeof(float) * static_cast<size_t>(layer.state_floats);
      state_parts_.back().data = state.data;
    }
  }

  // The bytes of one block of a layer, or of its state; 0: there is none.
  size_t BlockBytes(int32_t index) const {
    size_t bytes = 0;
    for (const Part& part : parts_[index]) bytes += part.bytes;
    return bytes;
  }
  size_t StateBytes(int32_t index) const { return state_parts_[index].bytes; }
  // Copy one block of a layer, keys, values and index keys, or its state, to
  // the host and back. Between steps.
  void ReadBlock(Backend& backend, int32_t index, BlockId block,
                 std::byte* out) const {
    for (const Part& part : parts_[index]) {
      out = Read(backend, part, block, out);
    }
  }
  void ReadState(Backend& backend, int32_t index, BlockId block,
                 std::byte* out) const {
    Read(backend, state_parts_[index], block, out);
  }
  void WriteBlock(Backend& backend, int32_t index, BlockId block,
                  const std::byte* in) {
    for (const Part& part : parts_[index]) {
      in = Write(backend, part, block, in);
    }
  }
  void WriteState(Backend& backend, int32_t index, BlockId block,
                  const std::byte* in) {
    Write(backend, state_parts_[index], block, in);
  }

  // Gives the memory of these blocks back; they hold nothing.
  void GiveBack(Backend& backend, const BlockRange& range) {
    for (const Slab& slab : slabs_) {
      for (const DeviceMemory* memory :
           {&slab.keys, &slab.values, &slab.index_keys}) {
        if (memory->data() == nullptr) continue;
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
    DeviceMemory index_keys;
  };
  // A run of blocks of `bytes` each, a multiple of 4; null: none.
  struct Part {
    void* data = nullptr;
    size_t bytes = 0;
    DeviceMatrix At(BlockId block) const {
      const auto columns = static_cast<int64_t>(bytes / sizeof(float));
      return {static_cast<std::byte*>(data) +
                  bytes * static_cast<size_t>(block.value()),
              1, columns, columns};
    }
  };
  static std::byte* Read(Backend& backend, const Part& part, BlockId block,
                         std::byte* out) {
    if (part.bytes > 0) backend.CopyOut(part.At(block), out);
    return out + part.bytes;
  }
  static const std::byte* Write(Backend& backend, const Part& part,
                                BlockId block, const std::byte* in) {
    if (part.bytes > 0) backend.CopyIn(in, part.At(block));
    return in + part.bytes;
  }

  const int64_t num_blocks_;
  std::vector<Slab> slabs_;
  std::vector<std::array<Part, 3>> parts_;  // keys, values, index keys
  std::vector<Part> state_parts_;
  std::vector<LayerKv> layers_;
  std::vector<DeviceMemory> state_memory_;
  std::vector<LayerState> states_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_KV_CACHE_H_
