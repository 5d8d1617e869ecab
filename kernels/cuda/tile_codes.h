#ifndef SLUICE_KERNELS_CUDA_TILE_CODES_H_
#define SLUICE_KERNELS_CUDA_TILE_CODES_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// A lane's codes of a run as BF16 numbers: of its first and its second step.
// `words`: as many as the lane has.
struct E4m3Codes {
  static constexpr WeightType kType = WeightType::kE4m3;
  // 2^-8 times the numbers, exactly: a code's bits at BF16's place are 2^-120
  // times it.
  static SLUICE_DEVICE TileA Step(const TileA& words, int step) {
    const uint32_t lower = words.words[2 * step];
    const uint32_t upper = words.words[2 * step + 1];
    return {{Even(lower), Even(upper), Even(lower >> 8), Even(upper >> 8)}};
  }
  static SLUICE_DEVICE uint32_t Even(uint32_t codes) {
    constexpr uint32_t kPower = (127u + 112u) << 7;  // 2^112
    return MultiplyPairs((codes & 0x00800080u) << 8 | (codes & 0x007F007Fu)
                                                          << 4,
                         kPower | kPower << 16);
  }
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
    return SubtractPairs(0x43004300u | (codes & 0x007F007Fu),
                         0x43004300u | (codes & 0x00800080u));
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
    return SubtractPairs(0x43004300u | (codes & 0x000F000Fu), 0x43084308u);
  }
};
struct Mxfp4Codes {
  static constexpr WeightType kType = WeightType::kMxfp4;
  static SLUICE_DEVICE TileA Step(const TileB& words, int step) {
    const uint32_t lower = words.words[0] >> (8 * step);
    const uint32_t upper = words.words[1] >> (8 * step);
    return {{Pair(lower), Pair(upper), Pair(lower >> 4), Pair(upper >> 4)}};
  }
  // A code's bits at BF16's place are 2^-126 times it.
  static SLUICE_DEVICE uint32_t Pair(uint32_t codes) {
    constexpr uint32_t kPower = (127u + 126u) << 7;
    return MultiplyPairs((codes & 0x00080008u) << 12 | (codes & 0x00070007u)
                                                           << 6,
                         kPower | kPower << 16);
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_CODES_H_
