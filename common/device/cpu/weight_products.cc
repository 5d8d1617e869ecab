#include "common/device/cpu/weight_products.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "kernels/block_pack.h"
#include "kernels/elementwise.h"
#include "kernels/wide_matmul.h"

namespace sluice {
namespace {

using kernels::ConstMatrix;
using kernels::Matrix;

bool IsPlain(const WeightPart& part) { return FormatOf(part.type).is_plain(); }

kernels::WeightView PlainView(const WeightPart& part, int64_t cols) {
  return {part.data.data(), part.type, part.rows, cols};
}

kernels::BlockWeight BlockView(const WeightPart& part, int64_t cols) {
  return {BlockFormatOf(part.type),
          static_cast<const uint8_t*>(part.data.data()), part.rows, cols};
}

}  // namespace

kernels::ExpertWeight ViewOf(const WeightPart& part, int64_t cols) {
  if (IsPlain(part)) return {PlainView(part, cols), {}};
  return {{}, BlockView(part, cols)};
}

kernels::ExpertWeight ViewOf(const Weight& weight) {
  SLUICE_CHECK(weight.parts.size() == 1);
  return ViewOf(weight.parts[0], weight.cols);
}

Buffer PackPart(HostWeight part) {
  const WeightFormat& format = FormatOf(part.type);
  if (format.is_plain()) return std::move(part.data);
  const kernels::BlockFormat blocks = BlockFormatOf(part.type);
  Buffer packed(
      static_cast<size_t>(kernels::PackedBytes(blocks, part.rows, part.cols)));
  kernels::PackRows({blocks, part.data.as<uint8_t>(), part.rows, part.cols,
                     static_cast<int64_t>(format.bytes(part.cols))},
                    packed.as<uint8_t>());
  return packed;
}

void WeightProducts::Multiply(ConstMatrix x, const Weight& w, const float* bias,
                              Matrix y) {
  int64_t begin = 0;
  int32_t block = 0;  // of the quantised activations
  for (const WeightPart& part : w.parts) {
    const int64_t rows = std::min(part.rows, y.cols - begin);
    if (rows <= 0) continue;
    const Matrix out = {y.data + begin, y.rows, rows, y.stride};
    const float* own_bias = bias == nullptr ? nullptr : bias + begin;
    begin += rows;
    if (IsPlain(part)) {
      kernels::WeightView view = PlainView(part, w.cols);
      view.rows = rows;
      kernels::MatMul(plain_, x, view, own_bias, out);
      continue;
    }
    kernels::BlockWeight view = BlockView(part, w.cols);
    view.rows = rows;
    if (dot_.activations == kernels::BlockActivations::kF32) {
      kernels::WideMatMul(dot_, x, view, own_bias, out);
      continue;
    }
    const int32_t needed = kernels::ActivationBlock(view.format);
    if (block != needed) quantized_.Quantize(dot_, x, needed);
    block = needed;
    kernels::BlockMatMul(dot_, quantized_.rows(), view, own_bias, out);
    quantized_.FailRows(out);
  }
}

void WeightProducts::MultiplySharded(ConstMatrix x, const Weight& w,
                                     const kernels::ShardedCols& shards,
                                     std::span<const Matrix> y) {
  SLUICE_CHECK(w.parts.size() == 1);
  const WeightPart& part = w.parts[0];
  if (IsPlain(part)) {
    return kernels::MatMulSharded(plain_, x, PlainView(part, w.cols), shards,
                                  y);
  }
  const kernels::BlockWeight view = BlockView(part, w.cols);
  if (dot_.activations == kernels::BlockActivations::kF32) {
    return kernels::WideMatMulSharded(dot_, x, view, shards, y);
  }
  kernels::BlockMatMulSharded(
      dot_, quantized_.Quantize(dot_, x, kernels::ActivationBlock(view.format)),
      view, shards, y);
  for (const Matrix& out : y) quantized_.FailRows(out);
}

void WeightProducts::Embed(const Weight& table, const int32_t* ids, Matrix y) {
  SLUICE_CHECK(table.parts.size() == 1);
  const WeightPart& part = table.parts[0];
  if (IsPlain(part)) {
    return kernels::Embed(plain_, PlainView(part, table.cols), ids, y);
  }
  for (int64_t t = 0; t < y.rows; ++t) {
    SLUICE_CHECK(ids[t] >= 0 && ids[t] < part.rows);
    kernels::WidenRow(BlockView(part, table.cols), ids[t], y.row(t));
  }
}

}  // namespace sluice
