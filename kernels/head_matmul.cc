#include "kernels/head_matmul.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/block_pack.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/matmul.h"
#include "kernels/quantized_buffer.h"
#include "kernels/wide_matmul.h"

namespace sluice::kernels {
namespace {

// Rows [begin, end) of one head's weight, by the calling thread.
void MultiplyHeadRows(const Context& context, const DotContext& dot,
                      const HeadProducts& heads, int64_t head,
                      cpu::Range rows) {
  const ExpertWeight& weight = heads.weights[static_cast<size_t>(head)];
  const ConstMatrix x = {heads.x.data + head * heads.x_step, heads.x.rows,
                         heads.x.cols, heads.x.stride};
  const int64_t count = rows.end - rows.begin;
  const Matrix y = {heads.y.data + head * heads.y_step + rows.begin,
                    heads.y.rows, count, heads.y.stride};
  if (weight.is_plain()) {
    WeightView view = weight.plain;
    view.data = static_cast<const char*>(view.data) +
                PlainBytes(view.type, rows.begin * view.cols);
    view.rows = count;
    return MatMul({.executor = nullptr, .isa = context.isa}, x, view,
                  /*bias=*/nullptr, y);
  }
  thread_local QuantizedBuffer quantized;
  const DotContext alone = {.executor = nullptr, .ops = dot.ops};
  BlockWeight view = weight.blocks;
  view.packed += PackedBytes(view.format, rows.begin, view.cols);
  view.rows = count;
  if (dot.activations == BlockActivations::kF32) {
    return WideMatMul(alone, x, view, /*bias=*/nullptr, y);
  }
  BlockMatMul(alone, quantized.Quantize(alone, x, ActivationBlock(view.format)),
              view, /*bias=*/nullptr, y);
  quantized.FailRows(y);
}

}  // namespace

void HeadMatMul(const Context& context, const DotContext& dot,
                const HeadProducts& heads) {
  if (heads.weights.empty() || heads.x.rows == 0) return;
  const int64_t rows = heads.y.cols;
  for (const ExpertWeight& weight : heads.weights) {
    SLUICE_CHECK(weight.rows() == rows && weight.cols() == heads.x.cols);
  }
  SLUICE_CHECK(heads.x.rows == heads.y.rows);
  // Threads get runs of groups of rows, over all heads.
  const auto count = static_cast<int64_t>(heads.weights.size());
  const int64_t groups = (rows + kGroupRows - 1) / kGroupRows;
  const int tasks =
      cpu::NumTasks(context, heads.x.rows * count * rows * heads.x.cols);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range mine = cpu::PartOf(count * groups, task, tasks, 1);
    for (int64_t at = mine.begin; at < mine.end;) {
      const int64_t head = at / groups;
      const int64_t end = std::min(mine.end, (head + 1) * groups);
      MultiplyHeadRows(context, dot, heads, head,
                       {(at - head * groups) * kGroupRows,
                        std::min(rows, (end - head * groups) * kGroupRows)});
      at = end;
    }
  });
}

}  // namespace sluice::kernels
