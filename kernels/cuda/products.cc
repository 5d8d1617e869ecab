#include "kernels/cuda/products.h"

#include "common/base/check.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/products_shards.h"

namespace sluice::kernels::cuda {
namespace {

// Tokens that read a weight at once.
constexpr int kTokens = 4;

// Half a warp per row, a thread per lane of the dot product; eight rows and up
// to kTokens tokens per block.
template <WeightType kType>
struct MatMulKernel {
  static constexpr int kThreads = 128;
  static constexpr int kRows = kThreads / 16;
  struct Args {
    ConstMatrix x;
    const void* w;
    int64_t rows;
    const float* bias;
    ShardArgs shards;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t tiles = (a.rows + kRows - 1) / kRows;
    const int local = block.thread() / 16;
    const int64_t row = block.index() % tiles * kRows + local;
    const int64_t token = block.index() / tiles * kTokens;
    const int tokens = static_cast<int>(
        a.x.rows - token < kTokens ? a.x.rows - token : kTokens);
    const auto partials =
        block.Allocate<float>(a.shards.num_shards * kRows * kTokens);
    const int lane = block.lane() % 16;
    for (int32_t s = 0; s < a.shards.num_shards; ++s) {
      float sums[kTokens] = {};
      if (row < a.rows) {
        const int64_t begin = a.shards.bounds[s];
        for (int64_t k = begin + lane; k < a.shards.bounds[s + 1]; k += 16) {
          const float w = Element<kType>(a.w, row * a.x.cols + k);
          const float* x = a.x.data + token * a.x.stride + k;
          for (int t = 0; t < kTokens; ++t) {
            if (t < tokens) sums[t] = Fma(w, x[t * a.x.stride], sums[t]);
          }
        }
      }
      for (int t = 0; t < kTokens; ++t) {
        const float sum = SumLanes(block, sums[t]);
        // A thread stores what it joins below.
        if (lane == t) partials.Set((s * kRows + local) * kTokens + t, sum);
      }
    }
    if (lane >= tokens || row >= a.rows) return;
    StoreNodes(a.shards, partials,
               {kRows * kTokens, local * kTokens + lane, token + lane, row},
               a.bias);
  }
  static void Start(Stream stream, const Args& a) {
    const int64_t tiles = (a.rows + kRows - 1) / kRows;
    const int64_t groups = (a.x.rows + kTokens - 1) / kTokens;
    const size_t shared = sizeof(float) * kRows * kTokens * a.shards.num_shards;
    Launch<MatMulKernel>(stream, tiles * groups, shared, a);
  }
};

void Multiply(Stream stream, ConstMatrix x, const WeightView& w,
              const float* bias, const ShardArgs& shards) {
  SLUICE_CHECK(x.cols == w.cols);
  switch (w.type) {
    case WeightType::kF32:
      return MatMulKernel<WeightType::kF32>::Start(
          stream, {x, w.data, w.rows, bias, shards});
    case WeightType::kBf16:
      return MatMulKernel<WeightType::kBf16>::Start(
          stream, {x, w.data, w.rows, bias, shards});
    default:
      SLUICE_CHECK(w.type == WeightType::kE4m3);
      return MatMulKernel<WeightType::kE4m3>::Start(
          stream, {x, w.data, w.rows, bias, shards});
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

}  // namespace sluice::kernels::cuda
