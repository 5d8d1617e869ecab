#ifndef SLUICE_COMMON_PLACEMENT_PLAN_CHOICES_H_
#define SLUICE_COMMON_PLACEMENT_PLAN_CHOICES_H_

#include "common/placement/cluster_plan.h"
#include "common/placement/fleet_planner.h"
#include "common/placement/place_by_time.h"

namespace sluice::placement {

// Adds to `plan`, made by `planner` of `placed`, what other choices cost. Each
// is the fastest of its kind with up to kMostExactMachines machines for layers;
// with more, the plan's own order is kept, and one machine comes, goes or
// moves.
void AddChoices(const FleetPlanner& planner, const PlacedByTime& placed,
                ClusterPlan& plan);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_PLAN_CHOICES_H_
