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

const QuantizedRows& QuantizedBuffer::Gather(const QuantizedBuffer& from,
                                             const int64_t* ids,
                                             int64_t count) {
  const QuantizedRows& all = from.rows_;
  Shape(count, all.cols, all.block);
  const int64_t blocks = all.cols / all.block;
  const int64_t sums = all.cols / 16;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = ids[i];
    std::copy_n(all.codes + id * all.cols, all.cols,
                rows_.codes + i * all.cols);
    std::copy_n(all.scales + id * blocks, blocks, rows_.scales + i * blocks);
    std::copy_n(all.sums + id * sums, sums, rows_.sums + i * sums);
    finite_[static_cast<size_t>(i)] = from.finite_[static_cast<size_t>(id)];
  }
  return rows_;
}

void QuantizedBuffer::FailRows(Matrix y) const {
  for (int64_t t = 0; t < y.rows; ++t) {
    if (finite_[static_cast<size_t>(t)] != 0) continue;
    std::fill_n(y.row(t), y.cols, std::numeric_limits<float>::quiet_NaN());
  }
}

}  // namespace sluice::kernels
