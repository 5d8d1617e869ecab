#include "common/model/moe.h"

#include <utility>

namespace sluice {

LocalExperts::LocalExperts(Backend* backend, int32_t first_layer,
                           std::vector<Layer> layers)
    : backend_(*backend),
      first_layer_(first_layer),
      layers_(std::move(layers)) {}

std::span<const kernels::TreeNode> LocalExperts::nodes(int32_t layer) const {
  return at(layer).nodes;
}

void LocalExperts::Begin(const ExpertAsk&) {}  // the rank itself is busy

void LocalExperts::Finish(const ExpertAsk& ask,
                          std::span<const kernels::Matrix> parts) {
  const Layer& layer = at(ask.layer);
  if (layer.nodes.empty()) return;
  backend_.ExpertNodes(ask.x, ask.routing, *layer.experts, layer.nodes, parts);
}

}  // namespace sluice
