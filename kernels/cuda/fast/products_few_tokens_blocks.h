#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_BLOCKS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_BLOCKS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/multiply_block_run.h"
#include "kernels/cuda/fast/products_chains.h"
#include "kernels/cuda/fast/products_few_tokens_inputs.h"

namespace sluice::kernels::cuda {

// How activations arrive, by runs.
struct BlockRun {
  static constexpr int kColumns = kRunCols;
  static constexpr int kQuads = 2;
};

// A warp's chains of leaves as UnitStream's (products_few_tokens_runs.h), of a
// type in units (block_weight_layout.h): kStages units are on their way at
// once, a leaf's first ones once the one before is multiplied. The warp copies
// a unit as a whole, so its lanes wait for each other once a unit.
template <typename Math, int kTokens>
class BlockStream {
 public:
  static constexpr bool kAlone = kTokens == 1;
  static constexpr int kRuns = Math::kTiles.runs;
  static constexpr int kUnitBytes = Math::kTiles.bytes();
  static constexpr int kChunks = kUnitBytes / 16;
  // Some kilobytes of a warp's, so that a multiprocessor has two blocks.
  static constexpr int kStages = kRuns == 1                    ? 8
                                 : kAlone || kUnitBytes > 2500 ? 2
                                                               : 3;
  // Runs that are unrolled: all of a unit where registers allow it.
  static constexpr bool kHasLeast = Math::Head::kHasLeast;
  static constexpr int kAtOnce =
      kRuns < 4 || (kAlone && !kHasLeast) ? kRuns : 4;
  // Of several tokens, so many runs' activations are on their way.
  static constexpr int kInputStages = 4;
  using Inputs = StageInputs<BlockRun, kTokens, kAlone ? 8 : kInputStages>;
  static constexpr int kBegunGroups = kStages;  // of copies
  static constexpr int kWeightWords = kStages * Math::kUnitWords;
  // A unit's copies are waited for before its first run's activations are.
  static_assert(kAlone || kStages * kRuns >= kInputStages + kRuns - 1);

  // `columns`: of the weight.
  static size_t SharedBytes(int warps, int64_t columns) {
    return sizeof(uint32_t) * static_cast<size_t>(warps * kWeightWords) +
           Inputs::SharedBytes(warps, columns);
  }

  // As UnitStream's.
  SLUICE_DEVICE BlockStream(Block& block, const float* row, int64_t columns)
      : block_(block),
        words_(block.Allocate<uint32_t>(block.threads() / kWarpLanes *
                                        kWeightWords)),
        inputs_(block, row, columns) {}

  // As UnitStream's.
  SLUICE_DEVICE void Begin(const StreamLeaf& leaf) {
    next_ = leaf.at + block_.lane() * 16;
    for (int i = 0; i < kStages; ++i) {
      if (i < leaf.units) CopyWeights(i);
      if (kAlone) block_.CommitCopies();
    }
  }
  SLUICE_DEVICE void Prefetch(const StreamLeaf& leaf) const {
    constexpr int kMost = 4 * 1024 / kUnitBytes;
    const int more =
        leaf.units - kStages < kMost ? leaf.units - kStages : kMost;
    if (more <= 0 || block_.lane() != 0) return;
    block_.Prefetch(next_, more * kUnitBytes);
  }
  SLUICE_DEVICE void TakeInputs(const StreamLeaf&) { inputs_.Take(); }
  SLUICE_DEVICE Inputs& inputs() { return inputs_; }
  template <typename Next>
  SLUICE_DEVICE void Multiply(const StreamLeaf& leaf, const Next& next,
                              TileC& sum) {
    const int runs = leaf.units * kRuns;
    inputs_.Begin(leaf.column);
    inputs_.Turn(leaf.column);
    for (int i = 0; !kAlone && i < kInputStages; ++i) {
      if (i < runs) inputs_.Copy(i);
      block_.CommitCopies();
    }
    int stage = 0;
    int place = 0;  // of the activations
    Heads heads;
    for (int begin = 0; begin < runs; begin += kAtOnce) {
      const int first = begin % kRuns;
      // A unit is there, of every lane.
      if (kAlone && first == 0) block_.template WaitCopies<kStages - 1>();
      if (!kAlone) block_.template WaitCopies<kInputStages - 1>();
      if (first == 0) {
        block_.SyncWarp();
        LoadHeads(stage, heads);
      }
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        TileB x[2];
        if (kAlone) {
          // Fewer registers: nothing is moved to runs before.
          if (i > 0 && (Math::kParts == 2 || i % 2 == 0)) block_.SyncWarp();
          inputs_.Load(begin + i, x);
        } else {
          if (i > 0) block_.template WaitCopies<kInputStages - 1>();
          if (kRuns > 1) place = i % kInputStages;
          if (place == 0) inputs_.Advance();
          inputs_.Load(place, x);
        }
        MultiplyRun(stage, first, i, heads, x, sum);
        if (!kAlone && i + 1 < kAtOnce) {
          NextInputs(place, begin + i + kInputStages < runs);
        }
      }
      if (kAtOnce == 4) AdvanceHeads(heads);
      if (first + kAtOnce == kRuns) {
        block_.SyncWarp();
        if (begin + kAtOnce + (kStages - 1) * kRuns < runs) CopyWeights(stage);
        if (kAlone) block_.CommitCopies();
        stage = stage + 1 < kStages ? stage + 1 : 0;
      }
      if (!kAlone) {
        NextInputs(place, begin + kAtOnce - 1 + kInputStages < runs);
      }
      if (kRuns == 1) place = place + 1 < kInputStages ? place + 1 : 0;
    }
    Begin(next());
  }

 private:
  using Heads = typename Math::Head[2];

  SLUICE_DEVICE SharedWords UnitAt(int stage) const {
    return {words_, block_.warp() * kWeightWords + stage * Math::kUnitWords};
  }
  SLUICE_DEVICE void LoadHeads(int stage, Heads& heads) const {
    for (int half = 0; half < 2; ++half) {
      heads[half].Load(UnitAt(stage), block_.lane() / 4 + 8 * half);
    }
  }
  static SLUICE_DEVICE void AdvanceHeads(Heads& heads) {
    for (int half = 0; half < 2; ++half) heads[half].Advance();
  }
  // Run `i` from run `first` on; of four, the heads' first scales are theirs.
  SLUICE_DEVICE void MultiplyRun(int stage, int first, int i,
                                 const Heads& heads, const TileB (&x)[2],
                                 TileC& sum) {
    typename Math::Totals totals;
    Math::Sum(block_, x[0], x[1], totals);
    const RunCodes codes = Math::Load(
        UnitAt(stage).From(Math::kHeadWords + (first + i) * Math::kRunWords),
        block_.lane());
    typename Math::Scales scales[2];
    for (int half = 0; half < 2; ++half) heads[half].Of(i, scales[half]);
    const TileA weights[2] = {Math::Step(codes, 0), Math::Step(codes, 1)};
    Math::Multiply(block_, weights, scales, x[0], x[1], totals, sum);
  }
  // Copies the next unit.
  SLUICE_DEVICE void CopyWeights(int stage) {
    const int to = UnitAt(stage).at + block_.lane() * 4;
    SLUICE_UNROLL
    for (int i = 0; i < kChunks; i += kWarpLanes) {
      if (i + kWarpLanes <= kChunks || i + block_.lane() < kChunks) {
        block_.CopyAsync(words_, to + 4 * i,
                         reinterpret_cast<const uint32_t*>(next_ + 16 * i));
      }
    }
    next_ += kUnitBytes;
  }
  SLUICE_DEVICE void NextInputs(int place, bool there) {
    if (there) inputs_.Copy(place);
    block_.CommitCopies();
  }

  Block& block_;
  const Shared<uint32_t> words_;
  Inputs inputs_;
  const uint8_t* next_ = nullptr;  // the lane's bytes of the unit copied next
};

// What products_few_tokens.cc needs of a type in units.
template <typename Math>
struct BlockUnit {
  static constexpr int kColumns = Math::kTiles.columns();
  static constexpr int kBytes = Math::kTiles.bytes();
  // Unrolled runs need the registers.
  static constexpr int kBlocksAlone = 2;
  template <int kTokens>
  using Stream = BlockStream<Math, kTokens>;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_BLOCKS_H_
