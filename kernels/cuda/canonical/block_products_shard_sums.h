#ifndef SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_SHARD_SUMS_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_SHARD_SUMS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/shared/product_shards.h"

namespace sluice::kernels::cuda {

// Joins sums of shards in the tree while the shards come one after another: a
// thread's cells [kRowTiles, kTokenTiles, 4] in registers, and those that wait
// for their right neighbour in shared memory [levels, cells, kThreads].
template <int kThreads, int kRowTiles, int kTokenTiles>
struct WaitingSums {
  static constexpr int kCells = kRowTiles * kTokenTiles * 4;
  using Sums = float[kRowTiles][kTokenTiles][4];

  // Levels of the largest node's tree that wait.
  static constexpr int LevelsOf(const ShardArgs& shards) {
    int levels = 0;
    for (int32_t o = 0; o < shards.num_outputs; ++o) {
      const int32_t leaves = shards.nodes[o].end - shards.nodes[o].begin;
      while ((1 << levels) < leaves) ++levels;
    }
    return levels;
  }
  // Joins a leaf's sums with those that wait for it; they wait in turn, but for
  // the last leaf's, which become the node's.
  static SLUICE_DEVICE void Join(const Block& block,
                                 const Shared<float>& waiting, int32_t leaf,
                                 bool is_last, Sums& sums) {
    int level = 0;
    for (; leaf >> level != 0; ++level) {
      if ((leaf >> level & 1) == 0) {
        if (!is_last) break;
        continue;
      }
      SLUICE_UNROLL
      for (int i = 0; i < kCells; ++i) {
        float& sum = sums[i / 4 / kTokenTiles][i / 4 % kTokenTiles][i % 4];
        sum =
            waiting.Get((level * kCells + i) * kThreads + block.thread()) + sum;
      }
    }
    if (is_last) return;
    SLUICE_UNROLL
    for (int i = 0; i < kCells; ++i) {
      waiting.Set((level * kCells + i) * kThreads + block.thread(),
                  sums[i / 4 / kTokenTiles][i / 4 % kTokenTiles][i % 4]);
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_SHARD_SUMS_H_
