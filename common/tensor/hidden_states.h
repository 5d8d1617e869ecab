#ifndef SLUICE_COMMON_TENSOR_HIDDEN_STATES_H_
#define SLUICE_COMMON_TENSOR_HIDDEN_STATES_H_

#include <cstdint>
#include <utility>

#include "common/tensor/buffer.h"
#include "common/tensor/buffer_pool.h"

namespace sluice {

// The residual between layers, [T, H] F32 row-major, unrounded, which travels
// from one stage to the next. T tokens in the order of the plan's chunks.
struct HiddenStates {
  int32_t rows = 0;  // T
  int32_t cols = 0;  // H
  Buffer data;

  HiddenStates() = default;
  HiddenStates(int32_t num_rows, int32_t num_cols)
      : rows(num_rows),
        cols(num_cols),
        data(MessageBuffer(sizeof(float) * static_cast<size_t>(num_rows) *
                           static_cast<size_t>(num_cols))) {}
  HiddenStates(HiddenStates&& other) noexcept
      : rows(std::exchange(other.rows, 0)),
        cols(std::exchange(other.cols, 0)),
        data(std::move(other.data)) {}
  HiddenStates& operator=(HiddenStates&& other) noexcept {
    rows = std::exchange(other.rows, 0);
    cols = std::exchange(other.cols, 0);
    data = std::move(other.data);
    return *this;
  }
  bool empty() const { return rows == 0; }
  float* values() { return data.as<float>(); }
  const float* values() const { return data.as<float>(); }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TENSOR_HIDDEN_STATES_H_
