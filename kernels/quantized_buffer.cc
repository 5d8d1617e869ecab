#include "kernels/quantized_buffer.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace sluice::kernels {
namespace {

template <typename T>
T* AtLeast(std::vector<T>& values, int64_t size) {
  if (values.size() < static_cast<size_t>(size)) {
    values.resize(static_cast<size_t>(size));
  }
  return values.data();
}

}  // namespace

void QuantizedBuffer::Shape(int64_t rows, int64_t cols, int32_t block) {
  rows_.codes = AtLeast(codes_, rows * cols);
  rows_.scales = AtLeast(scales_, rows * (cols / block));
  rows_.sums = AtLeast(sums_, rows * (cols / 16));
  AtLeast(finite_, rows);
  rows_.rows = rows;
  rows_.cols = cols;
  rows_.block = block;
}

const QuantizedRows& QuantizedBuffer::Quantize(const DotContext& context,
                                               ConstMatrix x, int32_t block) {
  Shape(x.rows, x.cols, block);
  static_assert(sizeof(bool) == 1);
  QuantizeRows(context, x, rows_, reinterpret_cast<bool*>(finite_.data()));
  return rows_;
}

void QuantizedBuffer::FailRows(Matrix y) const {
  for (int64_t t = 0; t < y.rows; ++t) {
    if (finite_[static_cast<size_t>(t)] != 0) continue;
    std::fill_n(y.row(t), y.cols, std::numeric_limits<float>::quiet_NaN());
  }
}

}  // namespace sluice::kernels
