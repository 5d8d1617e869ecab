#ifndef SLUICE_KERNELS_CUDA_FAST_NORM_H_
#define SLUICE_KERNELS_CUDA_FAST_NORM_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/views.h"

namespace sluice::kernels::cuda {

// y[t] = x[r] * (1 / sqrt(mean of x[r]'s squares + eps)) * weight, r = rows[t]
// or, without rows, t; y may be x without rows. The device's
// memory; rows are there before the kernels that make x begin.
//
// The sum of squares has an order of its own, for a row's waits to be short:
// with n threads, of 128 for up to 2,048 columns, 256 for up to 4,096 and 512
// beyond, columns c with c / 4 % n alike are a chain of fused multiply-adds in
// rising c; lanes of a warp are added in a butterfly (16, 8, 4, 2, 1); warps w
// with w % 4 alike are added in rising w, then as (0 + 1) + (2 + 3).
void TileRmsNorm(Stream stream, ConstMatrix x, const int32_t* rows,
                 const float* weight, float eps, Matrix y);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_NORM_H_
