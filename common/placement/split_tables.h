#ifndef SLUICE_COMMON_PLACEMENT_SPLIT_TABLES_H_
#define SLUICE_COMMON_PLACEMENT_SPLIT_TABLES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/placement/cluster_times.h"
#include "common/placement/machines.h"
#include "common/placement/split_costs.h"
#include "common/placement/stage_memory.h"

namespace sluice::placement {

// Machines that a model's layers may go to.
struct LayerMachines {
  const std::vector<Machine>* machines = nullptr;
  std::vector<int32_t> on;      // indices into `machines`
  std::vector<int32_t> stages;  // of each of `on`, one after another
};

// Returns the costs of a step of `pass` over the machines of `on`, by their
// place there; a turn is what a stage works for all of `turns`.
SplitCosts SplitCostsOf(const ClusterTimes& times,
                        const StageMemoryNeeds& needs,
                        const LayerMachines& machines, const StepShape& pass,
                        std::span<const StepShape> turns);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_SPLIT_TABLES_H_
