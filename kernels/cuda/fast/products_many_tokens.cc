#include "kernels/cuda/fast/products_many_tokens.h"

#include <cuda_device/launch.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/base/check.h"
#include "kernels/cuda/fast/products_many_tokens_blocks.h"
#include "kernels/cuda/fast/products_many_tokens_join.h"
#include "kernels/cuda/fast/products_many_tokens_kernel.h"
#include "kernels/cuda/fast/products_many_tokens_runs.h"
#include "kernels/cuda/fast/products_many_tokens_wgmma.h"

namespace sluice::kernels::cuda {
namespace {

// Rows of x from which on this is worth it: fewer are products_few_tokens.h's.
constexpr int64_t kGemmFrom = kFewTokens + 1;

struct LargeShape : GemmShape<2, 4, 4, 4> {
  static constexpr int kStages = 4;
  static constexpr int kBlocksAtOnce = 1;
};
// Where four warps multiply together: each all tokens.
struct GroupShape : GemmShape<8, 1, 1, 16> {
  static constexpr int kStages = 6;
  static constexpr int kBlocksAtOnce = 1;
};
// Fewer warps widen the same codes.
struct LargeRunShape : GemmShape<4, 2, 2, 8> {
  static constexpr int kStages = 4;
  static constexpr int kBlocksAtOnce = 1;
};
struct MiddleShape : GemmShape<4, 2, 2, 4> {
  static constexpr int kStages = 6;
  static constexpr int kBlocksAtOnce = 1;
  static constexpr int kPrefetchBytes = 8192;
};
struct SmallShape : GemmShape<8, 1, 1, 4> {
  static constexpr int kStages = 8;
  static constexpr int kBlocksAtOnce = 2;
  static constexpr int kPrefetchBytes = 8192;
};

// A warp per octet and run, for all operands that have kTotals and kInGroups.
template <int kTotals, bool kInGroups>
struct RoundRowsKernel {
  static constexpr int kThreads = 256;
  struct Args {
    ConstMatrix x;
    GroupedRows grouped;
    int32_t aligned;
    int32_t runs;
    int64_t octets;  // of a block of tokens
    int64_t token_blocks;
    uint32_t* to;
  };
  static_assert(std::has_unique_object_representations_v<Args>);
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t at = block.index() * (kThreads / kWarpLanes) + block.warp();
    const int64_t octet = at / a.runs;
    ProductTile tile;
    if (octet >= a.token_blocks * a.octets ||
        !FindTile(a.grouped, octet / a.octets, a.x.rows, nullptr, nullptr, 0,
                  tile)) {
      return;
    }
    const auto token =
        static_cast<int>(octet % a.octets * 8 + block.lane() / 4);
    const int64_t column = at % a.runs * kRunCols + block.lane() % 4 * 4;
    const int64_t place =
        (octet / a.octets * a.runs + at % a.runs) * a.octets + octet % a.octets;
    uint32_t* const to = a.to + place * OctetWords(kTotals);
    TileB b[2] = {};
    for (int step = 0; step < 2; ++step) {
      if (token < tile.tokens) {
        b[step] = LoadOperand(a.x.data + tile.In(token) * a.x.stride, a.aligned,
                              column + step * kTileSide, a.x.cols);
      }
      Store(to + step * kOctetStepWords, block.lane(), b[step]);
    }
    if constexpr (kTotals > 0) {
      TileC totals[kTotals];
      SumOfRows(block, b[0], b[1], totals);
      if (block.lane() >= 4) return;
      for (int p = 0; p < kTotals; ++p) {
        StoreHalfTile(to + kOctetRunWords + 8 * p + block.lane() * 2,
                      {{BitCast<uint32_t>(totals[p].values[0]),
                        BitCast<uint32_t>(totals[p].values[1])}});
      }
    }
  }
  static SLUICE_DEVICE void Store(uint32_t* step, int lane, const TileB& b) {
    if constexpr (kInGroups) {
      for (int i = 0; i < 2; ++i) step[i * kWarpLanes + lane] = b.words[i];
    } else {
      StoreHalfTile(step + lane * 2, b);
    }
  }
};

// How an output's leaves are shared out.
struct GemmSplit {
  int32_t piece_leaves = kGemmPieceLeaves;
  int32_t pieces = 0;  // of all outputs
  int32_t most = 0;    // of an output
};
GemmSplit SplitOf(const ShardArgs& shards, int32_t piece_leaves) {
  GemmSplit split = {piece_leaves};
  for (int32_t o = 0; o < shards.num_outputs; ++o) {
    const int32_t leaves = shards.nodes[o].end - shards.nodes[o].begin;
    const int32_t count = (leaves + piece_leaves - 1) / piece_leaves;
    split.pieces += count;
    split.most = std::max(split.most, count);
  }
  return split;
}
// The levels above the lowest of a piece's tree.
int32_t LevelsOf(const ShardArgs& shards, int32_t piece_leaves) {
  int32_t most = 1;
  for (int32_t o = 0; o < shards.num_outputs; ++o) {
    most = std::max(most, shards.nodes[o].end - shards.nodes[o].begin);
  }
  const auto leaves = static_cast<uint32_t>(std::min(most, piece_leaves));
  return std::max(static_cast<int32_t>(std::bit_width(leaves - 1)) - 1, 0);
}

// A product in blocks of a shape.
template <typename Operand, typename Shape>
class GemmStart {
 public:
  // `groups`: of experts, at most; 0: a product of one weight.
  GemmStart(Stream stream, const TileArgs& product, int64_t groups)
      : stream_(stream), limits_(LimitsOf(stream)), grouped_(groups > 0) {
    args_.product = product;
    if (!grouped_) args_.product.grouped.tile_rows = Shape::kBlockTokens;
    args_.runs = static_cast<int32_t>((product.cols + kRunCols - 1) / kRunCols);
    const int64_t rest = product.cols % kRunCols;
    args_.whole_runs =
        rest == 0 || rest > kTileSide ? args_.runs : args_.runs - 1;
    args_.row_blocks =
        (product.rows + Shape::kBlockRows - 1) / Shape::kBlockRows;
    args_.token_blocks = grouped_ ? groups
                                  : (product.x.rows + Shape::kBlockTokens - 1) /
                                        Shape::kBlockTokens;
  }

  bool Start(const TileMemory& memory, const StreamEnd& end) {
    if (!Split()) return false;
    const int64_t row_words =
        args_.token_blocks * args_.runs * Kernel::Tile::Stage::kRowWords;
    SLUICE_CHECK(row_words / 4 <= UINT32_MAX);  // feeds count quads so
    const int64_t each = args_.product.x.rows * args_.product.rows;
    const bool joins = split_.pieces > args_.product.shards.num_outputs;
    if (!joins && (end.adds || end.gated)) return false;
    auto* const words = static_cast<uint32_t*>(
        memory((row_words + (joins ? split_.pieces * each : 0)) *
               static_cast<int64_t>(sizeof(uint32_t))));
    args_.rows = words;
    args_.pieces =
        joins ? reinterpret_cast<float*>(words + row_words) : nullptr;
    RoundRows(words);
    Launch<Kernel>(stream_, Blocks(split_), SharedBytes(args_.shared_levels),
                   args_);
    if (joins) JoinPieces(stream_, args_, end);
    return true;
  }

 private:
  using Kernel = GemmKernel<Operand, Shape>;

  int64_t Blocks(const GemmSplit& split) const {
    return split.pieces * args_.row_blocks * args_.token_blocks;
  }
  static size_t SharedBytes(int32_t levels) {
    return Kernel::kSharedBytes +
           static_cast<size_t>(levels * Shape::kCells) * sizeof(float);
  }
  // Whether a block has the levels that the output cannot take.
  bool Fits(const GemmSplit& split) const {
    const int32_t levels = LevelsOf(args_.product.shards, split.piece_leaves);
    return SharedBytes(std::max(levels - 1, 0)) <= limits_.shared_bytes;
  }
  // Finds pieces that fit and are enough, if there are.
  bool Split() {
    const ShardArgs& shards = args_.product.shards;
    const int64_t enough =
        grouped_ ? 0 : limits_.multiprocessors * Shape::kBlocksAtOnce * 15 / 16;
    split_ = SplitOf(shards, kGemmPieceLeaves);
    while (split_.piece_leaves > 1 &&
           (!Fits(split_) || Blocks(split_) < enough)) {
      const GemmSplit finer = SplitOf(shards, split_.piece_leaves / 2);
      if (finer.most > kMostPieces) break;
      split_ = finer;
    }
    if (!Fits(split_) || split_.most > kMostPieces) return false;
    if (grouped_ && split_.pieces > shards.num_outputs) return false;
    const int32_t levels = LevelsOf(shards, split_.piece_leaves);
    // A block's reserve is less than a kilobyte.
    const size_t share = limits_.shared_bytes / Shape::kBlocksAtOnce - 1024;
    args_.shared_levels =
        SharedBytes(levels) <= share ? levels : std::max(levels - 1, 0);
    args_.piece_leaves = split_.piece_leaves;
    return true;
  }
  void RoundRows(uint32_t* to) {
    using Rows = RoundRowsKernel<Operand::kTotals, Operand::kInGroups>;
    constexpr int kWarps = Rows::kThreads / kWarpLanes;
    const int64_t warps = args_.token_blocks * Shape::kBlockOctets * args_.runs;
    Launch<Rows>(stream_, (warps + kWarps - 1) / kWarps, 0,
                 {args_.product.x, args_.product.grouped,
                  args_.product.aligned != 0 ? 1 : 0, args_.runs,
                  Shape::kBlockOctets, args_.token_blocks, to});
  }

  const Stream stream_;
  const DeviceLimits limits_;
  const bool grouped_;
  GemmArgs args_ = {};
  GemmSplit split_;
};

template <template <int, int> typename Operand>
bool StartType(Stream stream, const TileArgs& args, int64_t groups,
               const TileMemory& memory, const StreamEnd& end) {
  const auto start = [&](auto shape) {
    using Shape = decltype(shape);
    using Start = GemmStart<Operand<Shape::kTiles, Shape::kOctets>, Shape>;
    return Start(stream, args, groups).Start(memory, end);
  };
  const int64_t rows = groups > 0 ? args.grouped.tile_rows : args.x.rows;
  if (rows > MiddleShape::kBlockTokens) {
    if constexpr (Operand<1, 1>::kInRuns) {
      return start(LargeRunShape());
    } else if (LimitsOf(stream).group_products) {
      return GemmStart<GroupOperand<GroupShape::kTiles, GroupShape::kOctets>,
                       GroupShape>(stream, args, groups)
          .Start(memory, end);
    } else {
      return start(LargeShape());
    }
  }
  if (rows > SmallShape::kBlockTokens) {
    return start(MiddleShape());
  }
  return start(SmallShape());
}

template <int kTiles, int kOctets>
using E4m3Operand = RunOperand<E4m3Codes, kTiles, kOctets>;
template <int kTiles, int kOctets>
using WideE4m3Operand = RunOperand<WideE4m3Codes, kTiles, kOctets>;
template <int kTiles, int kOctets>
using Q8Operand = RunOperand<Q8Codes, kTiles, kOctets>;
template <int kTiles, int kOctets>
using Q4Operand = RunOperand<Q4Codes, kTiles, kOctets>;
template <int kTiles, int kOctets>
using Mxfp4Operand = RunOperand<Mxfp4Codes, kTiles, kOctets>;
template <typename Math>
struct BlocksOf {
  template <int kTiles, int kOctets>
  using Operand = BlockOperand<Math, kTiles, kOctets>;
};

}  // namespace

bool StartGemm(Stream stream, const TileArgs& args, WeightType type,
               int64_t groups, const TileMemory& memory, const StreamEnd& end) {
  static_assert(SmallShape::kBlockTokens == kTileGroupRows);
  static_assert(LargeShape::kBlockTokens == kLargeGroupRows);
  static_assert(LargeRunShape::kBlockTokens == kLargeGroupRows);
  const int64_t rows = groups > 0 ? args.grouped.tile_rows : args.x.rows;
  if (rows < kGemmFrom || !memory) return false;
  if (IsInUnits(type)) {
    return WithBlocks(type, [&](auto math) {
      using Math = decltype(math);
      return StartType<BlocksOf<Math>::template Operand>(stream, args, groups,
                                                         memory, end);
    });
  }
  for (int32_t s = 0; s <= args.shards.num_shards; ++s) {
    const int32_t bound = args.shards.bounds[s];
    if (bound % kRunCols != 0 && bound != args.cols) return false;
  }
  switch (type) {
    case WeightType::kBf16:
      return StartType<Bf16Operand>(stream, args, groups, memory, end);
    case WeightType::kE4m3:
      return StartType<E4m3Operand>(stream, args, groups, memory, end);
    case WeightType::kE4m3Wide:
      return StartType<WideE4m3Operand>(stream, args, groups, memory, end);
    case WeightType::kQ8_0:
      return StartType<Q8Operand>(stream, args, groups, memory, end);
    case WeightType::kQ4_0:
      return StartType<Q4Operand>(stream, args, groups, memory, end);
    default:
      return StartType<Mxfp4Operand>(stream, args, groups, memory, end);
  }
}

}  // namespace sluice::kernels::cuda
