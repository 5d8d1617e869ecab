#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_H_

#include <cuda_device/device.h>

#include "kernels/cuda/fast/products.h"
#include "kernels/cuda/fast/products_chains.h"
#include "kernels/cuda/fast/products_few_tokens.h"
#include "kernels/weight_type.h"

namespace sluice::kernels::cuda {

// A product with more than eight rows of one weight, or of a group of experts;
// `groups`: as many there may be, 0: a product of one weight. A pass rounds the
// rows to fragments of operand B in `memory`; blocks of 128 outputs by 32, 64
// or 128 rows bring both operands to shared memory some runs of 32 columns
// ahead. Where that gives too few blocks, several share an output's leaves:
// each stores an aligned node's sum, and a last pass joins these. The chains
// and the tree are products.h's, and so are the bits. False, and nothing
// is started, for few rows, without memory, for leaves that begin within a run,
// and for an end of its own where no pass joins.
bool StartGemm(Stream stream, const TileArgs& args, WeightType type,
               int64_t groups, const TileMemory& memory,
               const StreamEnd& end = {});

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_H_
