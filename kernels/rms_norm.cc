#include "kernels/rms_norm.h"

#include <cmath>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {

void RmsNorm(const Context& context, ConstMatrix x, const float* weight,
             float eps, Matrix y) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const int tasks = cpu::NumTasks(context, x.rows * x.cols);
  ParallelFor(context, tasks, [&](int i) {
    const cpu::Range tokens = cpu::PartOf(x.rows, i, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const float square = ops.dot(x.row(t), x.row(t), x.cols);
      const float mean = square / static_cast<float>(x.cols);
      const float scale = 1.0f / std::sqrt(mean + eps);
      ops.scale_multiply(x.row(t), scale, weight, y.row(t), x.cols);
    }
  });
}

}  // namespace sluice::kernels
