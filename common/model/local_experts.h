#ifndef SLUICE_COMMON_MODEL_LOCAL_EXPERTS_H_
#define SLUICE_COMMON_MODEL_LOCAL_EXPERTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/device/backend.h"

namespace sluice {

// A rank's own experts in each layer of its stage.
class LocalExperts {
 public:
  // Runs of experts of one of the stage's layers, rising, among the layer's
  // `num_experts`; maybe none.
  struct Runs {
    int32_t num_experts = 0;
    std::vector<const ExpertWeights*> runs;
  };
  // `alone`: no other rank or host has experts. The backend and the weights
  // must outlive it.
  LocalExperts(Backend* backend, const std::vector<Runs>& layers, bool alone);

  // Returns the nodes of layer `index`'s tree that the rank finishes, rising.
  std::span<const kernels::TreeNode> nodes(size_t index) const {
    return layers_[index].nodes;
  }
  // parts[i] [T, H] = node nodes(index)[i] of rows x.
  void Run(size_t index, DeviceMatrix x, const DeviceRouting& routing,
           const Activation& activation, std::span<const DeviceMatrix> parts);

  // x += the sum of all experts of rows n + shared, if the rank is alone and
  // one run has them all: returns whether that is so.
  bool Add(size_t index, DeviceMatrix n, const DeviceRouting& routing,
           const Activation& activation, const ExpertAdd& add);

 private:
  struct Layer {
    std::vector<const ExpertWeights*> runs;
    std::vector<size_t> nodes_of_run;
    std::vector<kernels::TreeNode> nodes;  // of all runs
  };
  Backend& backend_;
  const bool alone_;
  std::vector<Layer> layers_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_LOCAL_EXPERTS_H_
