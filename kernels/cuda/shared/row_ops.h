#ifndef SLUICE_KERNELS_CUDA_SHARED_ROW_OPS_H_
#define SLUICE_KERNELS_CUDA_SHARED_ROW_OPS_H_

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
// Of Q8_0; RopeStoreKv stores the others.
void StoreKv(Stream stream, ConstMatrix k, ConstMatrix v, const int64_t* slots,
             const KvView& kv);
// What RopeStoreKv needs beside its rows; all tables are the device's.
struct RopeStore {
  int64_t num_heads = 0;  // of q
  RopeStyle style = RopeStyle::kHalfSplit;
  RopeTable table;
  const int32_t* positions = nullptr;  // [T]
  const int64_t* slots = nullptr;      // [T]
};
// Rope of the q and k heads of qkv [T, (N + 2K) D] in place, and StoreKv of its
// k and v, at once; `kv` holds F32 or BF16.
void RopeStoreKv(Stream stream, Matrix qkv, const RopeStore& rope,
                 const KvView& kv);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_ROW_OPS_H_
