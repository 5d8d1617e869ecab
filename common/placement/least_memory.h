#ifndef SLUICE_COMMON_PLACEMENT_LEAST_MEMORY_H_
#define SLUICE_COMMON_PLACEMENT_LEAST_MEMORY_H_

#include <cstdint>
#include <vector>

#include "common/placement/split_tables.h"
#include "common/placement/stage_memory.h"

namespace sluice::placement {

// What machines lack for a model.
struct LeastMemory {
  uint64_t given = 0;            // bytes of all of them that processes may take
  double factor = 1;             // of every machine's memory, that does
  std::vector<uint64_t> memory;  // of each, times the factor
};

// Returns the least factor, to a thousandth above, of all machines' memory with
// which the layers have room, in any order of the machines; of more than 12
// machines in the order of their memory.
LeastMemory LeastMemoryFor(const StageMemoryNeeds& needs,
                           const LayerMachines& machines);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_LEAST_MEMORY_H_
