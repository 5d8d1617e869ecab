#ifndef SLUICE_COMMON_WEIGHTS_WIDEN_BLOCKS_H_
#define SLUICE_COMMON_WEIGHTS_WIDEN_BLOCKS_H_

#include <cstdint>

#include "common/weights/dtype.h"

namespace sluice::weights {

// Whether `dtype` is one of GGUF's formats of blocks that no kernel multiplies:
// IQ1 to IQ3, TQ, NVFP4.
bool IsRareBlocks(DType dtype);

// Widens `blocks` blocks of such a type at `in` to `out`, exactly as the
// format's reference does in F32.
void WidenRareBlocks(DType dtype, const uint8_t* in, int64_t blocks,
                     float* out);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_WIDEN_BLOCKS_H_
