#ifndef SLUICE_COMMON_WEIGHTS_QUANTIZE_H_
#define SLUICE_COMMON_WEIGHTS_QUANTIZE_H_

#include <cstdint>

#include "common/tensor/buffer.h"
#include "common/weights/dtype.h"

namespace sluice::weights {

// Whether Quantize makes elements of `dtype`: F32, BF16, and the blocks of
// kernels::CanStore.
bool CanQuantize(DType dtype);

struct QuantizedElements {
  Buffer bytes;
  // Length of the difference from the elements over their length.
  double relative_error = 0;
};

// Stores `count` elements, whole blocks, as `dtype`.
QuantizedElements Quantize(DType dtype, const float* elements, int64_t count);

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_QUANTIZE_H_
