#ifndef SLUICE_COMMON_MODEL_CONFIG_PLAN_EXPERTS_H_
#define SLUICE_COMMON_MODEL_CONFIG_PLAN_EXPERTS_H_

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"

namespace sluice {

// A host of experts that a placement is made for.
struct HostRoom {
  ExpertHost host;
  uint64_t bytes = 0;  // for experts; 0: as much as its share takes
};

struct ExpertPlanOptions {
  std::vector<HostRoom> hosts;
  int32_t replicas = 1;      // the fewest hosts that have an expert
  uint64_t local_bytes = 0;  // of experts that stay on the stages, together
};

// A placement of a model's experts by the hosts' memory; the same arguments
// give the same placement. Experts stay on the stages as far as local_bytes
// goes; the others are shared out among groups of `replicas` hosts of similar
// size (hosts left over join the last group), in proportion to the least
// room in each, the same ids in every layer. Cuts are at multiples of as large
// a power of two as leaves every share within a tenth of its proportion, so
// that hosts finish few nodes of the tree. INVALID_ARGUMENT for options that
// cannot be and for a model without experts; RESOURCE_EXHAUSTED if the experts
// do not fit, with what they need and what there is.
StatusOr<ExpertPlacement> PlanExperts(const ModelConfig& config,
                                      const ModelBytes& bytes,
                                      const ExpertPlanOptions& options);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_PLAN_EXPERTS_H_
