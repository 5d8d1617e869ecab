#ifndef SLUICE_COMMON_TENSOR_HOST_WEIGHT_H_
#define SLUICE_COMMON_TENSOR_HOST_WEIGHT_H_

#include <cstdint>

#include "common/tensor/buffer.h"
#include "common/tensor/buffer_pool.h"
#include "common/tensor/weight_format.h"

namespace sluice {

// A weight [rows, cols] from a file: row-major, rows packed, blocks in their
// stored form (kernels/block_format.h).
struct HostWeight {
  HostWeight() = default;
  // With uninitialised elements.
  HostWeight(kernels::WeightType of_type, int64_t num_rows, int64_t num_cols)
      : type(of_type),
        rows(num_rows),
        cols(num_cols),
        data(FormatOf(of_type).bytes(num_rows * num_cols)) {}
  // The same in memory of `pool`; null: as above.
  HostWeight(kernels::WeightType of_type, int64_t num_rows, int64_t num_cols,
             BufferPool* pool)
      : type(of_type), rows(num_rows), cols(num_cols) {
    const size_t bytes = FormatOf(of_type).bytes(num_rows * num_cols);
    data = pool != nullptr ? pool->Take(bytes) : Buffer(bytes);
  }

  kernels::WeightType type = kernels::WeightType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  Buffer data;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TENSOR_HOST_WEIGHT_H_
