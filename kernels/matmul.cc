#include "kernels/matmul.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/ops.h"

namespace sluice::kernels {
namespace {

// Threads get runs of rows that begin at whole cache lines of any output.
constexpr int64_t kRowAlign = 16;

// Tokens whose packed activations stay in the second-level cache.
int64_t TokensPerBlock(int64_t padded, int64_t tile_columns) {
  constexpr int64_t kBytes = 384 * 1024;
  const int64_t tiles =
      kBytes / 4 / std::max<int64_t>(padded, 1) / tile_columns;
  return std::max<int64_t>(tiles, 1) * tile_columns;
}

// A thread's scratch: grows to what it needed once and stays, 64-byte aligned.
float* Scratch(int64_t size) {
  thread_local std::vector<float> floats;
  const auto needed = static_cast<size_t>(size + 16);
  if (floats.size() < needed) floats.resize(needed);
  auto address = reinterpret_cast<uintptr_t>(floats.data());
  return floats.data() + (64 - address % 64) % 64 / sizeof(float);
}

// The columns of a run of a plain type; 1: elements stand alone.
int64_t RunColumns(WeightType type) {
  switch (type) {
    case WeightType::kE4m3:
      return kE4m3Run;
    case WeightType::kE4m3Wide:
      return kE4m3WideRun;
    default:
      return 1;
  }
}

void CheckWeight(const WeightView& w) {
  SLUICE_CHECK(static_cast<int>(w.type) < kNumPlainTypes);
  SLUICE_CHECK(w.cols % RunColumns(w.type) == 0);
}

// Spreads `args`, complete but for weight, rows and scratch, over the team.
void Multiply(const Context& context, const WeightView& w,
              cpu::MatMulArgs args) {
  const int64_t rows = w.rows;
  args.w = {.data = w.data, .cols = w.cols};
  int64_t padded = 0;
  for (int32_t s = 0; s < args.num_shards; ++s) {
    padded += (args.bounds[s + 1] - args.bounds[s] + 15) / 16 * 16;
  }
  const cpu::Ops& ops = cpu::OpsFor(context.isa);
  const cpu::WeightOps& of_type = ops.of_type[static_cast<int>(w.type)];
  args.tokens_per_block = TokensPerBlock(padded, ops.tile_columns);
  const int64_t size =
      (std::min(args.tokens, args.tokens_per_block) * padded + 15) / 16 * 16;
  const int64_t wide = RunColumns(w.type) > 1 ? cpu::kMaxTileRows * w.cols : 0;
  const int tasks = cpu::NumTasks(context, args.tokens * rows * args.w.cols);
  ParallelFor(context, tasks, [&](int i) {
    const cpu::Range range = cpu::PartOf(rows, i, tasks, kRowAlign);
    if (range.begin >= range.end) return;
    cpu::MatMulArgs own = args;
    own.row_begin = range.begin;
    own.row_end = range.end;
    own.scratch = Scratch(size + wide);
    own.wide = own.scratch + size;
    of_type.matmul(own);
  });
}

}  // namespace

int64_t PlainBytes(WeightType type, int64_t elements) {
  switch (type) {
    case WeightType::kBf16:
      return elements * static_cast<int64_t>(sizeof(uint16_t));
    case WeightType::kE4m3:
      return elements / kE4m3Run * kE4m3RunBytes;
    case WeightType::kE4m3Wide:
      return elements / kE4m3WideRun * kE4m3WideRunBytes;
    default:
      return elements * static_cast<int64_t>(sizeof(float));
  }
}

void MatMul(const Context& context, ConstMatrix x, const WeightView& w,
            const float* bias, Matrix y) {
  CheckWeight(w);
  SLUICE_CHECK(x.cols == w.cols);
  SLUICE_CHECK(y.rows == x.rows && y.cols == w.rows);
  const int32_t bounds[2] = {0, static_cast<int32_t>(w.cols)};
  const cpu::LeafRange node = {.begin = 0, .end = 1};
  const cpu::MatMulOut out = {.y = y.data, .stride = y.stride};
  Multiply(context, w,
           {.x = x.data,
            .x_stride = x.stride,
            .tokens = x.rows,
            .bias = bias,
            .bounds = bounds,
            .num_shards = 1,
            .num_outputs = 1,
            .nodes = &node,
            .outputs = &out});
}

void MatMulSharded(const Context& context, ConstMatrix x, const WeightView& w,
                   const ShardedCols& shards, std::span<const Matrix> y) {
  const size_t num_shards = shards.bounds.size() - 1;
  CheckWeight(w);
  SLUICE_CHECK(x.cols == w.cols);
  SLUICE_CHECK(std::all_of(
      shards.bounds.begin(), shards.bounds.end(),
      [&](int32_t bound) { return bound % RunColumns(w.type) == 0; }));
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
  Multiply(context, w,
           {.x = x.data,
            .x_stride = x.stride,
            .tokens = x.rows,
            .bounds = shards.bounds.data(),
            .num_shards = static_cast<int32_t>(num_shards),
            .num_outputs = static_cast<int32_t>(y.size()),
            .nodes = nodes.data(),
            .outputs = outputs.data()});
}

}  // namespace sluice::kernels
