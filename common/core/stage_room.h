#ifndef SLUICE_COMMON_CORE_STAGE_ROOM_H_
#define SLUICE_COMMON_CORE_STAGE_ROOM_H_

#include <cstdint>
#include <vector>

namespace sluice {

// What a stage that loads the layers it is told can hold: its memory, and the
// bytes that each of the model's layers takes there, in its own formats and
// ranks. A value. Without layers: unknown.
struct StageRoom {
  // Of weights and KV cache together, as far as nothing else takes it; 0:
  // unknown.
  uint64_t memory = 0;
  // The memory is a figure that somebody set, not what the machine happens to
  // have at hand: stages are to be loaded in proportion to it.
  bool is_set = false;
  std::vector<uint64_t> layers;  // weights, of every layer of the model
  // Keys and values of the least KV cache with which the stage loads; empty:
  // none.
  std::vector<uint64_t> kv;
  std::vector<int32_t> kv_groups;  // of every layer; empty: all are in group 0
  uint64_t embedding = 0;          // on the first stage
  uint64_t head = 0;               // on the last stage
  uint64_t tied = 0;               // on the last stage, unless it is the first
  uint64_t tied_again = 0;         // on a stage that is first and last
  bool empty() const { return layers.empty(); }
  int32_t num_layers() const { return static_cast<int32_t>(layers.size()); }
  bool operator==(const StageRoom&) const = default;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_STAGE_ROOM_H_
