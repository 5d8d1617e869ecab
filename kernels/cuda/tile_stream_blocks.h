#ifndef SLUICE_KERNELS_CUDA_TILE_STREAM_BLOCKS_H_
#define SLUICE_KERNELS_CUDA_TILE_STREAM_BLOCKS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/tile_blocks.h"
#include "kernels/cuda/tile_chains.h"
#include "kernels/cuda/tile_stream_inputs.h"

namespace sluice::kernels::cuda {

// How activations arrive, by runs.
struct BlockRun {
  static constexpr int kColumns = kRunCols;
  static constexpr int kQuads = 2;
};

// A warp's chains of one leaf as UnitStream's (tile_stream_units.h), of a type
// in units (unit_tiles.h): kStages units of each tile of rows are on their way
// at once. The warp copies a unit as a whole, so its lanes wait for each other
// once a unit.
template <typename Math, int kTiles, int kTokens>
class BlockStream {
 public:
  static constexpr bool kAlone = kTokens == 1;
  static constexpr int kRuns = Math::kTiles.runs;
  static constexpr int kUnitBytes = Math::kTiles.bytes();
  static constexpr int kChunks = kUnitBytes / 16;
  // Some kilobytes of a warp's, so that a multiprocessor has two blocks.
  static constexpr int kStages = kRuns == 1 ? 8 / kTiles
                                 : kAlone || kTiles * kUnitBytes > 2500 ? 2
                                                                        : 3;
  // Runs that are unrolled: all of a unit where registers allow it.
  static constexpr bool kHasLeast = Math::Head::kHasLeast;
  static constexpr int kAtOnce =
      kRuns < 4 || (kAlone && kTiles == 1 && !kHasLeast) ? kRuns
      : kAlone && kTiles == 2 && kHasLeast               ? 2
                                                         : 4;
  // Of several tokens, so many runs' activations are on their way.
  static constexpr int kInputStages = 4 / kTiles;
  using Inputs = StageInputs<BlockRun, kTokens, kAlone ? 8 : kInputStages>;
  static constexpr int kTileWords = kStages * Math::kUnitWords;
  static constexpr int kWeightWords = kTiles * kTileWords;
  // A unit's copies are waited for before its first run's activations are.
  static_assert(kAlone || kStages * kRuns >= kInputStages + kRuns - 1);

  // `columns`: of a leaf, at most.
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

  // Begins a leaf of `units` units at `at`; tiles are `tile_bytes` apart.
  SLUICE_DEVICE void Begin(const uint8_t* at, int64_t tile_bytes, int units) {
    next_ = at + block_.lane() * 16;
    tile_bytes_ = tile_bytes;
    units_ = units;
    for (int i = 0; i < kStages; ++i) {
      if (i < units_) CopyWeights(i);
      if (kAlone) block_.CommitCopies();
    }
  }
  // Asks for more of the leaf, for as long as a kernel waits for its inputs.
  SLUICE_DEVICE void Prefetch() const {
    constexpr int kMost = 4 * 1024 / (kTiles * kUnitBytes);
    const int more = units_ - kStages < kMost ? units_ - kStages : kMost;
    if (more <= 0 || block_.lane() != 0) return;
    for (int t = 0; t < kTiles; ++t) {
      block_.Prefetch(next_ + t * tile_bytes_, more * kUnitBytes);
    }
  }
  // Adds the leaf's chains from column `column` on to `sums`.
  SLUICE_DEVICE void Multiply(int64_t column, TileC (&sums)[kTiles]) {
    const int runs = units_ * kRuns;
    inputs_.Begin(column, runs);
    if (kAlone) inputs_.EndRound();  // one round has all
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
          if (i > 0 && (kTiles > 1 || Math::kParts == 2 || i % 2 == 0)) {
            block_.SyncWarp();
          }
          inputs_.Load(begin + i, x);
        } else {
          if (i > 0) block_.template WaitCopies<kInputStages - 1>();
          if (kRuns > 1) place = i % kInputStages;
          if (place == 0) inputs_.EndRound();
          inputs_.Load(place, x);
        }
        MultiplyRun(stage, first, i, heads, x, sums);
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
  }

 private:
  using Heads = typename Math::Head[kTiles][2];

  SLUICE_DEVICE SharedWords UnitAt(int tile, int stage) const {
    return {words_, block_.warp() * kWeightWords + tile * kTileWords +
                        stage * Math::kUnitWords};
  }
  SLUICE_DEVICE void LoadHeads(int stage, Heads& heads) const {
    SLUICE_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      for (int half = 0; half < 2; ++half) {
        heads[t][half].Load(UnitAt(t, stage), block_.lane() / 4 + 8 * half);
      }
    }
  }
  static SLUICE_DEVICE void AdvanceHeads(Heads& heads) {
    SLUICE_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      for (int half = 0; half < 2; ++half) heads[t][half].Advance();
    }
  }
  // Run `i` from run `first` on; of four, the heads' first scales are theirs.
  // Size: a run's place, its scales and its activations.
  SLUICE_DEVICE void MultiplyRun(int stage, int first, int i,
                                 const Heads& heads, const TileB (&x)[2],
                                 TileC (&sums)[kTiles]) {
    typename Math::Totals totals;
    Math::Sum(block_, x[0], x[1], totals);
    SLUICE_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      const RunCodes codes =
          Math::Load(UnitAt(t, stage).From(Math::kHeadWords +
                                           (first + i) * Math::kRunWords),
                     block_.lane());
      typename Math::Scales scales[2];
      for (int half = 0; half < 2; ++half) {
        heads[t][half].Of(kAtOnce == 2 ? first + i : i, scales[half]);
      }
      const TileA weights[2] = {Math::Step(codes, 0), Math::Step(codes, 1)};
      Math::Multiply(block_, weights, scales, x[0], x[1], totals, sums[t]);
    }
  }
  // Copies the next unit of each tile.
  SLUICE_DEVICE void CopyWeights(int stage) {
    SLUICE_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      const uint8_t* const from = next_ + t * tile_bytes_;
      const int to = UnitAt(t, stage).at + block_.lane() * 4;
      SLUICE_UNROLL
      for (int i = 0; i < kChunks; i += kWarpLanes) {
        if (i + kWarpLanes <= kChunks || i + block_.lane() < kChunks) {
          block_.CopyAsync(words_, to + 4 * i,
                           reinterpret_cast<const uint32_t*>(from + 16 * i));
        }
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
  int64_t tile_bytes_ = 0;
  int units_ = 0;
};

// What tile_stream.cc needs of a type in units.
template <typename Math>
struct BlockUnit {
  static constexpr int kColumns = Math::kTiles.columns();
  static constexpr int kBytes = Math::kTiles.bytes();
  // Unrolled runs need the registers.
  static constexpr int kBlocksAlone = 2;
  template <int kTiles, int kTokens>
  using Stream = BlockStream<Math, kTiles, kTokens>;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_STREAM_BLOCKS_H_
