#ifndef SLUICE_KERNELS_WEIGHT_TYPE_H_
#define SLUICE_KERNELS_WEIGHT_TYPE_H_

#include <cstdint>

namespace sluice::kernels {

// How a weight's elements lie in memory: the index of every table about
// weights (cpu/ops.h, common/tensor/weight_format.h). No function may stand
// here: cpu/ops.h includes this header.
enum class WeightType : uint8_t {
  kF32,
  kBf16,   // the upper half of F32, widened exactly
  kMxfp4,  // see views.h
};
inline constexpr int kNumWeightTypes = 3;

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_WEIGHT_TYPE_H_
