#ifndef SLUICE_KERNELS_CUDA_SHARED_GATED_ACTIVATION_H_
#define SLUICE_KERNELS_CUDA_SHARED_GATED_ACTIVATION_H_

#include <cuda_device/device.h>

#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// An element of elementwise.h's SiluMul or ClampedSwiGlu, bit for bit.

SLUICE_DEVICE float SiluGate(float g, float u) {
  return g / (1.0f + Exp(-g)) * u;
}
SLUICE_DEVICE float ClampedGate(float g, float u, float limit) {
  g = g > limit ? limit : g;
  u = u > limit ? limit : u;
  u = -limit > u ? -limit : u;
  return g / (1.0f + Exp(-1.702f * g)) * (u + 1.0f);
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_GATED_ACTIVATION_H_
