#ifndef SLUICE_COMMON_PLACEMENT_CLUSTER_PLAN_H_
#define SLUICE_COMMON_PLACEMENT_CLUSTER_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/model_config.h"
#include "common/placement/layer_loads.h"
#include "common/placement/machines.h"
#include "common/placement/step_cost.h"
#include "common/weights/model_file.h"

namespace sluice::placement {

// What a cluster is planned for.
struct PlanRequest {
  Machines machines;
  // 0: one on each machine that serves no experts. More than the machines: they
  // take turns on them.
  int32_t stages = 0;
  // Weights, ranks, keys and values, kv_blocks (0: as many as fit), step
  // tokens; `placement` is PlanCluster's own.
  LayerLoadOptions loads;
  int32_t expert_replicas = 1;
  int32_t context = 4096;  // tokens of each sequence, of speeds and room
  int32_t prompt_tokens = 1024;
  std::vector<int32_t> streams = {1, 4, 16, 64};
};

struct StagePlan {
  int32_t machine = 0;  // index
  LayerRange range;
  StageBytes bytes;
  uint64_t work = 0;        // of activations and the process itself
  uint64_t memory = 0;      // its share of the machine's
  double step_seconds = 0;  // of one sequence's decode step
  uint64_t total() const { return bytes.total() + work; }
};

struct HostPlan {
  int32_t machine = 0;
  uint64_t experts = 0;  // bytes
  double share = 0;      // of all experts, among replicas
};

// Speeds with so many sequences that decode at once.
struct StreamSpeed {
  int32_t streams = 1;
  bool fits = true;  // the KV cache holds them all
  double tokens_per_second = 0;
  double per_stream() const { return tokens_per_second / streams; }
};

// A cluster, and what is expected of it. A value.
struct ClusterPlan {
  std::vector<StagePlan> stages;
  std::vector<HostPlan> hosts;
  ExpertPlacement placement;  // empty without hosts
  kernels::WeightType kv_type = kernels::WeightType::kF32;  // auto is resolved
  int64_t kv_blocks = 0;
  int64_t kv_tokens = 0;
  int64_t sequences = 0;   // at the request's context
  double hop_seconds = 0;  // of one token between two stages
  std::vector<StreamSpeed> speeds;
  double ttft_seconds = 0;  // of one prompt
  double prompt_tokens_per_second = 0;
  double price_per_hour = 0;
};

// Returns what --stage-memory of sluice-stage is: every stage's memory without
// activations and process. With it and the plan's kv_blocks stages split the
// layers as the plan does.
std::vector<uint64_t> StageMemory(const ClusterPlan& plan);

// Splits the model over the machines by their memory, gives the KV cache what
// is left, and reckons speeds. INVALID_ARGUMENT for options that no cluster
// has; RESOURCE_EXHAUSTED names the stage or host that does not fit, what it
// needs and what there is, and whether keys and values in BF16 would fit.
StatusOr<ClusterPlan> PlanCluster(const ModelConfig& config,
                                  const weights::ModelFile& model,
                                  const PlanRequest& request);

// Returns the price of a million tokens at a rate; 0 without a price.
double PricePerMillion(double price_per_hour, double tokens_per_second);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_CLUSTER_PLAN_H_
