#ifndef SLUICE_COMMON_STAGE_KV_ROOM_H_
#define SLUICE_COMMON_STAGE_KV_ROOM_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "common/base/status.h"
#include "common/model_config/model_config.h"
#include "common/stage/stage.h"

namespace sluice {

// The KV cache takes one part in this many of the host's memory beside the
// weights if it may choose, since others use that memory too.
inline constexpr uint64_t kKvMemoryShare = 4;

// What ranks that share a memory hold there, and what is left.
struct MemoryLoad {
  std::string device;  // empty: the host
  int memory = 0;      // see BackendInfo
  uint64_t available = 0;
  uint64_t weights = 0;
  uint64_t block_bytes = 0;  // of one KV block
  uint64_t state_bytes = 0;  // of one block of states
};

// The memory beside the weights, which are not loaded yet.
struct KvRoom {
  std::string device;  // empty: the host
  uint64_t weights = 0;
  uint64_t block_bytes = 0;
  uint64_t at_most = 0;
  uint64_t to_choose = 0;
  uint64_t state_bytes = 0;  // of one block of states; 0: there are none
  bool is_f32 = false;       // what keys and values are kept in

  // Returns the room beside so many blocks of states.
  KvRoom Beside(int32_t state_blocks) const;
};

// Returns the room of the memory with place for the fewest blocks, of which
// every rank has as many. `memory`: the most that the stage takes of all of
// them, 0: all. A GPU is the stage's own: what its weights leave is for keys
// and values. RESOURCE_EXHAUSTED for a GPU that its weights do not fit.
StatusOr<KvRoom> RoomBeside(std::span<const MemoryLoad> loads, uint64_t memory);

// The most positions of a sequence of any stage.
int32_t MostContext(const ModelConfig& config);

// Returns the wanted context, else the model's, or less if the KV cache holds
// less: one sequence may take all blocks. kDefaultMaxContext positions may take
// half of the room. INVALID_ARGUMENT for a context that the model does not
// have.
StatusOr<int32_t> ChooseMaxContext(const StageOptions& options,
                                   const ModelConfig& config,
                                   const KvRoom& room);

// Returns the blocks for every sequence at full length, within the room, but at
// least for one full sequence. RESOURCE_EXHAUSTED for blocks that do not fit.
StatusOr<int32_t> ChooseKvBlocks(const StageOptions& options,
                                 const ModelConfig& config, int32_t max_context,
                                 const KvRoom& room);

// Returns the blocks of states: half of the room, but no more than all
// sequences have blocks of keys and values. Without states on this stage, as
// many as another stage may have. RESOURCE_EXHAUSTED without room for the
// least.
StatusOr<int32_t> ChooseStateBlocks(const StageOptions& options,
                                    const ModelConfig& config,
                                    const KvRoom& room);

// Returns what equal shares of all memories, by number, may take together.
uint64_t EqualShares(const std::map<int, uint64_t>& available);
// The same of the device's memories; 0: unknown.
uint64_t AvailableOn(const std::string& device);

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_KV_ROOM_H_
