#ifndef SLUICE_KERNELS_CUDA_TILE_ELEMENTS_H_
#define SLUICE_KERNELS_CUDA_TILE_ELEMENTS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/math.h"
#include "kernels/cuda/weight_tiles.h"

namespace sluice::kernels::cuda {

// Single elements of a weight's tiles, for embeddings and for shards that begin
// within a step.

SLUICE_DEVICE int64_t StepsOf(int64_t cols) {
  return (cols + kTileSide - 1) / kTileSide;
}

// A BF16 element's bits.
SLUICE_DEVICE uint32_t Bf16Of(const void* tiles, int64_t cols, int64_t row,
                              int64_t column) {
  const int64_t step = row / kTileSide * StepsOf(cols) + column / kTileSide;
  const int64_t r = row % kTileSide;
  const int64_t c = column % kTileSide;
  const int64_t lane = r % 8 * 4 + c / 4;
  const int64_t word = r / 8 + c % 4 / 2 * 2;
  return static_cast<const uint16_t*>(
      tiles)[step * (kStepBytes / 2) + lane * 8 + word * 2 + c % 2];
}

// An element as F32, with the bits of math.h's Element.
template <WeightType kType>
SLUICE_DEVICE float TileElement(const void* tiles, int64_t cols, int64_t row,
                                int64_t column) {
  if constexpr (kType == WeightType::kBf16) {
    return BitCast<float>(Bf16Of(tiles, cols, row, column) << 16);
  } else {
    const int64_t run = row / kTileSide * (cols / kE4m3Run) + column / kE4m3Run;
    const uint8_t* at = static_cast<const uint8_t*>(tiles) + run * kRunBytes;
    const int64_t r = row % kTileSide;
    const int64_t c = column % kTileSide;
    const int64_t lane = r % 8 * 4 + c / 4;
    const int64_t word = column % kE4m3Run / kTileSide * 2 + r / 8;
    const int64_t place = c % 2 * 2 + c % 4 / 2;
    return E4m3Value(at[64 + lane * 16 + word * 4 + place]) *
           BitCast<float>(LoadWord(at + 4 * r));
  }
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_ELEMENTS_H_
