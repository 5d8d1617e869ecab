#include "kernels/wide_matmul.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/wide_ops.h"

namespace sluice::kernels {
namespace {

// A thread's scratch: grows to what it needed once and stays, 64-byte aligned.
float* WideScratch(int32_t num_shards) {
  thread_local std::vector<float> floats;
  const auto needed = static_cast<size_t>(
      cpu::kWideScratch + num_shards * cpu::kWideShardScratch + 16);
  if (floats.size() < needed) floats.resize(needed);
  auto address = reinterpret_cast<uintptr_t>(floats.data());
  return floats.data() + (64 - address % 64) % 64 / sizeof(float);
}

// Spreads `args`, complete but for weight, rows and scratch, over the team.
void MultiplyRows(const DotContext& dot, ConstMatrix x, const BlockWeight& w,
                  cpu::WideProductArgs args) {
  const BlockLayout& layout = LayoutOf(w.format);
  SLUICE_CHECK(x.cols == w.cols && w.cols % layout.elements == 0);
  args.x = x.data;
  args.x_stride = x.stride;
  args.tokens = x.rows;
  args.packed = w.packed;
  args.blocks = w.cols / layout.elements;
  const auto product = dot.ops->wide->of_format[static_cast<int>(w.format)];
  const Context context = {.executor = dot.executor};
  const int tasks = cpu::NumTasks(context, args.tokens * w.rows * w.cols);
  ParallelFor(context, tasks, [&](int i) {
    const cpu::Range range = cpu::PartOf(w.rows, i, tasks, kGroupRows);
    if (range.begin >= range.end) return;
    cpu::WideProductArgs own = args;
    own.row_begin = range.begin;
    own.row_end = range.end;
    own.scratch = WideScratch(args.num_shards);
    product(own);
  });
}

}  // namespace

void WideMatMul(const DotContext& context, ConstMatrix x, const BlockWeight& w,
                const float* bias, Matrix y) {
  SLUICE_CHECK(y.rows == x.rows && y.cols == w.rows);
  const int64_t blocks = w.cols / LayoutOf(w.format).elements;
  const int32_t bounds[2] = {0, static_cast<int32_t>(blocks)};
  const cpu::LeafRange node = {.begin = 0, .end = 1};
  const cpu::MatMulOut out = {.y = y.data, .stride = y.stride};
  MultiplyRows(context, x, w,
               {.bias = bias,
                .bounds = bounds,
                .num_shards = 1,
                .num_outputs = 1,
                .nodes = &node,
                .outputs = &out});
}

void WideMatMulSharded(const DotContext& context, ConstMatrix x,
                       const BlockWeight& w, const ShardedCols& shards,
                       std::span<const Matrix> y) {
  const int32_t elements = LayoutOf(w.format).elements;
  const size_t num_shards = shards.bounds.size() - 1;
  SLUICE_CHECK(!shards.bounds.empty() && num_shards <= cpu::kMaxShards);
  SLUICE_CHECK(shards.bounds.front() == 0 && shards.bounds.back() == w.cols);
  SLUICE_CHECK(std::is_sorted(shards.bounds.begin(), shards.bounds.end()));
  SLUICE_CHECK(shards.nodes.size() == y.size() && y.size() <= num_shards);
  std::array<int32_t, cpu::kMaxShards + 1> bounds;
  for (size_t s = 0; s <= num_shards; ++s) {
    SLUICE_CHECK(shards.bounds[s] % elements == 0);
    bounds[s] = shards.bounds[s] / elements;
  }
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
  MultiplyRows(context, x, w,
               {.bounds = bounds.data(),
                .num_shards = static_cast<int32_t>(num_shards),
                .num_outputs = static_cast<int32_t>(y.size()),
                .nodes = nodes.data(),
                .outputs = outputs.data()});
}

}  // namespace sluice::kernels
