#include "common/experts/client/shard_map.h"

#include <algorithm>

namespace sluice {
namespace {

// Returns the neighbours of `layer` that have `run` as well.
LayerRange LayersWith(const ExpertPlacement& placement, int32_t layer,
                      const PlacedExperts& run) {
  const auto has = [&](int32_t i) {
    const auto& runs = placement.layers[static_cast<size_t>(i)];
    return std::find(runs.begin(), runs.end(), run) != runs.end();
  };
  LayerRange range = {layer, layer + 1};
  while (range.first > 0 && has(range.first - 1)) --range.first;
  const auto end = static_cast<int32_t>(placement.layers.size());
  while (range.last < end && has(range.last)) ++range.last;
  return range;
}

}  // namespace

std::string ToString(const ExpertShard& shard) {
  return Cat("experts ", shard.experts.begin, "-", shard.experts.end - 1,
             " of layers ", shard.layers.first, "-", shard.layers.last - 1);
}

ShardMap::ShardMap(const ExpertPlacement& placement, const LayerRange& layers,
                   int32_t num_experts)
    : layers_(layers),
      by_layer_(static_cast<size_t>(layers.last - layers.first)) {
  for (int32_t i = layers.first; i < layers.last; ++i) {
    Layer& layer = by_layer_[static_cast<size_t>(i - layers.first)];
    layer.shard_of.assign(static_cast<size_t>(num_experts), -1);
    if (placement.layers.empty()) continue;
    for (const PlacedExperts& run : placement.layers[static_cast<size_t>(i)]) {
      if (run.hosts.empty()) continue;
      ExpertShard shard;
      shard.experts = run.experts;
      shard.hosts = run.hosts;
      shard.nodes = kernels::AlignedNodes(run.experts.begin, run.experts.end,
                                          num_experts);
      shard.first_node = static_cast<int32_t>(layer.nodes.size());
      shard.layers = LayersWith(placement, i, run);
      layer.nodes.insert(layer.nodes.end(), shard.nodes.begin(),
                         shard.nodes.end());
      std::fill(layer.shard_of.begin() + run.experts.begin,
                layer.shard_of.begin() + run.experts.end,
                static_cast<int32_t>(layer.shards.size()));
      layer.shards.push_back(std::move(shard));
    }
  }
}

int32_t ShardMap::max_nodes() const {
  size_t most = 0;
  for (const Layer& layer : by_layer_)
    most = std::max(most, layer.nodes.size());
  return static_cast<int32_t>(most);
}

}  // namespace sluice
