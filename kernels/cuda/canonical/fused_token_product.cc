#include "kernels/cuda/canonical/fused_token_product.h"

#include <cuda_device/launch.h>

#include <algorithm>
#include <iterator>

#include "common/base/check.h"
#include "kernels/cuda/canonical/fused_token_multiply.h"
#include "kernels/cuda/canonical/fused_token_row.h"
#include "kernels/cuda/canonical/fused_token_sums.h"
#include "kernels/cuda/shared/row_quads.h"

namespace sluice::kernels::cuda {
namespace {

// Bytes behind a block's first units that come near while it waits for its
// inputs: all blocks' are a few MB of a level-2 cache.
constexpr int32_t kPrefetchedBytes = 64 * 1024;

// One token's products: as many blocks as there are multiprocessors, each with
// groups of sixteen rows, one after the other. In a pass every warp multiplies
// a unit of those, and copies another one to its place, so that weights are
// always on their way, the first ones before the activations are there. A warp
// of its own adds the terms of the pass before meanwhile. kMultiplying: the
// warps that multiply.
template <BlockFormat kFormat, int kMultiplying>
struct BlockTokenKernel {
  using Unit = TokenUnit<kFormat>;
  static constexpr int kWarps = kMultiplying;
  static constexpr int kThreads = (kWarps + 1) * kWarpLanes;
  static constexpr int kUnitBytes = Unit::kWords * int{sizeof(uint32_t)};
  static constexpr int kStages = 2;  // units of a warp that are on their way
  static constexpr bool kWaitsItself = true;
  using Args = BlockTokenArgs;
  using Row = TokenRow<Unit::kElements, Unit::kSubElements>;
  using Taker = TokenRowTaker<Unit::kElements, Unit::kSubElements, kThreads>;
  using Sums = BlockTokenSums<Unit, kWarps * Unit::kBlocks>;
  // With the terms of two passes there may be room for two blocks: then their
  // registers are for those, too, and the next product's begins meanwhile. Two
  // sets of sub-blocks take more registers than that leaves.
  static constexpr int kMostlyShared =
      kStages * kWarps * kUnitBytes + 2 * Sums::kPassFloats * 4;
  static constexpr int kLeastBlocks =
      Unit::kSets == 1 && kMostlyShared <= 106 * 1024 ? 2 : 1;

  // Terms of two passes; before those the floats of a row that is normed.
  static constexpr SLUICE_DEVICE int TermFloats(const Args& a) {
    const int normed = a.row.norm == nullptr ? 0 : a.row.cols + 4;
    return normed > 2 * Sums::kPassFloats ? normed : 2 * Sums::kPassFloats;
  }
  static size_t SharedBytes(const Args& a) {
    return Row::SharedBytes(a.row.cols) +
           static_cast<size_t>(kWarps * kStages * kUnitBytes) +
           sizeof(float) *
               static_cast<size_t>(TermFloats(a) +
                                   a.shards.num_shards * kGroupRows) +
           sizeof(int32_t) * (kWarps + 4);
  }

  // A warp's unit: of the block's group `group`, and its number there.
  struct Cursor {
    uint32_t group;
    int32_t unit;
    SLUICE_DEVICE void Advance(int32_t by, int32_t units) {
      for (unit += by; unit >= units; unit -= units) ++group;
    }
  };
  // The units of a block.
  struct Work {
    TokenGroups groups;
    const uint8_t* packed;
    int32_t blocks;  // of a group, in all
    int32_t begin;   // the first one that is multiplied
    int32_t end;
    int32_t units;  // of a group
    SLUICE_DEVICE Work(const Block& block, const Args& a)
        : groups(block, a),
          packed(a.packed),
          blocks(a.row.cols / Unit::kElements),
          begin(a.shards.bounds[0]),
          end(a.shards.bounds[a.shards.num_shards]),
          units((end - begin + Unit::kBlocks - 1) / Unit::kBlocks) {}
    SLUICE_DEVICE bool Has(const Cursor& at) const {
      return at.group < groups.count();
    }
    SLUICE_DEVICE int32_t BlockOf(const Cursor& at) const {
      return begin + at.unit * Unit::kBlocks;
    }
    SLUICE_DEVICE const uint8_t* GroupAt(uint32_t group) const {
      return packed +
             static_cast<int64_t>(groups.Of(group)) * blocks * Unit::T::kBytes;
    }
    SLUICE_DEVICE UnitPlace PlaceOf(const Cursor& at) const {
      return {GroupAt(at.group), BlockOf(at), end - 1};
    }
    SLUICE_DEVICE int32_t passes() const {
      return (static_cast<int32_t>(groups.count()) * units + kWarps - 1) /
             kWarps;
    }
  };

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto words =
        block.Allocate<uint32_t>(kWarps * kStages * Unit::kWords);
    const Row row(block, a.row.cols);
    const auto terms = block.Allocate<float>(TermFloats(a));
    const auto partials =
        block.Allocate<float>(a.shards.num_shards * kGroupRows);
    const auto finite = block.Allocate<int32_t>(kWarps + 1);
    const Work work(block, a);
    const bool adds = block.warp() == kWarps;
    Cursor copied = {0, 0};
    copied.Advance(block.warp(), work.units);
    if (adds) {
      Prefetch(block, work, a.row);
    } else {
      SLUICE_UNROLL
      for (int s = 0; s < kStages; ++s) CopyNext(block, work, words, s, copied);
    }
    TakeRow(block, a.row, row, terms, finite);
    const int32_t passes = work.passes();
    // Each of both has its registers.
    if (adds) {
      Sums sums(block, a, work.groups, terms, partials);
      sums.Begin(IsFinite(block, finite));
      for (int32_t pass = 0; pass < passes; ++pass) {
        EndPass(block);
        sums.AddPass(pass % 2 * Sums::kPassFloats);
      }
      return;
    }
    Cursor own = {0, 0};
    own.Advance(block.warp(), work.units);
    int stage = 0;
    for (int32_t pass = 0; pass < passes; ++pass) {
      block.template WaitCopies<kStages - 1>();
      if (work.Has(own)) {
        Multiply(block, work.BlockOf(own), {words, StageAt(block, stage)}, row,
                 {terms, pass % 2 * Sums::kPassFloats});
      }
      own.Advance(kWarps, work.units);
      CopyNext(block, work, words, stage, copied);
      stage = stage + 1 < kStages ? stage + 1 : 0;
      EndPass(block);
    }
  }

  // Here a pass's terms are there, and those of the one before are added.
  static SLUICE_DEVICE void EndPass(Block& block) { block.Sync(); }
  static SLUICE_DEVICE int StageAt(const Block& block, int stage) {
    return (block.warp() * kStages + stage) * Unit::kWords;
  }
  // Begins to copy a warp's next unit.
  static SLUICE_DEVICE void CopyNext(Block& block, const Work& work,
                                     const Shared<uint32_t>& words, int stage,
                                     Cursor& next) {
    if (work.Has(next)) {
      Unit::Codes::Copy(block, work.PlaceOf(next), words,
                        StageAt(block, stage));
    }
    block.CommitCopies();
    next.Advance(kWarps, work.units);
  }
  // Asks for what comes behind the first units of all warps, and for the norm.
  static SLUICE_DEVICE void Prefetch(Block& block, const Work& work,
                                     const TokenRowArgs& row) {
    if (block.lane() != 0) return;
    if (row.norm != nullptr) {
      block.Prefetch(row.norm, row.cols * int{sizeof(float)});
    }
    Cursor at = {0, 0};
    at.Advance(kStages * kWarps, work.units);
    for (int32_t left = kPrefetchedBytes; left > 0 && work.Has(at);) {
      const int32_t bytes = (work.end - work.BlockOf(at)) * Unit::T::kBytes;
      const int32_t some = bytes < left ? bytes : left;
      block.Prefetch(
          work.GroupAt(at.group) +
              static_cast<int64_t>(work.BlockOf(at)) * Unit::T::kBytes,
          some);
      left -= some;
      at = {at.group + 1, 0};
    }
  }
  static SLUICE_DEVICE void TakeRow(Block& block, const TokenRowArgs& args,
                                    const Row& row, const Shared<float>& room,
                                    const Shared<int32_t>& finite) {
    Taker taker(block, args);
    const bool all = block.Ballot(taker.Take(row, room)) == 0xFFFFFFFFu;
    if (block.lane() == 0) finite.Set(block.warp(), all ? 1 : 0);
    block.Sync();
  }
  static SLUICE_DEVICE bool IsFinite(Block& block,
                                     const Shared<int32_t>& finite) {
    const int warp = block.lane() < kWarps ? block.lane() : kWarps;
    return block.Ballot(finite.Get(warp) != 0) == 0xFFFFFFFFu;
  }
  // Where something begins.
  template <typename Element>
  struct At {
    const Shared<Element>& array;
    int at;
  };
  // Multiplies a unit, whose first block is `first`, and stores its terms.
  static SLUICE_DEVICE void Multiply(Block& block, int32_t first,
                                     const At<uint32_t>& unit, const Row& row,
                                     const At<float>& to) {
    const UnitLane lane(block);
    typename Unit::Terms terms;
    Unit::Multiply(block, unit.array, unit.at,
                   Unit::LoadToken(block, row, first), terms);
    if (!Unit::Stores(lane)) return;
    const int slot =
        to.at + (block.warp() * Unit::kBlocks + Unit::OwnBlock(lane)) *
                    Sums::kSlotFloats;
    SLUICE_UNROLL
    for (int n = 0; n < Unit::kTerms; ++n) {
      const int values = slot + 2 * n * kGroupRows + lane.row;
      StoreQuad(to.array, values, terms.values[n]);
      StoreQuad(to.array, values + kGroupRows, terms.factors[n]);
    }
  }
};

BlockTokenArgs ArgsOf(const TokenProduct& product) {
  const BlockWeight& w = product.w;
  BlockTokenArgs args = {};
  args.row = {product.x.data,
              product.norm,
              product.rows,
              product.x.stride,
              static_cast<int32_t>(w.cols),
              product.eps};
  args.packed = w.packed;
  args.bias = product.bias;
  args.rows = static_cast<int32_t>(w.rows);
  args.adds = product.adds ? 1 : 0;
  if (product.gate != nullptr) {
    args.gated = 1;
    args.clamped =
        product.gate->kind == Activation::Kind::kClampedSwiGlu ? 1 : 0;
    args.limit = product.gate->limit;
  }
  const int32_t bounds[2] = {0, static_cast<int32_t>(w.cols)};
  const TreeNode node = {0, 1};
  const ShardedCols alone = {bounds, {&node, 1}};
  args.shards =
      ShardArgsOf(product.shards.bounds.empty() ? alone : product.shards,
                  {&product.y, 1}, LayoutOf(w.format).elements);
  return args;
}

// Warps of a GPU's largest shared memory, and of one that has less.
constexpr int kManyWarps = 15;
constexpr int kFewWarps = 7;

template <BlockFormat kFormat, int kWarps>
bool Fits(Stream stream, const BlockTokenArgs& args) {
  return BlockTokenKernel<kFormat, kWarps>::SharedBytes(args) <=
         LimitsOf(stream).shared_bytes;
}
template <BlockFormat kFormat>
bool Fits(Stream stream, const TokenProduct& product) {
  return Fits<kFormat, kFewWarps>(stream, ArgsOf(product));
}
template <BlockFormat kFormat, int kWarps>
void StartIn(Stream stream, BlockTokenArgs args) {
  using Kernel = BlockTokenKernel<kFormat, kWarps>;
  const uint32_t groups = TokenGroups::Outputs(args);
  const auto blocks = std::min(
      groups,
      static_cast<uint32_t>(std::max(LimitsOf(stream).multiprocessors, 1)));
  args.each = groups / blocks;
  args.more = groups % blocks;
  Launch<Kernel>(stream, blocks, Kernel::SharedBytes(args), args);
}
template <BlockFormat kFormat>
void Start(Stream stream, const TokenProduct& product) {
  const BlockTokenArgs args = ArgsOf(product);
  if (Fits<kFormat, kManyWarps>(stream, args)) {
    return StartIn<kFormat, kManyWarps>(stream, args);
  }
  StartIn<kFormat, kFewWarps>(stream, args);
}

// What a format has kernels for.
struct Starters {
  bool (*fits)(Stream, const TokenProduct&);
  void (*start)(Stream, const TokenProduct&);
};
template <BlockFormat kFormat>
constexpr Starters kStartersOf = {Fits<kFormat>, Start<kFormat>};

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
const Starters& StartersOf(BlockFormat format) {
  return kStarters[static_cast<int>(format)];
}

}  // namespace

bool HasTokenProduct(Stream stream, const TokenProduct& product) {
  const BlockWeight& w = product.w;
  const ShardedCols& shards = product.shards;
  SLUICE_CHECK(product.x.cols == w.cols);
  if (!LimitsOf(stream).asked.Has(Unconfirmed::kTokenProduct)) return false;
  if (product.y.rows != 1 || w.rows == 0 || !HasQuads(product.x)) return false;
  if (product.norm != nullptr && !HasQuads({product.norm, 1, w.cols, w.cols})) {
    return false;
  }
  if (product.gate != nullptr && w.rows % (2 * kGroupRows) != 0) return false;
  if (!shards.bounds.empty()) {
    const auto leaves = static_cast<int32_t>(shards.bounds.size()) - 1;
    // Units are of 256 columns.
    if (shards.nodes.size() != 1 || shards.nodes[0].begin != 0 ||
        shards.nodes[0].end != leaves || leaves > kMostTokenShards ||
        shards.bounds.front() % kLongBlock != 0 ||
        shards.bounds.front() >= shards.bounds.back()) {
      return false;
    }
  }
  return StartersOf(w.format).fits(stream, product);
}

void StartTokenProduct(Stream stream, const TokenProduct& product) {
  StartersOf(product.w.format).start(stream, product);
}

}  // namespace sluice::kernels::cuda
