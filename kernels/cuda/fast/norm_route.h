#ifndef SLUICE_KERNELS_CUDA_FAST_NORM_ROUTE_H_
#define SLUICE_KERNELS_CUDA_FAST_NORM_ROUTE_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/shared/route.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

// A router before which a norm stands, with fast numerics. All memory is the
// device's.
struct NormRouteCall {
  ConstMatrix x;
  const float* norm_weight = nullptr;
  float eps = 0.0f;
  WeightView w;                 // [E, x.cols]
  const float* bias = nullptr;  // or null
  RouterRule rule;
  const float* correction = nullptr;  // or null
  Matrix normed;                      // not x: other blocks still read that
  Matrix logits;
  RoutedRows to;
  // Zero before the first call and after each one.
  uint32_t* arrived = nullptr;
};

// TileRmsNorm, MatMul and Route of one row in one launch: every block norms the
// row for itself and computes two logits, and the last one that has stored its
// own routes. The bits are those of the three. Returns false, and starts
// nothing, unless Unconfirmed::kNormRoute is asked for, the call has one row,
// its weights are F32, the router has no groups of experts, and the row fits
// into shared memory.
bool NormRoute(Stream stream, const NormRouteCall& call);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_NORM_ROUTE_H_
