#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_JOIN_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_JOIN_H_

#include <cuda_device/device.h>
#include <cuda_device/launch.h>

#include <algorithm>
#include <cstdint>

#include "common/base/check.h"
#include "kernels/cuda/fast/products_few_tokens.h"
#include "kernels/cuda/fast/products_many_tokens_kernel.h"
#include "kernels/cuda/shared/gated_activation.h"
#include "kernels/cuda/shared/row_quads.h"

namespace sluice::kernels::cuda {

// Pieces of an output, at most.
inline constexpr int kMostPieces = 16;

struct JoinArgs {
  GemmArgs gemm;
  int64_t quads;  // pieces and outputs have them
  int32_t adds;
  int32_t clamps;
  float limit;
  int32_t unused;  // no bytes between members: see LaunchList
};

SLUICE_DEVICE constexpr int32_t PiecesOf(const GemmArgs& gemm, int32_t output) {
  const TreeNode node = gemm.product.shards.nodes[output];
  return (node.end - node.begin + gemm.piece_leaves - 1) / gemm.piece_leaves;
}

// The tree over an output's pieces, at most kMost, a block per piece of a row
// of y, and what StreamEnd says of it. With kGated rows r and r + rows / 2 are
// joined.
template <bool kGated, int kMost>
struct JoinPiecesKernel {
  static constexpr int kThreads = 128;
  using Own = OwnFour<kThreads>;
  using Piece = RowPiece<kThreads>;
  using Args = JoinArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const TileArgs& product = a.gemm.product;
    const ShardArgs& shards = product.shards;
    const int64_t cols = kGated ? product.rows / 2 : product.rows;
    const int64_t each = product.x.rows * product.rows;
    const Piece piece = Piece::Of(block, cols);
    const Own own(block, piece.begin, cols, a.quads != 0);
    const float* from = a.gemm.pieces + piece.row * product.rows;
    for (int32_t o = 0; o < shards.num_outputs; ++o) {
      float* const y = shards.y[o] + piece.row * shards.stride[o];
      const int32_t count = PiecesOf(a.gemm, o);
      const Quad before = a.adds != 0 ? own.Load(y) : Quad{};
      Quad sum = Tree(own, from, each, count);
      AddBias(own, product.bias, sum);
      if constexpr (kGated) {
        Quad up = Tree(own, from + cols, each, count);
        AddBias(own, product.bias == nullptr ? nullptr : product.bias + cols,
                up);
        SLUICE_UNROLL
        for (int i = 0; i < 4; ++i) {
          sum.values[i] =
              a.clamps != 0 ? ClampedGate(sum.values[i], up.values[i], a.limit)
                            : SiluGate(sum.values[i], up.values[i]);
        }
      }
      own.Store(y, a.adds != 0 ? AddQuads(before, sum) : sum);
      from += count * each;
    }
  }
  static SLUICE_DEVICE void AddBias(const Own& own, const float* bias,
                                    Quad& sum) {
    if (bias == nullptr) return;
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (own.Has(i)) sum.values[i] = sum.values[i] + bias[own.Column(i)];
    }
  }
  // Of pieces `step` apart.
  static SLUICE_DEVICE Quad Tree(const Own& own, const float* from,
                                 int64_t step, int32_t count) {
    Quad sums[kMost] = {};
    SLUICE_UNROLL
    for (int i = 0; i < kMost; ++i) {
      if (i < count) sums[i] = own.Load(from + i * step);
    }
    SLUICE_UNROLL
    for (int stride = 1; stride < kMost; stride *= 2) {
      SLUICE_UNROLL
      for (int i = 0; i + stride < kMost; i += 2 * stride) {
        if (i + stride < count) sums[i] = AddQuads(sums[i], sums[i + stride]);
      }
    }
    return sums[0];
  }
};

inline void JoinPieces(Stream stream, const GemmArgs& gemm,
                       const StreamEnd& end) {
  const TileArgs& product = gemm.product;
  const ShardArgs& shards = product.shards;
  const int64_t tokens = product.x.rows;
  const int64_t cols = end.gated ? product.rows / 2 : product.rows;
  JoinArgs args = {};
  args.gemm = gemm;
  int32_t most = 0;
  bool quads = HasQuads({gemm.pieces, tokens, cols, product.rows});
  for (int32_t o = 0; o < shards.num_outputs; ++o) {
    most = std::max(most, PiecesOf(gemm, o));
    quads = quads && HasQuads({shards.y[o], tokens, cols, shards.stride[o]});
  }
  args.quads = quads ? 1 : 0;
  args.adds = end.adds ? 1 : 0;
  args.clamps = end.activation.kind == Activation::Kind::kClampedSwiGlu ? 1 : 0;
  args.limit = end.activation.limit;
  const auto start = [&](auto kernel) {
    using Kernel = decltype(kernel);
    Launch<Kernel>(stream, Kernel::Piece::Blocks(tokens, cols), 0, args);
  };
  constexpr int kFew = 4;
  constexpr int kMostLeaves = 8;  // ProductLeaves', which gated products have
  if (end.gated && most <= kFew) return start(JoinPiecesKernel<true, kFew>());
  if (end.gated) {
    SLUICE_CHECK(most <= kMostLeaves);
    return start(JoinPiecesKernel<true, kMostLeaves>());
  }
  if (most <= kFew) return start(JoinPiecesKernel<false, kFew>());
  start(JoinPiecesKernel<false, kMostPieces>());
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_JOIN_H_
