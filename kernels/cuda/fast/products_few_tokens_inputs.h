#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_INPUTS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_INPUTS_H_

#include <cuda_device/device.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/fast/products_chains.h"

namespace sluice::kernels::cuda {

// Units of a weight's row tile, one after the other, and the column at which
// they begin. No units: there is no leaf.
struct StreamLeaf {
  const uint8_t* at = nullptr;
  int units = 0;
  int column = 0;
};

// Where the activations of a block's products are for up to kTokens tokens:
// they arrive with the weights, every lane copies what it will read itself.
// Stages are UnitStream's.
template <typename Unit, int kTokens, int kStages>
class StageInputs {
 public:
  static constexpr int kQuadWords = kTokens * kTileSide;
  static constexpr int kUnitWords = Unit::kQuads * kQuadWords;
  static constexpr bool kCopies = true;
  static size_t SharedBytes(int warps, int64_t) {
    return sizeof(uint32_t) * static_cast<size_t>(warps * kStages * kUnitWords);
  }

  SLUICE_DEVICE StageInputs(Block& block, const float* row, int64_t)
      : block_(block),
        row_(reinterpret_cast<const uint32_t*>(row) + block.lane() % 4 * 4),
        words_(block.Allocate<uint32_t>(block.threads() / kWarpLanes *
                                        (kStages * kUnitWords))) {}

  SLUICE_DEVICE void Take() {}
  // The next round's copies are of columns from `column` on.
  SLUICE_DEVICE void Turn(int64_t column) { next_ = row_ + column; }
  // The next round's copies are of the columns behind the last round's.
  SLUICE_DEVICE void Advance() { next_ += kStages * Unit::kColumns; }
  // Copies the unit `i` of the next round to stage `i`.
  SLUICE_DEVICE void Copy(int i) {
    for (int q = 0; q < Unit::kQuads; ++q) {
      block_.CopyAsync(words_, At(i, q),
                       next_ + i * Unit::kColumns + q * kTileSide);
    }
  }
  // The units that are loaded next begin at `column`.
  SLUICE_DEVICE void Begin(int64_t) {}
  SLUICE_DEVICE void EndRound() {}
  SLUICE_DEVICE void Load(int i, TileB (&x)[Unit::kQuads]) const {
    for (int q = 0; q < Unit::kQuads; ++q) {
      const TileA floats = LoadTile(words_, At(i, q));
      for (int w = 0; w < 2; ++w) {
        x[q].words[w] = PackPair(BitCast<float>(floats.words[2 * w]),
                                 BitCast<float>(floats.words[2 * w + 1]));
      }
    }
  }

 private:
  SLUICE_DEVICE int At(int i, int quad) const {
    return block_.warp() * (kStages * kUnitWords) + block_.lane() * 4 +
           i * kUnitWords + quad * kQuadWords;
  }

  Block& block_;
  const uint32_t* const row_;
  const Shared<uint32_t> words_;
  const uint32_t* next_ = nullptr;
};

// The same of a token alone: the block rounds all columns once. All columns of
// operand B are that token.
template <typename Unit, int kStages>
class StageInputs<Unit, 1, kStages> {
 public:
  static constexpr int kUnitWords = Unit::kColumns / 2;
  static constexpr int kLaneWords = kUnitWords / 4;
  static constexpr bool kCopies = false;
  static size_t SharedBytes(int, int64_t columns) {
    return sizeof(uint32_t) * static_cast<size_t>(columns / 2);
  }

  SLUICE_DEVICE StageInputs(Block& block, const float* row, int64_t columns)
      : block_(block),
        row_(row),
        columns_(static_cast<int>(columns)),
        words_(block.Allocate<uint32_t>(columns / 2)) {}

  // Rounds the row. All threads call.
  SLUICE_DEVICE void Take() {
    constexpr int kAtOnce = 4;
    const int step = 4 * block_.threads();
    for (int c = ComputedHere(block_.thread()) * 4; c < columns_;
         c += kAtOnce * step) {
      Quad quads[kAtOnce];
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (c + i * step < columns_) quads[i] = LoadQuad(row_ + c + i * step);
      }
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (c + i * step < columns_) Set(c + i * step, PackQuad(quads[i]));
      }
    }
    block_.Sync();
  }
  // The same of what a norm makes of the row: StreamedNorm::Run.
  template <typename Norm>
  SLUICE_DEVICE void TakeNormed(Norm& norm, const Shared<float>& room) {
    norm.Run(row_, room, [&](int column, int more, const Quad& quad) {
      SetAt(AtOf(column) + more / 2, PackQuad(quad));
    });
    block_.Sync();
  }
  SLUICE_DEVICE void Turn(int64_t) {}
  SLUICE_DEVICE void Advance() {}
  SLUICE_DEVICE void Copy(int) {}
  SLUICE_DEVICE void Begin(int64_t column) {
    at_ = static_cast<int>(column / Unit::kColumns) * kUnitWords +
          block_.lane() % 4 * kLaneWords;
  }
  SLUICE_DEVICE void EndRound() { at_ += kStages * kUnitWords; }
  SLUICE_DEVICE void Load(int i, TileB (&x)[Unit::kQuads]) const {
    if constexpr (Unit::kQuads == 1) {
      x[0] = LoadHalfTile(words_, at_ + i * kUnitWords);
    } else {
      const TileA both = LoadTile(words_, at_ + i * kUnitWords);
      x[0] = {{both.words[0], both.words[1]}};
      x[1] = {{both.words[2], both.words[3]}};
    }
  }

 private:
  // Puts four columns where lanes read: [unit][lane of four][quad].
  SLUICE_DEVICE void Set(int column, const TileB& quad) const {
    SetAt(AtOf(column), quad);
  }
  static SLUICE_DEVICE int AtOf(int column) {
    const int in_unit = column % Unit::kColumns;
    return column / Unit::kColumns * kUnitWords +
           in_unit % kTileSide / 4 * kLaneWords + in_unit / kTileSide * 2;
  }
  SLUICE_DEVICE void SetAt(int at, const TileB& quad) const {
    words_.Set(at, quad.words[0]);
    words_.Set(at + 1, quad.words[1]);
  }

  Block& block_;
  const float* const row_;
  const int columns_;
  const Shared<uint32_t> words_;
  int at_ = 0;  // the lane's words of a round's first unit
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_FEW_TOKENS_INPUTS_H_
