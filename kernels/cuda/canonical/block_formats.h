#ifndef SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_FORMATS_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_FORMATS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/block_pack.h"
#include "kernels/cuda/shared/math.h"

#define SLUICE_INLINE SLUICE_DEVICE

// The CPU's meaning of packed blocks, one row per thread.
namespace sluice::kernels::cuda::blocks {

//
#include "kernels/cuda/canonical/block_vec_device.inc"
//
#include "kernels/cpu/block_formats_body.inc"

}  // namespace sluice::kernels::cuda::blocks

#undef SLUICE_INLINE

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_FORMATS_H_
