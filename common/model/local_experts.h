#ifndef SLUICE_COMMON_MODEL_LOCAL_EXPERTS_H_
#define SLUICE_COMMON_MODEL_LOCAL_EXPERTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/device/backend.h"
#include "common/model_config/model_config.h"

namespace sluice {

inline Activation ExpertActivation(const MoeConfig& moe) {
  if (moe.swiglu_limit == 0) return {};
  return {Activation::Kind::kClampedSwiGlu,
          static_cast<float>(moe.swiglu_limit)};
}

// The experts that a rank holds itself, of each layer of its stage.
class LocalExperts {
 public:
  // `layers[i]`: runs of experts of the stage's layer i, rising, of the
  // `num_experts` that the layer has; maybe none. The backend and the weights
  // must outlive it.
  using Runs = std::vector<const ExpertWeights*>;
  LocalExperts(Backend* backend, int32_t num_experts,
               const std::vector<Runs>& layers);

  // The nodes of layer `index`'s tree that the rank finishes: aligned, rising.
  std::span<const kernels::TreeNode> nodes(size_t index) const {
    return layers_[index].nodes;
  }
  // parts[i] [T, H] = node nodes(index)[i] of rows x.
  void Run(size_t index, DeviceMatrix x, const DeviceRouting& routing,
           const Activation& activation, std::span<const DeviceMatrix> parts);

 private:
  struct Layer {
    Runs runs;
    std::vector<size_t> nodes_of_run;
    std::vector<kernels::TreeNode> nodes;  // of all runs
  };
  Backend& backend_;
  std::vector<Layer> layers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_LOCAL_EXPERTS_H_
