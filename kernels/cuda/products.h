#ifndef SLUICE_KERNELS_CUDA_PRODUCTS_H_
#define SLUICE_KERNELS_CUDA_PRODUCTS_H_

#include <cuda_device/device.h>

#include <span>

#include "kernels/block_matmul.h"
#include "kernels/matmul.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

// The products of matmul.h and block_matmul.h on a stream, with their
// contracts and their bits, from the same bytes. Weights, activations and
// outputs are the device's; shards and lists of outputs are the host's.

void MatMul(Stream stream, ConstMatrix x, const WeightView& w,
            const float* bias, Matrix y);
void MatMulSharded(Stream stream, ConstMatrix x, const WeightView& w,
                   const ShardedCols& shards, std::span<const Matrix> y);

// finite [rows] of the device.
void QuantizeRows(Stream stream, ConstMatrix x, const QuantizedRows& to,
                  bool* finite);
void BlockMatMul(Stream stream, const QuantizedRows& x, const BlockWeight& w,
                 const float* bias, Matrix y);
void BlockMatMulSharded(Stream stream, const QuantizedRows& x,
                        const BlockWeight& w, const ShardedCols& shards,
                        std::span<const Matrix> y);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_PRODUCTS_H_
