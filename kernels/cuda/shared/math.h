#ifndef SLUICE_KERNELS_CUDA_SHARED_MATH_H_
#define SLUICE_KERNELS_CUDA_SHARED_MATH_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// Whether a type's codes are E4M3.
constexpr bool IsE4m3(WeightType type) {
  return type == WeightType::kE4m3 || type == WeightType::kE4m3Wide;
}

// The bits of the CPU's functions (kernels/exp_log.h, kernels/matmul.h).

SLUICE_DEVICE float Infinity() { return BitCast<float>(0x7F800000u); }
SLUICE_DEVICE float NotANumber() { return BitCast<float>(0x7FC00000u); }

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

// kernels/exp_log.h's Log, of a positive finite x.
SLUICE_DEVICE double Log(double x) {
  int exponent = 0;
  if (x < 0x1p-1022) {
    x = x * 0x1p54;
    exponent = -54;
  }
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
  const uint64_t bits = BitCast<uint64_t>(x) - kSqrtHalf;
  exponent += static_cast<int>(static_cast<int64_t>(bits) >> 52);
  const auto m = BitCast<double>((bits & 0x000FFFFFFFFFFFFF) + kSqrtHalf);
  const double f = (m - 1.0) / (m + 1.0);
  const double f2 = f * f;
  double series = 1.0 / 21;
  for (int n = 19; n >= 3; n -= 2) series = series * f2 + 1.0 / n;
  const double log_m = 2.0 * f + 2.0 * f * f2 * series;
  const double e = exponent;
  return e * 0x1.62e42feep-1 + (e * 0x1.a39ef35793c76p-33 + log_m);
}

// The F16 number of sixteen bits, as block_pack.h's F16At.
SLUICE_DEVICE float HalfOfBits(uint32_t half) {
  const uint32_t magnitude = (half & 0x7FFFu) << 13;
  const float value = magnitude >= 0x0F800000u
                          ? BitCast<float>(magnitude | 0x7F800000u)
                          : BitCast<float>(magnitude) * 0x1p112f;
  return (half & 0x8000u) != 0 ? -value : value;
}
SLUICE_DEVICE float HalfAt(const uint8_t* from) {
  return HalfOfBits(from[0] | static_cast<uint32_t>(from[1]) << 8);
}

// The bits of the nearest F16 number, as block_store.h's F16Of.
SLUICE_DEVICE uint32_t HalfOf(float value) {
  const auto bits = BitCast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;
  if (magnitude < 0x38800000u) {
    const float units = BitCast<float>(magnitude) + 0.5f;
    return sign | (BitCast<uint32_t>(units) - 0x3F000000u);
  }
  const uint32_t odd = magnitude >> 13 & 1u;
  return sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13);
}

// A block of activations of eight bits (kernels/block_matmul.h) by its largest
// magnitude's bits.
struct EightBits {
  bool finite;
  float scale;
  float inverse;
  SLUICE_DEVICE int32_t Code(float x) const {
    if (inverse == 0.0f) return 0;
    return BitCast<int32_t>(x * inverse + 12582912.0f) - 0x4B400000;
  }
};
SLUICE_DEVICE EightBits EightBitsOf(int32_t largest) {
  const float most = BitCast<float>(largest);
  const bool finite = largest < 0x7F800000;
  if (!finite || most < 0x1p-100f) return {finite, 0.0f, 0.0f};
  return {true, most / 127.0f, 127.0f / most};
}
SLUICE_DEVICE int32_t MagnitudeOf(float x) {
  return BitCast<int32_t>(x) & 0x7FFFFFFF;
}
// The warp's largest.
SLUICE_DEVICE int32_t LargestOf(Block& block, int32_t value) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const int32_t other = block.ShuffleXor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// The sum of the canonical dot product's sixteen lanes, one in each thread of
// half a warp. The whole warp calls.
SLUICE_DEVICE float SumLanes(Block& block, float lane) {
  for (int mask = 8; mask > 0; mask /= 2) {
    lane = lane + block.ShuffleXor(lane, mask);
  }
  return lane;
}

// 2^-8 times a code of E4M3: see kE4m3Run in weight_type.h.
SLUICE_DEVICE float E4m3Value(uint32_t code) {
  const uint32_t rest = code & 0x7Fu;
  const float magnitude = rest < 8
                              ? static_cast<float>(rest) * 0x1p-17f
                              : BitCast<float>((rest << 20) + (112u << 23));
  return (code & 0x80u) != 0 ? -magnitude : magnitude;
}

// Element i of packed elements of a plain type, as F32.
template <WeightType kType>
SLUICE_DEVICE float Element(const void* data, int64_t i) {
  if constexpr (kType == WeightType::kBf16) {
    const uint32_t bits = static_cast<const uint16_t*>(data)[i];
    return BitCast<float>(bits << 16);
  } else if constexpr (kType == WeightType::kE4m3 ||
                       kType == WeightType::kE4m3Wide) {
    constexpr int kRun = kType == WeightType::kE4m3 ? kE4m3Run : kE4m3WideRun;
    const uint8_t* run =
        static_cast<const uint8_t*>(data) + i / kRun * (kRun + 4);
    return E4m3Value(run[4 + i % kRun]) * BitCast<float>(LoadWord(run));
  } else {
    return static_cast<const float*>(data)[i];
  }
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_MATH_H_
