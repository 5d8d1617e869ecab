#ifndef SLUICE_KERNELS_CUDA_ROW_OPS_H_
#define SLUICE_KERNELS_CUDA_ROW_OPS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/rope.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

// The functions of rms_norm.h, rope.h, elementwise.h and attention.h's StoreKv
// on a stream, with their contracts and their bits. All memory is the
// device's.

void RmsNorm(Stream stream, ConstMatrix x, const float* weight, float eps,
             Matrix y);
void RmsNormHeads(Stream stream, Matrix x, int64_t head_dim,
                  const float* weight, float eps);
void Rope(Stream stream, Matrix x, int64_t head_dim, RopeStyle style,
          const RopeTable& table, const int32_t* positions);
void SiluMul(Stream stream, ConstMatrix x, Matrix y);
void ClampedSwiGlu(Stream stream, ConstMatrix x, float limit, Matrix y);
void Add(Stream stream, ConstMatrix y, Matrix x);
// Of a table of a plain type.
void Embed(Stream stream, const WeightView& table, const int32_t* ids,
           Matrix y);
void StoreKv(Stream stream, ConstMatrix k, ConstMatrix v, const int64_t* slots,
             const KvView& kv);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_ROW_OPS_H_
