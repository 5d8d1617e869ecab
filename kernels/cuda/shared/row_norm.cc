#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/row_ops.h"
#include "kernels/cuda/shared/row_quads.h"
#include "kernels/cuda/shared/sum_of_squares.h"

namespace sluice::kernels::cuda {
namespace {

struct NormArgs {
  const float* x;
  int64_t x_stride;
  float* y;
  int64_t y_stride;
  int64_t heads;
  int64_t cols;  // of a head
  const float* weight;
  float eps;
  int32_t quads;
};

// A block per head of a row; a row may be one head. All threads bring a piece
// of it to shared memory, from which half a warp takes the canonical sum.
template <int kBlockThreads>
struct NormKernel {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kQuads = 4;  // of a thread and piece
  static constexpr int kPiece = kQuads * 4 * kThreads;
  static constexpr bool kWaitsItself = true;
  // Of a multiprocessor: 64 registers a thread.
  // A multiprocessor has room for sixteen blocks at least.
  static constexpr int kLeastBlocks = kThreads < 64 ? 16 : 1024 / kThreads;
  using Own = OwnFour<kThreads>;
  using Args = NormArgs;
  static size_t SharedBytes(int64_t cols) {
    const int64_t piece = cols < kPiece ? cols : kPiece;
    return 16 + static_cast<size_t>((piece + 3) / 4 * 4) * sizeof(float);
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<uint32_t>(block.index());
    const auto heads = static_cast<uint32_t>(a.heads);
    const int64_t row = index / heads;
    const int64_t at = index % heads * a.cols;
    const float* const x = a.x + row * a.x_stride + at;
    float* const y = a.y + row * a.y_stride + at;
    const auto shared = block.Allocate<float>(1);
    const auto piece = block.Allocate<float>(a.cols < kPiece ? a.cols : kPiece);
    Quad weights[kQuads];
    LoadPiece(block, a, a.weight, 0, weights);
    block.WaitForInputs();
    float sum = 0.0f;
    for (int64_t begin = 0; begin < a.cols; begin += kPiece) {
      if (begin > 0) block.Sync();
      Stage(block, a, x, begin, piece);
      block.Sync();
      const auto count =
          static_cast<int>(a.cols - begin < kPiece ? a.cols - begin : kPiece);
      if (block.thread() < 16) sum = SquaresOfLane(block, piece, count, sum);
    }
    if (block.warp() == 0) {
      const float square = SumLanes(block, sum);
      const float mean = square / static_cast<float>(a.cols);
      if (block.lane() == 0) shared.Set(0, 1.0f / SquareRoot(mean + a.eps));
    }
    block.Sync();
    const float scale = shared.Get(0);
    for (int64_t begin = 0; begin < a.cols; begin += kPiece) {
      if (begin > 0) LoadPiece(block, a, a.weight, begin, weights);
      // Of several pieces the last one alone is still at hand.
      if (a.cols > kPiece) Stage(block, a, x, begin, piece);
      Scale(block, a, begin, piece, scale, weights, y);
    }
  }
  static SLUICE_DEVICE Own OwnOf(const Block& block, const Args& a,
                                 int64_t begin, int j) {
    return Own(block, begin + j * Own::kCols, a.cols, a.quads != 0);
  }
  static SLUICE_DEVICE void LoadPiece(const Block& block, const Args& a,
                                      const float* from, int64_t begin,
                                      Quad (&own)[kQuads]) {
    SLUICE_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      own[j] = OwnOf(block, a, begin, j).Load(from);
    }
  }
  // A thread's own elements of a piece, which others see behind a barrier.
  static SLUICE_DEVICE void Stage(Block& block, const Args& a, const float* x,
                                  int64_t begin, const Shared<float>& piece) {
    if (a.quads != 0) {
      SLUICE_UNROLL
      for (int j = 0; j < kQuads; ++j) {
        const Own own = OwnOf(block, a, begin, j);
        const int64_t column = own.Column(0);
        if (own.Has(0)) block.CopyAsync(piece, column - begin, x + column);
      }
      return block.WaitCopies();
    }
    Quad values[kQuads];
    LoadPiece(block, a, x, begin, values);
    SLUICE_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      const Own own = OwnOf(block, a, begin, j);
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (own.Has(i)) piece.Set(own.Column(i) - begin, values[j].values[i]);
      }
    }
  }
  // Stores a thread's elements of a staged piece.
  static SLUICE_DEVICE void Scale(const Block& block, const Args& a,
                                  int64_t begin, const Shared<float>& piece,
                                  float scale, const Quad (&weights)[kQuads],
                                  float* y) {
    SLUICE_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      const Own own = OwnOf(block, a, begin, j);
      if (!own.Has(0)) continue;
      Quad values = {};
      if (a.quads != 0) {
        values = LoadQuad(piece, own.Column(0) - begin);
      } else {
        SLUICE_UNROLL
        for (int i = 0; i < 4; ++i) {
          if (own.Has(i)) values.values[i] = piece.Get(own.Column(i) - begin);
        }
      }
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        values.values[i] = values.values[i] * scale * weights[j].values[i];
      }
      own.Store(y, values);
    }
  }
};

void StartNorm(Stream stream, int64_t rows, NormArgs args) {
  const auto cut = [&](const float* x, int64_t stride) {
    return HasQuads({x, rows, args.cols, stride});
  };
  const bool quads = cut(args.x, args.x_stride) && cut(args.y, args.y_stride) &&
                     cut(args.weight, 0);
  args.quads = quads ? 1 : 0;
  const auto start = [&](auto kernel) {
    using Kernel = decltype(kernel);
    Launch<Kernel>(stream, rows * args.heads, Kernel::SharedBytes(args.cols),
                   args);
  };
  if (args.cols <= NormKernel<32>::kPiece) return start(NormKernel<32>());
  if (args.cols <= NormKernel<256>::kPiece) return start(NormKernel<256>());
  start(NormKernel<512>());
}

}  // namespace

void RmsNorm(Stream stream, ConstMatrix x, const float* weight, float eps,
             Matrix y) {
  SLUICE_CHECK(x.rows == y.rows && x.cols == y.cols);
  StartNorm(stream, x.rows,
            {x.data, x.stride, y.data, y.stride, 1, x.cols, weight, eps, 0});
}

void RmsNormHeads(Stream stream, Matrix x, int64_t head_dim,
                  const float* weight, float eps) {
  SLUICE_CHECK(head_dim > 0 && x.cols % head_dim == 0);
  StartNorm(stream, x.rows,
            {x.data, x.stride, x.data, x.stride, x.cols / head_dim, head_dim,
             weight, eps, 0});
}

}  // namespace sluice::kernels::cuda
