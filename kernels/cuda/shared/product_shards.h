#ifndef SLUICE_KERNELS_CUDA_SHARED_PRODUCT_SHARDS_H_
#define SLUICE_KERNELS_CUDA_SHARED_PRODUCT_SHARDS_H_

#include <cuda_device/device.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "common/base/check.h"
#include "kernels/matmul.h"

namespace sluice::kernels::cuda {

inline constexpr int kMostShards = 64;
// A run of 64 leaves is at most twice six nodes of their tree.
inline constexpr int kMostOutputs = 12;

// ShardedCols and the outputs by value, as a kernel's argument.
struct ShardArgs {
  int32_t bounds[kMostShards + 1];
  int32_t num_shards;
  int32_t num_outputs;
  int32_t unused;  // no bytes between members: see LaunchList
  TreeNode nodes[kMostOutputs];
  float* y[kMostOutputs];
  int64_t stride[kMostOutputs];
};

// Bounds in units of `unit` columns, which divides them.
inline ShardArgs ShardArgsOf(const ShardedCols& shards,
                             std::span<const Matrix> y, int32_t unit) {
  SLUICE_CHECK(!shards.bounds.empty());
  SLUICE_CHECK(shards.bounds.size() <= kMostShards + 1);
  SLUICE_CHECK(shards.nodes.size() == y.size() && y.size() <= kMostOutputs);
  SLUICE_CHECK(std::is_sorted(shards.bounds.begin(), shards.bounds.end()));
  ShardArgs args = {};
  args.num_shards = static_cast<int32_t>(shards.bounds.size()) - 1;
  args.num_outputs = static_cast<int32_t>(y.size());
  for (size_t s = 0; s < shards.bounds.size(); ++s) {
    SLUICE_CHECK(shards.bounds[s] % unit == 0);
    args.bounds[s] = shards.bounds[s] / unit;
  }
  for (size_t i = 0; i < y.size(); ++i) {
    SLUICE_CHECK(shards.nodes[i].end <= args.num_shards);
    args.nodes[i] = shards.nodes[i];
    args.y[i] = y[i].data;
    args.stride[i] = y[i].stride;
  }
  return args;
}

// An output element: its sums of shards are elements `at` of runs of `step`
// partials.
struct ShardCell {
  int64_t step;
  int64_t at;
  int64_t token;
  int64_t row;
};

// The sum of output `o`'s node at a thread's cell, whose partials it takes.
SLUICE_DEVICE float SumOfNode(const ShardArgs& a, const Shared<float>& partials,
                              const ShardCell& cell, int32_t o) {
  const int32_t begin = a.nodes[o].begin;
  const int32_t end = a.nodes[o].end;
  for (int32_t stride = 1; stride < end - begin; stride *= 2) {
    for (int32_t i = begin; i + stride < end; i += 2 * stride) {
      const float right = partials.Get((i + stride) * cell.step + cell.at);
      const int64_t to = i * cell.step + cell.at;
      partials.Set(to, partials.Get(to) + right);
    }
  }
  return partials.Get(begin * cell.step + cell.at);
}

// Joins a thread's sums of shards in the tree; stores the outputs.
SLUICE_DEVICE void StoreNodes(const ShardArgs& a, const Shared<float>& partials,
                              const ShardCell& cell, const float* bias) {
  for (int32_t o = 0; o < a.num_outputs; ++o) {
    float sum = SumOfNode(a, partials, cell, o);
    if (bias != nullptr) sum = sum + bias[cell.row];
    a.y[o][cell.token * a.stride[o] + cell.row] = sum;
  }
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_PRODUCT_SHARDS_H_
