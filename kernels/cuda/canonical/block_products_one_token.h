#ifndef SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_ONE_TOKEN_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_ONE_TOKEN_H_

#include <cuda_device/device.h>
#include <cuda_device/launch.h>

#include <cstdint>

#include "kernels/cuda/canonical/block_formats.h"
#include "kernels/cuda/canonical/block_products_rows.h"
#include "kernels/cuda/canonical/block_term_sums.h"
#include "kernels/cuda/shared/product_tile.h"

namespace sluice::kernels::cuda {

// Products of one token, or of groups of one: a block per group of packed
// rows, half a warp per block of its elements, a thread per row. The integer
// sums of a pass, whose loads are begun together, become terms in shared
// memory; a warp of its own adds them in rising k, while the others multiply
// the next pass.
template <BlockFormat kFormat>
struct BlockSingleKernel {
  using T = blocks::Blocks<kFormat>;
  // Warps that multiply: registers are for three blocks of few or two of many.
  static constexpr int kWarps = T::kLong ? 4 : 8;
  static constexpr int kThreads = (kWarps + 1) * kWarpLanes;
  static constexpr int kElements = T::kStored.elements;
  // Blocks of elements that a thread multiplies in a pass.
  static constexpr int kEach = T::kLong ? 1 : T::kStored.low_bits == 8 ? 2 : 4;
  static constexpr int kHalves = 2 * kWarps;
  static constexpr int kSlots = kHalves * kEach;
  // Values of a block's sum, and factors: of codes, and of minima.
  static constexpr int kTerms = T::kMinima ? 2 : 1;
  static constexpr int kSlotFloats = kTerms * 2 * kGroupRows;
  static constexpr int kPassFloats = kSlots * kSlotFloats;
  static constexpr int kLeastBlocks = T::kLong ? 3 : 2;
  static constexpr bool kWaitsItself = true;
  using Args = BlockArgs;
  // A group of rows, and the token's activations.
  struct Operands {
    const uint8_t* packed;
    int lane;  // the row in the group
    const int8_t* codes;
    const float* scales;
    const int16_t* sums;
    // The same from block b on.
    SLUICE_DEVICE Operands At(int32_t b) const {
      return {packed + static_cast<int64_t>(b) * T::kBytes, lane,
              codes + b * kElements, scales + b, sums + b * (kElements / 16)};
    }
  };
  // Of a row and a block of elements.
  struct Terms {
    float values[kTerms];
    float factors[kTerms];
  };
  // A row's sum of the shard at hand, up to block b.
  struct Sum {
    int32_t shard;
    int32_t b;
    float value;
  };

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const auto index = static_cast<uint32_t>(block.index());
    const auto groups =
        static_cast<uint32_t>((a.rows + kGroupRows - 1) / kGroupRows);
    const int64_t group = index % groups;
    const auto blocks = static_cast<int32_t>(a.x.rows.cols / kElements);
    if (a.grouped.groups == nullptr && block.thread() == 0) {
      // Comes near while kernels before this one end.
      block.Prefetch(a.packed + group * blocks * T::kBytes, blocks * T::kBytes);
    }
    block.WaitForInputs();
    ProductTile tile;
    if (!FindTile(a.grouped, index / groups, 1, a.packed, a.bias, a.rows,
                  tile)) {
      return;
    }
    const auto terms = block.Allocate<float>(2 * kPassFloats);
    const auto partials =
        block.Allocate<float>(a.shards.num_shards * kGroupRows);
    const int lane = block.lane() % kGroupRows;
    const int64_t token = tile.In(0);
    const Operands operands = {
        static_cast<const uint8_t*>(tile.w) + group * blocks * T::kBytes, lane,
        a.x.rows.codes + token * a.x.rows.cols,
        a.x.rows.scales + token * blocks,
        a.x.rows.sums + token * (a.x.rows.cols / 16)};
    const bool adds = block.warp() == kWarps;
    const bool finite = !adds || IsFinite(block, a.x, token);
    const int32_t first = a.shards.bounds[0];
    const int32_t end = a.shards.bounds[a.shards.num_shards];
    Sum sum = {0, first, 0.0f};
    int32_t from = 0;  // this pass's terms; the one before has the others
    for (int32_t b = first; b < end + kSlots; b += kSlots) {
      if (!adds && b < end) {
        FindTerms(block, operands, {BeginOf(first, b, end), end, from}, terms);
      } else if (adds && b > first) {
        const Pass before = {BeginOf(first, b - kSlots, end), b < end ? b : end,
                             kPassFloats - from};
        AddTerms(block, a.shards, before, terms, partials, sum);
      }
      from = kPassFloats - from;
      block.Sync();
    }
    if (a.shards.num_shards == 1) {
      const int64_t row = group * kGroupRows + lane;
      if (!adds || block.lane() >= kGroupRows || row >= a.rows) return;
      return StoreFinite(a.shards, partials, {kGroupRows, lane, tile.out, row},
                         tile.bias, finite);
    }
    block.Sync();  // the last partials are there
    JoinShards(block, a, tile, group * kGroupRows, partials);
  }

  // Joins the shards' sums in the tree, and stores the outputs: a warp has a
  // row, a lane two shards. The order is SumOfNode's.
  static SLUICE_DEVICE void JoinShards(Block& block, const Args& a,
                                       const ProductTile& tile, int64_t first,
                                       const Shared<float>& partials) {
    static_assert(kMostShards == 2 * kWarpLanes);
    const bool finite = IsFinite(block, a.x, tile.In(0));
    for (int r = block.warp(); r < kGroupRows; r += kWarps + 1) {
      if (first + r >= a.rows) return;
      for (int32_t o = 0; o < a.shards.num_outputs; ++o) {
        const TreeNode node = a.shards.nodes[o];
        const int32_t leaf = node.begin + 2 * block.lane();
        float sum = leaf < node.end ? partials.Get(leaf * kGroupRows + r) : 0;
        if (leaf + 1 < node.end) {
          sum = sum + partials.Get((leaf + 1) * kGroupRows + r);
        }
        const int32_t pairs = (node.end - node.begin + 1) / 2;
        for (int32_t stride = 1; stride < pairs; stride *= 2) {
          const float right = block.ShuffleXor(sum, stride);
          if (block.lane() + stride < pairs) sum = sum + right;
        }
        if (block.lane() != 0) continue;
        if (tile.bias != nullptr) sum = sum + tile.bias[first + r];
        a.shards.y[o][tile.out * a.shards.stride[o] + first + r] =
            finite ? sum : NotANumber();
      }
    }
  }

  // Blocks [begin, end) at most, whose terms begin at `from`.
  struct Pass {
    int32_t begin;
    int32_t end;
    int32_t from;
  };
  // Where a pass that adds from block `b` on begins: the last one finds terms
  // of the one before again, so that all have as many blocks, if there are.
  static SLUICE_DEVICE int32_t BeginOf(int32_t first, int32_t b, int32_t end) {
    const int32_t last = end - kSlots > first ? end - kSlots : first;
    return b < last ? b : last;
  }

  // The terms of a pass.
  static SLUICE_DEVICE void FindTerms(Block& block, const Operands& operands,
                                      const Pass& pass,
                                      const Shared<float>& terms) {
    const int half = block.thread() / kGroupRows;
    const int32_t b = pass.begin + half;
    const int32_t to =
        pass.from + half * kSlotFloats + block.lane() % kGroupRows;
    constexpr int32_t kStep = kHalves * kSlotFloats;
    if (T::kLong || pass.end - pass.begin < kSlots) {
      for (int i = 0; i < kEach && b + i * kHalves < pass.end; ++i) {
        Terms own;
        Multiply(operands.At(b + i * kHalves), 0, own);
        Store(terms, to + i * kStep, own);
      }
      return;
    }
    const Operands at = operands.At(b);
    Terms own[kEach];
    SLUICE_UNROLL
    for (int i = 0; i < kEach; ++i) Multiply(at, i * kHalves, own[i]);
    SLUICE_UNROLL
    for (int i = 0; i < kEach; ++i) Store(terms, to + i * kStep, own[i]);
  }
  static SLUICE_DEVICE void Store(const Shared<float>& terms, int32_t to,
                                  const Terms& own) {
    SLUICE_UNROLL
    for (int n = 0; n < kTerms; ++n) {
      terms.Set(to + 2 * n * kGroupRows, own.values[n]);
      terms.Set(to + (2 * n + 1) * kGroupRows, own.factors[n]);
    }
  }

  // The sum of the codes of sub-block s, from pairs of sums of sixteen.
  static SLUICE_DEVICE int32_t SubSum(const uint32_t* pairs, int s) {
    const uint32_t pair = pairs[T::kGroups == 4 ? s / 2 : s];
    const auto lower = static_cast<int16_t>(pair & 0xFFFFu);
    const auto upper = static_cast<int16_t>(pair >> 16);
    if constexpr (T::kGroups == 4) return s % 2 == 0 ? lower : upper;
    return lower + upper;
  }

  // Block b behind the operands.
  static SLUICE_DEVICE void Multiply(const Operands& from, int32_t b,
                                     Terms& terms) {
    const blocks::Place at = {from.packed + b * T::kBytes, from.lane};
    const int8_t* const codes = from.codes + b * kElements;
    const int16_t* const sums = from.sums + b * (kElements / 16);
    const float one = from.scales[b];
    uint32_t pairs[kElements / 32];
    if constexpr (T::kLong) {
      SLUICE_UNROLL
      for (int i = 0; i < 8; ++i) {
        pairs[i] = LoadWritten(sums + i / 4 * 8).words[i % 4];
      }
    } else {
      pairs[0] = LoadWord(sums);
    }
    int32_t scales[T::kSubs];
    int32_t minima[(T::kSubs + 1) / 2] = {};
    scales[0] = 1;
    if constexpr (T::kLong) T::SubScales(at, scales, minima);
    int32_t whole = 0;
    int32_t least = 0;
    SLUICE_UNROLL
    for (int s = 0; s < T::kSubs; ++s) {
      uint32_t x[T::kGroups];
      SLUICE_UNROLL
      for (int i = 0; i < T::kGroups; ++i) {
        x[i] =
            LoadWritten(codes + (s * T::kGroups + i / 4 * 4) * 4).words[i % 4];
      }
      const int32_t sum = SubSum(pairs, s);
      whole += (AddSteps<0>(at, s, x, 0) - T::kZero * sum) * scales[s];
      least += (T::kLong ? minima[s / 2] >> (s % 2 * 16) & 0xFFFF : 1) * sum;
    }
    terms.values[0] = static_cast<float>(whole);
    terms.factors[0] = T::Scale(at) * one;
    if constexpr (T::kMinima) {
      terms.values[1] = static_cast<float>(least);
      terms.factors[1] = T::Minimum(at) * one;
    }
  }
  // `sum` and the products of steps kStep and up of sub-block s with x.
  template <int kStep>
  static SLUICE_DEVICE int32_t AddSteps(const blocks::Place& at, int s,
                                        const uint32_t* x, int32_t sum) {
    if constexpr (kStep * T::kPerVector < T::kGroups) {
      uint32_t codes[T::kPerVector];
      T::template Unpack<kStep>(at, s, codes);
      SLUICE_UNROLL
      for (int p = 0; p < T::kPerVector; ++p) {
        sum = DotBytes(sum, codes[p], x[kStep * T::kPerVector + p]);
      }
      return AddSteps<kStep + 1>(at, s, x, sum);
    } else {
      return sum;
    }
  }

  // Adds a pass's terms from sum.b on, in rising k; sums of shards that end
  // become partials.
  static SLUICE_DEVICE void AddTerms(Block& block, const ShardArgs& shards,
                                     const Pass& pass,
                                     const Shared<float>& terms,
                                     const Shared<float>& partials, Sum& sum) {
    const int lane = block.lane() % kGroupRows;
    while (sum.shard < shards.num_shards) {
      const int32_t bound = shards.bounds[sum.shard + 1];
      const int32_t end = bound < pass.end ? bound : pass.end;
      const int32_t from =
          pass.from + (sum.b - pass.begin) * kSlotFloats + lane;
      const int32_t count = end - sum.b;
      BlockTerms<kTerms, kSlotFloats>::Add(terms, from, count, sum.value);
      sum.b = end;
      if (bound > pass.end) return;
      if (block.lane() < kGroupRows) {
        partials.Set(sum.shard * kGroupRows + lane, sum.value);
      }
      sum = {sum.shard + 1, end, 0.0f};
    }
  }

  static void Start(Stream stream, const Args& a, int64_t tiles) {
    const int64_t groups = (a.rows + kGroupRows - 1) / kGroupRows;
    const size_t floats =
        2 * kPassFloats + static_cast<size_t>(a.shards.num_shards) * kGroupRows;
    Launch<BlockSingleKernel>(stream, groups * tiles, floats * sizeof(float),
                              a);
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_BLOCK_PRODUCTS_ONE_TOKEN_H_
