#include "kernels/cuda/tile_gemm.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda/tile_gemm_kernel.h"

namespace sluice::kernels::cuda {
namespace {

// Rows of x from which on this is worth it: fewer are TileKernel's.
constexpr int64_t kGemmFrom = 9;
// Pieces of an output, at most.
constexpr int kMostPieces = 16;

struct LargeShape : GemmShape<2, 4, 4, 4> {
  static constexpr int kStages = 4;
  static constexpr int kBlocksAtOnce = 1;
};
struct MiddleShape : GemmShape<4, 2, 2, 4> {
  static constexpr int kStages = 6;
  static constexpr int kBlocksAtOnce = 1;
};
struct SmallShape : GemmShape<8, 1, 1, 4> {
  static constexpr int kStages = 6;
  static constexpr int kBlocksAtOnce = 2;
};

// A warp per octet and run.
struct RoundRowsKernel {
  static constexpr int kThreads = 256;
  struct Args {
    ConstMatrix x;
    bool aligned;
    int64_t runs;
    int64_t octets;
    uint32_t* to;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t at = block.index() * (kThreads / kWarpLanes) + block.warp();
    if (at >= a.octets * a.runs) return;
    const int64_t token = at / a.runs * 8 + block.lane() / 4;
    const int64_t column = at % a.runs * kRunCols + block.lane() % 4 * 4;
    uint32_t* const to = a.to + at * kOctetRunWords + block.lane() * 2;
    for (int step = 0; step < 2; ++step) {
      TileB b = {};
      if (token < a.x.rows) {
        b = LoadOperand(a.x.data + token * a.x.stride, a.aligned,
                        column + step * kTileSide, a.x.cols);
      }
      to[step * kOctetStepWords] = b.words[0];
      to[step * kOctetStepWords + 1] = b.words[1];
    }
  }
};

// A thread per output element: the tree over its pieces.
struct JoinPiecesKernel {
  static constexpr int kThreads = 256;
  using Args = GemmArgs;
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t at = block.index() * kThreads + block.thread();
    const int64_t each = a.product.x.rows * a.product.rows;
    if (at >= each) return;
    const ShardArgs& shards = a.product.shards;
    const int64_t token = at / a.product.rows;
    const int64_t row = at % a.product.rows;
    const float* from = a.pieces + at;
    for (int32_t o = 0; o < shards.num_outputs; ++o) {
      const int32_t leaves = shards.nodes[o].end - shards.nodes[o].begin;
      const int32_t count = (leaves + a.piece_leaves - 1) / a.piece_leaves;
      float sum = Tree(from, each, count);
      from += count * each;
      if (a.product.bias != nullptr) sum = sum + a.product.bias[row];
      shards.y[o][token * shards.stride[o] + row] = sum;
    }
  }
  static SLUICE_DEVICE float Tree(const float* from, int64_t step,
                                  int32_t count) {
    float sums[kMostPieces];
    for (int i = 0; i < kMostPieces; ++i) {
      sums[i] = i < count ? from[i * step] : 0.0f;
    }
    for (int stride = 1; stride < kMostPieces; stride *= 2) {
      for (int i = 0; i + stride < kMostPieces; i += 2 * stride) {
        if (i + stride < count) sums[i] = sums[i] + sums[i + stride];
      }
    }
    return sums[0];
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
int32_t SharedLevels(int32_t piece_leaves) {
  // Neither the lowest nor the highest.
  return std::max(std::countr_zero(static_cast<uint32_t>(piece_leaves)) - 2, 0);
}

template <typename Kernel, typename Shape>
size_t SharedBytes(int32_t piece_leaves) {
  return Kernel::kRingBytes +
         static_cast<size_t>(SharedLevels(piece_leaves) * Shape::kCells) *
             sizeof(float);
}

template <typename Operand, typename Shape>
bool StartShape(Stream stream, const TileArgs& product,
                const TileMemory& memory) {
  using Kernel = GemmKernel<Operand, Shape>;
  GemmArgs args = {};
  args.product = product;
  args.runs = static_cast<int32_t>((product.cols + kRunCols - 1) / kRunCols);
  args.whole_runs = static_cast<int32_t>(
      product.cols % kRunCols == 0 || product.cols % kRunCols > kTileSide
          ? args.runs
          : args.runs - 1);
  args.row_blocks = (product.rows + Shape::kBlockRows - 1) / Shape::kBlockRows;
  args.token_blocks =
      (product.x.rows + Shape::kBlockTokens - 1) / Shape::kBlockTokens;
  const DeviceLimits limits = LimitsOf(stream);
  const int64_t enough =
      limits.multiprocessors * Shape::kBlocksAtOnce * 15 / 16;
  GemmSplit split = SplitOf(product.shards, kGemmPieceLeaves);
  const auto fits = [&] {
    return SharedBytes<Kernel, Shape>(split.piece_leaves) <=
           limits.shared_bytes;
  };
  while (split.piece_leaves > 1 &&
         (!fits() ||
          split.pieces * args.row_blocks * args.token_blocks < enough)) {
    const GemmSplit finer = SplitOf(product.shards, split.piece_leaves / 2);
    if (finer.most > kMostPieces) break;
    split = finer;
  }
  if (!fits() || split.most > kMostPieces) return false;

  const int64_t octets = args.token_blocks * Shape::kBlockOctets;
  const int64_t row_words = octets * args.runs * kOctetRunWords;
  const int64_t each = product.x.rows * product.rows;
  const bool joins = split.pieces > product.shards.num_outputs;
  auto* const words = static_cast<uint32_t*>(
      memory((row_words + (joins ? split.pieces * each : 0)) *
             static_cast<int64_t>(sizeof(uint32_t))));
  args.rows = words;
  args.pieces = joins ? reinterpret_cast<float*>(words + row_words) : nullptr;
  args.piece_leaves = split.piece_leaves;
  args.shared_levels = SharedLevels(split.piece_leaves);

  constexpr int kWarps = RoundRowsKernel::kThreads / kWarpLanes;
  Launch<RoundRowsKernel>(
      stream, (octets * args.runs + kWarps - 1) / kWarps, 0,
      {product.x, product.aligned, args.runs, octets, words});
  Launch<Kernel>(stream, split.pieces * args.row_blocks * args.token_blocks,
                 SharedBytes<Kernel, Shape>(split.piece_leaves), args);
  if (!joins) return true;
  Launch<JoinPiecesKernel>(
      stream,
      (each + JoinPiecesKernel::kThreads - 1) / JoinPiecesKernel::kThreads, 0,
      args);
  return true;
}

template <template <int, int> typename Operand>
bool StartType(Stream stream, const TileArgs& args, const TileMemory& memory) {
  const auto start = [&](auto shape) {
    using Shape = decltype(shape);
    return StartShape<Operand<Shape::kTiles, Shape::kOctets>, Shape>(
        stream, args, memory);
  };
  if (args.x.rows > MiddleShape::kBlockTokens) return start(LargeShape());
  if (args.x.rows > SmallShape::kBlockTokens) return start(MiddleShape());
  return start(SmallShape());
}

template <int kTiles, int kOctets>
using E4m3Operand = RunOperand<E4m3Codes, kTiles, kOctets>;
template <int kTiles, int kOctets>
using Q8Operand = RunOperand<Q8Codes, kTiles, kOctets>;
template <int kTiles, int kOctets>
using Q4Operand = RunOperand<Q4Codes, kTiles, kOctets>;
template <int kTiles, int kOctets>
using Mxfp4Operand = RunOperand<Mxfp4Codes, kTiles, kOctets>;

}  // namespace

bool StartGemm(Stream stream, const TileArgs& args, WeightType type,
               const TileMemory& memory) {
  if (args.x.rows < kGemmFrom || !memory) return false;
  for (int32_t s = 0; s <= args.shards.num_shards; ++s) {
    const int32_t bound = args.shards.bounds[s];
    if (bound % kRunCols != 0 && bound != args.cols) return false;
  }
  switch (type) {
    case WeightType::kBf16:
      return StartType<Bf16Operand>(stream, args, memory);
    case WeightType::kE4m3:
      return StartType<E4m3Operand>(stream, args, memory);
    case WeightType::kQ8_0:
      return StartType<Q8Operand>(stream, args, memory);
    case WeightType::kQ4_0:
      return StartType<Q4Operand>(stream, args, memory);
    default:
      return StartType<Mxfp4Operand>(stream, args, memory);
  }
}

}  // namespace sluice::kernels::cuda
