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

// A linear layer's weight [out, in] of a plain type, row-major, packed rows,
// 64-byte aligned data.
struct WeightView {
  const void* data = nullptr;
  WeightType type = WeightType::kF32;
  int64_t rows = 0;  // out
  int64_t cols = 0;  // in
};

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_VIEWS_H_
