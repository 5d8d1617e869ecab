#ifndef SLUICE_KERNELS_CUDA_RUNTIME_MATRIX_FRAGMENTS_H_
#define SLUICE_KERNELS_CUDA_RUNTIME_MATRIX_FRAGMENTS_H_

#include <cstdint>

namespace sluice::kernels::cuda {

// What a lane has of the operands of Block::MultiplyTile: C += A B with A [16,
// 16] and B [16, 8] in BF16 and C [16, 8] in F32, over a warp. These are the
// fragments of PTX' mma.m16n8k16. With g = lane / 4 and t = lane % 4:
//   A  words 0, 1: rows g, g + 8, columns 2t, 2t + 1; words 2, 3: the same
//      rows, columns 2t + 8, 2t + 9
//   B  words 0, 1: rows 2t, 2t + 1 and 2t + 8, 2t + 9 of column g
//   C  values 0, 1: row g, columns 2t, 2t + 1; values 2, 3: row g + 8
// The lower half of a word is the lower column of A, or row of B.
struct TileA {
  uint32_t words[4];
};
struct TileB {
  uint32_t words[2];
};
struct TileC {
  float values[4];
};

// The same of Block::MultiplyCodes: A [16, 32] of unsigned bytes, B [32, 8] of
// signed ones, C of integers (PTX' mma.m16n8k32):
//   A  words 0, 1: rows g, g + 8, columns 4t to 4t + 3; words 2, 3: the same
//      rows, columns 16 behind
//   B  word 0: rows 4t to 4t + 3 of column g; word 1: rows 16 behind
//   C  as TileC
// The lowest byte of a word is the lowest column of A, or row of B.
struct TileI {
  int32_t values[4];
};

// Operands of GroupProducts::Multiply: C += A B over four warps, each with 16
// rows of A as TileA, and with the same rows of C, [16, 128], as a TileC per
// octet of columns. B [16, 128] is in shared memory: of each octet words 0 of
// all lanes' TileB, one after the other, then words 1.
inline constexpr int kGroupWarps = 4;
inline constexpr int kGroupOctets = 16;
using GroupSums = TileC[kGroupOctets];

// Four floats, 16-byte aligned in memory.
struct Quad {
  float values[4];
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_RUNTIME_MATRIX_FRAGMENTS_H_
