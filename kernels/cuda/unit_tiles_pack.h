#ifndef SLUICE_KERNELS_CUDA_UNIT_TILES_PACK_H_
#define SLUICE_KERNELS_CUDA_UNIT_TILES_PACK_H_

#include <cuda_device/device.h>

#include "kernels/views.h"

namespace sluice::kernels::cuda {

// PackTiles (weight_tiles.h) of types in units (unit_tiles.h).
void PackUnits(Stream stream, const WeightView& stored, void* tiles);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_UNIT_TILES_PACK_H_
