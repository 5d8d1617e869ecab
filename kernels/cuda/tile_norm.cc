#include "kernels/cuda/tile_norm.h"

#include "common/base/check.h"
#include "kernels/cuda/own_four.h"

namespace sluice::kernels::cuda {
namespace {

struct TileNormArgs {
  ConstMatrix x;
  const int32_t* rows;  // or null
  const float* weight;
  Matrix y;
  float eps;
  int32_t cols;
  int64_t quads;  // x, weight and y have them
};

// A block per row. A thread's elements stay in registers, those of the first
// piece at least; one barrier is there.
template <int kBlockThreads>
struct TileNormKernel {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kWarps = kThreads / kWarpLanes;
  static constexpr int kQuads = 4;  // of a thread and piece
  static constexpr int kPiece = kQuads * 4 * kThreads;
  static constexpr bool kWaitsItself = true;
  // Of a multiprocessor: 80 registers a thread.
  static constexpr int kLeastBlocks = 768 / kThreads;
  static constexpr size_t kSharedBytes = kWarps * sizeof(float);
  static_assert(kWarps % 4 == 0);
  using Args = TileNormArgs;
  using Piece = Quad[kQuads];

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto partials = block.Allocate<float>(kWarps);
    Piece weights;
    Load(block, a, a.weight, 0, weights);
    const int64_t row =
        a.rows == nullptr ? block.index() : a.rows[block.index()];
    block.WaitForInputs();
    const float* const x = a.x.data + row * a.x.stride;
    float* const y = a.y.data + block.index() * a.y.stride;
    Piece own;
    Load(block, a, x, 0, own);
    float sum = AddSquares(own, 0.0f);
    for (int begin = kPiece; begin < a.cols; begin += kPiece) {
      Piece more;
      Load(block, a, x, begin, more);
      sum = AddSquares(more, sum);
    }
    const float mean =
        SumOfBlock(block, partials, sum) / static_cast<float>(a.cols);
    const float scale = 1.0f / SquareRoot(mean + a.eps);
    Store(block, a, {own, weights, scale}, 0, y);
    for (int begin = kPiece; begin < a.cols; begin += kPiece) {
      Load(block, a, x, begin, own);
      Load(block, a, a.weight, begin, weights);
      Store(block, a, {own, weights, scale}, begin, y);
    }
  }
  static SLUICE_DEVICE float AddSquares(const Piece& own, float sum) {
    SLUICE_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        sum = Fma(own[j].values[i], own[j].values[i], sum);
      }
    }
    return sum;
  }
  // Every thread gets it.
  static SLUICE_DEVICE float SumOfBlock(Block& block,
                                        const Shared<float>& partials,
                                        float sum) {
    for (int mask = 16; mask > 0; mask /= 2) {
      sum = sum + block.ShuffleXor(sum, mask);
    }
    if (block.lane() == 0) partials.Set(block.warp(), sum);
    block.Sync();
    Quad all = LoadQuad(partials, 0);
    SLUICE_UNROLL
    for (int w = 4; w < kWarps; w += 4) {
      all = AddQuads(all, LoadQuad(partials, w));
    }
    return (all.values[0] + all.values[1]) + (all.values[2] + all.values[3]);
  }
  // A thread's first column of quad j.
  static SLUICE_DEVICE int ColumnOf(const Block& block, int begin, int j) {
    return begin + 4 * (j * kThreads + block.thread());
  }
  // Elements that the row has not are 0.
  static SLUICE_DEVICE void Load(const Block& block, const Args& a,
                                 const float* row, int begin, Piece& to) {
    SLUICE_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      const int column = ColumnOf(block, begin, j);
      to[j] = {};
      if (a.quads != 0) {
        if (column < a.cols) to[j] = LoadQuad(row + column);
        continue;
      }
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (column + i < a.cols) to[j].values[i] = row[column + i];
      }
    }
  }
  struct Scaled {
    const Piece& own;
    const Piece& weights;
    float scale;
  };
  static SLUICE_DEVICE void Store(const Block& block, const Args& a,
                                  const Scaled& from, int begin, float* y) {
    SLUICE_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      const int column = ColumnOf(block, begin, j);
      if (column >= a.cols) continue;
      Quad values;
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        values.values[i] =
            from.own[j].values[i] * from.scale * from.weights[j].values[i];
      }
      if (a.quads != 0) {
        StoreQuad(y + column, values);
        continue;
      }
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (column + i < a.cols) y[column + i] = values.values[i];
      }
    }
  }
};

}  // namespace

// Size: a norm's parts, and which rows it has.
void TileRmsNorm(Stream stream, ConstMatrix x, const int32_t* rows,
                 const float* weight, float eps, Matrix y) {
  SLUICE_CHECK(x.cols == y.cols && (rows != nullptr || x.rows == y.rows));
  const bool quads =
      HasQuads(x) && HasQuads(y) && HasQuads({weight, 1, x.cols, x.cols});
  const auto start = [&](auto kernel) {
    using Kernel = decltype(kernel);
    Launch<Kernel>(
        stream, y.rows, Kernel::kSharedBytes,
        {x, rows, weight, y, eps, static_cast<int32_t>(x.cols), quads ? 1 : 0});
  };
  if (x.cols <= TileNormKernel<128>::kPiece)
    return start(TileNormKernel<128>());
  if (x.cols <= TileNormKernel<256>::kPiece)
    return start(TileNormKernel<256>());
  start(TileNormKernel<512>());
}

}  // namespace sluice::kernels::cuda
