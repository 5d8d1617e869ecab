#ifndef SLUICE_COMMON_PLACEMENT_STEP_COST_H_
#define SLUICE_COMMON_PLACEMENT_STEP_COST_H_

#include <cstdint>
#include <vector>

#include "common/model_config/model_config.h"
#include "common/placement/layer_loads.h"
#include "common/placement/layer_split.h"
#include "common/placement/machine_rates.h"
#include "common/weights/model_file.h"

// What a step of a stage takes: each product's weights over the bandwidth or
// its products over the arithmetic rate, attention's keys and values likewise,
// and for every layer the threads' meetings.
namespace sluice::placement {

// A step: `sequences` sequences with `tokens` new tokens each, behind `context`
// tokens. Logits are wanted of each sequence's last token.
struct StepShape {
  int64_t sequences = 1;
  int64_t tokens = 1;
  int64_t context = 0;
  int64_t rows() const { return sequences * tokens; }
};

// Weights of one type that all rows of a step are multiplied with.
struct Product {
  kernels::WeightType type = kernels::WeightType::kF32;
  double elements = 0;
};

// The products of one layer.
struct LayerProducts {
  std::vector<Product> dense;
  std::vector<Product> expert;  // of one expert
};

// A model's products, per layer and of its head. A value.
struct ModelProducts {
  std::vector<LayerProducts> layers;
  Product head;
};
ModelProducts ProductsOf(const ModelConfig& config,
                         const weights::ModelFile& model, WeightsMode mode);

// Returns the types that `products` has.
std::vector<kernels::WeightType> TypesIn(const ModelProducts& products);

// Returns seconds per element of a weight of `type` in a product with `rows`
// rows: measured, else by bandwidth and arithmetic rate.
double ElementSeconds(const MachineRates& rates, kernels::WeightType type,
                      double rows, bool cached);

// Returns how many of `experts` experts get a row, of `rows` rows that take
// `per_token` each, if routers choose evenly.
double DistinctExperts(double experts, double per_token, double rows);

// The layers of a stage, on one machine.
struct StageWork {
  const ModelConfig* config = nullptr;
  const ModelProducts* products = nullptr;
  LayerRange range;
  kernels::WeightType kv_type = kernels::WeightType::kF32;
  double local_experts = 1;  // the share of experts that are on the stage
  uint64_t weight_bytes = 0;
};
// Returns the seconds of one layer; `cached`: the stage's weights are in the
// machine's cache. `work.range` is not read.
double LayerSeconds(const StageWork& work, int32_t layer,
                    const MachineRates& rates, const StepShape& step,
                    bool cached);
// Returns the seconds of the head.
double HeadSeconds(const StageWork& work, const MachineRates& rates,
                   const StepShape& step, bool cached);
// Returns the seconds of a step, the sum over its layers and, with the last
// layer, the head, without hops and trips to hosts of experts.
double StepSeconds(const StageWork& work, const MachineRates& rates,
                   const StepShape& step);

// Returns the seconds that a host with `share` of a layer's experts computes
// for `rows` rows.
double HostSeconds(const MoeConfig& moe, const LayerProducts& layer,
                   double share, const MachineRates& rates, double rows);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_STEP_COST_H_
