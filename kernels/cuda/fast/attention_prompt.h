#ifndef SLUICE_KERNELS_CUDA_FAST_ATTENTION_PROMPT_H_
#define SLUICE_KERNELS_CUDA_FAST_ATTENTION_PROMPT_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/attention_common.h"
#include "kernels/cuda/fast/attention_prompt_rows.h"
#include "kernels/cuda/fast/attention_prompt_tree.h"
#include "kernels/cuda/fast/kv_readers.h"
#include "kernels/cuda/shared/attention_partials.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// A block per run of heads and tokens that lie side by side, which walks all
// that they see, leaf by leaf: keys of a leaf arrive in shared memory while the
// values before them are added, and values while scores are found. A warp has
// kPromptRows queries, whose scores, weights and sums are in registers. Pieces
// are joined in the tree as they end; nodes that wait are in device memory,
// where a thread reads what it wrote.
template <typename Reader, int kDim>
struct LeafPromptKernel {
  static constexpr int kThreads = kLeafThreads;
  using Args = TileAttentionArgs;

  static constexpr int kHeadSteps = kDim / 16;
  static constexpr int kGroups = kDim / 64;  // of elements
  static constexpr int kRowCells = kDim / 8;
  static constexpr int kLeafCells = kLeafPositions * kRowCells;
  static constexpr size_t kSharedBytes = 2 * kLeafCells * sizeof(TileA);

  struct Memory {
    Shared<TileA> keys;  // [position][8 elements], places of a row permuted
    Shared<TileA> values;
  };
  struct Cache {
    KvView kv;
    int32_t kv_head;
    const int32_t* table;
  };
  using Tree = PromptTree<kDim>;
  using Node = typename Tree::Node;
  using Queries = TileA[kHeadSteps];
  using Weights = TileA[kLeafSteps];

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const AttentionQueries& queries = a.attention.queries;
    const HeadRun run = a.cut.runs[block.index() % a.cut.num_runs];
    // Late tokens, which see most, begin first.
    const int64_t from =
        (block.count() - 1 - block.index()) / a.cut.num_runs * a.cut.tokens;
    const int64_t left = queries.q.rows - from;
    const int count =
        static_cast<int>(left < a.cut.tokens ? left : a.cut.tokens);
    const Memory memory = {block.Allocate<TileA>(kLeafCells),
                           block.Allocate<TileA>(kLeafCells)};
    for (int begin = 0; begin < count;) {
      const PromptRun tokens =
          PromptRunFrom(block, a.attention, from, begin, count);
      begin = tokens.end;
      const Cache cache = {
          FixedView<kDim>(a.attention.kv), run.kv_head,
          queries.block_tables + queries.table_offsets[from + tokens.begin]};
      const PromptTile tile = PromptTileOf(block, a, tokens, from, run);
      Walk(block, a.attention, cache, memory, tokens, tile);
    }
  }

  static SLUICE_DEVICE void Walk(Block& block, const AttentionArgs& a,
                                 const Cache& cache, const Memory& memory,
                                 const PromptRun& tokens,
                                 const PromptTile& tile) {
    const int end = (tokens.hi + kLeafPositions - 1) / kLeafPositions;
    int leaf = tokens.lo / kLeafPositions;
    Load<true>(block, cache, tokens, leaf, memory.keys);
    Queries q = {};
    LoadQueries(block, a.queries, tile, q);
    Node node;
    Tree::Begin(node);
    uint32_t pending = 0;  // bit n: level n holds a finished node
    block.WaitCopies();
    block.Sync();
    for (; leaf < end; ++leaf) {
      const bool last = leaf + 1 == end;
      const bool meets = tile.MeetsLeaf(leaf);
      Load<false>(block, cache, tokens, leaf, memory.values);
      Weights weights = {};
      if (meets) Score(block, memory, tile, leaf, q, node, weights);
      block.WaitCopies();
      block.Sync();
      if (!last) Load<true>(block, cache, tokens, leaf + 1, memory.keys);
      if (meets) AddValues(block, memory, weights, node);
      if (leaf % kPieceLeaves == kPieceLeaves - 1 || last) {
        Tree::EndPiece(block, a, tile, {leaf / kPieceLeaves, last}, node,
                       pending);
      }
      block.WaitCopies();
      block.Sync();
    }
    Tree::Store(block, a, tile, node);
  }

  // Where eight elements of a position stand: lanes that read side by side do
  // not meet in a bank.
  static SLUICE_DEVICE int KeyCell(int row, int cell) {
    return row * kRowCells + (cell ^ (row % 2 * 4));
  }
  static SLUICE_DEVICE int ValueCell(int row, int cell) {
    return row * kRowCells + (cell ^ (row / 4 % 4 * 2));
  }
  // The same of what a lane reads, so that a place is a sum of what the lane
  // has and of what the compiler knows: a key's cells 4b + t of tile n, and a
  // value's cells 8 group + g of position i of the lane's four.
  static SLUICE_DEVICE int LaneKeyCell(int lane, int n, int b) {
    const int g = lane / 4;
    const int own = (g / 2 * 4 + g % 2) * kRowCells + lane % 4;
    const int swap = b % 2 == 0 ? g % 2 * 4 : -(g % 2 * 4);
    return own + swap + (n / 2 * kStepPositions + n % 2 * 2) * kRowCells +
           4 * b;
  }
  static SLUICE_DEVICE int LaneValueCell(int lane, int step, int i, int group) {
    const int t = lane % 4;
    const int own = t * 4 * kRowCells + (lane / 4 ^ t * 2);
    return own + (step * kStepPositions + i) * kRowCells + group * 8;
  }
  // Brings a leaf; zeros where no token sees.
  template <bool kKeys>
  static SLUICE_DEVICE void Load(Block& block, const Cache& cache,
                                 const PromptRun& tokens, int leaf,
                                 const Shared<TileA>& to) {
    constexpr int kAtOnce = kThreads / kRowCells;  // rows
    const int cell = block.thread() % kRowCells;
    SLUICE_UNROLL
    for (int i = 0; i < kLeafPositions / kAtOnce; ++i) {
      const int row = i * kAtOnce + block.thread() / kRowCells;
      const int position = leaf * kLeafPositions + row;
      const int at = kKeys ? KeyCell(row, cell) : ValueCell(row, cell);
      if (position < tokens.lo || position >= tokens.hi) {
        to.Set(at, TileA{});
        continue;
      }
      const KvSpot spot = {&cache.kv,
                           cache.table[position / kStepPositions] *
                                   static_cast<int32_t>(cache.kv.num_kv_heads) +
                               cache.kv_head,
                           position % kStepPositions};
      if constexpr (Reader::kCopies) {
        const auto* const chunk = kKeys ? Reader::KeyAt(spot, cell * 8)
                                        : Reader::ValueAt(spot, cell * 8);
        block.CopyAsync(to, at, reinterpret_cast<const TileA*>(chunk));
      } else if constexpr (kKeys) {
        to.Set(at, Reader::KeyChunk(spot, cell * 8));
      } else {
        to.Set(at, Reader::ValueChunk(spot, cell * 8));
      }
    }
  }

  static SLUICE_DEVICE void LoadQueries(Block& block,
                                        const AttentionQueries& queries,
                                        const PromptTile& tile, Queries& q) {
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int n = block.lane() / 4 + 8 * r;
      if (n >= tile.count) continue;
      const float* const from = queries.q.data +
                                tile.Token(n) * queries.q.stride +
                                tile.Head(n) * kDim + block.lane() % 4 * 8;
      SLUICE_UNROLL
      for (int step = 0; step < kHeadSteps; ++step) {
        const TileB words = WordsOf(FourAt(from + step / 2 * 32 + step % 2 * 4),
                                    queries.scale * kLog2OfE);
        q[step].words[r] = words.words[0];
        q[step].words[2 + r] = words.words[1];
      }
    }
  }
  // Finds a leaf's scores and weights, and takes the leaf into the chains.
  static SLUICE_DEVICE void Score(Block& block, const Memory& memory,
                                  const PromptTile& tile, int leaf,
                                  const Queries& q, Node& node,
                                  Weights& weights) {
    TileC scores[kLeafSteps * 2] = {};
    SLUICE_UNROLL
    for (int n = 0; n < kLeafSteps * 2; ++n) {
      SLUICE_UNROLL
      for (int b = 0; b < kHeadSteps / 2; ++b) {
        const TileA keys = memory.keys.Get(LaneKeyCell(block.lane(), n, b));
        block.MultiplyTile(q[b * 2], {{keys.words[0], keys.words[1]}},
                           scores[n]);
        block.MultiplyTile(q[b * 2 + 1], {{keys.words[2], keys.words[3]}},
                           scores[n]);
      }
    }
    const int from = leaf * kLeafPositions + block.lane() % 4 * 4;
    if (!tile.SeesAll(leaf)) {
      SLUICE_UNROLL
      for (int i = 0; i < kLeafSteps * 8; ++i) {
        const int r = i / 2 % 2;
        const int j = from + i / 8 * kStepPositions + i / 4 % 2 * 2 + i % 2;
        if (j >= tile.begin[r] && j < tile.end[r]) continue;
        scores[i / 4].values[i % 4] = -Infinity();
      }
    }
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) WeighRow(block, r, scores, node, weights);
  }
  static SLUICE_DEVICE void WeighRow(Block& block, int r,
                                     TileC (&scores)[kLeafSteps * 2],
                                     Node& node, Weights& weights) {
    float max = -Infinity();
    SLUICE_UNROLL
    for (TileC& tile : scores) {
      SLUICE_UNROLL
      for (int v = 2 * r; v < 2 * r + 2; ++v) {
        max = Larger(tile.values[v], max);
      }
    }
    for (int mask = 1; mask <= 2; mask *= 2) {
      const float other = block.ShuffleXor(max, mask);
      max = Larger(other, max);
    }
    const float factor = node.chains[r].Take(max);
    const float base = node.chains[r].base;
    float halves[2] = {0.0f, 0.0f};
    SLUICE_UNROLL
    for (int n = 0; n < kLeafSteps * 2; ++n) {
      const float lower = PowerOf2(scores[n].values[2 * r] - base);
      const float upper = PowerOf2(scores[n].values[2 * r + 1] - base);
      float& half = halves[n / kLeafSteps];
      half = half + lower;
      half = half + upper;
      weights[n / 2].words[n % 2 * 2 + r] = PackPair(lower, upper);
    }
    node.sums[r] = Fma(node.sums[r], factor, halves[0] + halves[1]);
    SLUICE_UNROLL
    for (TileC& tile : node.tiles) {
      SLUICE_UNROLL
      for (int v = 2 * r; v < 2 * r + 2; ++v) {
        tile.values[v] = Fma(tile.values[v], factor, -0.0f);
      }
    }
  }

  static SLUICE_DEVICE void AddValues(Block& block, const Memory& memory,
                                      const Weights& weights, Node& node) {
    SLUICE_UNROLL
    for (int step = 0; step < kLeafSteps; ++step) {
      SLUICE_UNROLL
      for (int group = 0; group < kGroups; ++group) {
        TileA v[4];
        SLUICE_UNROLL
        for (int i = 0; i < 4; ++i) {
          v[i] = memory.values.Get(LaneValueCell(block.lane(), step, i, group));
        }
        SLUICE_UNROLL
        for (int k = 0; k < 4; ++k) {
          TileC* const tiles = node.tiles + group * 8 + k * 2;
          block.MultiplyTile(weights[step],
                             {{LowerHalves(v[0].words[k], v[1].words[k]),
                               LowerHalves(v[2].words[k], v[3].words[k])}},
                             tiles[0]);
          block.MultiplyTile(weights[step],
                             {{UpperHalves(v[0].words[k], v[1].words[k]),
                               UpperHalves(v[2].words[k], v[3].words[k])}},
                             tiles[1]);
        }
      }
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_ATTENTION_PROMPT_H_
