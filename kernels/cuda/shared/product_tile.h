#ifndef SLUICE_KERNELS_CUDA_SHARED_PRODUCT_TILE_H_
#define SLUICE_KERNELS_CUDA_SHARED_PRODUCT_TILE_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/shared/expert_groups.h"

namespace sluice::kernels::cuda {

// What a block multiplies: `tokens` rows of x to rows out, out + 1, ... of y.
struct ProductTile {
  const void* w;
  const float* bias;
  int tokens;
  int64_t out;
  const int32_t* rows;  // the row of x for each row of y; null: the same
  SLUICE_DEVICE int64_t In(int t) const {
    return rows == nullptr ? out + t : rows[out + t];
  }
};

// Tile `index` of a product: a run of tokens of one weight, or a group. False
// where there is none. `bias`: an expert's is `rows` behind the one before.
SLUICE_DEVICE bool FindTile(const GroupedRows& grouped, int64_t index,
                            int64_t tokens, const void* w, const float* bias,
                            int64_t rows, ProductTile& tile) {
  if (grouped.groups == nullptr) {
    tile.w = w;
    tile.bias = bias;
    tile.out = index * grouped.tile_rows;
    const int64_t left = tokens - tile.out;
    tile.tokens =
        static_cast<int>(left < grouped.tile_rows ? left : grouped.tile_rows);
    tile.rows = nullptr;
    return true;
  }
  // Both loads are on their way at once: there is room for all groups.
  const ExpertGroup group = grouped.groups[index];
  if (index >= *grouped.num_groups) return false;
  if (group.expert < grouped.begin || group.expert >= grouped.end) return false;
  tile.w = grouped.weights[group.expert];
  tile.bias = bias == nullptr ? nullptr : bias + group.expert * rows;
  tile.out = group.slot;
  tile.tokens = group.slots;
  tile.rows = grouped.rows;
  return true;
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_PRODUCT_TILE_H_
