#include "common/model/local_experts.h"

#include "common/base/check.h"

namespace sluice {

LocalExperts::LocalExperts(Backend* backend, const std::vector<Runs>& layers,
                           bool alone)
    : backend_(*backend), alone_(alone) {
  for (const Runs& of_layer : layers) {
    Layer& layer = layers_.emplace_back();
    layer.runs = of_layer.runs;
    for (const ExpertWeights* run : of_layer.runs) {
      const auto nodes = kernels::AlignedNodes(
          run->first, run->first + run->size(), of_layer.num_experts);
      layer.nodes_of_run.push_back(nodes.size());
      layer.nodes.insert(layer.nodes.end(), nodes.begin(), nodes.end());
    }
  }
}

void LocalExperts::Run(size_t index, DeviceMatrix x,
                       const DeviceRouting& routing,
                       const Activation& activation,
                       std::span<const DeviceMatrix> parts) {
  const Layer& layer = layers_[index];
  std::span<const kernels::TreeNode> nodes = layer.nodes;
  for (size_t i = 0; i < layer.runs.size(); ++i) {
    const size_t count = layer.nodes_of_run[i];
    backend_.ExpertNodes(x, routing, *layer.runs[i], activation,
                         nodes.first(count), parts.first(count));
    nodes = nodes.subspan(count);
    parts = parts.subspan(count);
  }
}

bool LocalExperts::Add(size_t index, DeviceMatrix n,
                       const DeviceRouting& routing,
                       const Activation& activation, const ExpertAdd& add) {
  const Layer& layer = layers_[index];
  if (!alone_ || layer.runs.size() != 1 || layer.nodes.size() != 1) {
    return false;
  }
  SLUICE_CHECK(add.node.size() == 1 && add.node[0] == layer.nodes[0]);
  backend_.AddExperts(n, routing, *layer.runs[0], activation, add);
  return true;
}

}  // namespace sluice
