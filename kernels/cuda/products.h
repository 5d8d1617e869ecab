#ifndef SLUICE_KERNELS_CUDA_PRODUCTS_H_
#define SLUICE_KERNELS_CUDA_PRODUCTS_H_

#include <cuda_device/device.h>

#include <span>

#include "kernels/matmul.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

// The products of matmul.h on a stream, with their
// contracts and their bits, from the same bytes. Weights, activations and
// outputs are the device's; shards and lists of outputs are the host's.

void MatMul(Stream stream, ConstMatrix x, const WeightView& w,
            const float* bias, Matrix y);
void MatMulSharded(Stream stream, ConstMatrix x, const WeightView& w,
                   const ShardedCols& shards, std::span<const Matrix> y);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_PRODUCTS_H_
