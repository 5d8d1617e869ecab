#ifndef SLUICE_KERNELS_VIEWS_H_
#define SLUICE_KERNELS_VIEWS_H_

#include <cstdint>

#include "kernels/weight_type.h"

namespace sluice::kernels {

// A view of a row-major F32 matrix. `stride` is in elements.
struct ConstMatrix {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  const float* row(int64_t r) const { return data + r * stride; }
};

struct Matrix {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  float* row(int64_t r) const { return data + r * stride; }
  operator ConstMatrix() const {  // NOLINT(google-explicit-constructor)
    return {data, rows, cols, stride};
  }
};

// Elements of a row that share one scale in MXFP4.
inline constexpr int64_t kMxfp4Group = 32;

// A linear layer's weight [out, in], row-major, packed rows, 64-byte aligned
// data.
//
// MXFP4, as safetensors checkpoints store it: `data` has half a byte per
// element, element 2j of a row in the low half of its byte j, 2j + 1 in the
// high half; a code is sign (bit 3) and magnitude {0, 0.5, 1, 1.5, 2, 3, 4,
// 6}. `scales` [out, in / 32] has a byte s per group: 2^(s - 127). Element =
// magnitude * scale, exact in F32 (s = 255: +inf times it). cols is a
// multiple of 32.
struct WeightView {
  const void* data = nullptr;
  WeightType type = WeightType::kF32;
  int64_t rows = 0;                 // out
  int64_t cols = 0;                 // in
  const uint8_t* scales = nullptr;  // MXFP4 alone
};

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_VIEWS_H_
