#ifndef SLUICE_KERNELS_CUDA_FAST_NORM_KERNEL_H_
#define SLUICE_KERNELS_CUDA_FAST_NORM_KERNEL_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/shared/row_quads.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

struct TileNormArgs {
  ConstMatrix x;
  const int32_t* rows;  // or null
  const float* weight;
  Matrix y;
  float eps;
  int32_t cols;
  int64_t quads;  // x, weight and y have them
};

// What elements are multiplied by before the weights are. cols: of the row.
SLUICE_DEVICE float NormScale(float squares, int32_t cols, float eps) {
  const float mean = squares / static_cast<float>(cols);
  return 1.0f / SquareRoot(mean + eps);
}

// An element: value * scale * weight.
SLUICE_DEVICE Quad NormedQuad(const Quad& values, const Quad& weights,
                              float scale) {
  Quad normed;
  SLUICE_UNROLL
  for (int i = 0; i < 4; ++i) {
    normed.values[i] = values.values[i] * scale * weights.values[i];
  }
  return normed;
}

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
    const float scale = ScaleOf(a, SumOfBlock(block, partials, sum));
    Store(block, a, {own, weights, scale}, 0, y);
    for (int begin = kPiece; begin < a.cols; begin += kPiece) {
      Load(block, a, x, begin, own);
      Load(block, a, a.weight, begin, weights);
      Store(block, a, {own, weights, scale}, begin, y);
    }
  }
  static SLUICE_DEVICE float ScaleOf(const Args& a, float squares) {
    return NormScale(squares, a.cols, a.eps);
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
  static SLUICE_DEVICE Quad ScaledQuad(const Scaled& from, int j) {
    return NormedQuad(from.own[j], from.weights[j], from.scale);
  }
  static SLUICE_DEVICE void Store(const Block& block, const Args& a,
                                  const Scaled& from, int begin, float* y) {
    SLUICE_UNROLL
    for (int j = 0; j < kQuads; ++j) {
      const int column = ColumnOf(block, begin, j);
      if (column >= a.cols) continue;
      const Quad values = ScaledQuad(from, j);
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

// Returns the threads of a row's norm, which are the chains of its squares.
constexpr int NormThreads(int64_t cols) {
  return cols <= TileNormKernel<128>::kPiece   ? 128
         : cols <= TileNormKernel<256>::kPiece ? 256
                                               : 512;
}
// Returns start(TileNormKernel<n>()) of that many.
template <typename Start>
auto WithNormThreads(int64_t cols, const Start& start) {
  switch (NormThreads(cols)) {
    case 128:
      return start(TileNormKernel<128>());
    case 256:
      return start(TileNormKernel<256>());
    default:
      return start(TileNormKernel<512>());
  }
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_NORM_KERNEL_H_
