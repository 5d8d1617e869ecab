#ifndef SLUICE_COMMON_WEIGHTS_QUANTIZE_H_
#define SLUICE_COMMON_WEIGHTS_QUANTIZE_H_

#include <cstdint>
#include <span>

#include "common/base/status.h"
#include "common/tensor/buffer.h"
#include "common/weights/dtype.h"
#include "kernels/context.h"

namespace sluice::weights {

// Whether Quantize makes elements of `dtype`: F32, BF16 and all blocks.
bool CanQuantize(DType dtype);

struct QuantizedElements {
  Buffer bytes;
  // Length of the difference from the elements over their length.
  double relative_error = 0;
};

struct QuantizeOptions {
  // Of each column, so that the elements are whole rows of so many; empty: none
  // (kernels/block_fit.h).
  std::span<const float> importance;
  kernels::Executor* executor = nullptr;  // null: the calling thread alone
};

// Stores `count` elements, whole blocks, as `dtype`. Blocks are those of
// kernels::StoreBlocks, if it makes them and there is no importance, else those
// of kernels::FitBlocks. INVALID_ARGUMENT for an element that is no number, if
// the blocks are fitted.
StatusOr<QuantizedElements> Quantize(DType dtype, const float* elements,
                                     int64_t count,
                                     const QuantizeOptions& options = {});

}  // namespace sluice::weights

#endif  // SLUICE_COMMON_WEIGHTS_QUANTIZE_H_
