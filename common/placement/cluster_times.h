#ifndef SLUICE_COMMON_PLACEMENT_CLUSTER_TIMES_H_
#define SLUICE_COMMON_PLACEMENT_CLUSTER_TIMES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/model_config/model_config.h"
#include "common/placement/cluster_plan.h"
#include "common/placement/machines.h"
#include "common/placement/step_cost.h"

namespace sluice::placement {

// A step through a pipeline.
struct Pass {
  double all = 0;            // seconds of all stages and hops
  std::vector<double> busy;  // per machine: seconds that it works
  double longest() const;
};

// The seconds of a cluster's parts: stages, hops, trips to hosts of experts. A
// value; what it points to outlives it.
class ClusterTimes {
 public:
  // `hosts`: of experts; empty: every expert is on its stage.
  ClusterTimes(const ModelConfig& config, const ModelProducts& products,
               const Machines& machines, std::vector<HostPlan> hosts,
               kernels::WeightType kv_type);

  // Returns the seconds of `rows` hidden states from machine to machine.
  double HopSeconds(double rows, int32_t from, int32_t to) const;
  // Returns the seconds of a layer on a machine, its trip to hosts included.
  double LayerSeconds(int32_t machine, int32_t layer, const StepShape& step,
                      bool cached) const;
  double HeadSeconds(int32_t machine, const StepShape& step, bool cached) const;
  // Returns the seconds of the gateway's work on a machine's processors; 0 for
  // a machine whose threads are not known.
  double GatewaySeconds(int32_t machine, int64_t sequences) const;
  double StageSeconds(const StagePlan& stage, const StepShape& step) const;
  // Returns a step's way from the gateway, beside the first stage, and back.
  Pass PassOf(std::span<const StagePlan> stages, const StepShape& step) const;

  // Returns the seconds between two tokens of each of `streams` streams behind
  // `context` tokens.
  double StepSeconds(std::span<const StagePlan> stages, int64_t streams,
                     int32_t context) const;

 private:
  double TripSeconds(int32_t machine, int32_t layer, double rows) const;

  const ModelConfig& config_;
  const ModelProducts& products_;
  const Machines& machines_;
  std::vector<HostPlan> hosts_;
  StageWork work_;  // without layers
};

// Returns the groups that `streams` streams are cut into, at most one for each
// of the machines with layers.
int64_t GroupsOf(int64_t streams, int64_t machines);
// Returns the streams of the largest group.
int64_t GroupSize(int64_t streams, int64_t groups);
// Returns the chunks of a prompt, each behind the ones before.
std::vector<StepShape> ChunksOf(int32_t prompt_tokens, int32_t step_tokens);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_CLUSTER_TIMES_H_
