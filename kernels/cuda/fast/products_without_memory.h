#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_WITHOUT_MEMORY_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_WITHOUT_MEMORY_H_

#include <cuda_device/device.h>

#include "kernels/cuda/fast/products_chains.h"
#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// A product of one weight with many rows, as those of a prompt: blocks of 128
// outputs and 32 rows that share activations in shared memory. The chains and
// the tree are products.h's, and so are the bits. False, and nothing is
// started, for few rows, for more leaves of an output than sixteen, and for
// leaves that begin within a step.
bool StartPanel(Stream stream, const TileArgs& args, WeightType type);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_WITHOUT_MEMORY_H_
