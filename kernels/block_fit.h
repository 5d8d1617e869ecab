#ifndef SLUICE_KERNELS_BLOCK_FIT_H_
#define SLUICE_KERNELS_BLOCK_FIT_H_

#include <cstdint>

#include "kernels/block_format.h"

namespace sluice::kernels {

// Quantises blocks * elements of x, which are finite, to stored blocks of any
// format. A search finds scales and minima whose blocks have a small squared
// error, each element's weighted. Weights are importance[k] *
// sqrt(mean + x[k]^2), where mean is the mean of the block's x^2. Without
// `importance` (null), weights are sqrt(mean) + |x[k]|. `importance` has an
// element for each of x, none below 0; a block whose importance is 0
// throughout is fitted as without.
//
// StoreBlocks is quicker and writes the bytes of the `gguf` package; FitBlocks
// has the smaller error, and formats that StoreBlocks lacks. Both give the same
// bytes on every CPU.
void FitBlocks(BlockFormat format, const float* x, const float* importance,
               int64_t blocks, uint8_t* stored);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_BLOCK_FIT_H_
