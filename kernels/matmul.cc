#include "kernels/matmul.h"

#include <algorithm>
#include <array>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/ops.h"

namespace sluice::kernels {
namespace {

// Threads get whole groups of rows, so that a group's tile is seldom cut.
constexpr int64_t kRowAlign = 16;

cpu::MatMulArgs ArgsOf(ConstMatrix x, const WeightView& w, cpu::Range rows) {
  return {.x = x.data,
          .x_stride = x.stride,
          .tokens = x.rows,
          .w = w.data,
          .bf16 = w.type == WeightType::kBf16,
          .cols = w.cols,
          .row_begin = rows.begin,
          .row_end = rows.end};
}

template <typename Body>
void ForRowRanges(const Context& context, ConstMatrix x, const WeightView& w,
                  const Body& body) {
  const int tasks = cpu::NumTasks(context, x.rows * w.rows * w.cols);
  ParallelFor(context, tasks, [&](int i) {
    const cpu::Range rows = cpu::PartOf(w.rows, i, tasks, kRowAlign);
    if (rows.begin < rows.end) body(ArgsOf(x, w, rows));
  });
}

}  // namespace

void MatMul(const Context& context, ConstMatrix x, const WeightView& w,
            const float* bias, Matrix y) {
  SLUICE_CHECK(x.cols == w.cols);
  SLUICE_CHECK(y.rows == x.rows && y.cols == w.rows);
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  ForRowRanges(context, x, w, [&](const cpu::MatMulArgs& args) {
    ops.matmul(args, bias, {.y = y.data, .stride = y.stride});
  });
}

void MatMulSharded(const Context& context, ConstMatrix x, const WeightView& w,
                   const ShardedCols& shards, std::span<const Matrix> y) {
  const size_t num_shards = shards.bounds.size() - 1;
  SLUICE_CHECK(x.cols == w.cols);
  SLUICE_CHECK(!shards.bounds.empty() && num_shards <= cpu::kMaxShards);
  SLUICE_CHECK(shards.bounds.front() == 0 && shards.bounds.back() == w.cols);
  SLUICE_CHECK(std::is_sorted(shards.bounds.begin(), shards.bounds.end()));
  SLUICE_CHECK(shards.nodes.size() == y.size() && y.size() <= num_shards);
  std::array<cpu::LeafRange, cpu::kMaxShards> nodes;
  std::array<cpu::MatMulOut, cpu::kMaxShards> outputs;
  int32_t covered = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const TreeNode node = shards.nodes[i];
    SLUICE_CHECK(covered <= node.begin && node.begin < node.end);
    covered = node.end;
    SLUICE_CHECK(y[i].rows == x.rows && y[i].cols == w.rows);
    nodes[i] = {.begin = node.begin, .end = node.end};
    outputs[i] = {.y = y[i].data, .stride = y[i].stride};
  }
  SLUICE_CHECK(covered <= static_cast<int32_t>(num_shards));
  const cpu::ShardArgs shard_args = {
      .bounds = shards.bounds.data(),
      .num_shards = static_cast<int32_t>(num_shards),
      .num_outputs = static_cast<int32_t>(y.size()),
      .nodes = nodes.data(),
      .outputs = outputs.data()};
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  ForRowRanges(context, x, w, [&](const cpu::MatMulArgs& args) {
    ops.matmul_sharded(args, shard_args);
  });
}

}  // namespace sluice::kernels
