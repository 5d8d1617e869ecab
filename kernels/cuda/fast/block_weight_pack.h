#ifndef SLUICE_KERNELS_CUDA_FAST_BLOCK_WEIGHT_PACK_H_
#define SLUICE_KERNELS_CUDA_FAST_BLOCK_WEIGHT_PACK_H_

#include <cuda_device/device.h>

#include "kernels/views.h"

namespace sluice::kernels::cuda {

// PackTiles (weight_layout.h) of types in units (block_weight_layout.h).
void PackUnits(Stream stream, const WeightView& stored, void* tiles);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_BLOCK_WEIGHT_PACK_H_
