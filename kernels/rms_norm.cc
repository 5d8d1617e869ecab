#include "kernels/rms_norm.h"

#include <cmath>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {
namespace {

void NormRow(const cpu::Ops& ops, const float* x, int64_t cols,
             const float* weight, float eps, float* y) {
  const float square = ops.dot(x, x, cols);
  const float mean = square / static_cast<float>(cols);
  const float scale = 1.0f / std::sqrt(mean + eps);
  ops.scale_multiply(x, scale, weight, y, cols);
}

}  // namespace

void RmsNorm(const Context& context, ConstMatrix x, const float* weight,
             float eps, Matrix y) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const int tasks = cpu::NumTasks(context, x.rows * x.cols);
  ParallelFor(context, tasks, [&](int i) {
    const cpu::Range tokens = cpu::PartOf(x.rows, i, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      NormRow(ops, x.row(t), x.cols, weight, eps, y.row(t));
    }
  });
}

void RmsNormHeads(const Context& context, Matrix x, int64_t head_dim,
                  const float* weight, float eps) {
  SLUICE_CHECK(head_dim > 0 && x.cols % head_dim == 0);
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const int tasks = cpu::NumTasks(context, x.rows * x.cols);
  ParallelFor(context, tasks, [&](int i) {
    const cpu::Range tokens = cpu::PartOf(x.rows, i, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      for (int64_t at = 0; at < x.cols; at += head_dim) {
        float* head = x.row(t) + at;
        NormRow(ops, head, head_dim, weight, eps, head);
      }
    }
  });
}

}  // namespace sluice::kernels
