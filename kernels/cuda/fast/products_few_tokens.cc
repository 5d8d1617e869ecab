#include "kernels/cuda/fast/products_few_tokens.h"

#include <cuda_device/launch.h>

#include <algorithm>

#include "common/base/check.h"
#include "kernels/cuda/fast/products_few_tokens_blocks.h"
#include "kernels/cuda/fast/products_few_tokens_norm.h"
#include "kernels/cuda/fast/products_few_tokens_runs.h"
#include "kernels/cuda/shared/gated_activation.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kStreamThreads = 256;
constexpr int kStreamWarps = kStreamThreads / kWarpLanes;
// A weight that has time to come near while attention runs, and room in the
// level-2 cache of any GPU of 40 MB of it.
constexpr int64_t kPrefetchedBytes = int64_t{34} << 20;

struct StreamArgs {
  TileArgs tile;
  StreamEnd end;
  StreamedNormArgs norm;
  int64_t group_blocks;  // that share a tile of tokens or a group
  // Whether all leaves of a block's first rows come near while kernels before
  // still run.
  int64_t prefetches_all;
};

// The sum of a node's leaves, by a warp, in the order of SumOfNode. get(i) is
// leaf i's float. Lane 0 has the sum.
template <typename Get>
SLUICE_DEVICE float SumOfLeaves(Block& block, const TreeNode& node,
                                const Get& get) {
  static_assert(kMostShards == 2 * kWarpLanes);
  const int32_t first = node.begin + 2 * block.lane();
  float sum = first < node.end ? get(first) : 0.0f;
  if (first + 1 < node.end) sum = sum + get(first + 1);
  const int32_t pairs = (node.end - node.begin + 1) / 2;
  for (int32_t stride = 1; stride < pairs; stride *= 2) {
    const float right = block.ShuffleXor(sum, stride);
    if (block.lane() + stride < pairs) sum = sum + right;
  }
  return sum;
}

// What a block multiplies: a tile of tokens or a group, by every group_blocks
// tile of 16 rows or, where it is gated, pair of such tiles. Its warps share
// the leaves of those; a leaf's units follow the last one's without a gap.
template <typename Unit, int kTokens>
class StreamBlock {
 public:
  static constexpr bool kAlone = kTokens == 1;
  // Outputs of a tile, and those that a warp joins.
  static constexpr int kCells = kTileSide * kTokens;
  static constexpr int kOwnCells = kCells / kStreamWarps;
  // A warp may be a tile ahead of others.
  static constexpr int kBuffers = kAlone ? 2 : 1;
  using Stream = typename Unit::template Stream<kTokens>;
  using Norm = StreamedNorm<kStreamThreads>;
  static_assert(!kAlone || Norm::kSums <= kBuffers * kCells);

  // Leaves' sums of an output, so far apart that lanes use all banks.
  static constexpr int32_t Pitch(const StreamArgs& a) {
    return a.tile.shards.num_shards * (a.end.gated ? 2 : 1) | 1;
  }
  static size_t SharedBytes(const StreamArgs& a) {
    return sizeof(float) * static_cast<size_t>(kBuffers * kCells * Pitch(a) +
                                               a.norm.weight_floats) +
           Stream::SharedBytes(kStreamWarps, a.tile.cols);
  }
  SLUICE_DEVICE StreamBlock(Block& block, const StreamArgs& a,
                            const ProductTile& tile)
      : block_(block),
        a_(a),
        weight_(static_cast<const uint8_t*>(tile.w)),
        bias_at_(tile.bias == nullptr
                     ? 0
                     : static_cast<int32_t>(tile.bias - a.tile.bias)),
        out_(static_cast<int32_t>(tile.out)),
        tokens_(kAlone ? 1 : tile.tokens),
        stream_(block, RowOf(block, a, tile), a.tile.cols),
        partials_(block.Allocate<float>(kBuffers * kCells * Pitch(a))),
        norm_weights_(block.Allocate<float>(a.norm.weight_floats)) {}

  // `waits`: for what kernels before write, all but the weights.
  SLUICE_DEVICE void Run(bool waits) {
    const auto blocks = static_cast<int32_t>(a_.group_blocks);
    int32_t row_tile = static_cast<int32_t>(block_.index()) % blocks;
    const StreamLeaf first = LeafAt(row_tile, block_.warp());
    if (IsNormed()) OwnNorm().BringWeights();
    stream_.Begin(first);
    if (waits) {
      stream_.Prefetch(first);
      if (a_.prefetches_all != 0) PrefetchLeaves(row_tile);
      block_.WaitForInputs();
    }
    TakeInputs(first);
    for (int buffer = 0; row_tile < RowTiles(); row_tile += blocks) {
      for (int i = block_.warp(); i < Leaves(); i += kStreamWarps) {
        const auto next = [&] {
          return i + kStreamWarps < Leaves()
                     ? LeafAt(row_tile, i + kStreamWarps)
                     : LeafAt(row_tile + blocks, block_.warp());
        };
        TileC sum = {};
        stream_.Multiply(LeafAt(row_tile, i), next, sum);
        Keep(buffer, i, sum);
      }
      Finish(row_tile, buffer);
      buffer = (buffer + 1) % kBuffers;
    }
  }

  static constexpr int64_t RowTiles(const StreamArgs& a) {
    const int64_t outputs = a.end.gated ? a.tile.rows / 2 : a.tile.rows;
    return (outputs + kTileSide - 1) / kTileSide;
  }

 private:
  static SLUICE_DEVICE const float* RowOf(const Block& block,
                                          const StreamArgs& a,
                                          const ProductTile& tile) {
    if (kAlone && a.norm.rows != nullptr) {
      return a.tile.x.data + a.norm.rows[0] * a.tile.x.stride;
    }
    const int token = block.lane() / 4;
    return a.tile.x.data +
           tile.In(token < tile.tokens ? token : 0) * a.tile.x.stride;
  }
  SLUICE_DEVICE bool IsNormed() const {
    return kAlone && a_.norm.weight != nullptr;
  }
  SLUICE_DEVICE Norm OwnNorm() { return {block_, a_.norm, norm_weights_}; }
  SLUICE_DEVICE void TakeInputs(const StreamLeaf& first) {
    if constexpr (kAlone) {
      if (IsNormed()) {
        block_.template WaitCopies<Stream::kBegunGroups - 1>();
        Norm norm = OwnNorm();
        // Leaves' sums come later.
        return stream_.inputs().TakeNormed(norm, partials_);
      }
    }
    stream_.TakeInputs(first);
  }
  SLUICE_DEVICE int32_t RowTiles() const {
    return static_cast<int32_t>(RowTiles(a_));
  }
  // Of a row tile, and of the one that it is gated with.
  SLUICE_DEVICE int Leaves() const {
    return a_.tile.shards.num_shards * (a_.end.gated ? 2 : 1);
  }
  // Leaf `i` of those.
  SLUICE_DEVICE StreamLeaf LeafAt(int32_t row_tile, int i) const {
    const ShardArgs& shards = a_.tile.shards;
    StreamLeaf leaf;
    if (row_tile >= RowTiles() || i >= Leaves()) return leaf;
    const bool second = i >= shards.num_shards;
    const int32_t s = second ? i - shards.num_shards : i;
    leaf.column = shards.bounds[s];
    leaf.units = (shards.bounds[s + 1] - leaf.column) / Unit::kColumns;
    leaf.at = weight_ +
              int64_t{second ? row_tile + RowTiles() : row_tile} *
                  (a_.tile.cols / Unit::kColumns * Unit::kBytes) +
              int64_t{leaf.column / Unit::kColumns} * Unit::kBytes;
    return leaf;
  }
  // Asks for the warp's leaves of a row tile behind its first.
  SLUICE_DEVICE void PrefetchLeaves(int32_t row_tile) {
    if (block_.lane() != 0) return;
    for (int i = block_.warp() + kStreamWarps; i < Leaves();
         i += kStreamWarps) {
      const StreamLeaf leaf = LeafAt(row_tile, i);
      block_.Prefetch(leaf.at, leaf.units * Unit::kBytes);
    }
  }
  // Where an output's sums of leaves begin. A cell: token, then row.
  SLUICE_DEVICE int32_t PartialsAt(int buffer, int cell) const {
    return (buffer * kCells + cell) * Pitch(a_);
  }
  SLUICE_DEVICE void Keep(int buffer, int leaf, const TileC& sum) {
    const int lane = ComputedHere(block_.thread()) % kWarpLanes;
    for (int v = 0; v < 4; ++v) {
      const int row = lane / 4 + v / 2 * 8;
      const int token = lane % 4 * 2 + v % 2;
      if (token >= kTokens) continue;
      partials_.Set(PartialsAt(buffer, token * kTileSide + row) + leaf,
                    sum.values[v]);
    }
  }

  // What an output's sum is added to, and the second tile's.
  struct Addends {
    float bias = 0.0f;
    float second_bias = 0.0f;
    float before = 0.0f;  // of the first output
  };
  SLUICE_DEVICE Addends AddendsOf(int64_t token, int row) const {
    Addends addends;
    if (a_.tile.bias != nullptr) {
      const int at = bias_at_ + row;
      addends.bias = a_.tile.bias[at];
      if (a_.end.gated) {
        addends.second_bias = a_.tile.bias[at + RowTiles() * kTileSide];
      }
    }
    const ShardArgs& shards = a_.tile.shards;
    if (a_.end.adds) {
      addends.before = shards.y[0][token * shards.stride[0] + row];
    }
    return addends;
  }
  // Joins the leaves of a row tile's outputs, and stores those. A warp has
  // kOwnCells cells, a lane at most one.
  SLUICE_DEVICE void Finish(int32_t row_tile, int buffer) {
    // Fewer registers, as in Keep.
    const int begin = ComputedHere(block_.thread()) / kWarpLanes * kOwnCells;
    const int cell = begin + block_.lane();
    const int row = row_tile * kTileSide + cell % kTileSide;
    const int token = cell / kTileSide;
    const bool stores = block_.lane() < kOwnCells && token < tokens_ &&
                        row < (a_.end.gated ? a_.tile.rows / 2 : a_.tile.rows);
    // What is added comes while others still multiply.
    Addends addends;
    if (stores) addends = AddendsOf(out_ + token, row);
    block_.Sync();
    // Of a warp's first token: all of its cells are of that.
    if (begin / kTileSide < tokens_) {
      for (int32_t o = 0; o < a_.tile.shards.num_outputs; ++o) {
        const float sum = OwnSum(buffer, begin, o, 0);
        const float second =
            a_.end.gated ? OwnSum(buffer, begin, o, Leaves() / 2) : 0.0f;
        if (stores) Store(o, row, out_ + token, sum, second, addends);
      }
    }
    if (kBuffers == 1) block_.Sync();
  }
  // A lane's cell's sum of output `o`'s node; `from`: the node's first leaf.
  SLUICE_DEVICE float OwnSum(int buffer, int begin, int32_t o, int from) {
    float own = 0.0f;
    for (int i = 0; i < kOwnCells; ++i) {
      const int32_t at = PartialsAt(buffer, begin + i) + from;
      const float sum = block_.Shuffle(
          SumOfLeaves(block_, a_.tile.shards.nodes[o],
                      [&](int32_t leaf) { return partials_.Get(at + leaf); }),
          0);
      if (block_.lane() == i) own = sum;
    }
    return own;
  }
  SLUICE_DEVICE void Store(int32_t o, int row, int64_t token, float sum,
                           float second, const Addends& addends) const {
    const ShardArgs& shards = a_.tile.shards;
    if (a_.tile.bias != nullptr) sum = sum + addends.bias;
    if (a_.end.gated) {
      if (a_.tile.bias != nullptr) second = second + addends.second_bias;
      sum = a_.end.activation.kind == Activation::Kind::kSilu
                ? SiluGate(sum, second)
                : ClampedGate(sum, second, a_.end.activation.limit);
    }
    shards.y[o][token * shards.stride[o] + row] =
        a_.end.adds ? addends.before + sum : sum;
  }

  Block& block_;
  const StreamArgs& a_;
  const uint8_t* const weight_;
  const int32_t bias_at_;  // where its own begin among all biases
  const int32_t out_;
  const int tokens_;
  Stream stream_;  // first, so that its places are constants
  const Shared<float> partials_;
  const Shared<float> norm_weights_;
};

// kTokens: of a tile, at most.
template <typename Unit, int kTokens>
struct StreamKernel {
  using Tile = StreamBlock<Unit, kTokens>;
  static constexpr int kThreads = kStreamThreads;
  static constexpr int kLeastBlocks = kTokens == 1 ? Unit::kBlocksAlone : 2;
  static constexpr bool kWaitsItself = true;
  using Args = StreamArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const TileArgs& t = a.tile;
    const bool grouped = t.grouped.groups != nullptr;
    // Which weight it is stands among the inputs.
    if (grouped) block.WaitForInputs();
    const int32_t group = static_cast<int32_t>(block.index()) /
                          static_cast<int32_t>(a.group_blocks);
    ProductTile tile;
    if (!FindTile(t.grouped, group, t.x.rows, t.w, t.bias, t.rows, tile)) {
      return;
    }
    Tile(block, a, tile).Run(!grouped);
  }
};

// Whether leaves are whole units, of which each has one at least. Those of a
// type whose units are in groups are whole groups: CutColumns.
template <typename Unit>
bool HasWholeUnits(const ShardArgs& shards) {
  for (int32_t s = 0; s < shards.num_shards; ++s) {
    if (shards.bounds[s] % Unit::kColumns != 0 ||
        shards.bounds[s] >= shards.bounds[s + 1]) {
      return false;
    }
  }
  return shards.bounds[shards.num_shards] % Unit::kColumns == 0;
}

template <typename Unit>
size_t MostSharedBytes(const StreamArgs& args) {
  return std::max(StreamBlock<Unit, 1>::SharedBytes(args),
                  StreamBlock<Unit, kStreamTokens>::SharedBytes(args));
}

// As many blocks as the device has room for at once, where there are as many
// row tiles: multiprocessors then have almost equal shares.
template <typename Unit, int kTokens>
void StartUnits(Stream stream, StreamArgs args, int64_t max_groups) {
  using Kernel = StreamKernel<Unit, kTokens>;
  const int64_t groups =
      args.tile.grouped.groups != nullptr
          ? max_groups
          : (args.tile.x.rows + kStreamTokens - 1) / kStreamTokens;
  if (groups == 0) return;
  const DeviceLimits limits = LimitsOf(stream);
  const auto blocks_of = [&] {
    // A block's reserve is a kilobyte.
    return std::clamp<int64_t>(
        static_cast<int64_t>((limits.shared_bytes + 1024) /
                             (Kernel::Tile::SharedBytes(args) + 1024)),
        1, Kernel::kLeastBlocks);
  };
  int64_t blocks = blocks_of();
  if (args.norm.weight != nullptr) {
    args.norm.weight_floats = args.norm.columns;
    if (blocks_of() < blocks ||
        Kernel::Tile::SharedBytes(args) > limits.shared_bytes) {
      args.norm.weight_floats = 0;
    }
  }
  const size_t bytes = Kernel::Tile::SharedBytes(args);
  blocks *= limits.multiprocessors;
  // Of several tokens' groups there may be far fewer.
  if (kTokens > 1 && args.tile.grouped.groups != nullptr) blocks *= 4;
  const int64_t weight_bytes = args.tile.rows * args.tile.cols /
                               (kTileSide * Unit::kColumns) * (Unit::kBytes);
  args.prefetches_all = weight_bytes <= kPrefetchedBytes ? 1 : 0;
  args.group_blocks = std::min(Kernel::Tile::RowTiles(args),
                               std::max<int64_t>(blocks / groups, 1));
  Launch<Kernel>(stream, args.group_blocks * groups, bytes, args);
}

// Calls `with` with a type's unit.
template <typename With>
auto WithUnit(WeightType type, const With& with) {
  switch (type) {
    case WeightType::kBf16:
      return with(Bf16Unit());
    case WeightType::kE4m3:
      return with(RunUnit<E4m3Codes>());
    case WeightType::kE4m3Wide:
      return with(RunUnit<WideE4m3Codes>());
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
           return HasWholeUnits<Unit>(args.shards) &&
                  MostSharedBytes<Unit>({args, end, {}, 0, 0}) <=
                      LimitsOf(stream).shared_bytes;
         });
}

void StartStream(Stream stream, const TileArgs& args, WeightType type,
                 const StreamEnd& end, int64_t max_groups,
                 const StreamNorm& norm) {
  SLUICE_CHECK(!end.adds || args.shards.num_outputs == 1);
  SLUICE_CHECK(norm.weight == nullptr ||
               (args.grouped.groups == nullptr && args.x.rows == 1 &&
                args.cols <= kNormedCols));
  const StreamArgs all = {
      args,
      end,
      {norm.weight, norm.rows, norm.eps, static_cast<int32_t>(args.cols), 0},
      0,
      0};
  const bool alone = args.grouped.groups != nullptr
                         ? args.grouped.tile_rows == 1
                         : args.x.rows == 1;
  WithUnit(type, [&](auto unit) {
    using Unit = decltype(unit);
    return alone ? StartUnits<Unit, 1>(stream, all, max_groups)
                 : StartUnits<Unit, kStreamTokens>(stream, all, max_groups);
  });
}

}  // namespace sluice::kernels::cuda
