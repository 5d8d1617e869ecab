#include "kernels/cuda/tile_stream.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/gate.h"
#include "kernels/cuda/tile_stream_blocks.h"
#include "kernels/cuda/tile_stream_units.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kStreamThreads = 256;
constexpr int kStreamWarps = kStreamThreads / kWarpLanes;
constexpr int kCells = kTileSide * kStreamTokens;

struct StreamArgs {
  TileArgs tile;
  StreamEnd end;
  int64_t columns;  // of a leaf, at most
};
int64_t MostColumns(const ShardArgs& shards) {
  int32_t most = 0;
  for (int32_t s = 0; s < shards.num_shards; ++s) {
    most = std::max(most, shards.bounds[s + 1] - shards.bounds[s]);
  }
  return most;
}

// A block per 16 outputs and tile of tokens; a warp takes every eighth leaf.
// With gated rows a block has two tiles of rows. kTokens: of a tile, at most.
template <typename Unit, bool kGated, int kTokens>
struct StreamKernel {
  static constexpr int kThreads = kStreamThreads;
  static constexpr int kLeastBlocks =
      kTokens == 1 && !kGated ? Unit::kBlocksAlone : 2;
  static constexpr bool kWaitsItself = true;
  static constexpr int kTiles = kGated ? 2 : 1;
  using Args = StreamArgs;

  static SLUICE_DEVICE int64_t OutputsOf(const Args& a) {
    return a.tile.rows / kTiles;
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const TileArgs& t = a.tile;
    const int64_t row_tiles = (OutputsOf(a) + kTileSide - 1) / kTileSide;
    const int64_t row_tile = block.index() % row_tiles;
    const bool grouped = t.grouped.groups != nullptr;
    // Which weight it is stands among the inputs.
    if (grouped) block.WaitForInputs();
    ProductTile tile;
    if (!FindTile(t.grouped, block.index() / row_tiles, t.x.rows, t.w, t.bias,
                  t.rows, tile)) {
      return;
    }
    const int32_t shards = t.shards.num_shards;
    const auto partials =
        block.Allocate<float>(int64_t{kTiles} * shards * kCells);
    const int token = block.lane() / 4;
    typename Unit::template Stream<kTiles, kTokens> weights(
        block, t.x.data + tile.In(token < tile.tokens ? token : 0) * t.x.stride,
        a.columns);
    bool waits = !grouped;
    const int64_t tile_bytes = row_tiles * BytesOfTile(t);
    for (int32_t s = block.warp(); s < shards; s += kStreamWarps) {
      const int32_t begin = t.shards.bounds[s];
      const int32_t columns = t.shards.bounds[s + 1] - begin;
      weights.Begin(static_cast<const uint8_t*>(tile.w) +
                        row_tile * BytesOfTile(t) +
                        begin / Unit::kColumns * Unit::kBytes,
                    tile_bytes, columns / Unit::kColumns);
      if (waits) {
        weights.Prefetch();
        block.WaitForInputs();
        waits = false;
      }
      TileC sums[kTiles] = {};
      weights.Multiply(begin, sums);
      for (int i = 0; i < kTiles; ++i) {
        Keep(block, partials, i * shards + s, sums[i]);
      }
    }
    if (waits) block.WaitForInputs();
    const int cell = block.thread();
    const int64_t row = row_tile * kTileSide + cell % kTileSide;
    const bool stores =
        cell < kCells && cell / kTileSide < tile.tokens && row < OutputsOf(a);
    const ShardCell at = {kCells, cell, tile.out + cell / kTileSide, row};
    // What is added comes while others still multiply.
    Addends addends;
    if (stores) addends = AddendsOf(a, at, tile.bias);
    block.Sync();
    if (stores) Store(a, partials, at, addends);
  }
  static SLUICE_DEVICE int64_t BytesOfTile(const TileArgs& a) {
    return a.cols / Unit::kColumns * Unit::kBytes;
  }
  // A cell: token, then row.
  static SLUICE_DEVICE void Keep(Block& block, const Shared<float>& partials,
                                 int32_t s, const TileC& sum) {
    for (int v = 0; v < 4; ++v) {
      const int row = block.lane() / 4 + v / 2 * 8;
      const int token = block.lane() % 4 * 2 + v % 2;
      partials.Set(int64_t{s} * kCells + token * kTileSide + row,
                   sum.values[v]);
    }
  }
  // What an output's sum is added to, and the second tile's.
  struct Addends {
    bool has_bias = false;
    float bias = 0.0f;
    float second_bias = 0.0f;
    float before = 0.0f;  // of the first output
  };
  static SLUICE_DEVICE Addends AddendsOf(const Args& a, const ShardCell& cell,
                                         const float* bias) {
    Addends addends;
    addends.has_bias = bias != nullptr;
    if (bias != nullptr) {
      addends.bias = bias[cell.row];
      if constexpr (kGated) {
        addends.second_bias = bias[cell.row + OutputsOf(a)];
      }
    }
    const ShardArgs& shards = a.tile.shards;
    if (a.end.adds) {
      addends.before = shards.y[0][cell.token * shards.stride[0] + cell.row];
    }
    return addends;
  }
  static SLUICE_DEVICE void Store(const Args& a, const Shared<float>& partials,
                                  const ShardCell& cell,
                                  const Addends& addends) {
    const ShardArgs& shards = a.tile.shards;
    for (int32_t o = 0; o < shards.num_outputs; ++o) {
      float sum = SumOfNode(shards, partials, cell, o);
      if (addends.has_bias) sum = sum + addends.bias;
      if constexpr (kGated) {
        ShardCell up = cell;
        up.at += int64_t{shards.num_shards} * kCells;
        float factor = SumOfNode(shards, partials, up, o);
        if (addends.has_bias) factor = factor + addends.second_bias;
        sum = a.end.activation.kind == Activation::Kind::kSilu
                  ? SiluGate(sum, factor)
                  : ClampedGate(sum, factor, a.end.activation.limit);
      }
      shards.y[o][cell.token * shards.stride[o] + cell.row] =
          a.end.adds ? addends.before + sum : sum;
    }
  }
};

template <typename Unit>
bool HasWholeUnits(const ShardArgs& shards) {
  for (int32_t s = 0; s <= shards.num_shards; ++s) {
    if (shards.bounds[s] % Unit::kColumns != 0) return false;
  }
  return true;
}

template <typename Unit, bool kGated, int kTokens>
size_t SharedBytes(const TileArgs& args) {
  using Kernel = StreamKernel<Unit, kGated, kTokens>;
  return sizeof(float) * kCells * Kernel::kTiles *
             static_cast<size_t>(args.shards.num_shards) +
         Unit::template Stream<Kernel::kTiles, kTokens>::SharedBytes(
             kStreamWarps, MostColumns(args.shards));
}

template <typename Unit, bool kGated>
size_t MostSharedBytes(const TileArgs& args) {
  return std::max(SharedBytes<Unit, kGated, 1>(args),
                  SharedBytes<Unit, kGated, kStreamTokens>(args));
}

template <typename Unit, bool kGated, int kTokens>
void StartUnits(Stream stream, const StreamArgs& args, int64_t max_groups) {
  using Kernel = StreamKernel<Unit, kGated, kTokens>;
  const int64_t tiles =
      (args.tile.rows / Kernel::kTiles + kTileSide - 1) / kTileSide;
  const int64_t groups =
      args.tile.grouped.groups != nullptr
          ? max_groups
          : (args.tile.x.rows + kStreamTokens - 1) / kStreamTokens;
  Launch<Kernel>(stream, tiles * groups,
                 SharedBytes<Unit, kGated, kTokens>(args.tile), args);
}

// Calls `with` with a type's unit.
template <typename With>
auto WithUnit(WeightType type, const With& with) {
  switch (type) {
    case WeightType::kBf16:
      return with(Bf16Unit());
    case WeightType::kE4m3:
      return with(RunUnit<E4m3Codes>());
    case WeightType::kQ8_0:
      return with(RunUnit<Q8Codes>());
    case WeightType::kQ4_0:
      return with(RunUnit<Q4Codes>());
    case WeightType::kMxfp4:
      return with(RunUnit<Mxfp4Codes>());
    default:
      return WithBlocks(
          type, [&](auto math) { return with(BlockUnit<decltype(math)>()); });
  }
}

}  // namespace

bool CanStream(Stream stream, const TileArgs& args, WeightType type,
               const StreamEnd& end) {
  if (end.gated && args.rows % (2 * kTileSide) != 0) return false;
  return args.aligned && WithUnit(type, [&](auto unit) {
           using Unit = decltype(unit);
           // Of any count of tokens: it chooses no other path.
           const size_t most = end.gated ? MostSharedBytes<Unit, true>(args)
                                         : MostSharedBytes<Unit, false>(args);
           return HasWholeUnits<Unit>(args.shards) &&
                  most <= LimitsOf(stream).shared_bytes;
         });
}

void StartStream(Stream stream, const TileArgs& args, WeightType type,
                 const StreamEnd& end, int64_t max_groups) {
  SLUICE_CHECK(!end.adds || args.shards.num_outputs == 1);
  const StreamArgs all = {args, end, MostColumns(args.shards)};
  const bool alone = args.grouped.groups != nullptr
                         ? args.grouped.tile_rows == 1
                         : args.x.rows == 1;
  const auto start = [&](auto unit) {
    using Unit = decltype(unit);
    constexpr int kMost = kStreamTokens;
    if (end.gated) {
      return alone ? StartUnits<Unit, true, 1>(stream, all, max_groups)
                   : StartUnits<Unit, true, kMost>(stream, all, max_groups);
    }
    return alone ? StartUnits<Unit, false, 1>(stream, all, max_groups)
                 : StartUnits<Unit, false, kMost>(stream, all, max_groups);
  };
  WithUnit(type, start);
}

}  // namespace sluice::kernels::cuda
