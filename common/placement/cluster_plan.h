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

// What a plan makes short.
struct PlanAim {
  // A step of so many streams that decode: a token of each.
  int32_t streams = 1;
  // Else the time to a prompt's first token.
  bool is_prompt = false;
};

// What a cluster is planned for.
struct PlanRequest {
  Machines machines;
  PlanAim aim;
  // 0: one on each machine that makes the plan faster. Up to the number of
  // machines for layers: one on so many of them. More: they take turns on them.
  int32_t stages = 0;
  // Weights, ranks, keys and values, kv_blocks (0: as `sequences` says), step
  // tokens; `placement` is PlanCluster's own.
  LayerLoadOptions loads;
  // Sequences of `context` tokens that the KV cache has to hold. 0: the aim's
  // streams, and, of the memory that the fastest split leaves, the largest of
  // `streams`.
  int32_t sequences = 0;
  int32_t expert_replicas = 1;
  int32_t context = 4096;  // tokens of each sequence, of speeds and room
  int32_t prompt_tokens = 1024;
  std::vector<int32_t> streams = {1, 4, 16, 64};
  bool wants_choices = false;  // fills ClusterPlan::choices
};

struct StagePlan {
  int32_t machine = 0;  // index
  LayerRange range;
  StageBytes bytes;
  uint64_t work = 0;        // of activations and the process itself
  uint64_t memory = 0;      // its share of the machine's
  double step_seconds = 0;  // of one sequence's decode step
  double hop_seconds = 0;   // of its token, from the stage or gateway before
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

// What another choice than the plan's costs.
struct PlanChoice {
  enum class What {
    kWithout,   // the best plan without the machine
    kWith,      // the best plan where the machine has layers
    kHead,      // the best plan with the head on the machine
    kInOrder,   // the best plan with machines in the order that they are named
    kByMemory,  // all machines in that order, layers by their memory
  };
  What what = What::kWithout;
  int32_t machine = -1;
  double seconds = 0;  // of the aim; infinite: does not fit
};

// A cluster, and what is expected of it. A value.
struct ClusterPlan {
  // The machines for layers, in the order of the layers. The gateway is beside
  // the first stage.
  std::vector<StagePlan> stages;
  std::vector<int32_t> left_out;  // machines with neither layers nor experts
  std::vector<HostPlan> hosts;
  ExpertPlacement placement;  // empty without hosts
  kernels::WeightType kv_type = kernels::WeightType::kF32;  // auto is resolved
  int64_t kv_blocks = 0;
  int64_t kv_tokens = 0;
  int64_t sequences = 0;       // at the request's context
  int64_t most_sequences = 0;  // that the stages' memory would hold
  // Of the aim: a step, or the time to a prompt's first token; `bound`: no plan
  // takes less; `is_best`: nor does any other one than this.
  double seconds = 0;
  double bound = 0;
  bool is_best = false;
  std::vector<PlanChoice> choices;
  double hop_seconds = 0;  // of one token between two stages
  std::vector<StreamSpeed> speeds;
  double ttft_seconds = 0;  // of one prompt
  double prompt_tokens_per_second = 0;
  double price_per_hour = 0;
};

// Returns what --stage-memory of sluice-stage is: memory in proportion to what
// the stages hold, as much as all of them have without activations and process.
// With it and the plan's kv_blocks stages split the layers as the plan does.
std::vector<uint64_t> StageMemory(const ClusterPlan& plan);

// Splits the model over those machines, in that order, that make the request's
// aim short, gives the KV cache what was asked for, and reckons speeds.
// INVALID_ARGUMENT for options that no cluster has; RESOURCE_EXHAUSTED tells
// the least memory that would do, or what a host of experts needs and has, and
// whether keys and values in BF16 would fit.
StatusOr<ClusterPlan> PlanCluster(const ModelConfig& config,
                                  const weights::ModelFile& model,
                                  const PlanRequest& request);

// Returns the price of a million tokens at a rate; 0 without a price.
double PricePerMillion(double price_per_hour, double tokens_per_second);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_CLUSTER_PLAN_H_
