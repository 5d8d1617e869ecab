#include "kernels/rms_norm.h"

#include <cmath>
#include <vector>

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

void LayerNorm(const Context& context, ConstMatrix x, const float* weight,
               const float* bias, float eps, Matrix y) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const std::vector<float> ones(static_cast<size_t>(x.cols), 1.0f);
  const auto cols = static_cast<float>(x.cols);
  const int tasks = cpu::NumTasks(context, x.rows * x.cols);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range tokens = cpu::PartOf(x.rows, task, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const float* from = x.row(t);
      float* to = y.row(t);
      const float mean = ops.dot(from, ones.data(), x.cols) / cols;
      for (int64_t i = 0; i < x.cols; ++i) to[i] = from[i] - mean;
      NormRow(ops, to, x.cols, weight, eps, to);
      if (bias != nullptr) ops.add(to, bias, x.cols);
    }
  });
}

void HeadSquares(const Context& context, ConstMatrix x, const HeadRuns& runs,
                 std::span<const TreeNode> nodes,
                 std::span<const Matrix> parts) {
  SLUICE_CHECK(nodes.size() == parts.size() && runs.q.size() == runs.k.size());
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const auto sum = [&](const float* row, const HeadRuns::Run& run) {
    float squares = 0.0f;
    for (int64_t at = run.begin; at < run.end; at += runs.head_dim) {
      squares += ops.dot(row + at, row + at, runs.head_dim);
    }
    return squares;
  };
  const auto join = [](float left, float right) { return left + right; };
  const int tasks = cpu::NumTasks(context, x.rows * x.cols);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range tokens = cpu::PartOf(x.rows, task, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      for (size_t i = 0; i < nodes.size(); ++i) {
        const auto of = [&](const std::vector<HeadRuns::Run>& shards) {
          return ReduceTree(
              nodes[i].begin, nodes[i].end,
              [&](int32_t shard) { return sum(x.row(t), shards[shard]); },
              join);
        };
        parts[i].row(t)[0] = of(runs.q);
        parts[i].row(t)[1] = of(runs.k);
      }
    }
  });
}

void RmsNormBySquares(const Context& context, Matrix x,
                      const RowSquares& squares, const float* weight,
                      float eps) {
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const int tasks = cpu::NumTasks(context, x.rows * x.cols);
  ParallelFor(context, tasks, [&](int task) {
    const cpu::Range tokens = cpu::PartOf(x.rows, task, tasks, 1);
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const float mean =
          squares.data[t * squares.stride] / static_cast<float>(squares.count);
      const float scale = 1.0f / std::sqrt(mean + eps);
      ops.scale_multiply(x.row(t), scale, weight, x.row(t), x.cols);
    }
  });
}

}  // namespace sluice::kernels
