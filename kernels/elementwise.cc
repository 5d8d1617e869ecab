#include "kernels/elementwise.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {
namespace {

// Calls row(gate, up, to, n) for runs of elements of y.
template <typename Row>
void Gated(const Context& context, ConstMatrix x, Matrix y, const Row& row) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == 2 * y.cols);
  // An exponential is worth about 16 multiply-adds.
  const int64_t elements = y.rows * y.cols;
  const int tasks = cpu::NumTasks(context, elements * 16);
  ParallelFor(context, tasks, [&](int task) {
    // Tasks cut the elements, not the tokens: one token is the common case.
    const cpu::Range range = cpu::PartOf(elements, task, tasks, 64);
    int64_t at = range.begin;
    while (at < range.end) {
      const int64_t t = at / y.cols;
      const int64_t i = at % y.cols;
      const int64_t n = std::min(y.cols - i, range.end - at);
      row(x.row(t) + i, x.row(t) + y.cols + i, y.row(t) + i, n);
      at += n;
    }
  });
}

}  // namespace

void SiluMul(const Context& context, ConstMatrix x, Matrix y) {
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  Gated(context, x, y, ops.silu_multiply);
}

void ClampedSwiGlu(const Context& context, ConstMatrix x, float limit,
                   Matrix y) {
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  Gated(context, x, y,
        [&](const float* gate, const float* up, float* to, int64_t n) {
          ops.clamped_swiglu(gate, up, limit, to, n);
        });
}

void Add(const Context& context, ConstMatrix y, Matrix x) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  const int tasks = cpu::NumTasks(context, x.rows * x.cols);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range tokens = cpu::PartOf(x.rows, task, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      float* to = x.row(t);
      const float* from = y.row(t);
      for (int64_t i = 0; i < x.cols; ++i) to[i] += from[i];
    }
  });
}

void Embed(const Context& context, const WeightView& table, const int32_t* ids,
           Matrix y) {
  SLUICE_CHECK(y.cols == table.cols);
  const cpu::WeightOps& ops =
      cpu::OpsFor(context.isa).of_type[static_cast<int>(table.type)];
  const cpu::WeightRows rows = {.data = table.data, .cols = table.cols};
  for (int64_t t = 0; t < y.rows; ++t) {
    SLUICE_CHECK(ids[t] >= 0 && ids[t] < table.rows);
    ops.widen(rows, ids[t], y.row(t));
  }
}

}  // namespace sluice::kernels
