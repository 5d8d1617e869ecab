#ifndef SLUICE_KERNELS_CUDA_FAST_ATTENTION_PROMPT_TREE_H_
#define SLUICE_KERNELS_CUDA_FAST_ATTENTION_PROMPT_TREE_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/attention_common.h"
#include "kernels/cuda/fast/attention_prompt_rows.h"
#include "kernels/cuda/shared/attention_partials.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// The tree over pieces of a warp's rows: the youngest node is in registers,
// nodes that wait for theirs are in device memory, where a warp reads what it
// wrote. AttentionMemory::max_chunks is the number of levels here.
template <int kDim>
struct PromptTree {
  // A piece's, or node's, partials of the lane's rows; elements of row r are
  // values 2r, 2r + 1 of the tiles.
  struct Node {
    TileC tiles[kDim / 8];
    LeafChain chains[2];
    float sums[2];  // the lane's own until the piece ends
  };
  static SLUICE_DEVICE void Begin(Node& node) {
    SLUICE_UNROLL
    for (TileC& tile : node.tiles) tile = {};
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      node.chains[r] = NoLeaves();
      node.sums[r] = 0.0f;
    }
  }

  // The tile's place in the tree's memory, [level][element][row][lane of four],
  // then maxima and sums.
  static SLUICE_DEVICE float* LevelAt(const AttentionArgs& a,
                                      const PromptTile& tile, int level) {
    const int64_t row =
        tile.run.first * a.queries.q.rows + tile.first * tile.run.count;
    return a.memory.floats +
           (row * a.memory.max_chunks + int64_t{level} * tile.count) *
               (kDim + 2);
  }
  struct Piece {
    int index;
    bool last;
  };
  // Joins a finished piece with the nodes that wait for it, and begins the next
  // piece unless it is the last.
  static SLUICE_DEVICE void EndPiece(Block& block, const AttentionArgs& a,
                                     const PromptTile& tile, const Piece& piece,
                                     Node& node, uint32_t& pending) {
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      node.chains[r].max = node.chains[r].max * kLogOf2;
      float& sum = node.sums[r];
      sum = sum + block.ShuffleXor(sum, 1);
      sum = sum + block.ShuffleXor(sum, 2);
    }
    int level = 0;
    for (; (piece.index >> level & 1) != 0; ++level) {
      if ((pending >> level & 1) == 0) continue;  // the sibling is masked
      JoinLevel(block, a, tile, level, node);
      pending &= ~(1u << level);
    }
    if (!piece.last) {
      KeepLevel(block, a, tile, level, node);
      pending |= 1u << level;
      Begin(node);
      return;
    }
    for (; level < kMostLevels; ++level) {
      if ((pending >> level & 1) != 0) JoinLevel(block, a, tile, level, node);
    }
  }
  static SLUICE_DEVICE void KeepLevel(Block& block, const AttentionArgs& a,
                                      const PromptTile& tile, int level,
                                      const Node& node) {
    float* const to = LevelAt(a, tile, level);
    const int count = ComputedHere(tile.count);
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int n = block.lane() / 4 + 8 * r;
      if (n >= count) continue;
      SLUICE_UNROLL
      for (int e = 0; e < kDim / 4; ++e) {
        to[(e * count + n) * 4 + block.lane() % 4] =
            node.tiles[e / 2].values[2 * r + e % 2];
      }
      if (block.lane() % 4 == 0) {
        to[count * kDim + n * 2] = node.chains[r].max;
        to[count * kDim + n * 2 + 1] = node.sums[r];
      }
    }
    block.SyncWarp();
  }
  static SLUICE_DEVICE void JoinLevel(Block& block, const AttentionArgs& a,
                                      const PromptTile& tile, int level,
                                      Node& node) {
    const float* const from = LevelAt(a, tile, level);
    const int count = ComputedHere(tile.count);
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int n = block.lane() / 4 + 8 * r;
      if (n >= count) continue;
      const float max = from[count * kDim + n * 2];
      const float sum = from[count * kDim + n * 2 + 1];
      // A row that sees nothing of a node has no part in it.
      const bool is_none = IsNone(node.chains[r].max, node.sums[r]);
      const bool other_is_none = IsNone(max, sum);
      const Partial own = {node.chains[r].max, node.sums[r], 0.0f};
      const Partial both = Joined({max, sum, 0.0f}, own);
      const float ea = Exp(max - both.max);
      const float eb = Exp(own.max - both.max);
      SLUICE_UNROLL
      for (int e = 0; e < kDim / 4; ++e) {
        float& element = node.tiles[e / 2].values[2 * r + e % 2];
        const float other = from[(e * count + n) * 4 + block.lane() % 4];
        const float joined = Fma(element, eb, other * ea);
        element = other_is_none ? element : is_none ? other : joined;
      }
      node.chains[r].max = both.max;
      node.sums[r] = other_is_none ? own.sum : is_none ? sum : both.sum;
    }
    // Others of the warp may write there again.
    block.SyncWarp();
  }
  static SLUICE_DEVICE bool IsNone(float max, float sum) {
    return max == -Infinity() && sum == 0.0f;
  }

  static SLUICE_DEVICE void Store(Block& block, const AttentionArgs& a,
                                  const PromptTile& tile, const Node& node) {
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int n = block.lane() / 4 + 8 * r;
      if (n >= tile.count) continue;
      const Sunk all =
          SunkOf(a, tile.Head(n), node.chains[r].max, node.sums[r]);
      float* const to = a.out.data + tile.Token(n) * a.out.stride +
                        tile.Head(n) * kDim + block.lane() % 4 * 16;
      SLUICE_UNROLL
      for (int q = 0; q < kDim / 16; ++q) {
        // Tiles of a group are elements side by side.
        const int first = q / 4 * 8 + q % 2 * 4;
        const int v = 2 * r + q / 2 % 2;
        const Quad own = {
            {node.tiles[first].values[v], node.tiles[first + 1].values[v],
             node.tiles[first + 2].values[v], node.tiles[first + 3].values[v]}};
        SetFour(to + q / 4 * 64 + q % 4 * 4, all.OutputOf(own));
      }
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_ATTENTION_PROMPT_TREE_H_
