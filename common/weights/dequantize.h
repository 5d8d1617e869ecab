#ifndef SLUICE_COMMON_WEIGHTS_DEQUANTIZE_H_
#define SLUICE_COMMON_WEIGHTS_DEQUANTIZE_H_

#include <cstdint>

#include "common/weights/dtype.h"

namespace sluice::weights {

// Widens `blocks` consecutive blocks of `dtype`, which must be IsReadable, at
// `in`, little-endian, to F32 at `out`: blocks * BlockSizeOf(dtype).elements
// values. Products and sums are rounded one by one, in the order of the `gguf`
// Python package, so the bits are equal to its own.
void DequantizeToF32(DType dtype, const uint8_t* in, int64_t blocks,
                     float* out);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_DEQUANTIZE_H_
