#ifndef SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_ROWS_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_ROWS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/canonical/block_formats.h"
#include "kernels/cuda/canonical/products.h"
#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/product_shards.h"
#include "kernels/cuda/shared/product_tile.h"

namespace sluice::kernels::cuda {

// Arguments of products with packed blocks.
struct BlockArgs {
  FlaggedRows x;
  const uint8_t* packed;
  int64_t rows;
  const float* bias;
  ShardArgs shards;
  GroupedRows grouped;
};

// Sixteen bytes, aligned, that a kernel before this one wrote.
SLUICE_DEVICE TileA LoadWritten(const void* from) {
  return BitCast<TileA>(LoadQuad(static_cast<const float*>(from)));
}

// Whether a row is finite. A whole warp calls.
SLUICE_DEVICE bool IsFinite(Block& block, const FlaggedRows& x, int64_t row) {
  const int piece = block.lane() % kFinitePieces;
  bool finite = x.finite == nullptr || x.finite[row * kFinitePieces + piece];
  if (x.source_finite != nullptr) {
    const int64_t source = x.sources[row];
    finite = x.source_finite[source * kFinitePieces + piece] && finite;
  }
  return block.Ballot(finite) == 0xFFFFFFFFu;
}

// Stores what a thread summed: as StoreNodes, or NaN.
SLUICE_DEVICE void StoreFinite(const ShardArgs& a,
                               const Shared<float>& partials,
                               const ShardCell& cell, const float* bias,
                               bool finite) {
  if (finite) return StoreNodes(a, partials, cell, bias);
  for (int32_t o = 0; o < a.num_outputs; ++o) {
    a.y[o][cell.token * a.stride[o] + cell.row] = NotANumber();
  }
}

// What a block of many tokens multiplies: rows of a format T, from first_row
// on.
template <typename T>
struct TileOperands {
  const uint8_t* packed;
  int64_t first_row;
  int64_t groups;  // of rows, in all
  int64_t blocks;  // of elements, in a row
  ProductTile tile;
  SLUICE_DEVICE int64_t In(int t) const {
    return tile.In(t < tile.tokens ? t : tile.tokens - 1);
  }
  // Block b of a row of the tile, or of the last group's.
  SLUICE_DEVICE blocks::Place At(int row, int64_t b) const {
    const int64_t group = (first_row + row) / kGroupRows;
    const int64_t last = groups - 1;
    return {packed + ((group < last ? group : last) * blocks + b) * T::kBytes,
            row % kGroupRows};
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_ROWS_H_
