#ifndef SLUICE_KERNELS_CUDA_FAST_WIDEN_CODES_H_
#define SLUICE_KERNELS_CUDA_FAST_WIDEN_CODES_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// A lane's codes of a run as BF16 numbers: of its first and its second step.
// `words`: as many as the lane has, with bits where ArrangeCodes of
// weight_layout.h puts them.
struct E4m3Codes {
  static constexpr WeightType kType = WeightType::kE4m3;
  // 2^-8 times the numbers, exactly: a code's bits at BF16's place are 2^-120
  // times it.
  static SLUICE_DEVICE TileA Step(const TileA& words, int step) {
    const uint32_t lower = words.words[2 * step];
    const uint32_t upper = words.words[2 * step + 1];
    return {{First(lower), First(upper), Second(lower), Second(upper)}};
  }
  static SLUICE_DEVICE uint32_t First(uint32_t codes) {
    return Times(codes & 0x87F087F0u);
  }
  static SLUICE_DEVICE uint32_t Second(uint32_t codes) {
    return Times((codes << 4 & 0x80F080F0u) | (codes >> 4 & 0x07000700u));
  }
  static SLUICE_DEVICE uint32_t Times(uint32_t pair) {
    constexpr uint32_t kPower = (127u + 112u) << 7;  // 2^112
    return MultiplyPairs(pair, kPower | kPower << 16);
  }
};
// The same codes, four runs of which have the same scales.
struct WideE4m3Codes : E4m3Codes {
  static constexpr WeightType kType = WeightType::kE4m3Wide;
};
struct Q8Codes {
  static constexpr WeightType kType = WeightType::kQ8_0;
  static SLUICE_DEVICE TileA Step(const TileA& words, int step) {
    const uint32_t lower = words.words[2 * step];
    const uint32_t upper = words.words[2 * step + 1];
    return {{Even(lower), Even(upper), Even(lower >> 8), Even(upper >> 8)}};
  }
  // Seven bits from 128 on, less 128, or 256 for a sign.
  static SLUICE_DEVICE uint32_t Even(uint32_t codes) {
    return SubtractPairs(WithBits<0x007F007Fu>(0x43004300u, codes),
                         WithBits<0x00800080u>(0x43004300u, codes));
  }
};
struct Q4Codes {
  static constexpr WeightType kType = WeightType::kQ4_0;
  static SLUICE_DEVICE TileA Step(const TileB& words, int step) {
    const uint32_t lower = words.words[0] >> (8 * step);
    const uint32_t upper = words.words[1] >> (8 * step);
    return {{Pair(lower), Pair(upper), Pair(lower >> 4), Pair(upper >> 4)}};
  }
  static SLUICE_DEVICE uint32_t Pair(uint32_t codes) {
    return SubtractPairs(WithBits<0x000F000Fu>(0x43004300u, codes),
                         0x43084308u);
  }
};
struct Mxfp4Codes {
  static constexpr WeightType kType = WeightType::kMxfp4;
  static SLUICE_DEVICE TileA Step(const TileB& words, int step) {
    const uint32_t lower = words.words[0];
    const uint32_t upper = words.words[1];
    if (step == 0) {
      return {{Times(lower & kCode), Times(upper & kCode),
               Times(lower << 3 & kCode), Times(upper << 3 & kCode)}};
    }
    return {{Times((lower >> 3 & kValue) | (lower << 1 & kSign)),
             Times((upper >> 3 & kValue) | (upper << 1 & kSign)),
             Times((lower << 6 & kValue) | (lower << 2 & kSign)),
             Times((upper << 6 & kValue) | (upper << 2 & kSign))}};
  }
  static constexpr uint32_t kSign = 0x80008000u;
  static constexpr uint32_t kValue = 0x01C001C0u;
  static constexpr uint32_t kCode = kSign | kValue;
  // A code's bits at BF16's place are 2^-126 times it.
  static SLUICE_DEVICE uint32_t Times(uint32_t pair) {
    constexpr uint32_t kPower = (127u + 126u) << 7;
    return MultiplyPairs(pair, kPower | kPower << 16);
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_WIDEN_CODES_H_
