#ifndef SLUICE_KERNELS_CUDA_TILE_STREAM_UNITS_H_
#define SLUICE_KERNELS_CUDA_TILE_STREAM_UNITS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/tile_chains.h"
#include "kernels/cuda/tile_codes.h"
#include "kernels/cuda/tile_elements.h"
#include "kernels/cuda/tile_stream_inputs.h"

namespace sluice::kernels::cuda {

template <typename Unit, int kTiles, int kTokens>
class UnitStream;

// A step of BF16 weights, or a run of codes: kColumns columns of 16 rows in
// kBytes bytes. A lane copies kWords words for itself to shared memory, from
// two places of the unit. They are multiplied by kQuads times four activations
// of each lane.

struct Bf16Unit {
  static constexpr int kColumns = kTileSide;
  static constexpr int kBytes = kStepBytes;
  static constexpr int kQuads = 1;
  static constexpr int kWords = 4;
  // Blocks of a multiprocessor that read the weight for one token.
  static constexpr int kBlocksAlone = 3;
  template <int kTiles, int kTokens>
  using Stream = UnitStream<Bf16Unit, kTiles, kTokens>;

  // Where a lane's bytes are in a unit.
  static SLUICE_DEVICE int FirstOf(int lane) { return lane * 16; }
  static SLUICE_DEVICE int SecondOf(int) { return 0; }
  // Size: both places, and where they go.
  static SLUICE_DEVICE void Copy(Block& block, const uint8_t* first,
                                 const uint8_t*, const Shared<uint32_t>& words,
                                 int at) {
    block.CopyAsync(words, at + block.lane() * 4,
                    reinterpret_cast<const uint32_t*>(first));
  }
  static SLUICE_DEVICE void Multiply(Block& block,
                                     const Shared<uint32_t>& words, int at,
                                     const TileB (&x)[kQuads], TileC& sum) {
    block.MultiplyTile(LoadTile(words, at + block.lane() * 4), x[0], sum);
  }
};

template <typename Codes>
struct RunUnit {
  static constexpr RunLayout kLayout = RunLayoutOf(Codes::kType);
  static constexpr int kColumns = kRunCols;
  static constexpr int kBytes = kLayout.bytes();
  static constexpr int kQuads = 2;
  static constexpr int kCodeWords = kLayout.lane_bytes / 4;
  // Codes, then the scales of rows g and g + 8.
  static constexpr int kScaleWords = kLayout.scale_bytes / 2;
  static constexpr int kWords = kCodeWords + kScaleWords;
  static constexpr int kBlocksAlone = 3;
  template <int kTiles, int kTokens>
  using Stream = UnitStream<RunUnit<Codes>, kTiles, kTokens>;

  static SLUICE_DEVICE int FirstOf(int lane) {
    return kLayout.codes() + lane * kLayout.lane_bytes;
  }
  static SLUICE_DEVICE int SecondOf(int lane) {
    return kLayout.scale_bytes * ScaleIndex(lane / 4);
  }
  // Size: as Bf16Unit's.
  static SLUICE_DEVICE void Copy(Block& block, const uint8_t* first,
                                 const uint8_t* second,
                                 const Shared<uint32_t>& words, int at) {
    block.CopyAsync<kLayout.lane_bytes>(
        words, at + block.lane() * kCodeWords,
        reinterpret_cast<const uint32_t*>(first));
    block.CopyAsync<4 * kScaleWords>(words, ScalesAt(block, at),
                                     reinterpret_cast<const uint32_t*>(second));
  }
  static SLUICE_DEVICE int ScalesAt(const Block& block, int at) {
    return at + kCodeWords * kWarpLanes + block.lane() * kScaleWords;
  }
  // Size: as Bf16Unit's.
  static SLUICE_DEVICE void Multiply(Block& block,
                                     const Shared<uint32_t>& words, int at,
                                     const TileB (&x)[kQuads], TileC& sum) {
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
    float scales[2];
    LoadScales<Codes::kType>(words, ScalesAt(block, at), scales);
    for (int v = 0; v < 4; ++v) {
      sum.values[v] = Fma(part.values[v], scales[v / 2], sum.values[v]);
    }
  }
};

// A warp's chains of one leaf for kTiles tiles of 16 rows, of at most kTokens
// tokens. kStages units of each are on their way at once: every lane copies to
// shared memory what it will read itself, so no lane waits for another; what it
// has read it has multiplied before it copies to the same place again.
template <typename Unit, int kTiles, int kTokens>
class UnitStream {
 public:
  // Two quads of eight tokens would leave a multiprocessor one block.
  static constexpr int kStages =
      (kTokens > 1 && Unit::kQuads == 2 ? 4 : 8) / kTiles;
  static constexpr int kUnitWords = Unit::kWords * kWarpLanes;
  static constexpr int kStageWords = kTiles * kUnitWords;
  using Inputs = StageInputs<Unit, kTokens, kStages>;

  // `columns`: of a leaf, at most.
  static size_t SharedBytes(int warps, int64_t columns) {
    return sizeof(uint32_t) *
               static_cast<size_t>(warps * kStages * kStageWords) +
           Inputs::SharedBytes(warps, columns);
  }

  // `row`: of x, of the lane's token, or of any where the lane has none: its
  // sums are not those of others. Leaves have `columns` columns at most.
  SLUICE_DEVICE UnitStream(Block& block, const float* row, int64_t columns)
      : block_(block),
        words_(block.Allocate<uint32_t>(block.threads() / kWarpLanes *
                                        (kStages * kStageWords))),
        inputs_(block, row, columns) {}

  // Begins a leaf of `units` units at `at`; tiles are `tile_bytes` apart.
  SLUICE_DEVICE void Begin(const uint8_t* at, int64_t tile_bytes, int units) {
    SLUICE_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      first_[t] = at + t * tile_bytes + Unit::FirstOf(block_.lane());
      second_[t] = at + t * tile_bytes + Unit::SecondOf(block_.lane());
    }
    units_ = units;
    SLUICE_UNROLL
    for (int i = 0; i < kStages; ++i) {
      if (i < units_) CopyWeights(i);
      if (!Inputs::kCopies) block_.CommitCopies();
    }
  }
  // Asks for more of the leaf, for as long as a kernel waits for its inputs.
  SLUICE_DEVICE void Prefetch() const {
    constexpr int kMost = 4 * 1024 / (kTiles * Unit::kBytes);
    const int more = units_ - kStages < kMost ? units_ - kStages : kMost;
    if (more <= 0 || block_.lane() != 0) return;
    for (int t = 0; t < kTiles; ++t) {
      block_.Prefetch(first_[t] - Unit::FirstOf(0) + kStages * Unit::kBytes,
                      more * Unit::kBytes);
    }
  }
  // Adds the leaf's chains from column `column` on to `sums`.
  SLUICE_DEVICE void Multiply(int64_t column, TileC (&sums)[kTiles]) {
    inputs_.Begin(column, units_);
    SLUICE_UNROLL
    for (int i = 0; Inputs::kCopies && i < kStages; ++i) {
      if (i < units_) inputs_.Copy(i);
      block_.CommitCopies();
    }
    for (int left = units_; left > 0; left -= kStages) {
      SLUICE_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        first_[t] += kStages * Unit::kBytes;
        second_[t] += kStages * Unit::kBytes;
      }
      inputs_.EndRound();
      SLUICE_UNROLL
      for (int i = 0; i < kStages; ++i) {
        if (i >= left) break;
        block_.template WaitCopies<kStages - 1>();
        TileB x[Unit::kQuads];
        inputs_.Load(i, x);
        SLUICE_UNROLL
        for (int t = 0; t < kTiles; ++t) {
          Unit::Multiply(block_, words_, WeightAt(i) + t * kUnitWords, x,
                         sums[t]);
        }
        if (i + kStages < left) {
          CopyWeights(i);
          inputs_.Copy(i);
        }
        block_.CommitCopies();
      }
    }
  }

 private:
  // Where the warp's stage `i` begins.
  SLUICE_DEVICE int WeightAt(int i) const {
    return block_.warp() * (kStages * kStageWords) + i * kStageWords;
  }
  SLUICE_DEVICE void CopyWeights(int i) {
    SLUICE_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      Unit::Copy(block_, first_[t] + i * Unit::kBytes,
                 second_[t] + i * Unit::kBytes, words_,
                 WeightAt(i) + t * kUnitWords);
    }
  }

  Block& block_;
  const Shared<uint32_t> words_;
  Inputs inputs_;
  const uint8_t* first_[kTiles];  // the lane's bytes of the leaf's next units
  const uint8_t* second_[kTiles];
  int units_ = 0;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_STREAM_UNITS_H_
