#ifndef SLUICE_KERNELS_CUDA_WEIGHT_TILES_H_
#define SLUICE_KERNELS_CUDA_WEIGHT_TILES_H_

#include <cstdint>

#include "kernels/views.h"
#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// A weight in the order in which a warp's lanes take it as operand A of
// Block::MultiplyTile (tile.h): 16 rows by 16 columns after each other, first
// along the columns. Inside a step of 16 columns from c on, the instruction's
// k are permuted alike in both operands, so that a lane has four columns side
// by side: its words 0 and 1 are columns c + 4t, c + 4t + 1 of rows g and g +
// 8, words 2 and 3 columns c + 4t + 2, c + 4t + 3. Rows and columns past the
// weight's are zero.
//   kBf16  512 bytes a step: 16 of each lane
//   kE4m3  576 bytes a run of 32 columns: the 16 rows' F32 of that run
//          (weight_type.h), then 16 bytes of each lane: four codes of row g,
//          four of row g + 8, the same of the next 16 columns. Codes stand in
//          the order c + 4t, + 2, + 1, + 3.
inline constexpr int kTileSide = 16;
inline constexpr int kStepBytes = 512;
inline constexpr int kRunBytes = 64 + 512;

// Whether a type has tiles: kBf16 and kE4m3.
constexpr bool HasTiles(WeightType type) {
  return type == WeightType::kBf16 || type == WeightType::kE4m3;
}

// The bytes of a weight's tiles.
int64_t TileBytes(WeightType type, int64_t rows, int64_t cols);

// Writes the tiles of a weight that has them. All memory is the host's.
void PackTiles(const WeightView& weight, uint8_t* to);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_WEIGHT_TILES_H_
