#ifndef SLUICE_KERNELS_CUDA_MATH_H_
#define SLUICE_KERNELS_CUDA_MATH_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// The bits of the CPU's functions (kernels/exp_log.h, kernels/matmul.h).

SLUICE_DEVICE float Infinity() { return BitCast<float>(0x7F800000u); }

// Exp of x in [-105, 89].
SLUICE_DEVICE float ExpInRange(float x) {
  const float t = Fma(x, 1.44269504f, 12582912.0f);
  const float n = t - 12582912.0f;
  float r = Fma(n, -0.693359375f, x);
  r = Fma(n, 2.12194440e-4f, r);
  float p = 1.0f / 5040;
  p = Fma(p, r, 1.0f / 720);
  p = Fma(p, r, 1.0f / 120);
  p = Fma(p, r, 1.0f / 24);
  p = Fma(p, r, 1.0f / 6);
  p = Fma(p, r, 0.5f);
  p = Fma(p, r, 1.0f);
  p = Fma(p, r, 1.0f);
  // Times 2^n in two factors.
  const uint32_t power = BitCast<uint32_t>(t) - 0x4B400000u;
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(power) >> 1);
  const uint32_t rest = power - half;
  return p * BitCast<float>((half + 127u) << 23) *
         BitCast<float>((rest + 127u) << 23);
}

SLUICE_DEVICE float Exp(float x) {
  const float p = x > 88.73f ? Infinity() : ExpInRange(x);
  return -104.0f > x ? 0.0f : p;
}

// The sum of the canonical dot product's sixteen lanes, one in each thread of
// half a warp. The whole warp calls.
SLUICE_DEVICE float SumLanes(Block& block, float lane) {
  for (int mask = 8; mask > 0; mask /= 2) {
    lane = lane + block.ShuffleXor(lane, mask);
  }
  return lane;
}

// Element i of packed elements of a plain type, as F32.
template <WeightType kType>
SLUICE_DEVICE float Element(const void* data, int64_t i) {
  if constexpr (kType == WeightType::kBf16) {
    const uint32_t bits = static_cast<const uint16_t*>(data)[i];
    return BitCast<float>(bits << 16);
  } else if constexpr (kType == WeightType::kE4m3) {
    const uint8_t* run =
        static_cast<const uint8_t*>(data) + i / kE4m3Run * kE4m3RunBytes;
    const uint32_t code = run[4 + i % kE4m3Run];
    const uint32_t rest = code & 0x7Fu;
    const float magnitude = rest < 8
                                ? static_cast<float>(rest) * 0x1p-17f
                                : BitCast<float>((rest << 20) + (112u << 23));
    return ((code & 0x80u) != 0 ? -magnitude : magnitude) *
           BitCast<float>(LoadWord(run));
  } else {
    return static_cast<const float*>(data)[i];
  }
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_MATH_H_
