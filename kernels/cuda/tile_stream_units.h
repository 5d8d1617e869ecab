#ifndef SLUICE_KERNELS_CUDA_TILE_STREAM_UNITS_H_
#define SLUICE_KERNELS_CUDA_TILE_STREAM_UNITS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/tile_chains.h"
#include "kernels/cuda/tile_codes.h"
#include "kernels/cuda/tile_elements.h"

namespace sluice::kernels::cuda {

// A step of BF16 weights, or a run of codes: kColumns columns of 16 rows in
// kBytes bytes, of which a lane copies kWords words for itself to shared
// memory. They are multiplied by kQuads times four activations of each lane.

struct Bf16Unit {
  static constexpr int kColumns = kTileSide;
  static constexpr int kBytes = kStepBytes;
  static constexpr int kQuads = 1;
  static constexpr int kWords = 4;

  static SLUICE_DEVICE void Copy(Block& block, const uint8_t* unit,
                                 const Shared<uint32_t>& words, int at,
                                 int lane) {
    block.CopyAsync(words, at + lane * 4,
                    reinterpret_cast<const uint32_t*>(unit) + lane * 4);
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
  // Codes, then the words that have the scales of rows g and g + 8.
  static constexpr int kWords = kCodeWords + 2;

  // Size: where it comes from, and where a lane's part stands.
  static SLUICE_DEVICE void Copy(Block& block, const uint8_t* unit,
                                 const Shared<uint32_t>& words, int at,
                                 int lane) {
    const auto* const codes =
        reinterpret_cast<const uint32_t*>(unit + kLayout.codes());
    block.CopyAsync<kLayout.lane_bytes>(words, at + lane * kCodeWords,
                                        codes + lane * kCodeWords);
    for (int half = 0; half < 2; ++half) {
      const int byte = (lane / 4 + 8 * half) * kLayout.scale_bytes;
      block.CopyAsync<4>(words, at + (kCodeWords + half) * kWarpLanes + lane,
                         reinterpret_cast<const uint32_t*>(unit) + byte / 4);
    }
  }
  static SLUICE_DEVICE float ScaleOf(uint32_t word, int row) {
    if constexpr (kLayout.scale_bytes == 4) {
      return BitCast<float>(word);
    } else {
      const uint32_t bits = row % 2 == 0 ? word & 0xFFFFu : word >> 16;
      if constexpr (Codes::kType == WeightType::kMxfp4) {
        return BitCast<float>(bits << 16);
      } else {
        return HalfOfBits(bits);
      }
    }
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
    for (int half = 0; half < 2; ++half) {
      const float scale = ScaleOf(
          words.Get(at + (kCodeWords + half) * kWarpLanes + lane), lane / 4);
      for (int v = 2 * half; v < 2 * half + 2; ++v) {
        sum.values[v] = Fma(part.values[v], scale, sum.values[v]);
      }
    }
  }
};

// A warp's chain of one leaf. kStages units are on their way at once: every
// lane copies to shared memory what it will read itself, so no lane waits for
// another.
template <typename Unit>
class UnitStream {
 public:
  static constexpr int kStages = 8;
  static constexpr int kStageWords = Unit::kWords * kWarpLanes;

  // Words of a block's warps for tiles of `tokens` tokens.
  static SLUICE_DEVICE int WeightWords(int warps) {
    return warps * kStages * kStageWords;
  }
  static SLUICE_DEVICE int InputWords(int warps, int tokens) {
    return warps * kStages * Unit::kQuads * tokens * kTileSide;
  }
  // Bytes of both.
  static size_t SharedBytes(int warps, int tokens) {
    return sizeof(uint32_t) *
           static_cast<size_t>(
               warps * kStages *
               (kStageWords + Unit::kQuads * tokens * kTileSide));
  }

  // `row`: the lane's token's, or null; `tokens` of a tile at most.
  SLUICE_DEVICE UnitStream(Block& block, const float* row, int tokens)
      : block_(block),
        row_(row == nullptr ? nullptr
                            : reinterpret_cast<const uint32_t*>(row) +
                                  block.lane() % 4 * 4),
        words_(block.Allocate<uint32_t>(
            WeightWords(block.threads() / kWarpLanes))),
        inputs_(block.Allocate<uint32_t>(
            InputWords(block.threads() / kWarpLanes, tokens))),
        stage_inputs_(Unit::kQuads * tokens * kTileSide) {}

  // Begins a leaf of `units` units at `at`.
  SLUICE_DEVICE void Begin(const uint8_t* at, int units) {
    at_ = at;
    units_ = units;
    for (int i = 0; i < kStages && i < units_; ++i) CopyWeights(i);
  }
  // Asks for more of the leaf, for as long as a kernel waits for its inputs.
  SLUICE_DEVICE void Prefetch() const {
    constexpr int kMost = 12 * 1024 / Unit::kBytes;
    const int more = units_ - kStages < kMost ? units_ - kStages : kMost;
    if (more > 0 && block_.lane() == 0) {
      block_.Prefetch(at_ + kStages * Unit::kBytes, more * Unit::kBytes);
    }
  }
  // Adds the leaf's chain from column `column` on to `sum`.
  SLUICE_DEVICE void Multiply(int64_t column, TileC& sum) {
    for (int i = 0; i < kStages; ++i) {
      if (i < units_) CopyInputs(i, column);
      block_.CommitCopies();
    }
    for (int unit = 0; unit < units_; ++unit) {
      block_.template WaitCopies<kStages - 1>();
      const int stage = StageOf(unit);
      TileB x[Unit::kQuads];
      for (int q = 0; q < Unit::kQuads; ++q) x[q] = Input(stage, q);
      Unit::Multiply(block_, words_, stage * kStageWords, x, sum);
      if (unit + kStages < units_) {
        CopyWeights(unit + kStages);
        CopyInputs(unit + kStages, column);
      }
      block_.CommitCopies();
    }
  }

 private:
  SLUICE_DEVICE int StageOf(int unit) const {
    return block_.warp() * kStages + unit % kStages;
  }
  SLUICE_DEVICE void CopyWeights(int unit) {
    Unit::Copy(block_, at_ + int64_t{unit} * Unit::kBytes, words_,
               StageOf(unit) * kStageWords, block_.lane());
  }
  SLUICE_DEVICE int InputAt(int stage, int quad) const {
    return stage * stage_inputs_ + quad * (stage_inputs_ / Unit::kQuads) +
           block_.lane() * 4;
  }
  SLUICE_DEVICE void CopyInputs(int unit, int64_t column) {
    if (row_ == nullptr) return;
    for (int q = 0; q < Unit::kQuads; ++q) {
      block_.CopyAsync(
          inputs_, InputAt(StageOf(unit), q),
          row_ + column + int64_t{unit} * Unit::kColumns + q * kTileSide);
    }
  }
  SLUICE_DEVICE TileB Input(int stage, int quad) const {
    if (row_ == nullptr) return {};
    const TileA x = LoadTile(inputs_, InputAt(stage, quad));
    return {{PackPair(BitCast<float>(x.words[0]), BitCast<float>(x.words[1])),
             PackPair(BitCast<float>(x.words[2]), BitCast<float>(x.words[3]))}};
  }

  Block& block_;
  const uint32_t* const row_;
  const Shared<uint32_t> words_;
  const Shared<uint32_t> inputs_;
  const int stage_inputs_;  // words
  const uint8_t* at_ = nullptr;
  int units_ = 0;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_STREAM_UNITS_H_
