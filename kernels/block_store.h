#ifndef SLUICE_KERNELS_BLOCK_STORE_H_
#define SLUICE_KERNELS_BLOCK_STORE_H_

#include <cstdint>

#include "kernels/block_format.h"

namespace sluice::kernels {

// The bits of the F16 nearest to value, even ones of two as near; infinity
// above the largest number, NaN stays NaN.
uint16_t F16Of(float value);

// Whether StoreBlocks makes blocks of `format`: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1.
bool CanStore(BlockFormat format);

// Quantises blocks * 32 elements of x to stored blocks, with the bytes of the
// `gguf` Python package. The scale of a symmetric format is the element of the
// largest magnitude over the code at its end, that of the others the range
// over the number of steps; codes are rounded half up, Q8_0's half away from
// zero; scales and minima are F16, rounded to nearest even. An element or a
// scale that is no number, in F16, makes a block of NaN or infinities.
void StoreBlocks(BlockFormat format, const float* x, int64_t blocks,
                 uint8_t* stored);

// A stored MXFP4 block from a group as safetensors checkpoints have it: 16
// bytes of codes, element 2j in the low half of byte j, and a scale byte.
void StoreMxfp4Group(const uint8_t* codes, uint8_t scale, uint8_t* block);

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_BLOCK_STORE_H_
