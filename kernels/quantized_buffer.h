#ifndef SLUICE_KERNELS_QUANTIZED_BUFFER_H_
#define SLUICE_KERNELS_QUANTIZED_BUFFER_H_

#include <cstdint>
#include <vector>

#include "kernels/block_matmul.h"
#include "kernels/views.h"

namespace sluice::kernels {

// Quantised activations in memory of their own, which grows to the most that
// was needed and stays. Used by one thread.
class QuantizedBuffer {
 public:
  // x [T, cols] in blocks of `block`. The result is valid until the next call.
  const QuantizedRows& Quantize(const DotContext& context, ConstMatrix x,
                                int32_t block);
  // NaN to every row of y whose activations have a NaN or an infinity: what is
  // computed with them fails, and no other row does.
  void FailRows(Matrix y) const;
  // False where row t of x has a NaN or an infinity.
  bool finite(int64_t t) const { return finite_[static_cast<size_t>(t)] != 0; }
  const QuantizedRows& rows() const { return rows_; }

 private:
  void Shape(int64_t rows, int64_t cols, int32_t block);

  QuantizedRows rows_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
  std::vector<int16_t> sums_;
  std::vector<uint8_t> finite_;  // a bool per row
};

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_QUANTIZED_BUFFER_H_
