#include "kernels/cuda/products.h"

#include "common/base/check.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/products_shards.h"
#include "kernels/cuda/products_tiles.h"

namespace sluice::kernels::cuda {
namespace {

// Half a warp per row, a thread per lane of the dot product; eight rows and a
// tile's tokens per block.
template <WeightType kType>
struct MatMulKernel {
  static constexpr int kThreads = 128;
  static constexpr int kRows = kThreads / 16;
  static constexpr int kAtOnce = kType == WeightType::kE4m3 ? 16 : 32;
  struct Args {
    ConstMatrix x;
    const void* w;
    int64_t rows;
    const float* bias;
    ShardArgs shards;
    GroupedRows grouped;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t tiles = (a.rows + kRows - 1) / kRows;
    const int local = block.thread() / 16;
    const int64_t row = block.index() % tiles * kRows + local;
    ProductTile tile;
    if (!FindTile(a.grouped, block.index() / tiles, a.x.rows, a.w, a.bias,
                  a.rows, tile)) {
      return;
    }
    const auto partials =
        block.Allocate<float>(a.shards.num_shards * kRows * kTileTokens);
    const int lane = block.lane() % 16;
    for (int32_t s = 0; s < a.shards.num_shards; ++s) {
      float sums[kTileTokens] = {};
      if (row < a.rows) {
        const int64_t end = a.shards.bounds[s + 1];
        int64_t k = a.shards.bounds[s] + lane;
        for (; k + 16 * (kAtOnce - 1) < end; k += 16 * kAtOnce) {
          AddColumns<kAtOnce>(a, tile, row, k, sums);
        }
        for (; k < end; k += 16) AddColumns<1>(a, tile, row, k, sums);
      }
      for (int t = 0; t < kTileTokens; ++t) {
        const float sum = SumLanes(block, sums[t]);
        // A thread stores what it joins below.
        if (lane == t) {
          partials.Set((s * kRows + local) * kTileTokens + t, sum);
        }
      }
    }
    if (lane >= tile.tokens || row >= a.rows) return;
    StoreNodes(
        a.shards, partials,
        {kRows * kTileTokens, local * kTileTokens + lane, tile.out + lane, row},
        tile.bias);
  }
  // Columns k, k + 16, ... of a lane, all of whose loads are begun first.
  template <int kCount>
  static SLUICE_DEVICE void AddColumns(const Args& a, const ProductTile& tile,
                                       int64_t row, int64_t k,
                                       float (&sums)[kTileTokens]) {
    float w[kCount];
    SLUICE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      w[i] = Element<kType>(tile.w, row * a.x.cols + k + 16 * i);
    }
    SLUICE_UNROLL
    for (int t = 0; t < kTileTokens; ++t) {
      if (t >= tile.tokens) continue;
      const float* const x = a.x.data + tile.In(t) * a.x.stride + k;
      float own[kCount];
      SLUICE_UNROLL
      for (int i = 0; i < kCount; ++i) own[i] = x[16 * i];
      SLUICE_UNROLL
      for (int i = 0; i < kCount; ++i) sums[t] = Fma(w[i], own[i], sums[t]);
    }
  }
  static void Start(Stream stream, const Args& a, int64_t groups) {
    const int64_t tiles = (a.rows + kRows - 1) / kRows;
    const size_t shared =
        sizeof(float) * kRows * kTileTokens * a.shards.num_shards;
    Launch<MatMulKernel>(stream, tiles * groups, shared, a);
  }
};

void Multiply(Stream stream, ConstMatrix x, const WeightView& w,
              const float* bias, const ShardArgs& shards,
              const ExpertRun& run = {}) {
  SLUICE_CHECK(x.cols == w.cols);
  const int64_t groups = run.grouped.groups != nullptr
                             ? run.max_groups
                             : (x.rows + kTileTokens - 1) / kTileTokens;
  const auto start = [&](auto kernel) {
    kernel.Start(stream, {x, w.data, w.rows, bias, shards, run.grouped},
                 groups);
  };
  switch (w.type) {
    case WeightType::kF32:
      return start(MatMulKernel<WeightType::kF32>());
    case WeightType::kBf16:
      return start(MatMulKernel<WeightType::kBf16>());
    default:
      SLUICE_CHECK(w.type == WeightType::kE4m3);
      return start(MatMulKernel<WeightType::kE4m3>());
  }
}

}  // namespace

void MatMul(Stream stream, ConstMatrix x, const WeightView& w,
            const float* bias, Matrix y) {
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
