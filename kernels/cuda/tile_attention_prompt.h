#ifndef SLUICE_KERNELS_CUDA_TILE_ATTENTION_PROMPT_H_
#define SLUICE_KERNELS_CUDA_TILE_ATTENTION_PROMPT_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/tile_attention_parts.h"
#include "kernels/cuda/tile_attention_readers.h"

namespace sluice::kernels::cuda {

// Queries of a warp's tile: rows of the products.
inline constexpr int kPromptRows = 16;

// Tokens [begin, end) of a block, of one sequence, and the positions [lo, hi)
// that one of them sees.
struct PromptRun {
  int begin;
  int end;
  int lo;
  int hi;
};

// What a warp has of the run: `count` rows, row n token first + n / heads.
struct PromptTile {
  int64_t first;
  int count;
  HeadRun run;
  int lo;  // positions that a row sees: [lo, hi)
  int hi;
  int all_lo;  // positions that every row sees
  int all_hi;
  int begin[2];  // what the lane's rows see
  int end[2];

  SLUICE_DEVICE int64_t Token(int n) const { return first + n / run.count; }
  SLUICE_DEVICE int64_t Head(int n) const { return run.first + n % run.count; }
  SLUICE_DEVICE bool MeetsLeaf(int leaf) const {
    return leaf * kLeafPositions < hi && (leaf + 1) * kLeafPositions > lo;
  }
  SLUICE_DEVICE bool SeesAll(int leaf) const {
    return leaf * kLeafPositions >= all_lo &&
           (leaf + 1) * kLeafPositions <= all_hi;
  }
};

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
  static constexpr int kLaneTokens = 4;  // of the block's, which a lane holds
  static constexpr int kMostTokens = kLaneTokens * kWarpLanes;

  struct Memory {
    Shared<TileA> keys;  // [position][8 elements], places of a row permuted
    Shared<TileA> values;
  };
  struct Cache {
    KvView kv;
    int64_t kv_head;
    const int32_t* table;
  };
  // A piece's, or node's, partials of the lane's rows; elements of row r are
  // values 2r, 2r + 1 of the tiles.
  struct Node {
    TileC tiles[kDim / 8];
    LeafChain chains[2];
    float sums[2];  // the lane's own until the piece ends
  };
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
      const PromptRun tokens = RunFrom(block, a.attention, from, begin, count);
      begin = tokens.end;
      const Cache cache = {
          FixedView<kDim>(a.attention.kv), run.kv_head,
          queries.block_tables + queries.table_offsets[from + tokens.begin]};
      const PromptTile tile = TileOf(block, a, tokens, from, run);
      Walk(block, a.attention, cache, memory, tokens, tile);
    }
  }

  // The run that begins at token `begin` of the block. A warp calls.
  static SLUICE_DEVICE PromptRun RunFrom(Block& block, const AttentionArgs& a,
                                         int64_t from, int begin, int count) {
    const int64_t* const offsets = a.queries.table_offsets + from;
    const int64_t own = offsets[begin];
    PromptRun run = {begin, count, 0x7FFFFFFF, 0};
    for (int k = kLaneTokens - 1; k >= 0; --k) {
      const int i = k * kWarpLanes + block.lane();
      const uint32_t others =
          block.Ballot(i > begin && i < count && offsets[i] != own);
      if (others != 0) {
        run.end = k * kWarpLanes + CountBits((others & (0u - others)) - 1);
      }
    }
    for (int k = 0; k < kLaneTokens; ++k) {
      const int i = k * kWarpLanes + block.lane();
      if (i < begin || i >= run.end) continue;
      const Visible visible = VisibleOf(a, from + i);
      const auto lo = static_cast<int>(visible.first);
      const auto hi = static_cast<int>(visible.last + 1);
      run.lo = lo < run.lo ? lo : run.lo;
      run.hi = hi > run.hi ? hi : run.hi;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
      run.lo = Least(block, run.lo, mask);
      run.hi = -Least(block, -run.hi, mask);
    }
    return run;
  }
  static SLUICE_DEVICE int Least(Block& block, int value, int mask) {
    const int other = block.ShuffleXor(value, mask);
    return other < value ? other : value;
  }

  static SLUICE_DEVICE PromptTile TileOf(Block& block, const Args& a,
                                         const PromptRun& tokens, int64_t from,
                                         const HeadRun& run) {
    const int each = a.cut.tokens / kLeafWarps;
    const int first = block.warp() * each;
    const int begin = first > tokens.begin ? first : tokens.begin;
    const int end = first + each < tokens.end ? first + each : tokens.end;
    PromptTile tile;
    tile.first = from + begin;
    tile.count = begin < end ? (end - begin) * run.count : 0;
    tile.run = run;
    tile.lo = 0x7FFFFFFF;
    tile.hi = 0;
    tile.all_lo = 0;
    tile.all_hi = 0x7FFFFFFF;
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      // Rows that are none see what row 0 does.
      const int n = block.lane() / 4 + 8 * r;
      Visible visible = {0, -1};
      if (tile.count > 0) {
        visible = VisibleOf(a.attention, tile.Token(n < tile.count ? n : 0));
      }
      tile.begin[r] = static_cast<int>(visible.first);
      tile.end[r] = static_cast<int>(visible.last + 1);
      tile.lo = tile.begin[r] < tile.lo ? tile.begin[r] : tile.lo;
      tile.hi = tile.end[r] > tile.hi ? tile.end[r] : tile.hi;
      tile.all_lo = tile.begin[r] > tile.all_lo ? tile.begin[r] : tile.all_lo;
      tile.all_hi = tile.end[r] < tile.all_hi ? tile.end[r] : tile.all_hi;
    }
    for (int mask = 16; mask >= 4; mask /= 2) {
      tile.lo = Least(block, tile.lo, mask);
      tile.hi = -Least(block, -tile.hi, mask);
      tile.all_lo = -Least(block, -tile.all_lo, mask);
      tile.all_hi = Least(block, tile.all_hi, mask);
    }
    return tile;
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
    Begin(node);
    uint32_t pending = 0;  // bit n: level n holds a finished node
    block.WaitCopies();
    block.Sync();
    for (; leaf < end; ++leaf) {
      const bool last = leaf + 1 == end;
      const bool meets = tile.MeetsLeaf(leaf);
      Load<false>(block, cache, tokens, leaf, memory.values);
      Weights weights = {};
      if (meets)
        Score(block, a.queries.scale, memory, tile, leaf, q, node, weights);
      block.WaitCopies();
      block.Sync();
      if (!last) Load<true>(block, cache, tokens, leaf + 1, memory.keys);
      if (meets) AddValues(block, memory, weights, node);
      if (leaf % kPieceLeaves == kPieceLeaves - 1 || last) {
        EndPiece(block, a, tile, {leaf / kPieceLeaves, last}, node, pending);
      }
      block.WaitCopies();
      block.Sync();
    }
    Store(block, a, tile, node);
  }

  // Where eight elements of a position stand: lanes that read side by side do
  // not meet in a bank.
  static SLUICE_DEVICE int KeyCell(int row, int cell) {
    return row * kRowCells + (cell ^ (row % 2 * 4));
  }
  static SLUICE_DEVICE int ValueCell(int row, int cell) {
    return row * kRowCells + (cell ^ (row / 4 % 4 * 2));
  }
  // Brings a leaf; zeros where nobody sees.
  template <bool kKeys>
  static SLUICE_DEVICE void Load(Block& block, const Cache& cache,
                                 const PromptRun& tokens, int leaf,
                                 const Shared<TileA>& to) {
    constexpr int kAtOnce = kThreads / kRowCells;  // rows
    const int cell = block.thread() % kRowCells;
    for (int i = 0; i < kLeafPositions / kAtOnce; ++i) {
      const int row = i * kAtOnce + block.thread() / kRowCells;
      const int position = leaf * kLeafPositions + row;
      const int at = kKeys ? KeyCell(row, cell) : ValueCell(row, cell);
      if (position < tokens.lo || position >= tokens.hi) {
        to.Set(at, TileA{});
        continue;
      }
      const KvSpot spot = {
          &cache.kv,
          cache.table[position / kStepPositions] * cache.kv.num_kv_heads +
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
        const TileB words = QueryWords(from + step / 2 * 32 + step % 2 * 4);
        q[step].words[r] = words.words[0];
        q[step].words[2 + r] = words.words[1];
      }
    }
  }
  static SLUICE_DEVICE void Begin(Node& node) {
    SLUICE_UNROLL
    for (TileC& tile : node.tiles) tile = {};
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      node.chains[r] = NoLeaves();
      node.sums[r] = 0.0f;
    }
  }

  // Finds a leaf's scores and weights, and takes the leaf into the chains.
  static SLUICE_DEVICE void Score(Block& block, float scale,
                                  const Memory& memory, const PromptTile& tile,
                                  int leaf, const Queries& q, Node& node,
                                  Weights& weights) {
    TileC scores[kLeafSteps * 2] = {};
    const int g = block.lane() / 4;
    SLUICE_UNROLL
    for (int n = 0; n < kLeafSteps * 2; ++n) {
      const int row = n / 2 * kStepPositions + g / 2 * 4 + n % 2 * 2 + g % 2;
      SLUICE_UNROLL
      for (int step = 0; step < kHeadSteps; step += 2) {
        const TileA keys =
            memory.keys.Get(KeyCell(row, step * 2 + block.lane() % 4));
        block.MultiplyTile(q[step], {{keys.words[0], keys.words[1]}},
                           scores[n]);
        block.MultiplyTile(q[step + 1], {{keys.words[2], keys.words[3]}},
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
    for (int r = 0; r < 2; ++r)
      WeighRow(block, r, scale, scores, node, weights);
  }
  static SLUICE_DEVICE void WeighRow(Block& block, int r, float scale,
                                     TileC (&scores)[kLeafSteps * 2],
                                     Node& node, Weights& weights) {
    float max = -Infinity();
    SLUICE_UNROLL
    for (TileC& tile : scores) {
      SLUICE_UNROLL
      for (int v = 2 * r; v < 2 * r + 2; ++v) {
        tile.values[v] = tile.values[v] * scale;
        max = tile.values[v] > max ? tile.values[v] : max;
      }
    }
    for (int mask = 1; mask <= 2; mask *= 2) {
      const float other = block.ShuffleXor(max, mask);
      max = other > max ? other : max;
    }
    const float factor = node.chains[r].Take(max);
    const float base = node.chains[r].base;
    float halves[2] = {0.0f, 0.0f};
    SLUICE_UNROLL
    for (int n = 0; n < kLeafSteps * 2; ++n) {
      const float lower = WeightOf(scores[n].values[2 * r] - base);
      const float upper = WeightOf(scores[n].values[2 * r + 1] - base);
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
        tile.values[v] = Fma(tile.values[v], factor, 0.0f);
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
          const int row = step * kStepPositions + block.lane() % 4 * 4 + i;
          v[i] =
              memory.values.Get(ValueCell(row, group * 8 + block.lane() / 4));
        }
        SLUICE_UNROLL
        for (int k = 0; k < 4; ++k) {
          TileC* const tiles = node.tiles + group * 8 + k * 2;
          block.MultiplyTile(weights[step],
                             {{Lower(v[0].words[k], v[1].words[k]),
                               Lower(v[2].words[k], v[3].words[k])}},
                             tiles[0]);
          block.MultiplyTile(weights[step],
                             {{Upper(v[0].words[k], v[1].words[k]),
                               Upper(v[2].words[k], v[3].words[k])}},
                             tiles[1]);
        }
      }
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
    for (float& sum : node.sums) {
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
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int n = block.lane() / 4 + 8 * r;
      if (n >= tile.count) continue;
      SLUICE_UNROLL
      for (int e = 0; e < kDim / 4; ++e) {
        to[(e * tile.count + n) * 4 + block.lane() % 4] =
            node.tiles[e / 2].values[2 * r + e % 2];
      }
      if (block.lane() % 4 == 0) {
        to[tile.count * kDim + n * 2] = node.chains[r].max;
        to[tile.count * kDim + n * 2 + 1] = node.sums[r];
      }
    }
    block.SyncWarp();
  }
  static SLUICE_DEVICE void JoinLevel(Block& block, const AttentionArgs& a,
                                      const PromptTile& tile, int level,
                                      Node& node) {
    const float* const from = LevelAt(a, tile, level);
    SLUICE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int n = block.lane() / 4 + 8 * r;
      if (n >= tile.count) continue;
      const float max = from[tile.count * kDim + n * 2];
      const float sum = from[tile.count * kDim + n * 2 + 1];
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
        const float other = from[(e * tile.count + n) * 4 + block.lane() % 4];
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
      const Partial all = {node.chains[r].max, node.sums[r], 0.0f};
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
        SetFour(to + q / 4 * 64 + q % 4 * 4,
                OutputOf(a, tile.Head(n), all, own));
      }
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_ATTENTION_PROMPT_H_
