#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_PIECES_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_PIECES_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/fast/products_chains.h"
#include "kernels/cuda/shared/product_tile.h"

namespace sluice::kernels::cuda {

// How large the blocks of products_many_tokens.cc are, and which part of a
// product each computes.

// A block of products_many_tokens.cc: kRowWarps by kTokenWarps warps, each with
// kTiles times 16 outputs by kOctets times eight tokens. A shape adds kStages,
// the runs of both operands that are in shared memory or on the way there, and
// kBlocksAtOnce of a multiprocessor.
template <int kRows, int kTokens, int kTilesOfWarp, int kOctetsOfWarp>
struct GemmShape {
  static constexpr int kRowWarps = kRows;
  static constexpr int kTokenWarps = kTokens;
  static constexpr int kTiles = kTilesOfWarp;
  static constexpr int kOctets = kOctetsOfWarp;
  static constexpr int kThreads = kWarpLanes * kRowWarps * kTokenWarps;
  static constexpr int kBlockTiles = kRowWarps * kTiles;
  static constexpr int kBlockOctets = kTokenWarps * kOctets;
  static constexpr int kBlockRows = kBlockTiles * kTileSide;
  static constexpr int kBlockTokens = kBlockOctets * 8;
  // Of a row tile, that are asked for while a kernel waits. Shapes of few
  // tokens have some: their weights take longer than their products.
  static constexpr int kPrefetchBytes = 0;
  // Floats of one level of the tree.
  static constexpr int64_t kCells = int64_t{kBlockRows} * kBlockTokens;
};

// Leaves of an output that one block computes, at most.
inline constexpr int kGemmPieceLeaves = 16;

struct GemmArgs {
  TileArgs product;
  const uint32_t* rows;  // [token block][run][octet] of OctetWords
  int32_t runs;          // of all columns
  int32_t whole_runs;    // those with both of their steps
  int64_t row_blocks;
  int64_t token_blocks;
  float* pieces;         // [piece, tokens, rows]; null: a piece is an output
  int32_t piece_leaves;  // a power of two, at most kGemmPieceLeaves
  // Levels of the tree above the lowest that wait in shared memory: all, or all
  // but the highest.
  int32_t shared_levels;
};
static_assert(std::has_unique_object_representations_v<GemmArgs>);

// What a block's tokens are, which are a group's of experts or successive ones.
// False where there are none.
SLUICE_DEVICE bool FindGemmTile(const GemmArgs& a, int64_t token_block,
                                ProductTile& tile) {
  const TileArgs& product = a.product;
  return FindTile(product.grouped, token_block, product.x.rows, product.w,
                  product.bias, product.rows, tile);
}

// The levels of a tree of `leaves` below its root: a sum waits in one of them
// for its right neighbour.
SLUICE_DEVICE int TreeLevels(int32_t leaves) {
  int levels = 0;
  while ((1 << levels) < leaves) ++levels;
  return levels;
}

// What a block computes: the sum of leaves [begin, end), an aligned node.
struct GemmPiece {
  int32_t begin = 0;
  int32_t end = 0;
  float* to = nullptr;  // of token 0
  int64_t stride = 0;
};
SLUICE_DEVICE GemmPiece PieceOf(const Block& block, const GemmArgs& a) {
  const auto index =
      static_cast<int32_t>(block.index() / a.token_blocks / a.row_blocks);
  GemmPiece piece;
  const ShardArgs& shards = a.product.shards;
  int32_t left = index;
  for (int32_t o = 0; o < shards.num_outputs; ++o) {
    const TreeNode& node = shards.nodes[o];
    const int32_t count =
        (node.end - node.begin + a.piece_leaves - 1) / a.piece_leaves;
    if (left >= count) {
      left -= count;
      continue;
    }
    piece.begin = node.begin + left * a.piece_leaves;
    piece.end = node.end < piece.begin + a.piece_leaves
                    ? node.end
                    : piece.begin + a.piece_leaves;
    piece.to = shards.y[o];
    piece.stride = shards.stride[o];
    break;
  }
  if (a.pieces != nullptr) {
    piece.to = a.pieces + index * a.product.x.rows * a.product.rows;
    piece.stride = a.product.rows;
  }
  return piece;
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_PIECES_H_
