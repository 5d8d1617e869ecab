#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/cuda/canonical/products.h"
#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/product_shards.h"
#include "kernels/cuda/shared/product_tile.h"
#include "kernels/cuda/shared/router_product.h"

namespace sluice::kernels::cuda {
namespace {

struct MatMulArgs {
  ConstMatrix x;
  const void* w;
  int64_t rows;
  const float* bias;
  ShardArgs shards;
  GroupedRows grouped;
  int64_t row_bytes;  // of w, if its rows may be prefetched, or 0
};

// Half a warp per kEach rows, a thread per lane of the dot product; a tile's
// tokens per block.
template <WeightType kType, int kEach>
struct MatMulKernel {
  static constexpr int kThreads = 128;
  static constexpr int kHalfWarps = kThreads / 16;
  static constexpr int kRows = kHalfWarps * kEach;
  static constexpr int kAtOnce = kEach > 1 ? 8 : IsE4m3(kType) ? 16 : 32;
  static constexpr bool kWaitsItself = true;
  using Args = MatMulArgs;
  // What a thread sums: rows of w, the first of a lane's columns.
  struct Cell {
    const ProductTile& tile;
    int64_t rows[kEach];  // of w, which exist
    int lane;
  };
  using Sums = float[kEach][kTileTokens];

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<uint32_t>(block.index());
    const auto tiles = static_cast<uint32_t>((a.rows + kRows - 1) / kRows);
    const int64_t row_tile = index % tiles;
    if (index < tiles) PrefetchRows(block, a, row_tile * kRows);
    block.WaitForInputs();
    ProductTile tile;
    if (!FindTile(a.grouped, index / tiles, a.x.rows, a.w, a.bias, a.rows,
                  tile)) {
      return;
    }
    const auto partials =
        block.Allocate<float>(a.shards.num_shards * kRows * kTileTokens);
    const int local = block.thread() / 16;
    const int64_t first_row = row_tile * kRows + local;
    Cell cell = {tile, {}, block.lane() % 16};
    SLUICE_UNROLL
    for (int r = 0; r < kEach; ++r) {
      const int64_t row = first_row + r * kHalfWarps;
      cell.rows[r] = row < a.rows ? row : a.rows - 1;
    }
    for (int32_t s = 0; s < a.shards.num_shards; ++s) {
      Sums sums = {};
      AddShard(a, cell, s, sums);
      SLUICE_UNROLL
      for (int r = 0; r < kEach; ++r) {
        SLUICE_UNROLL
        for (int t = 0; t < kTileTokens; ++t) {
          const float sum = SumLanes(block, sums[r][t]);
          // A thread stores what it joins below.
          if (cell.lane == t) {
            partials.Set((s * kRows + r * kHalfWarps + local) * kTileTokens + t,
                         sum);
          }
        }
      }
    }
    if (cell.lane >= tile.tokens) return;
    for (int r = 0; r < kEach; ++r) {
      const int64_t row = first_row + r * kHalfWarps;
      if (row >= a.rows) return;
      StoreNodes(a.shards, partials,
                 {kRows * kTileTokens,
                  (r * kHalfWarps + local) * kTileTokens + cell.lane,
                  tile.out + cell.lane, row},
                 tile.bias);
    }
  }
  // A block's rows of a weight come near while kernels before this one end.
  static SLUICE_DEVICE void PrefetchRows(Block& block, const Args& a,
                                         int64_t row) {
    if (a.row_bytes == 0 || block.thread() != 0) return;
    // All resident blocks' bytes fit a cache.
    constexpr int64_t kMost = 32 * 1024;
    const int64_t count = a.rows - row < kRows ? a.rows - row : kRows;
    const int64_t bytes = count * a.row_bytes;
    block.Prefetch(static_cast<const uint8_t*>(a.w) + row * a.row_bytes,
                   static_cast<int>(bytes < kMost ? bytes : kMost));
  }
  // A lane's columns of a shard. The last few are loaded at once, too.
  static SLUICE_DEVICE void AddShard(const Args& a, const Cell& cell, int32_t s,
                                     Sums& sums) {
    constexpr int kFew = 8;
    const int64_t end = a.shards.bounds[s + 1];
    int64_t k = a.shards.bounds[s] + cell.lane;
    for (; k + 16 * (kAtOnce - 1) < end; k += 16 * kAtOnce) {
      AddColumns<kAtOnce, true>(a, cell, k, kAtOnce, sums);
    }
    const int left = k < end ? static_cast<int>((end - k + 15) / 16) : 0;
    if (kAtOnce > kFew && left > kFew) {
      AddColumns<kAtOnce, false>(a, cell, k, left, sums);
    } else if (left > 0) {
      AddColumns<kFew, false>(a, cell, k, left, sums);
    }
  }
  // Columns k, k + 16, ... of a lane, `count` of them, all of whose loads are
  // begun first.
  template <int kMost, bool kAll>
  static SLUICE_DEVICE void AddColumns(const Args& a, const Cell& cell,
                                       int64_t k, int count, Sums& sums) {
    float w[kEach][kMost] = {};
    SLUICE_UNROLL
    for (int r = 0; r < kEach; ++r) {
      SLUICE_UNROLL
      for (int i = 0; i < kMost; ++i) {
        if (!kAll && i >= count) continue;
        w[r][i] =
            Element<kType>(cell.tile.w, cell.rows[r] * a.x.cols + k + 16 * i);
      }
    }
    SLUICE_UNROLL
    for (int t = 0; t < kTileTokens; ++t) {
      if (t >= cell.tile.tokens) continue;
      const float* const x = a.x.data + cell.tile.In(t) * a.x.stride + k;
      float own[kMost] = {};
      SLUICE_UNROLL
      for (int i = 0; i < kMost; ++i) {
        if (kAll || i < count) own[i] = x[16 * i];
      }
      SLUICE_UNROLL
      for (int i = 0; i < kMost; ++i) {
        if (!kAll && i >= count) continue;
        SLUICE_UNROLL
        for (int r = 0; r < kEach; ++r) {
          sums[r][t] = Fma(w[r][i], own[i], sums[r][t]);
        }
      }
    }
  }
  static int64_t Blocks(const Args& a, int64_t groups) {
    return (a.rows + kRows - 1) / kRows * groups;
  }
  static void Start(Stream stream, const Args& a, int64_t groups) {
    Launch<MatMulKernel>(
        stream, Blocks(a, groups),
        sizeof(float) * kRows * kTileTokens * a.shards.num_shards, a);
  }
};

// Rows of w that a thread takes for one of x where blocks are many.
constexpr int kManyRows = 4;
constexpr int64_t kManyBlocks = 256;

template <WeightType kType>
void StartProduct(Stream stream, const MatMulArgs& args, int64_t groups) {
  using Many = MatMulKernel<kType, kManyRows>;
  if (args.grouped.groups == nullptr &&
      Many::Blocks(args, groups) >= kManyBlocks) {
    return Many::Start(stream, args, groups);
  }
  MatMulKernel<kType, 1>::Start(stream, args, groups);
}

void Multiply(Stream stream, ConstMatrix x, const WeightView& w,
              const float* bias, const ShardArgs& shards,
              const ExpertRun& run = {}) {
  SLUICE_CHECK(x.cols == w.cols);
  const bool grouped = run.grouped.groups != nullptr;
  const int64_t groups =
      grouped ? run.max_groups : (x.rows + kTileTokens - 1) / kTileTokens;
  MatMulArgs args = {x, w.data, w.rows, bias, shards, run.grouped, 0};
  const int64_t row_bytes = w.cols * (w.type == WeightType::kF32 ? 4 : 2);
  if (!grouped && !IsE4m3(w.type) && row_bytes % 16 == 0) {
    args.row_bytes = row_bytes;
  }
  switch (w.type) {
    case WeightType::kF32:
      return StartProduct<WeightType::kF32>(stream, args, groups);
    case WeightType::kBf16:
      return StartProduct<WeightType::kBf16>(stream, args, groups);
    case WeightType::kE4m3Wide:
      return StartProduct<WeightType::kE4m3Wide>(stream, args, groups);
    default:
      SLUICE_CHECK(w.type == WeightType::kE4m3);
      return StartProduct<WeightType::kE4m3>(stream, args, groups);
  }
}

}  // namespace

void MatMul(Stream stream, ConstMatrix x, const WeightView& w,
            const float* bias, Matrix y) {
  SLUICE_CHECK(x.cols == w.cols);
  if (w.type == WeightType::kF32 &&
      StartFewRows(stream,
                   {x, static_cast<const float*>(w.data), w.rows, bias, y})) {
    return;
  }
  const int32_t bounds[2] = {0, static_cast<int32_t>(w.cols)};
  const TreeNode node = {0, 1};
  Multiply(stream, x, w, bias,
           ShardArgsOf({bounds, {&node, 1}}, {&y, 1}, /*unit=*/1));
}

void MatMulSharded(Stream stream, ConstMatrix x, const WeightView& w,
                   const ShardedCols& shards, std::span<const Matrix> y) {
  Multiply(stream, x, w, nullptr, ShardArgsOf(shards, y, /*unit=*/1));
}

void MatMulGroups(Stream stream, ConstMatrix x, const WeightView& like,
                  const float* bias, const ExpertRun& run, Matrix y) {
  const int32_t bounds[2] = {0, static_cast<int32_t>(like.cols)};
  const TreeNode node = {0, 1};
  Multiply(stream, x, like, bias,
           ShardArgsOf({bounds, {&node, 1}}, {&y, 1}, /*unit=*/1), run);
}

}  // namespace sluice::kernels::cuda
