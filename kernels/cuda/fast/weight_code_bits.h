#ifndef SLUICE_KERNELS_CUDA_FAST_WEIGHT_CODE_BITS_H_
#define SLUICE_KERNELS_CUDA_FAST_WEIGHT_CODE_BITS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/shared/math.h"
#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// A word of E4M3's or kMxfp4's codes with its bits moved, in both halves
// alike, to where few instructions find BF16's (widen_codes.h). From bit 15
// down:
//   E4M3    s0 e1 e1 e1 s1 e0 e0 e0 e0 m0 m0 m0 e1 m1 m1 m1 of codes 0 and 1
//   kMxfp4  s0 s2 s3 s1 x2 x2 x2 x0 x0 x0 x1 x1 x1 x3 x3 x3 of codes 0 to 3:
//   the
//           sign, then the exponent and the mantissa as x
template <WeightType kType>
SLUICE_DEVICE uint32_t ArrangeCodes(uint32_t word) {
  if constexpr (IsE4m3(kType)) {
    return (word & 0x00800080u) << 8 | (word & 0x007F007Fu) << 4 |
           (word & 0x70007000u) | (word & 0x80008000u) >> 4 |
           (word & 0x0F000F00u) >> 8;
  } else if constexpr (kType == WeightType::kMxfp4) {
    return (word & 0x00080008u) << 12 | (word & 0x00070007u) << 6 |
           (word & 0x00800080u) << 5 | (word & 0x00700070u) >> 1 |
           (word & 0x08000800u) << 3 | (word & 0x07000700u) << 1 |
           (word & 0x80008000u) >> 2 | (word & 0x70007000u) >> 12;
  } else {
    return word;
  }
}
// The word whose ArrangeCodes is `word`.
template <WeightType kType>
SLUICE_DEVICE uint32_t PlainCodes(uint32_t word) {
  if constexpr (IsE4m3(kType)) {
    return (word >> 8 & 0x00800080u) | (word >> 4 & 0x007F007Fu) |
           (word & 0x70007000u) | (word << 4 & 0x80008000u) |
           (word << 8 & 0x0F000F00u);
  } else if constexpr (kType == WeightType::kMxfp4) {
    return (word >> 12 & 0x00080008u) | (word >> 6 & 0x00070007u) |
           (word >> 5 & 0x00800080u) | (word << 1 & 0x00700070u) |
           (word >> 3 & 0x08000800u) | (word >> 1 & 0x07000700u) |
           (word << 2 & 0x80008000u) | (word << 12 & 0x70007000u);
  } else {
    return word;
  }
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_WEIGHT_CODE_BITS_H_
