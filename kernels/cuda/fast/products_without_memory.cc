#include "kernels/cuda/fast/products_without_memory.h"

#include <cuda_device/launch.h>

namespace sluice::kernels::cuda {
namespace {

constexpr int kPanelThreads = 256;
constexpr int kPanelOctets = 4;
constexpr int kPanelTokens = 8 * kPanelOctets;
constexpr int kPanelRows = kPanelThreads / kWarpLanes * kTileSide;
// Columns whose activations are in shared memory at once, in each of two
// halves.
constexpr int kPanelSteps = 4;
constexpr int kPanelCols = kPanelSteps * kTileSide;
constexpr int kPanelWords = kPanelSteps * kPanelOctets * kWarpLanes * 2;
// Levels of a tree of sixteen leaves below its root: registers have them all.
constexpr int kPanelLevels = 4;
constexpr int kPanelLeaves = 1 << kPanelLevels;
// Rows of x from which on blocks of so many are worth it.
constexpr int64_t kPanelFrom = 33;

// One half of the panel as a chain reads it: [step][octet][lane] operands B.
class PanelHalf {
 public:
  SLUICE_DEVICE PanelHalf(const Shared<uint32_t>& words, int half, int lane,
                          int32_t first)
      : words_(words), lane_(lane), at_(half * kPanelWords), first_(first) {}
  SLUICE_DEVICE TileB Load(int octet, int64_t column, int64_t) const {
    const int64_t step = (column - first_) / kTileSide;
    const int64_t at =
        at_ + ((step * kPanelOctets + octet) * kWarpLanes + lane_) * 2;
    return {{words_.Get(at), words_.Get(at + 1)}};
  }

 private:
  const Shared<uint32_t>& words_;
  const int lane_;
  const int at_;
  const int32_t first_;
};

// What a thread brings of a panel: an octet's operands of a lane.
constexpr int kPartSteps =
    kPanelSteps * kPanelOctets / (kPanelThreads / kWarpLanes);
struct PanelPart {
  TileB words[kPartSteps];
};

// A warp per 16 rows; all of a block's warps take the same tokens.
template <typename Chain>
struct PanelKernel {
  static constexpr int kThreads = kPanelThreads;
  static constexpr size_t kSharedBytes = 2 * kPanelWords * sizeof(uint32_t);
  using Args = TileArgs;
  using Sums = TileC[kPanelOctets];

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t blocks_of_rows = (a.rows + kPanelRows - 1) / kPanelRows;
    const int64_t row_tile =
        block.index() % blocks_of_rows * (kPanelRows / kTileSide) +
        block.warp();
    const int64_t token = block.index() / blocks_of_rows * kPanelTokens;
    const auto words = block.Allocate<uint32_t>(2 * kPanelWords);
    for (int32_t o = 0; o < a.shards.num_outputs; ++o) {
      Sums sums;
      Node(block, a, row_tile, token, a.shards.nodes[o], words, sums);
      Store(block, a, row_tile, token, o, sums);
    }
  }

  // The sum of a node's leaves: a leaf's joins end where its number has a bit
  // that is zero, and the last one's take all that is left.
  static SLUICE_DEVICE void Node(Block& block, const Args& a, int64_t row_tile,
                                 int64_t token, const TreeNode& node,
                                 const Shared<uint32_t>& words, Sums& sums) {
    Sums levels[kPanelLevels];
    for (int32_t leaf = node.begin; leaf < node.end; ++leaf) {
      Leaf(block, a, row_tile, token, leaf, words, sums);
      const int32_t n = leaf - node.begin;
      const bool last = leaf + 1 == node.end;
      bool joins = true;
      for (int level = 0; level < kPanelLevels; ++level) {
        const bool pending = (n >> level & 1) != 0;
        if (pending && joins) {
          Join(levels[level], sums);
        } else if (!pending && joins && !last) {
          for (int o = 0; o < kPanelOctets; ++o) levels[level][o] = sums[o];
          joins = false;
        }
      }
    }
  }
  static SLUICE_DEVICE void Join(const Sums& left, Sums& right) {
    for (int o = 0; o < kPanelOctets; ++o) {
      for (int v = 0; v < 4; ++v) {
        right[o].values[v] = left[o].values[v] + right[o].values[v];
      }
    }
  }

  static SLUICE_DEVICE void Leaf(Block& block, const Args& a, int64_t row_tile,
                                 int64_t token, int32_t leaf,
                                 const Shared<uint32_t>& words, Sums& sums) {
    const int32_t begin = a.shards.bounds[leaf];
    const int32_t end = a.shards.bounds[leaf + 1];
    const bool has_rows = row_tile * kTileSide < a.rows;
    for (int o = 0; o < kPanelOctets; ++o) sums[o] = {};
    PanelPart part = Load(block, a, token, begin, end);
    int half = 0;
    for (int32_t k = begin; k < end; k += kPanelCols) {
      Keep(block, part, half, words);
      block.Sync();
      if (k + kPanelCols < end) {
        part = Load(block, a, token, k + kPanelCols, end);
      }
      if (has_rows) {
        const int32_t stop = k + kPanelCols < end ? k + kPanelCols : end;
        Chain::Columns(block, Chain::At(a, a.w, row_tile, k), k, stop, sums,
                       PanelHalf(words, half, block.lane(), k));
      }
      half = 1 - half;
    }
    // The next leaf begins with the first half again.
    block.Sync();
  }
  // Warp w brings octet w % 4 of two steps.
  static SLUICE_DEVICE PanelPart Load(Block& block, const Args& a,
                                      int64_t token, int32_t k, int32_t end) {
    const int64_t row =
        token + block.warp() % kPanelOctets * 8 + block.lane() / 4;
    PanelPart part = {};
    if (row >= a.x.rows) return part;
    const float* const from = a.x.data + row * a.x.stride;
    for (int i = 0; i < kPartSteps; ++i) {
      const int step = block.warp() / kPanelOctets * kPartSteps + i;
      part.words[i] = LoadOperand(
          from, a.aligned, k + step * kTileSide + block.lane() % 4 * 4, end);
    }
    return part;
  }
  static SLUICE_DEVICE void Keep(Block& block, const PanelPart& part, int half,
                                 const Shared<uint32_t>& words) {
    for (int i = 0; i < kPartSteps; ++i) {
      const int step = block.warp() / kPanelOctets * kPartSteps + i;
      const int octet = block.warp() % kPanelOctets;
      const int64_t at =
          half * kPanelWords +
          ((step * kPanelOctets + octet) * kWarpLanes + block.lane()) * 2;
      words.Set(at, part.words[i].words[0]);
      words.Set(at + 1, part.words[i].words[1]);
    }
  }
  static SLUICE_DEVICE void Store(Block& block, const Args& a, int64_t row_tile,
                                  int64_t token, int32_t out,
                                  const Sums& sums) {
    for (int o = 0; o < kPanelOctets; ++o) {
      for (int v = 0; v < 4; ++v) {
        const int64_t row = row_tile * kTileSide + block.lane() / 4 + v / 2 * 8;
        const int64_t t = token + o * 8 + block.lane() % 4 * 2 + v % 2;
        if (row >= a.rows || t >= a.x.rows) continue;
        float sum = sums[o].values[v];
        if (a.bias != nullptr) sum = sum + a.bias[row];
        a.shards.y[out][t * a.shards.stride[out] + row] = sum;
      }
    }
  }
};

}  // namespace

bool StartPanel(Stream stream, const TileArgs& args, WeightType type) {
  if (args.x.rows < kPanelFrom || IsInUnits(type)) return false;
  for (int32_t s = 0; s < args.shards.num_shards; ++s) {
    if (args.shards.bounds[s] % kTileSide != 0) return false;
  }
  for (int32_t o = 0; o < args.shards.num_outputs; ++o) {
    const TreeNode& node = args.shards.nodes[o];
    if (node.end - node.begin > kPanelLeaves) return false;
  }
  const int64_t blocks = (args.rows + kPanelRows - 1) / kPanelRows *
                         ((args.x.rows + kPanelTokens - 1) / kPanelTokens);
  const auto start = [&](auto kernel) {
    using Kernel = decltype(kernel);
    Launch<Kernel>(stream, blocks, Kernel::kSharedBytes, args);
    return true;
  };
  switch (type) {
    case WeightType::kBf16:
      return start(PanelKernel<Bf16Chain>());
    case WeightType::kE4m3:
      return start(PanelKernel<RunChain<E4m3Codes>>());
    case WeightType::kE4m3Wide:
      return start(PanelKernel<RunChain<WideE4m3Codes>>());
    case WeightType::kQ8_0:
      return start(PanelKernel<RunChain<Q8Codes>>());
    case WeightType::kQ4_0:
      return start(PanelKernel<RunChain<Q4Codes>>());
    default:
      return start(PanelKernel<RunChain<Mxfp4Codes>>());
  }
}

}  // namespace sluice::kernels::cuda
