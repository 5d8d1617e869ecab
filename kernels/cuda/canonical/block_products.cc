#include <cuda_device/device.h>
#include <cuda_device/launch.h>

#include <iterator>

#include "common/base/check.h"
#include "kernels/cuda/canonical/block_formats.h"
#include "kernels/cuda/canonical/block_products_many_tokens.h"
#include "kernels/cuda/canonical/block_products_one_token.h"
#include "kernels/cuda/canonical/block_products_rows.h"
#include "kernels/cuda/canonical/products.h"
#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/product_shards.h"
#include "kernels/cuda/shared/product_tile.h"

namespace sluice::kernels::cuda {
namespace {

using blocks::B;
using blocks::Blocks;
using blocks::Place;

// A thread per row: a warp has two groups of packed rows. Every warp finds the
// integer sums of a block of elements; then a warp per token adds all of them
// in rising k.
template <BlockFormat kFormat>
struct BlockKernel {
  using T = Blocks<kFormat>;
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / kWarpLanes;
  static constexpr int kElements = T::kStored.elements;
  static constexpr int kTokens = kTileTokens;
  static constexpr int kSlots = kWarps;
  // Values of a block's sum, and factors: of codes, and of minima.
  static constexpr int kTerms = T::kMinima ? 2 : 1;
  static constexpr int kTermFloats = kSlots * kTokens * kTerms * 2 * kWarpLanes;
  using Args = BlockArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t tiles = (a.rows + kWarpLanes - 1) / kWarpLanes;
    const int64_t row = block.index() % tiles * kWarpLanes + block.lane();
    ProductTile tile;
    if (!FindTile(a.grouped, block.index() / tiles, a.x.rows.rows, a.packed,
                  a.bias, a.rows, tile)) {
      return;
    }
    const auto terms = block.Allocate<float>(kTermFloats);
    const auto partials =
        block.Allocate<float>(a.shards.num_shards * kTokens * kWarpLanes);
    for (int32_t s = 0; s < a.shards.num_shards; ++s) {
      float sum = 0.0f;
      const int64_t end = a.shards.bounds[s + 1];
      for (int64_t b = a.shards.bounds[s]; b < end; b += kSlots) {
        if (b + block.warp() < end && row < a.rows) {
          FindTerms(block, a, tile, {row, b + block.warp()}, terms);
        }
        block.Sync();
        if (block.warp() < tile.tokens && row < a.rows) {
          const int64_t left = end - b < kSlots ? end - b : kSlots;
          sum = AddTerms(block, terms, static_cast<int>(left), sum);
        }
        block.Sync();
      }
      if (block.warp() < tile.tokens) {
        partials.Set(s * kTokens * kWarpLanes + block.thread(), sum);
      }
    }
    if (block.warp() >= tile.tokens) return;
    const bool finite = IsFinite(block, a.x, tile.In(block.warp()));
    if (row >= a.rows) return;
    StoreFinite(
        a.shards, partials,
        {kTokens * kWarpLanes, block.thread(), tile.out + block.warp(), row},
        tile.bias, finite);
  }

  // Where the terms of block `slot` and a token stand for this lane.
  static SLUICE_DEVICE int At(Block& block, int slot, int t) {
    return (slot * kTokens + t) * kTerms * 2 * kWarpLanes + block.lane();
  }

  // Block b of a row.
  struct Part {
    int64_t row;
    int64_t b;
  };
  // The part's terms for all tokens.
  static SLUICE_DEVICE void FindTerms(Block& block, const Args& a,
                                      const ProductTile& tile,
                                      const Part& part_at,
                                      const Shared<float>& terms) {
    const int64_t row = part_at.row;
    const int64_t b = part_at.b;
    const int64_t blocks = a.x.rows.cols / kElements;
    const Place at = {static_cast<const uint8_t*>(tile.w) +
                          (row / kGroupRows * blocks + b) * T::kBytes,
                      static_cast<int>(row % kGroupRows)};
    int32_t scales[T::kSubs];
    int32_t minima[(T::kSubs + 1) / 2] = {};
    if constexpr (T::kLong) {
      T::SubScales(at, scales, minima);
    } else {
      scales[0] = 1;
    }
    // Loads have no branches: the last token stands for those that are not.
    int64_t in[kTokens];
    SLUICE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      in[t] = tile.In(t < tile.tokens ? t : tile.tokens - 1);
    }
    int32_t whole[kTokens] = {};
    int32_t least[kTokens] = {};
    SLUICE_UNROLL
    for (int s = 0; s < T::kSubs; ++s) {
      int32_t part[kTokens] = {};
      AddSubBlock(a, at, s, in, b, part);
      const int32_t minimum =
          T::kLong ? minima[s / 2] >> (s % 2 * 16) & 0xFFFF : 1;
      SLUICE_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const int32_t sum = SubSum(a, in[t], b, s);
        whole[t] += (part[t] - T::kZero * sum) * scales[s];
        least[t] += minimum * sum;
      }
    }
    const float scale = T::Scale(at);
    float minimum = 0.0f;
    if constexpr (T::kMinima) minimum = T::Minimum(at);
    SLUICE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const float one = a.x.rows.scales[in[t] * blocks + b];
      const int to = At(block, block.warp(), t);
      terms.Set(to, static_cast<float>(whole[t]));
      terms.Set(to + kWarpLanes, scale * one);
      if constexpr (T::kMinima) {
        terms.Set(to + 2 * kWarpLanes, static_cast<float>(least[t]));
        terms.Set(to + 3 * kWarpLanes, minimum * one);
      }
    }
  }

  // The sum of the activations' codes of sub-block s.
  static SLUICE_DEVICE int32_t SubSum(const Args& a, int64_t token, int64_t b,
                                      int s) {
    const int16_t* sums =
        a.x.rows.sums + (token * a.x.rows.cols + b * kElements) / 16;
    if constexpr (T::kGroups == 4) return sums[s];
    return sums[2 * s] + sums[2 * s + 1];
  }

  // Adds the products of sub-block s with the tokens `in`.
  static SLUICE_DEVICE void AddSubBlock(const Args& a, const Place& at, int s,
                                        const int64_t* in, int64_t b,
                                        int32_t* part) {
    uint32_t x[kTokens][T::kGroups];
    SLUICE_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const int8_t* const codes = a.x.rows.codes + in[t] * a.x.rows.cols +
                                  b * kElements + s * T::kGroups * 4;
      SLUICE_UNROLL
      for (int i = 0; i < T::kGroups; ++i) {
        x[t][i] = LoadWritten(codes + i / 4 * 16).words[i % 4];
      }
    }
    AddSteps<0>(at, s, x, part);
  }
  // Adds the products of steps kStep and up.
  template <int kStep>
  static SLUICE_DEVICE void AddSteps(const Place& at, int s,
                                     const uint32_t (&x)[kTokens][T::kGroups],
                                     int32_t* part) {
    if constexpr (kStep * T::kPerVector < T::kGroups) {
      B codes[T::kPerVector];
      T::template Unpack<kStep>(at, s, codes);
      SLUICE_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        SLUICE_UNROLL
        for (int p = 0; p < T::kPerVector; ++p) {
          part[t] =
              DotBytes(part[t], codes[p], x[t][kStep * T::kPerVector + p]);
        }
      }
      AddSteps<kStep + 1>(at, s, x, part);
    }
  }

  // Adds the terms of `count` blocks for the warp's token.
  static SLUICE_DEVICE float AddTerms(Block& block, const Shared<float>& terms,
                                      int count, float sum) {
    for (int i = 0; i < count; ++i) {
      const int at = At(block, i, block.warp());
      sum = Fma(terms.Get(at), terms.Get(at + kWarpLanes), sum);
      if constexpr (T::kMinima) {
        sum = Fma(terms.Get(at + 2 * kWarpLanes),
                  terms.Get(at + 3 * kWarpLanes), sum);
      }
    }
    return sum;
  }

  static void Start(Stream stream, const Args& a, int64_t groups) {
    const int64_t tiles = (a.rows + kWarpLanes - 1) / kWarpLanes;
    const size_t floats =
        kTermFloats +
        static_cast<size_t>(a.shards.num_shards) * kTokens * kWarpLanes;
    Launch<BlockKernel>(stream, tiles * groups, floats * sizeof(float), a);
  }
};

// A warp per piece of a token's row; a thread per sub-block.
template <BlockFormat kFormat>
struct EmbedBlocksKernel {
  using T = Blocks<kFormat>;
  static constexpr int kThreads = kWarpLanes;
  static constexpr int kElements = T::kGroups * 4;  // of a sub-block
  static SLUICE_DEVICE constexpr int64_t Pieces(int64_t cols) {
    return (cols / kElements + kThreads - 1) / kThreads;
  }
  struct Args {
    const uint8_t* packed;
    const int32_t* ids;
    Matrix y;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t token = block.index() / Pieces(a.y.cols);
    const int64_t i =
        block.index() % Pieces(a.y.cols) * kThreads + block.thread();
    const int64_t row = a.ids[token];
    const int64_t blocks = a.y.cols / T::kStored.elements;
    if (i >= blocks * T::kSubs) return;
    const Place at = {
        a.packed + (row / kGroupRows * blocks + i / T::kSubs) * T::kBytes,
        static_cast<int>(row % kGroupRows)};
    const int s = static_cast<int>(i % T::kSubs);
    float scale = T::Scale(at);
    float minimum = 0.0f;
    if constexpr (T::kMinima) minimum = T::Minimum(at);
    if constexpr (T::kLong) {
      int32_t scales[T::kSubs];
      int32_t minima[(T::kSubs + 1) / 2] = {};
      T::SubScales(at, scales, minima);
      scale = scale * static_cast<float>(scales[s]);
      minimum =
          minimum * static_cast<float>(minima[s / 2] >> (s % 2 * 16) & 0xFFFF);
    }
    Widen<0>(at, s, scale, minimum,
             a.y.data + token * a.y.stride + i * kElements);
  }
  // Steps kStep and up of sub-block s.
  template <int kStep>
  static SLUICE_DEVICE void Widen(const Place& at, int s, float scale,
                                  float minimum, float* y) {
    if constexpr (kStep * T::kPerVector < T::kGroups) {
      B codes[T::kPerVector];
      T::template Unpack<kStep>(at, s, codes);
      for (int e = 0; e < 4 * T::kPerVector; ++e) {
        const int32_t code =
            static_cast<int32_t>(codes[e / 4] >> (e % 4 * 8) & 255u) - T::kZero;
        float value = scale * static_cast<float>(code);
        if constexpr (T::kMinima) value = value + minimum;
        y[kStep * 4 * T::kPerVector + e] = value;
      }
      Widen<kStep + 1>(at, s, scale, minimum, y);
    }
  }
};

// What a format has kernels for.
struct Starters {
  void (*multiply)(Stream, const FlaggedRows&, const BlockWeight&, const float*,
                   const ShardArgs&, const ExpertRun&);
  void (*embed)(Stream, const BlockWeight&, const int32_t*, Matrix);
  bool (*tiles_fit)(Stream);
};
template <BlockFormat kFormat>
void StartProduct(Stream stream, const FlaggedRows& x, const BlockWeight& w,
                  const float* bias, const ShardArgs& shards,
                  const ExpertRun& run) {
  const bool grouped = run.grouped.groups != nullptr;
  const int64_t rows = x.rows.rows;
  const BlockArgs args = {x, w.packed, w.rows, bias, shards, run.grouped};
  if (grouped ? run.grouped.tile_rows == 1 : rows == 1) {
    return BlockSingleKernel<kFormat>::Start(stream, args,
                                             grouped ? run.max_groups : 1);
  }
  // Tiles have the same bits: the faster ones are taken.
  constexpr int64_t kFew = 8;
  using Tiles = BlockTileKernel<kFormat>;
  if (grouped ? run.grouped.tile_rows == kBlockTileTokens
              : rows > kFew && Tiles::Fits(stream, shards)) {
    BlockArgs tiled = args;
    tiled.grouped.tile_rows = kBlockTileTokens;
    return Tiles::Start(stream, tiled,
                        grouped
                            ? run.max_groups
                            : (rows + kBlockTileTokens - 1) / kBlockTileTokens);
  }
  BlockKernel<kFormat>::Start(
      stream, args,
      grouped ? run.max_groups : (rows + kTileTokens - 1) / kTileTokens);
}
template <BlockFormat kFormat>
bool TilesFit(Stream stream) {
  ShardArgs alone = {};
  alone.num_outputs = 1;
  alone.nodes[0] = {0, 1};
  return BlockTileKernel<kFormat>::Fits(stream, alone);
}
template <BlockFormat kFormat>
void StartEmbed(Stream stream, const BlockWeight& table, const int32_t* ids,
                Matrix y) {
  using Kernel = EmbedBlocksKernel<kFormat>;
  Launch<Kernel>(stream, y.rows * Kernel::Pieces(y.cols), 0,
                 {table.packed, ids, y});
}
template <BlockFormat kFormat>
constexpr Starters kStartersOf = {StartProduct<kFormat>, StartEmbed<kFormat>,
                                  TilesFit<kFormat>};

// By BlockFormat.
constexpr Starters kStarters[] = {
    kStartersOf<BlockFormat::kQ8_0>,  kStartersOf<BlockFormat::kQ4_0>,
    kStartersOf<BlockFormat::kQ4_1>,  kStartersOf<BlockFormat::kQ5_0>,
    kStartersOf<BlockFormat::kQ5_1>,  kStartersOf<BlockFormat::kIq4Nl>,
    kStartersOf<BlockFormat::kMxfp4>, kStartersOf<BlockFormat::kQ2K>,
    kStartersOf<BlockFormat::kQ3K>,   kStartersOf<BlockFormat::kQ4K>,
    kStartersOf<BlockFormat::kQ5K>,   kStartersOf<BlockFormat::kQ6K>,
    kStartersOf<BlockFormat::kIq4Xs>};
static_assert(std::size(kStarters) == kNumBlockFormats,
              "every BlockFormat has a row in kStarters");

void MultiplyBlocks(Stream stream, const FlaggedRows& x, const BlockWeight& w,
                    const float* bias, const ShardArgs& shards,
                    const ExpertRun& run = {}) {
  SLUICE_CHECK(x.rows.cols == w.cols);
  SLUICE_CHECK(x.rows.block == LayoutOf(w.format).elements);
  kStarters[static_cast<int>(w.format)].multiply(stream, x, w, bias, shards,
                                                 run);
}

}  // namespace

bool BlockTilesFit(Stream stream, BlockFormat format) {
  return kStarters[static_cast<int>(format)].tiles_fit(stream);
}

void BlockMatMul(Stream stream, const FlaggedRows& x, const BlockWeight& w,
                 const float* bias, Matrix y) {
  const int32_t bounds[2] = {0, static_cast<int32_t>(w.cols)};
  const TreeNode node = {0, 1};
  MultiplyBlocks(stream, x, w, bias,
                 ShardArgsOf({bounds, {&node, 1}}, {&y, 1}, x.rows.block));
}

void BlockMatMulSharded(Stream stream, const FlaggedRows& x,
                        const BlockWeight& w, const ShardedCols& shards,
                        std::span<const Matrix> y) {
  MultiplyBlocks(stream, x, w, nullptr, ShardArgsOf(shards, y, x.rows.block));
}

void BlockMatMulGroups(Stream stream, const FlaggedRows& x,
                       const BlockWeight& like, const float* bias,
                       const ExpertRun& run, Matrix y) {
  const int32_t bounds[2] = {0, static_cast<int32_t>(like.cols)};
  const TreeNode node = {0, 1};
  MultiplyBlocks(stream, x, like, bias,
                 ShardArgsOf({bounds, {&node, 1}}, {&y, 1}, x.rows.block), run);
}

void EmbedBlocks(Stream stream, const BlockWeight& table, const int32_t* ids,
                 Matrix y) {
  SLUICE_CHECK(y.cols == table.cols);
  kStarters[static_cast<int>(table.format)].embed(stream, table, ids, y);
}

}  // namespace sluice::kernels::cuda
