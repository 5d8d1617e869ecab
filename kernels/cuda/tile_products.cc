#include "kernels/cuda/tile_products.h"

#include <algorithm>
#include <type_traits>

#include "common/base/check.h"
#include "kernels/cuda/products_shards.h"
#include "kernels/cuda/products_tiles.h"
#include "kernels/cuda/tile_elements.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kProductThreads = 256;
constexpr int kProductWarps = kProductThreads / kWarpLanes;
// Steps whose weights are on the way at once.
constexpr int kDeep = 4;

struct TileArgs {
  ConstMatrix x;
  const void* w;
  int64_t rows;
  int64_t cols;
  const float* bias;
  ShardArgs shards;
  GroupedRows grouped;
  bool aligned;  // four columns of x from a multiple of four on
};

// A lane's rows of x, one per octet of tokens.
template <int kOctets>
class TileRows {
 public:
  SLUICE_DEVICE TileRows(const Block& block, const TileArgs& a,
                         const ProductTile& tile)
      : aligned_(a.aligned) {
    for (int o = 0; o < kOctets; ++o) {
      const int n = o * 8 + block.lane() / 4;
      rows_[o] = n < tile.tokens ? a.x.data + tile.In(n) * a.x.stride : nullptr;
    }
  }
  // Operand B from column `column` on, the lane's own; zero from `end` on.
  SLUICE_DEVICE TileB Load(int octet, int64_t column, int64_t end) const {
    const float* const from = rows_[octet];
    Quad x = {};
    if (from != nullptr) {
      if (aligned_ && column + 4 <= end) {
        x = LoadQuad(from + column);
      } else {
        for (int i = 0; i < 4; ++i) {
          if (column + i < end) x.values[i] = from[column + i];
        }
      }
    }
    return {{PackPair(x.values[0], x.values[1]),
             PackPair(x.values[2], x.values[3])}};
  }

 private:
  const float* rows_[kOctets];
  const bool aligned_;
};

// The chain of one leaf, columns [begin, end), of 16 rows of a BF16 weight.
struct Bf16Chain {
  // Size: the leaf, the weight and the activations of a chain.
  template <int kOctets>
  static SLUICE_DEVICE void Run(Block& block, const TileArgs& a, const void* w,
                                int64_t row_tile, int32_t begin, int32_t end,
                                TileC (&sums)[kOctets],
                                const TileRows<kOctets>& x) {
    int32_t k = begin;
    if (begin % kTileSide == 0) {
      const uint8_t* at =
          static_cast<const uint8_t*>(w) +
          (row_tile * StepsOf(a.cols) + begin / kTileSide) * kStepBytes +
          block.lane() * 16;
      for (; k + kDeep * kTileSide <= end; k += kDeep * kTileSide) {
        Steps<kDeep>(block, at, k, end, sums, x);
        at += kDeep * kStepBytes;
      }
      for (; k < end; k += kTileSide) {
        Steps<1>(block, at, k, end, sums, x);
        at += kStepBytes;
      }
      return;
    }
    for (; k < end; k += kTileSide) {
      const int64_t row = row_tile * kTileSide + block.lane() / 4;
      const int64_t column = k + block.lane() % 4 * 4;
      const TileA weight = {{Pair(a, w, row, column, end),
                             Pair(a, w, row + 8, column, end),
                             Pair(a, w, row, column + 2, end),
                             Pair(a, w, row + 8, column + 2, end)}};
      for (int o = 0; o < kOctets; ++o) {
        block.MultiplyTile(weight, x.Load(o, column, end), sums[o]);
      }
    }
  }
  template <int kSteps, int kOctets>
  static SLUICE_DEVICE void Steps(Block& block, const uint8_t* at, int64_t k,
                                  int64_t end, TileC (&sums)[kOctets],
                                  const TileRows<kOctets>& x) {
    TileA weights[kSteps];
    for (int i = 0; i < kSteps; ++i) {
      weights[i] = LoadTile(at + i * kStepBytes);
    }
    for (int i = 0; i < kSteps; ++i) {
      const int64_t column = k + i * kTileSide + block.lane() % 4 * 4;
      for (int o = 0; o < kOctets; ++o) {
        block.MultiplyTile(weights[i], x.Load(o, column, end), sums[o]);
      }
    }
  }
  // Two columns of a leaf that begins within a step.
  static SLUICE_DEVICE uint32_t Pair(const TileArgs& a, const void* w,
                                     int64_t row, int64_t column, int64_t end) {
    const uint32_t lower = column < end ? Bf16Of(w, a.cols, row, column) : 0;
    const uint32_t upper =
        column + 1 < end ? Bf16Of(w, a.cols, row, column + 1) : 0;
    return lower | upper << 16;
  }
};

// A lane's codes of a run as BF16 numbers: of its first and its second step.
// `words`: as many as the lane has.
struct E4m3Codes {
  static constexpr WeightType kType = WeightType::kE4m3;
  // 2^-8 times the numbers, exactly: a code's bits at BF16's place are 2^-120
  // times it.
  static SLUICE_DEVICE TileA Step(const TileA& words, int step) {
    const uint32_t lower = words.words[2 * step];
    const uint32_t upper = words.words[2 * step + 1];
    return {{Even(lower), Even(upper), Even(lower >> 8), Even(upper >> 8)}};
  }
  static SLUICE_DEVICE uint32_t Even(uint32_t codes) {
    constexpr uint32_t kPower = (127u + 112u) << 7;  // 2^112
    return MultiplyPairs((codes & 0x00800080u) << 8 | (codes & 0x007F007Fu)
                                                          << 4,
                         kPower | kPower << 16);
  }
};
struct Q8Codes {
  static constexpr WeightType kType = WeightType::kQ8_0;
  static SLUICE_DEVICE TileA Step(const TileA& words, int step) {
    const uint32_t lower = words.words[2 * step];
    const uint32_t upper = words.words[2 * step + 1];
    return {{Even(lower), Even(upper), Even(lower >> 8), Even(upper >> 8)}};
  }
  // Seven bits from 128 on, less 128, or 256 for a sign.
  static SLUICE_DEVICE uint32_t Even(uint32_t codes) {
    return SubtractPairs(0x43004300u | (codes & 0x007F007Fu),
                         0x43004300u | (codes & 0x00800080u));
  }
};
struct Q4Codes {
  static constexpr WeightType kType = WeightType::kQ4_0;
  static SLUICE_DEVICE TileA Step(const TileB& words, int step) {
    const uint32_t lower = words.words[0] >> (8 * step);
    const uint32_t upper = words.words[1] >> (8 * step);
    return {{Pair(lower), Pair(upper), Pair(lower >> 4), Pair(upper >> 4)}};
  }
  static SLUICE_DEVICE uint32_t Pair(uint32_t codes) {
    return SubtractPairs(0x43004300u | (codes & 0x000F000Fu), 0x43084308u);
  }
};
struct Mxfp4Codes {
  static constexpr WeightType kType = WeightType::kMxfp4;
  static SLUICE_DEVICE TileA Step(const TileB& words, int step) {
    const uint32_t lower = words.words[0] >> (8 * step);
    const uint32_t upper = words.words[1] >> (8 * step);
    return {{Pair(lower), Pair(upper), Pair(lower >> 4), Pair(upper >> 4)}};
  }
  // A code's bits at BF16's place are 2^-126 times it.
  static SLUICE_DEVICE uint32_t Pair(uint32_t codes) {
    constexpr uint32_t kPower = (127u + 126u) << 7;
    return MultiplyPairs((codes & 0x00080008u) << 12 | (codes & 0x00070007u)
                                                           << 6,
                         kPower | kPower << 16);
  }
};

// The chain of a type in runs; leaves are whole runs.
template <typename Codes>
struct RunChain {
  static constexpr RunLayout kLayout = RunLayoutOf(Codes::kType);
  using Words = std::conditional_t<kLayout.lane_bytes == 16, TileA, TileB>;

  // Size: as Bf16Chain's.
  template <int kOctets>
  static SLUICE_DEVICE void Run(Block& block, const TileArgs& a, const void* w,
                                int64_t row_tile, int32_t begin, int32_t end,
                                TileC (&sums)[kOctets],
                                const TileRows<kOctets>& x) {
    constexpr int kRuns = kDeep / 2;
    const uint8_t* at =
        static_cast<const uint8_t*>(w) +
        (row_tile * (a.cols / kRunCols) + begin / kRunCols) * kLayout.bytes();
    int32_t k = begin;
    for (; k + kRuns * kRunCols <= end; k += kRuns * kRunCols) {
      Runs<kRuns>(block, at, k, end, sums, x);
      at += kRuns * kLayout.bytes();
    }
    for (; k < end; k += kRunCols) {
      Runs<1>(block, at, k, end, sums, x);
      at += kLayout.bytes();
    }
  }
  static SLUICE_DEVICE Words LoadCodes(const uint8_t* run, int lane) {
    const uint8_t* const at = run + kLayout.codes() + lane * kLayout.lane_bytes;
    if constexpr (kLayout.lane_bytes == 16) {
      return LoadTile(at);
    } else {
      return LoadHalfTile(at);
    }
  }
  template <int kRuns, int kOctets>
  static SLUICE_DEVICE void Runs(Block& block, const uint8_t* at, int64_t k,
                                 int64_t end, TileC (&sums)[kOctets],
                                 const TileRows<kOctets>& x) {
    Words codes[kRuns];
    float scales[kRuns][2];
    for (int i = 0; i < kRuns; ++i) {
      const uint8_t* const run = at + i * kLayout.bytes();
      codes[i] = LoadCodes(run, block.lane());
      for (int half = 0; half < 2; ++half) {
        scales[i][half] =
            RunScale<Codes::kType>(run, block.lane() / 4 + 8 * half);
      }
    }
    for (int i = 0; i < kRuns; ++i) {
      const int64_t column = k + i * kRunCols + block.lane() % 4 * 4;
      const TileA first = Codes::Step(codes[i], 0);
      const TileA second = Codes::Step(codes[i], 1);
      for (int o = 0; o < kOctets; ++o) {
        TileC part = {};
        block.MultiplyTile(first, x.Load(o, column, end), part);
        block.MultiplyTile(second, x.Load(o, column + kTileSide, end), part);
        for (int v = 0; v < 4; ++v) {
          sums[o].values[v] =
              Fma(part.values[v], scales[i][v / 2], sums[o].values[v]);
        }
      }
    }
  }
};

// A block per 16 rows and kOctets times eight tokens; a warp takes every
// eighth leaf.
template <typename Chain, int kOctets>
struct TileKernel {
  static constexpr int kThreads = kProductThreads;
  static constexpr int kTokens = 8 * kOctets;
  static constexpr int kCells = kTileSide * kTokens;
  using Args = TileArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t row_tiles = (a.rows + kTileSide - 1) / kTileSide;
    const int64_t row_tile = block.index() % row_tiles;
    ProductTile tile;
    if (!FindTile(a.grouped, block.index() / row_tiles, a.x.rows, a.w, a.bias,
                  a.rows, tile)) {
      return;
    }
    const auto partials =
        block.Allocate<float>(int64_t{a.shards.num_shards} * kCells);
    const TileRows<kOctets> x(block, a, tile);
    for (int32_t s = block.warp(); s < a.shards.num_shards;
         s += kProductWarps) {
      TileC sums[kOctets] = {};
      Chain::template Run<kOctets>(block, a, tile.w, row_tile,
                                   a.shards.bounds[s], a.shards.bounds[s + 1],
                                   sums, x);
      Keep(block, partials, s, sums);
    }
    block.Sync();
    for (int cell = block.thread(); cell < kCells; cell += kThreads) {
      const int token = cell / kTileSide;
      const int64_t row = row_tile * kTileSide + cell % kTileSide;
      if (token >= tile.tokens || row >= a.rows) continue;
      StoreNodes(a.shards, partials, {kCells, cell, tile.out + token, row},
                 tile.bias);
    }
  }
  // A cell: token, then row.
  static SLUICE_DEVICE void Keep(Block& block, const Shared<float>& partials,
                                 int32_t shard, const TileC (&sums)[kOctets]) {
    for (int o = 0; o < kOctets; ++o) {
      for (int v = 0; v < 4; ++v) {
        const int row = block.lane() / 4 + v / 2 * 8;
        const int token = o * 8 + block.lane() % 4 * 2 + v % 2;
        partials.Set(int64_t{shard} * kCells + token * kTileSide + row,
                     sums[o].values[v]);
      }
    }
  }
};

// A block per row.
template <WeightType kType>
struct TileEmbedKernel {
  static constexpr int kThreads = 128;
  struct Args {
    WeightView table;
    const int32_t* ids;
    Matrix y;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t row = a.ids[block.index()];
    float* y = a.y.data + block.index() * a.y.stride;
    for (int64_t i = block.thread(); i < a.y.cols; i += kThreads) {
      y[i] = TileElement<kType>(a.table.data, a.table.cols, row, i);
    }
  }
};

template <typename Chain, int kOctets>
void Start(Stream stream, TileArgs& args, int64_t groups) {
  using Kernel = TileKernel<Chain, kOctets>;
  const int64_t row_tiles = (args.rows + kTileSide - 1) / kTileSide;
  Launch<Kernel>(stream, row_tiles * groups,
                 sizeof(float) * Kernel::kCells *
                     static_cast<size_t>(args.shards.num_shards),
                 args);
}

template <typename Chain>
void StartProduct(Stream stream, TileArgs& args, const ExpertRun& run) {
  const bool grouped = run.grouped.groups != nullptr;
  // Of a block's partials: 48 KiB of shared memory.
  constexpr int kMostWideLeaves = 24;
  const int64_t rows = grouped ? run.grouped.tile_rows : args.x.rows;
  const bool wide = rows > 8 && args.shards.num_shards <= kMostWideLeaves;
  SLUICE_CHECK(wide || !grouped || rows <= 8);
  if (!grouped) args.grouped.tile_rows = wide ? 32 : 8;
  const int64_t per_tile = args.grouped.tile_rows;
  const int64_t groups =
      grouped ? run.max_groups : (args.x.rows + per_tile - 1) / per_tile;
  if (wide) return Start<Chain, 4>(stream, args, groups);
  Start<Chain, 1>(stream, args, groups);
}

void MultiplyTiles(Stream stream, ConstMatrix x, const WeightView& w,
                   const float* bias, const ShardArgs& shards,
                   const ExpertRun& run = {}) {
  SLUICE_CHECK(x.cols == w.cols && HasTiles(w.type));
  TileArgs args = {x, w.data, w.rows, w.cols, bias, shards, run.grouped, false};
  args.aligned =
      reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 4 == 0;
  for (int32_t s = 0; s <= shards.num_shards; ++s) {
    args.aligned = args.aligned && shards.bounds[s] % 4 == 0;
    SLUICE_CHECK(w.type == WeightType::kBf16 ||
                 shards.bounds[s] % kRunCols == 0);
  }
  switch (w.type) {
    case WeightType::kBf16:
      return StartProduct<Bf16Chain>(stream, args, run);
    case WeightType::kE4m3:
      return StartProduct<RunChain<E4m3Codes>>(stream, args, run);
    case WeightType::kQ8_0:
      return StartProduct<RunChain<Q8Codes>>(stream, args, run);
    case WeightType::kQ4_0:
      return StartProduct<RunChain<Q4Codes>>(stream, args, run);
    default:
      return StartProduct<RunChain<Mxfp4Codes>>(stream, args, run);
  }
}

ShardArgs WholeArgs(int64_t cols, const Matrix& y) {
  const ProductLeaves leaves(cols);
  const TreeNode node = {0, leaves.count};
  return ShardArgsOf(
      {{leaves.bounds, static_cast<size_t>(leaves.count) + 1}, {&node, 1}},
      {&y, 1}, /*unit=*/1);
}

}  // namespace

ProductLeaves::ProductLeaves(int64_t cols) {
  constexpr int64_t kUnit = 32;
  const int64_t units = (cols + kUnit - 1) / kUnit;
  count = static_cast<int32_t>(std::clamp<int64_t>(units / 4, 1, 8));
  for (int32_t i = 0; i <= count; ++i) {
    bounds[i] = static_cast<int32_t>(std::min(cols, units * i / count * kUnit));
  }
}

void TileMatMul(Stream stream, ConstMatrix x, const WeightView& w,
                const float* bias, Matrix y) {
  MultiplyTiles(stream, x, w, bias, WholeArgs(w.cols, y));
}

void TileMatMulSharded(Stream stream, ConstMatrix x, const WeightView& w,
                       const ShardedCols& shards, std::span<const Matrix> y) {
  MultiplyTiles(stream, x, w, nullptr, ShardArgsOf(shards, y, /*unit=*/1));
}

void TileMatMulGroups(Stream stream, ConstMatrix x, const WeightView& like,
                      const float* bias, const ExpertRun& run, Matrix y) {
  MultiplyTiles(stream, x, like, bias, WholeArgs(like.cols, y), run);
}

void TileEmbed(Stream stream, const WeightView& table, const int32_t* ids,
               Matrix y) {
  SLUICE_CHECK(y.cols == table.cols && HasTiles(table.type));
  const auto start = [&](auto kernel) {
    Launch<decltype(kernel)>(stream, y.rows, 0, {table, ids, y});
  };
  switch (table.type) {
    case WeightType::kBf16:
      return start(TileEmbedKernel<WeightType::kBf16>());
    case WeightType::kE4m3:
      return start(TileEmbedKernel<WeightType::kE4m3>());
    case WeightType::kQ8_0:
      return start(TileEmbedKernel<WeightType::kQ8_0>());
    case WeightType::kQ4_0:
      return start(TileEmbedKernel<WeightType::kQ4_0>());
    default:
      return start(TileEmbedKernel<WeightType::kMxfp4>());
  }
}

}  // namespace sluice::kernels::cuda
