#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_RUNS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_RUNS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/fast/products_chains.h"
#include "kernels/cuda/fast/products_few_tokens_inputs.h"
#include "kernels/cuda/fast/weight_elements.h"
#include "kernels/cuda/fast/widen_codes.h"

namespace sluice::kernels::cuda {

template <typename Unit, int kTokens>
class UnitStream;

// A step of BF16 weights, or a run of codes: kColumns columns of 16 rows in
// kBytes bytes. A lane copies kWords words for itself to shared memory, from
// two places of the unit. They are multiplied by kQuads times four activations
// of each lane. kGroup units share what is in front of them, of which a lane
// copies kHeadWords and keeps a Head; leaves are whole groups.

struct Bf16Unit {
  static constexpr int kGroup = 1;
  static constexpr int kHeadWords = 0;
  struct Head {};
  static constexpr int kColumns = kTileSide;
  static constexpr int kBytes = kStepBytes;
  static constexpr int kQuads = 1;
  static constexpr int kWords = 4;
  // Blocks of a multiprocessor that read the weight for one token.
  static constexpr int kBlocksAlone = 3;
  template <int kTokens>
  using Stream = UnitStream<Bf16Unit, kTokens>;

  // Where a lane's bytes are in a unit.
  static SLUICE_DEVICE int FirstOf(int lane) { return lane * 16; }
  static SLUICE_DEVICE int SecondOf(int) { return 0; }
  static SLUICE_DEVICE void Copy(Block& block, const uint8_t* first,
                                 const uint8_t*, const Shared<uint32_t>& words,
                                 int at) {
    block.CopyAsync(words, at + block.lane() * 4,
                    reinterpret_cast<const uint32_t*>(first));
  }
  template <bool>
  static SLUICE_DEVICE void Multiply(Block& block,
                                     const Shared<uint32_t>& words, int at,
                                     const TileB (&x)[kQuads], const Head&,
                                     TileC& sum) {
    block.MultiplyTile(LoadTile(words, at + block.lane() * 4), x[0], sum);
  }
};

template <typename Codes>
struct RunUnit {
  static constexpr RunLayout kLayout = RunLayoutOf(Codes::kType);
  static constexpr int kColumns = kRunCols;
  static constexpr int kGroup = kLayout.runs;
  static constexpr int kGroupBytes = kLayout.bytes();
  static constexpr int kBytes = kGroupBytes / kGroup;  // its part of a group's
  static_assert(kBytes * kGroup == kGroupBytes);
  static constexpr int kQuads = 2;
  static constexpr int kCodeWords = kLayout.lane_bytes / 4;
  // Codes, then the scales of rows g and g + 8; of a group the latter apart.
  static constexpr int kScaleWords = kLayout.scale_bytes / 2;
  static constexpr int kHeadWords = kGroup > 1 ? kScaleWords : 0;
  static constexpr int kWords = kCodeWords + kScaleWords - kHeadWords;
  struct Head {
    float scales[2] = {};
  };
  static constexpr int kBlocksAlone = 3;
  template <int kTokens>
  using Stream = UnitStream<RunUnit<Codes>, kTokens>;

  static SLUICE_DEVICE int FirstOf(int lane) {
    return kLayout.codes() + lane * kLayout.lane_bytes;
  }
  static SLUICE_DEVICE int SecondOf(int lane) {
    return kLayout.scale_bytes * ScaleIndex(lane / 4);
  }
  static SLUICE_DEVICE void Copy(Block& block, const uint8_t* first,
                                 const uint8_t* second,
                                 const Shared<uint32_t>& words, int at) {
    block.CopyAsync<kLayout.lane_bytes>(
        words, at + block.lane() * kCodeWords,
        reinterpret_cast<const uint32_t*>(first));
    if constexpr (kGroup == 1)
      CopyHead(block, second, words, ScalesAt(block, at));
  }
  static SLUICE_DEVICE void CopyHead(Block& block, const uint8_t* second,
                                     const Shared<uint32_t>& words, int at) {
    block.CopyAsync<4 * kScaleWords>(words, at,
                                     reinterpret_cast<const uint32_t*>(second));
  }
  // Unit `i` of a leaf, from the leaf's first one on.
  static SLUICE_DEVICE int OffsetOf(int i) {
    return i / kGroup * kGroupBytes + i % kGroup * kLayout.run_bytes();
  }
  static SLUICE_DEVICE int ScalesAt(const Block& block, int at) {
    return at + kCodeWords * kWarpLanes + block.lane() * kScaleWords;
  }
  // Loads a group's scales, which the lane has at `at`.
  static SLUICE_DEVICE void LoadHead(const Shared<uint32_t>& words, int at,
                                     Head& head) {
    LoadScales<Codes::kType>(words, at, head.scales);
  }
  // kAlone: of a lane's two tokens the first is summed.
  template <bool kAlone>
  static SLUICE_DEVICE void Multiply(Block& block,
                                     const Shared<uint32_t>& words, int at,
                                     const TileB (&x)[kQuads], const Head& head,
                                     TileC& sum) {
    const int lane = block.lane();
    std::conditional_t<kCodeWords == 4, TileA, TileB> codes;
    if constexpr (kCodeWords == 4) {
      codes = LoadTile(words, at + lane * kCodeWords);
    } else {
      codes = LoadHalfTile(words, at + lane * kCodeWords);
    }
    TileC part = {};
    block.MultiplyTile(Codes::Step(codes, 0), x[0], part);
    block.MultiplyTile(Codes::Step(codes, 1), x[1], part);
    Head own = head;
    if constexpr (kGroup == 1) {
      LoadScales<Codes::kType>(words, ScalesAt(block, at), own.scales);
    }
    for (int v = 0; v < 4; v += kAlone ? 2 : 1) {
      sum.values[v] = Fma(part.values[v], own.scales[v / 2], sum.values[v]);
    }
  }
};

// A warp's chains of leaves, one leaf after another, of at most kTokens tokens.
// kStages units are on their way at once, those of the next leaf behind those
// of the last: every lane copies to shared memory what it will read itself, so
// no lane waits for another; what it has read it has multiplied before it
// copies to the same place again.
template <typename Unit, int kTokens>
class UnitStream {
 public:
  // Two quads of eight tokens would leave a multiprocessor one block.
  static constexpr int kStages = kTokens > 1 && Unit::kQuads == 2 ? 4 : 8;
  // Units that are waited for together.
  static constexpr int kAtOnce = kTokens > 1 ? 1 : 2;
  static constexpr int kUnitWords = Unit::kWords * kWarpLanes;
  static_assert(kStages % Unit::kGroup == 0);
  // Of a warp: units, then what is in front of groups.
  static constexpr int kRingWords =
      kStages * kUnitWords +
      kStages / Unit::kGroup * Unit::kHeadWords * kWarpLanes;
  using Inputs = StageInputs<Unit, kTokens, kStages>;
  static constexpr int kBegunGroups = kStages / kAtOnce;  // of copies

  // `columns`: of the weight.
  static size_t SharedBytes(int warps, int64_t columns) {
    return sizeof(uint32_t) * static_cast<size_t>(warps * kRingWords) +
           Inputs::SharedBytes(warps, columns);
  }

  // `row`: of x, of the lane's token, or of any where the lane has none: its
  // sums are not those of others.
  SLUICE_DEVICE UnitStream(Block& block, const float* row, int64_t columns)
      : block_(block),
        words_(block.Allocate<uint32_t>(block.threads() / kWarpLanes *
                                        kRingWords)),
        inputs_(block, row, columns) {}

  // Asks for the first units of the warp's first leaf.
  SLUICE_DEVICE void Begin(const StreamLeaf& leaf) {
    Turn(leaf);
    SLUICE_UNROLL
    for (int i = 0; i < kStages; ++i) {
      if (i < leaf.units) CopyWeights(i);
      if (!Inputs::kCopies && i % kAtOnce == kAtOnce - 1) block_.CommitCopies();
    }
  }
  // Asks for more of it, for as long as a kernel waits for its inputs.
  SLUICE_DEVICE void Prefetch(const StreamLeaf& leaf) const {
    constexpr int kMost = 4 * 1024 / Unit::kBytes;
    const int more =
        leaf.units - kStages < kMost ? leaf.units - kStages : kMost;
    if (more <= 0 || block_.lane() != 0) return;
    block_.Prefetch(leaf.at + kStages * Unit::kBytes, more * Unit::kBytes);
  }
  // Takes the activations, once they are there. All threads of a block call.
  SLUICE_DEVICE void TakeInputs(const StreamLeaf& leaf) {
    inputs_.Take();
    if (!Inputs::kCopies) return;
    static_assert(!Inputs::kCopies || kAtOnce == 1);
    inputs_.Turn(leaf.column);
    SLUICE_UNROLL
    for (int i = 0; i < kStages; ++i) {
      if (i < leaf.units) inputs_.Copy(i);
      block_.CommitCopies();
    }
  }
  // What takes them in another way.
  SLUICE_DEVICE Inputs& inputs() { return inputs_; }
  // Adds the chains of `leaf`, which has begun, to `sum`; begins the leaf that
  // next() says.
  template <typename Next>
  SLUICE_DEVICE void Multiply(const StreamLeaf& leaf, const Next& next,
                              TileC& sum) {
    inputs_.Begin(leaf.column);
    for (int left = leaf.units; left > 0; left -= kStages) {
      int coming = left - kStages;
      if (coming > 0) {
        first_ += kStages * Unit::kBytes;
        inputs_.Advance();
      } else {
        const StreamLeaf after = next();
        coming = after.units;
        Turn(after);
        inputs_.Turn(after.column);
      }
      if (left >= kStages && coming >= kStages) {
        WholeRound(sum);
      } else {
        PartOfRound(left, coming, sum);
      }
      inputs_.EndRound();
    }
  }

 private:
  // The next round's copies are a leaf's first.
  SLUICE_DEVICE void Turn(const StreamLeaf& leaf) {
    first_ = leaf.at + Unit::FirstOf(block_.lane());
  }
  // Multiplies kStages units and copies as many to their places.
  SLUICE_DEVICE void WholeRound(TileC& sum) {
    // So many in a turn of the loop: more would need more registers.
    constexpr int kInTurn =
        Unit::kGroup > 2 * kAtOnce ? Unit::kGroup : 2 * kAtOnce;
    SLUICE_ROLL
    for (int i = 0; i < kStages; i += kInTurn) {
      SLUICE_UNROLL
      for (int u = i; u < i + kInTurn; u += kAtOnce) {
        block_.template WaitCopies<kStages / kAtOnce - 1>();
        MultiplyUnits<kAtOnce>(u, sum);
        CopyUnits<kAtOnce>(u);
        block_.CommitCopies();
      }
    }
  }
  // Multiplies `left` units, kStages at most, and copies `coming`.
  SLUICE_DEVICE void PartOfRound(int left, int coming, TileC& sum) {
    SLUICE_ROLL
    for (int i = 0; i < kStages; i += kAtOnce) {
      block_.template WaitCopies<kStages / kAtOnce - 1>();
      if (i + kAtOnce <= left) {
        MultiplyUnits<kAtOnce>(i, sum);
      } else if (i < left) {
        MultiplyUnits<1>(i, sum);
      }
      if (i + kAtOnce <= coming) {
        CopyUnits<kAtOnce>(i);
      } else if (i < coming) {
        CopyUnits<1>(i);
      }
      block_.CommitCopies();
    }
  }
  // Of the units in stages from `begin` on.
  template <int kCount>
  SLUICE_DEVICE void MultiplyUnits(int begin, TileC& sum) {
    SLUICE_UNROLL
    for (int i = begin; i < begin + kCount; ++i) {
      TileB x[Unit::kQuads];
      inputs_.Load(i, x);
      if constexpr (Unit::kGroup > 1) {
        if (i % Unit::kGroup == 0) {
          Unit::LoadHead(words_, HeadAt(i), head_);
        }
      }
      Unit::template Multiply<kTokens == 1>(block_, words_, WeightAt(i), x,
                                            head_, sum);
    }
  }
  // Of those that come there.
  template <int kCount>
  SLUICE_DEVICE void CopyUnits(int begin) {
    SLUICE_UNROLL
    for (int i = begin; i < begin + kCount; ++i) {
      CopyWeights(i);
      inputs_.Copy(i);
    }
  }
  // Where the warp's stage `i` begins.
  SLUICE_DEVICE int WeightAt(int i) const {
    return block_.warp() * kRingWords + i * kUnitWords;
  }
  // Where the lane has what is in front of the stage's group.
  SLUICE_DEVICE int HeadAt(int i) const {
    return block_.warp() * kRingWords + kStages * kUnitWords +
           (i / Unit::kGroup * kWarpLanes + block_.lane()) * Unit::kHeadWords;
  }
  SLUICE_DEVICE void CopyWeights(int i) {
    const int lane = block_.lane();
    const uint8_t* const second =
        first_ + (Unit::SecondOf(lane) - Unit::FirstOf(lane));
    if constexpr (Unit::kGroup == 1) {
      Unit::Copy(block_, first_ + i * Unit::kBytes, second + i * Unit::kBytes,
                 words_, WeightAt(i));
    } else {
      Unit::Copy(block_, first_ + Unit::OffsetOf(i), nullptr, words_,
                 WeightAt(i));
      if (i % Unit::kGroup == 0) {
        Unit::CopyHead(block_, second + Unit::OffsetOf(i), words_, HeadAt(i));
      }
    }
  }

  Block& block_;
  const Shared<uint32_t> words_;
  Inputs inputs_;
  const uint8_t* first_ = nullptr;  // the lane's bytes of a round's first unit
  typename Unit::Head head_;        // of the group that is multiplied
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_RUNS_H_
