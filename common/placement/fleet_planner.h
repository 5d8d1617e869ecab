#ifndef SLUICE_COMMON_PLACEMENT_FLEET_PLANNER_H_
#define SLUICE_COMMON_PLACEMENT_FLEET_PLANNER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/cluster_plan.h"
#include "common/placement/cluster_times.h"
#include "common/placement/place_by_time.h"
#include "common/placement/split_tables.h"
#include "common/placement/stage_memory.h"

namespace sluice::placement {

// Plans one cluster whose hosts of experts are chosen. What it is made of
// outlives it.
class FleetPlanner {
 public:
  FleetPlanner(const ModelConfig& config, const weights::ModelFile& model,
               const ModelProducts& products, const PlanRequest& request);

  // Places the experts on `hosts` (machines), and counts what the layers take.
  // Before any other call.
  Status Begin(const std::vector<int32_t>& hosts);

  // Returns the fastest split that keeps to the rules, whose machines are those
  // of layer_machines() by their place there. The rules' numbers of machines
  // are narrowed by the request's stages.
  PlacedByTime Solve(const SplitRules& rules) const;
  // The same without rules; of equally fast splits the one with the most room
  // for keys and values.
  PlacedByTime SolveWithRoom() const;
  // Returns the seconds of the aim for the machines of `order`.
  double SecondsInOrder(const std::vector<int32_t>& order) const;
  // Returns the seconds of all machines in their order, with layers by memory.
  double SecondsByMemory() const;
  // Returns the plan with this split, all speeds reckoned.
  ClusterPlan Make(const PlacedByTime& placed) const;
  // Returns why no split fits.
  Status TooLarge() const;

  // Machines that may have layers.
  const std::vector<int32_t>& layer_machines() const { return layers_.on; }
  // How many of them have to have layers.
  int32_t least_machines() const {
    return std::min(request_.stages, static_cast<int32_t>(layers_.on.size()));
  }

 private:
  Status PlaceExperts(const std::vector<int32_t>& hosts);
  void AddHosts(const ModelBytes& bytes, const std::vector<int32_t>& hosts);
  Status ChooseStages(const std::vector<int32_t>& hosts);
  LayerLoadOptions Loads() const;
  // The problems one of which has the fastest split: one for each number of
  // groups.
  std::vector<SplitProblem> Problems(const SplitRules& rules) const;
  struct Solved {
    PlacedByTime placed;
    const SplitProblem* problem = nullptr;  // that it solves
  };
  static Solved BestOf(const std::vector<SplitProblem>& problems);
  std::vector<StagePlan> StagesOf(const std::vector<SplitPart>& parts) const;
  void GiveRoom(ClusterPlan& plan) const;
  void Reckon(ClusterPlan& plan) const;
  double AimSeconds(const std::vector<StagePlan>& stages) const;
  // The seconds of a prompt: the first chunk, and those behind it.
  struct PromptSeconds {
    double first_token = 0;
    double busy = 0;  // of the machine that works longest
  };
  PromptSeconds PromptOf(const std::vector<StagePlan>& stages) const;

  const ModelConfig& config_;
  const weights::ModelFile& model_;
  const ModelProducts& products_;
  const PlanRequest& request_;
  int64_t asked_sequences_ = 1;
  LayerMachines layers_;
  ClusterPlan plan_;  // hosts, placement, types
  std::unique_ptr<StageMemoryNeeds> needs_;
  std::unique_ptr<ClusterTimes> times_;
};

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_FLEET_PLANNER_H_
