#include "kernels/block_matmul.h"

#include <algorithm>
#include <array>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {
namespace {

// Threads get whole pairs of groups: what a tile of a batch takes.
constexpr int64_t kRowsAlign = 2 * kGroupRows;

// Tokens whose packed activations stay in the second-level cache.
int64_t TokensAtOnce(int64_t words, int64_t tile_columns) {
  constexpr int64_t kBytes = 512 * 1024;
  const int64_t tiles = kBytes / 4 / std::max<int64_t>(words, 1) / tile_columns;
  return std::max<int64_t>(tiles, 1) * tile_columns;
}

// A thread's scratch: grows to what it needed once and stays, 64-byte aligned.
uint32_t* ColumnScratch(int64_t words) {
  thread_local std::vector<uint32_t> scratch;
  const auto needed = static_cast<size_t>(words + 16);
  if (scratch.size() < needed) scratch.resize(needed);
  auto address = reinterpret_cast<uintptr_t>(scratch.data());
  return scratch.data() + (64 - address % 64) % 64 / sizeof(uint32_t);
}

// Spreads `args`, complete but for weight, rows and scratch, over the team.
void MultiplyRows(const DotContext& dot, const QuantizedRows& x,
                  const BlockWeight& w, cpu::BlockProductArgs args) {
  const BlockLayout& layout = LayoutOf(w.format);
  SLUICE_CHECK(x.cols == w.cols && x.block == layout.elements);
  args.codes = x.codes;
  args.scales = x.scales;
  args.sums = x.sums;
  args.tokens = x.rows;
  args.packed = w.packed;
  args.blocks = w.cols / layout.elements;
  const cpu::BlockOps& ops = *dot.ops;
  const Context context = {.executor = dot.executor};
  const cpu::BlockKernel& kernel = ops.of_format[static_cast<int>(w.format)];
  const int64_t words = args.blocks * kernel.column_words;
  args.tokens_per_block = TokensAtOnce(words, ops.tile_columns);
  const int64_t size = std::min(args.tokens, args.tokens_per_block) * words;
  // A multiply-add of bytes costs a quarter of one of floats.
  const int tasks = cpu::NumTasks(context, args.tokens * w.rows * w.cols / 4);
  ParallelFor(context, tasks, [&](int i) {
    const cpu::Range range = cpu::PartOf(w.rows, i, tasks, kRowsAlign);
    if (range.begin >= range.end) return;
    cpu::BlockProductArgs own = args;
    own.row_begin = range.begin;
    own.row_end = range.end;
    own.scratch = ColumnScratch(size);
    kernel.product(own);
  });
}

}  // namespace

const char* ToString(DotIsa isa) {
  switch (isa) {
    case DotIsa::kPortable:
      return "portable";
    case DotIsa::kAvx2:
      return "avx2";
    case DotIsa::kAvxVnni:
      return "avxvnni";
    case DotIsa::kAvx512:
      return "avx512";
    case DotIsa::kAvx512Vnni:
      return "avx512vnni";
    case DotIsa::kNeon:
      return "neon";
    case DotIsa::kNeonDot:
      return "neondot";
    case DotIsa::kNeonI8mm:
      return "neoni8mm";
  }
  return "unknown";
}

DotIsa DotIsaFor(Isa isa) {
  static const bool avx512_vnni = HasDotIsa(DotIsa::kAvx512Vnni);
  static const bool avx_vnni = HasDotIsa(DotIsa::kAvxVnni);
  static const bool avx2 = HasDotIsa(DotIsa::kAvx2);
  static const bool neon_dot = HasDotIsa(DotIsa::kNeonDot);
  static const bool neon_i8mm = HasDotIsa(DotIsa::kNeonI8mm);
  if (isa == Isa::kNeon) {
    if (neon_i8mm) return DotIsa::kNeonI8mm;
    return neon_dot ? DotIsa::kNeonDot : DotIsa::kNeon;
  }
  if (isa == Isa::kAvx512) {
    return avx512_vnni ? DotIsa::kAvx512Vnni : DotIsa::kAvx512;
  }
  if (isa == Isa::kPortable || !avx2) return DotIsa::kPortable;
  return avx_vnni ? DotIsa::kAvxVnni : DotIsa::kAvx2;
}

void QuantizeRows(const DotContext& dot, ConstMatrix x, const QuantizedRows& to,
                  bool* finite) {
  SLUICE_CHECK(to.block == kShortBlock || to.block == kLongBlock);
  SLUICE_CHECK(x.rows == to.rows && x.cols == to.cols);
  SLUICE_CHECK(x.cols % to.block == 0);
  const Context context = {.executor = dot.executor};
  const int tasks = cpu::NumTasks(context, x.rows * x.cols);
  ParallelFor(context, tasks, [&](int i) {
    const cpu::Range range = cpu::PartOf(x.rows, i, tasks, 1);
    for (int64_t t = range.begin; t < range.end; ++t) {
      finite[t] =
          dot.ops->quantize({.x = x.row(t),
                             .cols = x.cols,
                             .block = to.block,
                             .codes = to.codes + t * x.cols,
                             .scales = to.scales + t * (x.cols / to.block),
                             .sums = to.sums + t * (x.cols / 16)});
    }
  });
}

void BlockMatMul(const DotContext& context, const QuantizedRows& x,
                 const BlockWeight& w, const float* bias, Matrix y) {
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

void BlockMatMulSharded(const DotContext& context, const QuantizedRows& x,
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
