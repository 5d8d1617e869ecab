#ifndef SLUICE_KERNELS_CUDA_BLOCK_ROWS_H_
#define SLUICE_KERNELS_CUDA_BLOCK_ROWS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/math.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/products_shards.h"

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

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_BLOCK_ROWS_H_
