#ifndef SLUICE_KERNELS_BLOCK_FORMAT_H_
#define SLUICE_KERNELS_BLOCK_FORMAT_H_

#include <cstdint>

namespace sluice::kernels {

// Formats of quantised weights whose products are sums of integers: a row is
// a run of blocks, a block is a few scales and codes of some bits. The names
// and the stored bytes are those of GGUF. No function may stand here:
// cpu/block_ops.h includes this header.
enum class BlockFormat : uint8_t {
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kIq4Nl,
  kMxfp4,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Xs,
};
inline constexpr int kNumBlockFormats = 13;

// What weights of blocks are multiplied with: activations of eight bits
// (block_matmul.h), or F32 ones, for which blocks are widened (wide_matmul.h).
enum class BlockActivations : uint8_t { kEightBits, kF32 };

// Elements of the two kinds of blocks; activations have blocks of the same.
inline constexpr int kShortBlock = 32;
inline constexpr int kLongBlock = 256;

// Rows that lie interleaved in packed weights.
inline constexpr int kGroupRows = 16;

// How a stored block is laid out. A code's low bits and its high bits lie in
// two runs of their own (block_pack.cc says where in them).
struct BlockLayout {
  const char* name;
  int16_t elements;
  int16_t bytes;
  int16_t scale;      // offset of the F16 scale; -1: none
  int16_t minimum;    // offset of the F16 minimum or of its scale; -1: none
  int16_t subscales;  // offset of the bytes with integer scales, and their
  int16_t subscale_bytes;  // number
  int16_t low;             // offset of the low bits, and how many a code has
  int16_t low_bits;
  int16_t high;  // the same of the high bits
  int16_t high_bits;
};

// By BlockFormat.
inline constexpr BlockLayout kBlockLayouts[kNumBlockFormats] = {
    {"Q8_0", 32, 34, 0, -1, 0, 0, 2, 8, 0, 0},
    {"Q4_0", 32, 18, 0, -1, 0, 0, 2, 4, 0, 0},
    {"Q4_1", 32, 20, 0, 2, 0, 0, 4, 4, 0, 0},
    {"Q5_0", 32, 22, 0, -1, 0, 0, 6, 4, 2, 1},
    {"Q5_1", 32, 24, 0, 2, 0, 0, 8, 4, 4, 1},
    {"IQ4_NL", 32, 18, 0, -1, 0, 0, 2, 4, 0, 0},
    {"MXFP4", 32, 17, -1, -1, 0, 1, 1, 4, 0, 0},
    {"Q2_K", 256, 84, 80, 82, 0, 16, 16, 2, 0, 0},
    {"Q3_K", 256, 110, 108, -1, 96, 12, 32, 2, 0, 1},
    {"Q4_K", 256, 144, 0, 2, 4, 12, 16, 4, 0, 0},
    {"Q5_K", 256, 176, 0, 2, 4, 12, 48, 4, 16, 1},
    {"Q6_K", 256, 210, 208, -1, 192, 16, 0, 4, 128, 2},
    {"IQ4_XS", 256, 136, 0, -1, 2, 6, 8, 4, 0, 0},
};

// The values of IQ4's codes, and of MXFP4's codes doubled.
inline constexpr int8_t kIq4Values[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_BLOCK_FORMAT_H_
