#ifndef SLUICE_COMMON_CORE_KV_GROUPS_H_
#define SLUICE_COMMON_CORE_KV_GROUPS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "common/core/ids.h"

// Layers with the same window share a KV group, and with it one block table per
// sequence: group 0 sees all positions, another group the last `window`
// positions, a query's own included (window 0: all). The engine gives out and
// frees blocks by these rules, and the stages read them.
//
// Layers that carry a state from token to token (kernels/recurrence.h) are one
// more group, the last one. A block of it has the state before its first token,
// and of its tokens that which changes the state: so a step reads the block of
// the position before it, and writes from there on. Such blocks are far larger
// than keys and values, so they have ids, and memory, of their own.
namespace sluice {

// The widest window.
inline constexpr int32_t kMaxKvWindow = 1 << 24;

// Stands for the window of the group of states.
inline constexpr int32_t kStateWindow = -1;
constexpr bool IsState(int32_t window) { return window == kStateWindow; }
// A sequence alone needs so many blocks of states: of the position before a
// chunk, and the last two of the chunk, whose drafts may be dropped. With one
// more, another one's block can stay cached.
inline constexpr int32_t kLeastStateBlocks = 4;

// Blocks of positions [0, num_tokens).
constexpr int32_t BlocksFor(int32_t num_tokens) {
  return (num_tokens + kBlockTokens - 1) / kBlockTokens;
}

// The number of blocks at the front of a table that no later query reads, once
// the next query is at `position`.
constexpr int32_t BlocksBehind(int32_t window, int32_t position) {
  if (IsState(window)) return std::max(0, position - 1) / kBlockTokens;
  return window > 0 ? std::max(0, position - window + 1) / kBlockTokens : 0;
}

// Returns the most blocks of keys and values that a sequence of `positions`
// holds at once, with up to `step_tokens` in a step. The window before the
// step's first query and the step itself may begin within a block.
constexpr int32_t MostBlocks(int32_t window, int32_t positions,
                             int32_t step_tokens) {
  if (IsState(window)) return 0;
  const int32_t all = BlocksFor(positions);
  return window > 0 ? std::min(all, BlocksFor(window - 1 + step_tokens) + 1)
                    : all;
}

// The KV memory of one of a stage's layers: group, bytes of keys and values.
struct KvLayer {
  int32_t group = 0;
  uint64_t bytes = 0;
};

// The KV memory of the layers added so far. No block is in two groups at once,
// so the n-th layers of all groups share memory where their sizes agree: of
// each size there is as much as the group with the most such layers needs.
class KvCount {
 public:
  void Add(const KvLayer& layer) { ++counts_[layer.bytes][layer.group]; }
  uint64_t bytes() const {
    uint64_t bytes = 0;
    for (const auto& [size, groups] : counts_) {
      uint64_t most = 0;
      for (const auto& [group, count] : groups) most = std::max(most, count);
      bytes += size * most;
    }
    return bytes;
  }

 private:
  std::map<uint64_t, std::map<int32_t, uint64_t>> counts_;  // by size, group
};

// Returns the bytes of a stage's layers.
inline uint64_t KvBytes(std::span<const KvLayer> layers) {
  KvCount count;
  for (const KvLayer& layer : layers) count.Add(layer);
  return count.bytes();
}

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_KV_GROUPS_H_
