#ifndef SLUICE_KERNELS_CUDA_FAST_WEIGHT_LAYOUT_H_
#define SLUICE_KERNELS_CUDA_FAST_WEIGHT_LAYOUT_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/block_weight_layout.h"
#include "kernels/views.h"
#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// A weight in the order in which a warp's lanes take it as operand A of
// Block::MultiplyTile (runtime/matrix_fragments.h): 16 rows by 16 columns after
// each other, first along the columns. Inside a step of 16 columns from c on,
// the instruction's k are permuted alike in both operands, so that a lane has
// four columns side by side: its words 0 and 1 are columns c + 4t, c + 4t + 1
// of rows g and g + 8, words 2 and 3 columns c + 4t + 2, c + 4t + 3. Rows and
// columns past the weight's are zero.
//   kBf16  512 bytes a step: 16 of each lane
//   kE4m3  576 bytes a run of 32 columns: the 16 rows' F32 of that run
//          (weight_type.h), then 16 bytes of each lane: four codes of row g,
//          four of row g + 8, the same of the next 16 columns. Codes stand in
//          the order c + 4t, + 2, + 1, + 3, then ArrangeCodes moves their bits.
//   kE4m3Wide
//          2112 bytes a unit of 128 columns, which have the same F32: that of
//          the 16 rows, then four times the codes of a run
//   kQ8_0  544 bytes: as kE4m3 with the rows' F16
//   kQ4_0, kMxfp4
//          288 bytes: the rows' F16 or, of kMxfp4, BF16, then 8 bytes of each
//          lane: four codes of row g and four of the next 16 columns, the same
//          of row g + 8. Code i < 4 of a word, from the lowest bits on, is of
//          column c + 4t + 2 (i % 2) of step i / 2; code i + 4 is the next
//          column's. Of kMxfp4, ArrangeCodes moves their bits.
//   others are in units (block_weight_layout.h)
inline constexpr int kTileSide = 16;
inline constexpr int kRunCols = 32;
inline constexpr int kStepBytes = 512;

// The bytes of a scale, of which a row has one, and of one lane's codes of a
// run; the runs that have the same scales, which are a unit.
struct RunLayout {
  int scale_bytes;
  int lane_bytes;
  int runs = 1;
  constexpr int columns() const { return kRunCols * runs; }
  // Where the first run's codes are in a unit.
  constexpr int codes() const { return kTileSide * scale_bytes; }
  constexpr int run_bytes() const { return 32 * lane_bytes; }
  constexpr int bytes() const { return codes() + runs * run_bytes(); }
};
// Which of a unit's scales is row `row`'s: those of rows g and g + 8, which a
// lane reads, stand side by side.
constexpr int ScaleIndex(int row) { return row % 8 * 2 + row / 8; }
// Of types in runs; zero for others.
constexpr RunLayout RunLayoutOf(WeightType type) {
  switch (type) {
    case WeightType::kE4m3:
      return {4, 16};
    case WeightType::kE4m3Wide:
      return {4, 16, kE4m3WideRun / kRunCols};
    case WeightType::kQ8_0:
      return {2, 16};
    case WeightType::kQ4_0:
    case WeightType::kMxfp4:
      return {2, 8};
    default:
      return {0, 0};
  }
}

// Whether a type has tiles: kBf16 and those in runs and in units.
constexpr bool HasTiles(WeightType type) {
  return type == WeightType::kBf16 || RunLayoutOf(type).lane_bytes != 0 ||
         IsInUnits(type);
}

// Leaves of products begin at multiples of so many columns, but for kBf16's.
constexpr int CutColumns(WeightType type) {
  if (IsInUnits(type)) return BlockTilesOf(type).columns();
  const RunLayout layout = RunLayoutOf(type);
  return layout.runs > 1 ? layout.columns() : kRunCols;
}

// Where the code of (row, column) of a unit stands among its bytes, before
// ArrangeCodes: the byte, and the bits in it.
struct CodePlace {
  int byte;
  int shift;
};
constexpr CodePlace CodePlaceOf(const RunLayout& layout, int row, int column) {
  const int lane = row % 8 * 4 + column % kTileSide / 4;
  const int step = column % kRunCols / kTileSide;
  const int run = layout.codes() + column / kRunCols * layout.run_bytes();
  if (layout.lane_bytes == 16) {
    const int word = step * 2 + row / 8;
    return {run + lane * 16 + word * 4 + column % 2 * 2 + column % 4 / 2, 0};
  }
  const int code = step * 2 + column % 4 / 2 + column % 2 * 4;
  return {run + lane * 8 + row / 8 * 4 + code / 2, code % 2 * 4};
}

// The bytes of a weight's tiles.
int64_t TileBytes(WeightType type, int64_t rows, int64_t cols);

// Writes the tiles of a weight that has them from its rows as they are stored:
// plain elements, runs (weight_type.h) or blocks (block_format.h), 4-byte
// aligned. `tiles` is 16-byte aligned. All memory is the device's. Rows from a
// multiple of kTileSide on are a weight of their own, with the tiles from
// TileBytes of those before.
void PackTiles(Stream stream, const WeightView& stored, void* tiles);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_WEIGHT_LAYOUT_H_
