#include "kernels/cuda/fast/products.h"

#include <cuda_device/launch.h>

#include <algorithm>
#include <type_traits>

#include "common/base/check.h"
#include "kernels/cuda/fast/products_block_chain.h"
#include "kernels/cuda/fast/products_chains.h"
#include "kernels/cuda/fast/products_few_tokens.h"
#include "kernels/cuda/fast/products_many_tokens.h"
#include "kernels/cuda/fast/products_without_memory.h"
#include "kernels/cuda/shared/row_quads.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kProductThreads = 256;
constexpr int kProductWarps = kProductThreads / kWarpLanes;
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

// A block per piece of a row.
template <WeightType kType>
struct TileEmbedKernel {
  static constexpr int kThreads = 128;
  using Piece = RowPiece<kThreads>;
  struct Args {
    const void* table;
    const int32_t* ids;
    Matrix y;
    int64_t quads;
  };
  static_assert(std::has_unique_object_representations_v<Args>);
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const Piece piece = Piece::Of(block, a.y.cols);
    const OwnFour<kThreads> own(block, piece.begin, a.y.cols, a.quads != 0);
    const int64_t row = a.ids[piece.row];
    Quad y = {};
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (!own.Has(i)) continue;
      y.values[i] = TileElement<kType>(a.table, a.y.cols, row, own.Column(i));
    }
    own.Store(a.y.data + piece.row * a.y.stride, y);
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

template <typename Chain, WeightType kType>
void StartProduct(Stream stream, TileArgs& args, const ExpertRun& run) {
  const bool grouped = run.grouped.groups != nullptr;
  if (!grouped && StartPanel(stream, args, kType)) return;
  // Of a block's partials: 48 KiB of shared memory.
  constexpr int kMostWideLeaves = 24;
  const int64_t rows = grouped ? run.grouped.tile_rows : args.x.rows;
  const bool wide = rows > 8 && args.shards.num_shards <= kMostWideLeaves;
  SLUICE_CHECK(wide || !grouped || rows <= 8);
  SLUICE_CHECK(!grouped || rows <= kTileGroupRows);
  if (!grouped) args.grouped.tile_rows = wide ? 32 : 8;
  if (!wide && CanStream(stream, args, kType, {})) {
    return StartStream(stream, args, kType, {}, run.max_groups);
  }
  const int64_t per_tile = args.grouped.tile_rows;
  const int64_t groups =
      grouped ? run.max_groups : (args.x.rows + per_tile - 1) / per_tile;
  if (wide) return Start<Chain, 4>(stream, args, groups);
  Start<Chain, 1>(stream, args, groups);
}

TileArgs ArgsOf(ConstMatrix x, const WeightView& w, const float* bias,
                const ShardArgs& shards, const ExpertRun& run) {
  SLUICE_CHECK(x.cols == w.cols && HasTiles(w.type));
  TileArgs args = {x, w.data, w.rows, w.cols, bias, shards, run.grouped, false};
  args.aligned =
      reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 4 == 0;
  for (int32_t s = 0; s <= shards.num_shards; ++s) {
    args.aligned = args.aligned && shards.bounds[s] % 4 == 0;
    SLUICE_CHECK(w.type == WeightType::kBf16 ||
                 shards.bounds[s] % CutColumns(w.type) == 0);
  }
  return args;
}

// Starts a product of few tokens that ends in its own way; false: it cannot.
bool StreamInto(Stream stream, TileArgs args, WeightType type,
                const StreamEnd& end, int64_t max_groups) {
  const bool grouped = args.grouped.groups != nullptr;
  if (!grouped) args.grouped.tile_rows = kStreamTokens;
  if (args.grouped.tile_rows > kStreamTokens ||
      !CanStream(stream, args, type, end)) {
    return false;
  }
  SLUICE_CHECK(grouped || args.x.rows <= kFewTokens);
  StartStream(stream, args, type, end, max_groups);
  return true;
}

void MultiplyTiles(Stream stream, ConstMatrix x, const WeightView& w,
                   const float* bias, const ShardArgs& shards,
                   const ExpertRun& run, const TileMemory& memory) {
  TileArgs args = ArgsOf(x, w, bias, shards, run);
  const int64_t groups = run.grouped.groups == nullptr ? 0 : run.max_groups;
  if (StartGemm(stream, args, w.type, groups, memory)) return;
  switch (w.type) {
    case WeightType::kBf16:
      return StartProduct<Bf16Chain, WeightType::kBf16>(stream, args, run);
    case WeightType::kE4m3:
      return StartProduct<RunChain<E4m3Codes>, WeightType::kE4m3>(stream, args,
                                                                  run);
    case WeightType::kE4m3Wide:
      return StartProduct<RunChain<WideE4m3Codes>, WeightType::kE4m3Wide>(
          stream, args, run);
    case WeightType::kQ8_0:
      return StartProduct<RunChain<Q8Codes>, WeightType::kQ8_0>(stream, args,
                                                                run);
    case WeightType::kQ4_0:
      return StartProduct<RunChain<Q4Codes>, WeightType::kQ4_0>(stream, args,
                                                                run);
    case WeightType::kMxfp4:
      return StartProduct<RunChain<Mxfp4Codes>, WeightType::kMxfp4>(stream,
                                                                    args, run);
    default:
      return WithBlocks(w.type, [&](auto math) {
        using Math = decltype(math);
        StartProduct<BlockChain<Math>, Math::kType>(stream, args, run);
      });
  }
}

ShardArgs WholeArgs(const WeightView& w, const Matrix& y) {
  const ProductLeaves leaves(w.cols, CutColumns(w.type));
  const TreeNode node = {0, leaves.count};
  return ShardArgsOf(
      {{leaves.bounds, static_cast<size_t>(leaves.count) + 1}, {&node, 1}},
      {&y, 1}, /*unit=*/1);
}

// The product that follows the norm.
TileArgs ArgsOf(const TileNormedProduct& product) {
  ConstMatrix row = product.x;
  row.rows = 1;
  TileArgs args =
      ArgsOf(row, product.w, product.bias, WholeArgs(product.w, product.y), {});
  args.grouped.tile_rows = kStreamTokens;
  return args;
}
StreamEnd EndOf(const TileNormedProduct& product) {
  StreamEnd end;
  end.gated = product.gate != nullptr;
  if (end.gated) end.activation = *product.gate;
  return end;
}

}  // namespace

ProductLeaves::ProductLeaves(int64_t cols, int unit) {
  constexpr int64_t kLeast = 128;
  const int64_t units = (cols + unit - 1) / unit;
  const int64_t each = unit < kLeast ? kLeast / unit : 1;
  count = static_cast<int32_t>(std::clamp<int64_t>(units / each, 1, 8));
  for (int32_t i = 0; i <= count; ++i) {
    bounds[i] = static_cast<int32_t>(std::min(cols, units * i / count * unit));
  }
}

void TileMatMul(Stream stream, ConstMatrix x, const WeightView& w,
                const float* bias, Matrix y, const TileMemory& memory) {
  MultiplyTiles(stream, x, w, bias, WholeArgs(w, y), {}, memory);
}

void TileMatMulSharded(Stream stream, ConstMatrix x, const WeightView& w,
                       const ShardedCols& shards, std::span<const Matrix> y,
                       const TileMemory& memory) {
  MultiplyTiles(stream, x, w, nullptr, ShardArgsOf(shards, y, /*unit=*/1), {},
                memory);
}

int32_t TileGroupRows(Stream stream, int64_t pairs, int64_t experts,
                      const TileMemory& memory) {
  if (pairs <= kFewTokens * experts) return kFewTokens;
  // Half of a large group's rows are there, and its operands and levels fit.
  constexpr int64_t kManyRows = kLargeGroupRows / 2;
  constexpr size_t kLargeShared = 128 * 1024;
  return memory && pairs > kManyRows * experts &&
                 LimitsOf(stream).shared_bytes >= kLargeShared
             ? kLargeGroupRows
             : kTileGroupRows;
}

void TileMatMulGroups(Stream stream, ConstMatrix x, const WeightView& like,
                      const float* bias, const ExpertRun& run, Matrix y,
                      const TileMemory& memory) {
  MultiplyTiles(stream, x, like, bias, WholeArgs(like, y), run, memory);
}

bool TileAddSharded(Stream stream, ConstMatrix x, const WeightView& w,
                    const ShardedCols& shards, const float* bias, Matrix y,
                    const TileMemory& memory) {
  SLUICE_CHECK(shards.nodes.size() == 1);
  StreamEnd end;
  end.adds = true;
  const TileArgs args =
      ArgsOf(x, w, bias, ShardArgsOf(shards, {&y, 1}, /*unit=*/1), {});
  if (x.rows > kFewTokens) {
    return StartGemm(stream, args, w.type, 0, memory, end);
  }
  return StreamInto(stream, args, w.type, end, 0);
}

bool TileGatedMatMul(Stream stream, ConstMatrix x, const WeightView& w,
                     const Activation& activation, Matrix y,
                     const TileMemory& memory) {
  if (x.rows <= kFewTokens) {
    return TileGatedGroups(stream, x, w, nullptr, activation, {}, y);
  }
  SLUICE_CHECK(y.cols * 2 == w.rows);
  StreamEnd end;
  end.gated = true;
  end.activation = activation;
  return StartGemm(stream, ArgsOf(x, w, nullptr, WholeArgs(w, y), {}), w.type,
                   0, memory, end);
}

bool TileGatedGroups(Stream stream, ConstMatrix x, const WeightView& like,
                     const float* bias, const Activation& activation,
                     const ExpertRun& run, Matrix y) {
  SLUICE_CHECK(y.cols * 2 == like.rows);
  StreamEnd end;
  end.gated = true;
  end.activation = activation;
  return StreamInto(stream, ArgsOf(x, like, bias, WholeArgs(like, y), run),
                    like.type, end, run.max_groups);
}

bool HasNormedProduct(Stream stream, const TileNormedProduct& product) {
  const WeightView& w = product.w;
  SLUICE_CHECK(product.norm != nullptr);
  SLUICE_CHECK(product.y.cols * (product.gate != nullptr ? 2 : 1) == w.rows);
  return LimitsOf(stream).asked.Has(Unconfirmed::kNormedProduct) &&
         product.y.rows == 1 && w.cols <= kNormedCols &&
         HasQuads({product.norm, 1, w.cols, w.cols}) &&
         CanStream(stream, ArgsOf(product), w.type, EndOf(product));
}

void StartNormedProduct(Stream stream, const TileNormedProduct& product) {
  StartStream(stream, ArgsOf(product), product.w.type, EndOf(product), 0,
              {product.norm, product.rows, product.eps});
}

void TileEmbed(Stream stream, const WeightView& table, const int32_t* ids,
               Matrix y) {
  SLUICE_CHECK(y.cols == table.cols && HasTiles(table.type));
  const auto start = [&](auto kernel) {
    using Kernel = decltype(kernel);
    Launch<Kernel>(stream, Kernel::Piece::Blocks(y.rows, y.cols), 0,
                   {table.data, ids, y, HasQuads(y)});
  };
  switch (table.type) {
    case WeightType::kBf16:
      return start(TileEmbedKernel<WeightType::kBf16>());
    case WeightType::kE4m3:
      return start(TileEmbedKernel<WeightType::kE4m3>());
    case WeightType::kE4m3Wide:
      return start(TileEmbedKernel<WeightType::kE4m3Wide>());
    case WeightType::kQ8_0:
      return start(TileEmbedKernel<WeightType::kQ8_0>());
    case WeightType::kQ4_0:
      return start(TileEmbedKernel<WeightType::kQ4_0>());
    case WeightType::kMxfp4:
      return start(TileEmbedKernel<WeightType::kMxfp4>());
    default:
      return WithBlocks(table.type, [&](auto math) {
        start(TileEmbedKernel<decltype(math)::kType>());
      });
  }
}

}  // namespace sluice::kernels::cuda
