#ifndef SLUICE_COMMON_TOOLS_PLAN_PLAN_TEXT_H_
#define SLUICE_COMMON_TOOLS_PLAN_PLAN_TEXT_H_

#include <string>

#include "common/placement/cluster_plan.h"

namespace sluice::plan {

// What a plan is shown with.
struct PlanView {
  std::string model;     // as it was named
  uint64_t weights = 0;  // bytes of the whole model
  std::string formats;   // of its weights
  const placement::PlanRequest* request = nullptr;
  const placement::ClusterPlan* plan = nullptr;
};

// Returns tables for a terminal: stages and hosts, room, speeds, prices.
std::string PlanText(const PlanView& view);
// Returns the cluster drawn for a terminal, memory as bars.
std::string PlanPicture(const PlanView& view);
// Returns the same as an SVG document.
std::string PlanSvg(const PlanView& view);
// Returns every figure as JSON; bytes, seconds, tokens per second.
std::string PlanJson(const PlanView& view);

}  // namespace sluice::plan

#endif  // SLUICE_COMMON_TOOLS_PLAN_PLAN_TEXT_H_
