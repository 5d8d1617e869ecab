#include "common/model/expert_owner.h"

namespace sluice {

LocalExperts::LocalExperts(Backend* backend, int32_t num_experts,
                           int32_t first_layer, const std::vector<Runs>& layers)
    : backend_(*backend), first_layer_(first_layer) {
  for (const Runs& runs : layers) {
    Layer& layer = layers_.emplace_back();
    layer.runs = runs;
    for (const ExpertWeights* run : runs) {
      const auto nodes = kernels::AlignedNodes(
          run->first, run->first + run->size(), num_experts);
      layer.nodes_of_run.push_back(nodes.size());
      layer.nodes.insert(layer.nodes.end(), nodes.begin(), nodes.end());
    }
  }
}

std::span<const kernels::TreeNode> LocalExperts::nodes(int32_t layer) const {
  return at(layer).nodes;
}

void LocalExperts::Begin(const ExpertAsk&) {}  // the rank itself is busy

std::vector<RowFailure> LocalExperts::Finish(
    const ExpertAsk& ask, std::span<const kernels::Matrix> parts) {
  const Layer& layer = at(ask.layer);
  std::span<const kernels::TreeNode> nodes = layer.nodes;
  for (size_t i = 0; i < layer.runs.size(); ++i) {
    const size_t count = layer.nodes_of_run[i];
    backend_.ExpertNodes(ask.x, ask.routing, *layer.runs[i], nodes.first(count),
                         parts.first(count));
    nodes = nodes.subspan(count);
    parts = parts.subspan(count);
  }
  return {};
}

}  // namespace sluice
