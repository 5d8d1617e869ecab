#ifndef SLUICE_COMMON_EXPERTS_CLIENT_SHARD_MAP_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_SHARD_MAP_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/model_config/expert_placement.h"
#include "common/model_config/layer_range.h"
#include "kernels/reduction_tree.h"

namespace sluice {

// Experts of one layer that are on the same hosts: they go together to one of
// these hosts, or to another one if that does not answer.
struct ExpertShard {
  ExpertRange experts;
  std::vector<int32_t> hosts;  // into the placement's, rising, at least one
  std::vector<kernels::TreeNode> nodes;  // nodes of the tree that they finish
  int32_t first_node = 0;                // of the layer's remote nodes
  // The layers around this one that have the same experts on the same hosts.
  LayerRange layers;
};
// "experts 0-63 of layers 1-45".
std::string ToString(const ExpertShard& shard);

// The remote experts of a placement, for the layers of one stage. A value,
// const once made.
class ShardMap {
 public:
  ShardMap(const ExpertPlacement& placement, const LayerRange& layers,
           int32_t num_experts);

  const LayerRange& layers() const { return layers_; }
  // Rising by id.
  const std::vector<ExpertShard>& shards(int32_t layer) const {
    return at(layer).shards;
  }
  // Of all shards of the layer, rising.
  std::span<const kernels::TreeNode> nodes(int32_t layer) const {
    return at(layer).nodes;
  }
  // Returns which of shards(layer) has `expert`; -1: the stage itself.
  int32_t ShardOf(int32_t layer, int32_t expert) const {
    return at(layer).shard_of[static_cast<size_t>(expert)];
  }
  // The most remote nodes that one layer has.
  int32_t max_nodes() const;

 private:
  struct Layer {
    std::vector<ExpertShard> shards;
    std::vector<kernels::TreeNode> nodes;
    std::vector<int32_t> shard_of;  // by expert
  };
  const Layer& at(int32_t layer) const {
    return by_layer_[static_cast<size_t>(layer - layers_.first)];
  }

  LayerRange layers_;
  std::vector<Layer> by_layer_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_SHARD_MAP_H_
