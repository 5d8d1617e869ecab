#ifndef SLUICE_KERNELS_WEIGHT_TYPE_H_
#define SLUICE_KERNELS_WEIGHT_TYPE_H_

#include <cstdint>

namespace sluice::kernels {

// How a weight's elements lie in memory: the index of every table about
// weights (common/tensor/weight_format.h). First the plain types, which
// matmul.h multiplies, then those of block_format.h in the order of
// BlockFormat, which block_matmul.h multiplies. No function may stand here:
// cpu/ops.h includes this header.
// clang-format off
enum class WeightType : uint8_t {
  kF32,
  kBf16,  // the upper half of F32, widened exactly
  kE4m3,      // runs of kE4m3Run codes behind an F32; see below
  kE4m3Wide,  // the same of kE4m3WideRun codes
  kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kIq4Nl, kMxfp4,
  kQ2K, kQ3K, kQ4K, kQ5K, kQ6K, kIq4Xs,
};
// clang-format on
inline constexpr int kNumPlainTypes = 4;
inline constexpr int kNumWeightTypes = 17;

// A run of both: an F32, then its codes, a byte each. The F32 is 2^8 times the
// codes' scale, since code * 2^-8 is an F16 whose bits are the code's. A
// weight is code * scale rounded once to F32; 0x7f and 0xff are no codes.
inline constexpr int kE4m3Run = 32;
inline constexpr int kE4m3RunBytes = 36;
inline constexpr int kE4m3WideRun = 128;
inline constexpr int kE4m3WideRunBytes = 132;

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_WEIGHT_TYPE_H_
