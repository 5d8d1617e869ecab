#ifndef SLUICE_KERNELS_CUDA_FAST_BLOCK_WEIGHT_LAYOUT_H_
#define SLUICE_KERNELS_CUDA_FAST_BLOCK_WEIGHT_LAYOUT_H_

#include <cstdint>

#include "kernels/block_format.h"
#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// Tiles of types whose elements need more than one scale and a code: minima,
// scales of parts, codes in two runs of bits. A unit is 16 rows by one block of
// 32 or 256 columns and has the stored bytes, no more: its head, then its runs
// of 32 columns.
//   Head  Of short blocks a row has the F16 scale and, where there is one, the
//         F16 minimum behind it, row after row. kQ4K, kQ5K: a row's four words
//         are the stored block's first ones: scale, minimum, twelve bytes.
//         kQ6K: the sixteen scales of each row, 128 added, then the rows' F16.
//         kQ3K: a row's twelve bytes as stored, then the rows' F16. kQ2K: a
//         row's sixteen bytes, then the rows' scale and minimum.
//   Run   A lane (weight_layout.h) has sixteen codes: number n = 8 h + 4 u + i
//   is
//         of row g + 8 h and column 4t + 2 (i % 2) + u of step i / 2. Its low
//         bits are, of four bits, 8 bytes: the word of row g + 8 h has code i
//         at bit 4 i + 16 u. Of two bits 4 bytes: bit 2 (4 h + i) + 16 u. High
//         bits stand behind all lanes' low ones: of two bits likewise, of one
//         bit 2 bytes: bit 4 h + i + 8 u.
struct BlockTiles {
  int runs;        // of a unit
  int head_bytes;  // of a unit
  int low_bits;
  int high_bits;
  constexpr int columns() const { return 32 * runs; }
  constexpr int high() const { return 64 * low_bits; }  // in a run
  constexpr int run_bytes() const { return 64 * (low_bits + high_bits); }
  constexpr int bytes() const { return head_bytes + runs * run_bytes(); }
};
// Of types in units; no runs for others.
constexpr BlockTiles BlockTilesOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4_1:
      return {1, 64, 4, 0};
    case WeightType::kQ5_0:
      return {1, 32, 4, 1};
    case WeightType::kQ5_1:
      return {1, 64, 4, 1};
    case WeightType::kQ2K:
      return {8, 320, 2, 0};
    case WeightType::kQ3K:
      return {8, 224, 2, 1};
    case WeightType::kQ4K:
      return {8, 256, 4, 0};
    case WeightType::kQ5K:
      return {8, 256, 4, 1};
    case WeightType::kQ6K:
      return {8, 288, 4, 2};
    default:
      return {0, 0, 0, 0};
  }
}
constexpr bool IsInUnits(WeightType type) {
  return BlockTilesOf(type).runs != 0;
}

// Code n of a lane: the bits of a run's low and high codes that it has, in
// bits from the lane's first one on.
struct LaneCode {
  int half;  // the row is g + 8 half
  int step;
  int column;  // from 4t on
  constexpr int index() const { return 2 * step + column / 2; }
  constexpr int bit(int bits) const {
    const int upper = column % 2;
    if (bits == 4) return 32 * half + 4 * index() + 16 * upper;
    if (bits == 2) return 2 * (4 * half + index()) + 16 * upper;
    return 4 * half + index() + 8 * upper;
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_BLOCK_WEIGHT_LAYOUT_H_
