#ifndef SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_MANY_TOKENS_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_MANY_TOKENS_H_

#include <cuda_device/device.h>
#include <cuda_device/launch.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/canonical/block_formats.h"
#include "kernels/cuda/canonical/block_products_rows.h"
#include "kernels/cuda/canonical/block_products_shard_sums.h"
#include "kernels/cuda/shared/product_tile.h"

namespace sluice::kernels::cuda {

// Products of many tokens on integer matrix units: a block per 64 rows and 64
// tokens. Threads unpack the codes of a stage's columns to shared memory; a
// warp multiplies 16 or 32 rows by 16 tokens. The sums of a block of
// elements become terms that every lane adds in rising k, as the CPU does; sums
// of shards that wait for their neighbour in the tree stand in shared memory.
template <BlockFormat kFormat>
struct BlockTileKernel {
  using T = blocks::Blocks<kFormat>;
  static constexpr int kRows = 64;
  static constexpr int kTokens = kBlockTileTokens;
  // Of a warp: sixteen rows, eight tokens each.
  static constexpr int kRowTiles = T::kLong ? 1 : 2;
  static constexpr int kTokenTiles = 2;
  static constexpr int kRowWarps = kRows / 16 / kRowTiles;
  static constexpr int kThreads =
      kRowWarps * (kTokens / 8 / kTokenTiles) * kWarpLanes;
  static constexpr int kLeastBlocks = 512 / kThreads;
  static constexpr int kElements = T::kStored.elements;
  // A stage has kParts parts of 32 columns: short blocks, or half a long one.
  static constexpr int kParts = 4;
  static constexpr int kPart = 32;
  static constexpr int kStages = T::kLong ? 2 : 1;
  // Words of a part of a row: eight, and four that keep banks apart.
  static constexpr int kStride = 12;
  // Sub-blocks of a part, which have an integer scale each.
  static constexpr int kSubs = T::kGroups == 4 ? 2 : 1;
  // Blocks of elements of a stage, whose scales are there.
  static constexpr int kScales = T::kLong ? 1 : kParts;
  static constexpr int kCells = kRowTiles * kTokenTiles * 4;
  using Args = BlockArgs;
  using Operands = TileOperands<T>;
  using Waiting = WaitingSums<kThreads, kRowTiles, kTokenTiles>;

  struct Stage {
    Shared<uint32_t> codes;      // [kParts, kRows, kStride]
    Shared<uint32_t> x;          // [kParts, kTokens, kStride]
    Shared<float> scales;        // [kScales, kRows]
    Shared<float> minima;        // [kScales, kRows]
    Shared<float> x_scales;      // [kScales, kTokens]
    Shared<int32_t> x_sums;      // [kParts kSubs, kTokens]: of sub-blocks
    Shared<int32_t> sub_scales;  // [T::kSubs, kRows]
    Shared<int32_t> sub_minima;  // [T::kSubs / 2, kRows]: pairs
  };
  // A lane's elements: 16 rows and 8 tokens of the warp's are a tile.
  using Sums = float[kRowTiles][kTokenTiles][4];
  using Counts = int32_t[kRowTiles][kTokenTiles][4];
  // Blocks [b, b + count) of a shard, or half `half` of block b.
  struct Place {
    int64_t b;
    int count;  // parts
    int half;
  };

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t row_tiles = (a.rows + kRows - 1) / kRows;
    Operands from;
    if (!FindTile(a.grouped, block.index() / row_tiles, a.x.rows.rows, a.packed,
                  a.bias, a.rows, from.tile)) {
      return;
    }
    from.packed = static_cast<const uint8_t*>(from.tile.w);
    from.first_row = block.index() % row_tiles * kRows;
    from.groups = (a.rows + kGroupRows - 1) / kGroupRows;
    from.blocks = a.x.rows.cols / kElements;
    const auto finite = block.Allocate<int32_t>(kTokens);
    const Stage stage = {
        block.Allocate<uint32_t>(kParts * kRows * kStride),
        block.Allocate<uint32_t>(kParts * kTokens * kStride),
        block.Allocate<float>(kScales * kRows),
        block.Allocate<float>(kScales * kRows),
        block.Allocate<float>(kScales * kTokens),
        block.Allocate<int32_t>(kParts * kSubs * kTokens),
        block.Allocate<int32_t>(T::kLong ? T::kSubs * kRows : 1),
        block.Allocate<int32_t>(T::kLong ? T::kSubs / 2 * kRows : 1)};
    const auto waiting =
        block.Allocate<float>(Waiting::LevelsOf(a.shards) * kCells * kThreads);
    for (int t = block.warp(); t < kTokens; t += kThreads / kWarpLanes) {
      const bool is_finite = IsFinite(block, a.x, from.In(t));
      if (block.lane() == 0) finite.Set(t, is_finite ? 1 : 0);
    }
    for (int32_t o = 0; o < a.shards.num_outputs; ++o) {
      const TreeNode node = a.shards.nodes[o];
      Sums sums;
      for (int32_t s = node.begin; s < node.end; ++s) {
        SLUICE_UNROLL
        for (int m = 0; m < kRowTiles; ++m) {
          SLUICE_UNROLL
          for (int n = 0; n < kTokenTiles; ++n) {
            SLUICE_UNROLL
            for (int e = 0; e < 4; ++e) sums[m][n][e] = 0.0f;
          }
        }
        AddShard(block, a, from, stage, s, sums);
        Waiting::Join(block, waiting, s - node.begin, s + 1 == node.end, sums);
      }
      Store(block, a, from, finite, o, sums);
    }
  }

  // The sums of shard s.
  static SLUICE_DEVICE void AddShard(Block& block, const Args& a,
                                     const Operands& from, const Stage& stage,
                                     int32_t s, Sums& sums) {
    const int32_t end = a.shards.bounds[s + 1];
    for (int32_t b = a.shards.bounds[s]; b < end; b += kScales) {
      Counts whole = {};
      Counts least = {};
      SLUICE_ROLL
      for (int half = 0; half < kStages; ++half) {
        const int left = end - b;
        const Place at = {b, T::kLong || left > kParts ? kParts : left, half};
        block.Sync();  // the stage before is read
        if (block.thread() < kParts * kRows) {
          LoadWeights(block, from, at, stage);
        } else if constexpr (T::kLong) {
          if (half == 0) LoadScales(block, from, at, stage);
        }
        LoadTokens(block, a, from, at, stage);
        block.WaitCopies();
        block.Sync();
        SLUICE_ROLL
        for (int part = 0; part < at.count; ++part) {
          Multiply(block, stage, part, half, whole, least);
          if constexpr (!T::kLong)
            AddTerms(block, stage, part, whole, least, sums);
        }
      }
      if constexpr (T::kLong) AddTerms(block, stage, 0, whole, least, sums);
    }
  }

  // The codes and scales of a stage. A thread has a row's part.
  static SLUICE_DEVICE void LoadWeights(const Block& block,
                                        const Operands& from, const Place& at,
                                        const Stage& stage) {
    static_assert(kThreads >= kParts * kRows);
    const int part = block.thread() / kRows;
    const int row = block.thread() % kRows;
    if (part < at.count) {
      const blocks::Place place = from.At(row, T::kLong ? at.b : at.b + part);
      const int to = block.thread() * kStride;
      SLUICE_ROLL
      for (int i = 0; i < kSubs; ++i) {
        const int sub = T::kLong ? (at.half * kParts + part) * kSubs + i : 0;
        Unpack<0>(place, sub, stage.codes, to + i * T::kGroups);
      }
      if constexpr (!T::kLong) {
        stage.scales.Set(block.thread(), T::Scale(place));
        if constexpr (T::kMinima) {
          stage.minima.Set(block.thread(), T::Minimum(place));
        }
      }
    }
  }
  // The scales of a long block, by threads that unpack no codes.
  static SLUICE_DEVICE void LoadScales(const Block& block, const Operands& from,
                                       const Place& at, const Stage& stage) {
    static_assert(kThreads >= (kParts + 1) * kRows);
    const int row = block.thread() - kParts * kRows;
    if (row < 0 || row >= kRows) return;
    const blocks::Place place = from.At(row, at.b);
    stage.scales.Set(row, T::Scale(place));
    if constexpr (T::kMinima) stage.minima.Set(row, T::Minimum(place));
    int32_t scales[T::kSubs];
    int32_t minima[(T::kSubs + 1) / 2] = {};
    T::SubScales(place, scales, minima);
    SLUICE_UNROLL
    for (int s = 0; s < T::kSubs; ++s) {
      stage.sub_scales.Set(s * kRows + row, scales[s]);
      if (T::kMinima && s % 2 == 0) {
        stage.sub_minima.Set(s / 2 * kRows + row, minima[s / 2]);
      }
    }
  }
  // Steps kStep and up of sub-block s.
  template <int kStep>
  static SLUICE_DEVICE void Unpack(const blocks::Place& at, int s,
                                   const Shared<uint32_t>& codes, int to) {
    if constexpr (kStep * T::kPerVector < T::kGroups) {
      uint32_t own[T::kPerVector];
      T::template Unpack<kStep>(at, s, own);
      SLUICE_UNROLL
      for (int p = 0; p < T::kPerVector; ++p) {
        codes.Set(to + kStep * T::kPerVector + p, own[p]);
      }
      Unpack<kStep + 1>(at, s, codes, to);
    }
  }

  // The activations of a stage.
  static SLUICE_DEVICE void LoadTokens(Block& block, const Args& a,
                                       const Operands& from, const Place& at,
                                       const Stage& stage) {
    constexpr int kPieces = 2 * kParts;  // of sixteen bytes
    const int64_t column = at.b * kElements + at.half * kParts * kPart;
    for (int i = block.thread(); i < kTokens * kPieces; i += kThreads) {
      const int piece = i % kPieces;
      if (piece / 2 >= at.count) continue;
      const int8_t* const codes = a.x.rows.codes +
                                  from.In(i / kPieces) * a.x.rows.cols +
                                  column + piece * 16;
      block.CopyAsync(
          stage.x,
          (piece / 2 * kTokens + i / kPieces) * kStride + piece % 2 * 4,
          reinterpret_cast<const uint32_t*>(codes));
    }
    const int part = block.thread() / kTokens;
    const int t = block.thread() % kTokens;
    static_assert(kThreads >= kParts * kTokens);
    if (part >= at.count) return;
    const int64_t token = from.In(t);
    if (part < kScales) {
      stage.x_scales.Set(block.thread(),
                         a.x.rows.scales[token * from.blocks + at.b + part]);
    }
    const int16_t* const sums =
        a.x.rows.sums + (token * a.x.rows.cols + column) / 16 + part * 2;
    if constexpr (kSubs == 2) {
      stage.x_sums.Set(part * 2 * kTokens + t, sums[0]);
      stage.x_sums.Set((part * 2 + 1) * kTokens + t, sums[1]);
    } else {
      stage.x_sums.Set(part * kTokens + t, sums[0] + sums[1]);
    }
  }

  // A lane's first row in a tile of the block, and first token.
  static SLUICE_DEVICE int RowOf(const Block& block, int m) {
    return block.warp() % kRowWarps * 16 * kRowTiles + m * 16 +
           block.lane() / 4;
  }
  static SLUICE_DEVICE int TokenOf(const Block& block, int n) {
    return block.warp() / kRowWarps * 8 * kTokenTiles + n * 8 +
           block.lane() % 4 * 2;
  }

  // Adds a part's products to the counts of the block of elements at hand.
  static SLUICE_DEVICE void Multiply(Block& block, const Stage& stage, int part,
                                     int half, Counts& whole, Counts& least) {
    const int g = block.lane() / 4;
    const int quad = block.lane() % 4;
    TileB x[kTokenTiles];
    SLUICE_UNROLL
    for (int n = 0; n < kTokenTiles; ++n) {
      const int token = block.warp() / kRowWarps * 8 * kTokenTiles + n * 8 + g;
      const int at = (part * kTokens + token) * kStride + quad;
      x[n] = {{stage.x.Get(at), stage.x.Get(at + 4)}};
    }
    SLUICE_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      const int row = RowOf(block, m);
      const int at = (part * kRows + row) * kStride + quad;
      const int below = at + 8 * kStride;
      const TileA codes = {{stage.codes.Get(at), stage.codes.Get(below),
                            stage.codes.Get(at + 4),
                            stage.codes.Get(below + 4)}};
      SLUICE_ROLL
      for (int sub = 0; sub < kSubs; ++sub) {
        // Of a short sub-block sixteen columns.
        const uint32_t first = kSubs == 1 || sub == 0 ? ~0u : 0u;
        const uint32_t second = kSubs == 1 || sub == 1 ? ~0u : 0u;
        const TileA own = {{codes.words[0] & first, codes.words[1] & first,
                            codes.words[2] & second, codes.words[3] & second}};
        const int s = (half * kParts + part) * kSubs + sub;
        int32_t scales[2] = {1, 1};
        int32_t minima[2] = {1, 1};
        if constexpr (T::kLong) {
          SLUICE_UNROLL
          for (int i = 0; i < 2; ++i) {
            scales[i] = stage.sub_scales.Get(s * kRows + row + 8 * i);
            if constexpr (T::kMinima) {
              const int32_t pair =
                  stage.sub_minima.Get(s / 2 * kRows + row + 8 * i);
              minima[i] = pair >> (s % 2 * 16) & 0xFFFF;
            }
          }
        }
        SLUICE_UNROLL
        for (int n = 0; n < kTokenTiles; ++n) {
          int32_t sums[2];
          SLUICE_UNROLL
          for (int i = 0; i < 2; ++i) {
            sums[i] = stage.x_sums.Get((part * kSubs + sub) * kTokens +
                                       TokenOf(block, n) + i);
          }
          TileI products;
          SLUICE_UNROLL
          for (int e = 0; e < 4; ++e) {
            products.values[e] = -T::kZero * sums[e % 2];
          }
          block.MultiplyCodes(own, x[n], products);
          SLUICE_UNROLL
          for (int e = 0; e < 4; ++e) {
            whole[m][n][e] += products.values[e] * scales[e / 2];
            if constexpr (T::kMinima) {
              least[m][n][e] += minima[e / 2] * sums[e % 2];
            }
          }
        }
      }
    }
  }

  // Adds the terms of the block of elements whose scales are `index` of the
  // stage, and begins the next one's counts.
  static SLUICE_DEVICE void AddTerms(const Block& block, const Stage& stage,
                                     int index, Counts& whole, Counts& least,
                                     Sums& sums) {
    SLUICE_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SLUICE_UNROLL
      for (int n = 0; n < kTokenTiles; ++n) {
        SLUICE_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int row = index * kRows + RowOf(block, m) + e / 2 * 8;
          const float one =
              stage.x_scales.Get(index * kTokens + TokenOf(block, n) + e % 2);
          float& sum = sums[m][n][e];
          sum = Fma(static_cast<float>(whole[m][n][e]),
                    stage.scales.Get(row) * one, sum);
          if constexpr (T::kMinima) {
            sum = Fma(static_cast<float>(least[m][n][e]),
                      stage.minima.Get(row) * one, sum);
          }
          whole[m][n][e] = 0;
          least[m][n][e] = 0;
        }
      }
    }
  }

  // Stores output o.
  static SLUICE_DEVICE void Store(const Block& block, const Args& a,
                                  const Operands& from,
                                  const Shared<int32_t>& finite, int32_t o,
                                  const Sums& sums) {
    SLUICE_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      SLUICE_UNROLL
      for (int n = 0; n < kTokenTiles; ++n) {
        SLUICE_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int64_t row = from.first_row + RowOf(block, m) + e / 2 * 8;
          const int token = TokenOf(block, n) + e % 2;
          if (row >= a.rows || token >= from.tile.tokens) continue;
          float value = sums[m][n][e];
          if (from.tile.bias != nullptr) value = value + from.tile.bias[row];
          a.shards.y[o][(from.tile.out + token) * a.shards.stride[o] + row] =
              finite.Get(token) != 0 ? value : NotANumber();
        }
      }
    }
  }

  static size_t SharedBytes(const ShardArgs& shards) {
    const size_t words =
        kParts * (kRows + kTokens) * kStride + 2 * kScales * kRows +
        kScales * kTokens + kParts * kSubs * kTokens + kTokens +
        (T::kLong ? T::kSubs * kRows + T::kSubs / 2 * kRows : 8);
    return sizeof(float) *
           (words +
            static_cast<size_t>(Waiting::LevelsOf(shards)) * kCells * kThreads);
  }
  // Whether the device has enough shared memory.
  static bool Fits(Stream stream, const ShardArgs& shards) {
    return SharedBytes(shards) <= LimitsOf(stream).shared_bytes;
  }
  // `tiles`: of kTokens tokens, or groups.
  static void Start(Stream stream, const Args& a, int64_t tiles) {
    const int64_t row_tiles = (a.rows + kRows - 1) / kRows;
    Launch<BlockTileKernel>(stream, row_tiles * tiles, SharedBytes(a.shards),
                            a);
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_MANY_TOKENS_H_
