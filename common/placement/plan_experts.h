#ifndef SLUICE_COMMON_PLACEMENT_PLAN_EXPERTS_H_
#define SLUICE_COMMON_PLACEMENT_PLAN_EXPERTS_H_

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
  uint64_t bytes = 0;  // for experts; 0: its even share
};

struct ExpertPlanOptions {
  std::vector<HostRoom> hosts;
  int32_t replicas = 1;      // the fewest hosts per expert
  uint64_t local_bytes = 0;  // of experts that stay on the stages
};

// Places a model's experts by the hosts' memory; the same arguments give the
// same placement. Stages keep experts up to local_bytes. Groups of `replicas`
// hosts of similar size share the others, in proportion to the least room in
// each, with the same ids in every layer; hosts left over join the last group.
// Cuts are at multiples of the largest power of two that keeps every share
// within a tenth of its proportion, so that hosts finish few nodes of the tree.
// INVALID_ARGUMENT for impossible options and for a model without experts;
// RESOURCE_EXHAUSTED tells what the experts need and what there is.
StatusOr<ExpertPlacement> PlanExperts(const ModelConfig& config,
                                      const ModelBytes& bytes,
                                      const ExpertPlanOptions& options);

}  // namespace sluice

#endif  // SLUICE_COMMON_PLACEMENT_PLAN_EXPERTS_H_
