#ifndef SLUICE_KERNELS_CUDA_TILE_STREAM_INPUTS_H_
#define SLUICE_KERNELS_CUDA_TILE_STREAM_INPUTS_H_

#include <cuda_device/device.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/tile_chains.h"

namespace sluice::kernels::cuda {

// The activations of a warp's leaf for up to kTokens tokens, which arrive with
// the weights: every lane copies what it will read itself. Stages are
// UnitStream's.
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

  SLUICE_DEVICE void Begin(int64_t column, int) { next_ = row_ + column; }
  // Copies the unit `i` behind the next one to stage `i`.
  SLUICE_DEVICE void Copy(int i) {
    for (int q = 0; q < Unit::kQuads; ++q) {
      block_.CopyAsync(words_, At(i, q),
                       next_ + i * Unit::kColumns + q * kTileSide);
    }
  }
  SLUICE_DEVICE void EndRound() { next_ += kStages * Unit::kColumns; }
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

// The same of a token alone: a leaf's are rounded when it begins. All columns
// of operand B are that token.
template <typename Unit, int kStages>
class StageInputs<Unit, 1, kStages> {
 public:
  static constexpr int kUnitWords = Unit::kColumns / 2;
  static constexpr int kLaneWords = kUnitWords / 4;
  static constexpr bool kCopies = false;
  // `columns`: of a leaf, at most.
  static size_t SharedBytes(int warps, int64_t columns) {
    return sizeof(uint32_t) * static_cast<size_t>(warps * (columns / 2));
  }

  SLUICE_DEVICE StageInputs(Block& block, const float* row, int64_t columns)
      : block_(block),
        row_(row),
        words_(block.Allocate<uint32_t>(block.threads() / kWarpLanes *
                                        (columns / 2))),
        begin_(block.warp() * static_cast<int>(columns / 2)) {}

  SLUICE_DEVICE void Begin(int64_t column, int units) {
    // Registers are few where a tile's stages are many.
    constexpr int kAtOnce = kStages == 8 ? 4 : 8;
    const float* const from = row_ + column;
    const int end = units * Unit::kColumns;
    // Others of the warp may read the leaf before.
    block_.SyncWarp();
    for (int c = ComputedHere(block_.lane()) * 4; c < end;
         c += kAtOnce * 4 * kWarpLanes) {
      Quad quads[kAtOnce];
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = c + i * 4 * kWarpLanes;
        if (at < end) quads[i] = LoadQuad(from + at);
      }
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = c + i * 4 * kWarpLanes;
        if (at < end) Set(at, PackQuad(quads[i]));
      }
    }
    block_.SyncWarp();
    next_ = begin_ + block_.lane() % 4 * kLaneWords;
  }
  SLUICE_DEVICE void Copy(int) {}
  SLUICE_DEVICE void EndRound() {
    round_ = next_;
    next_ += kStages * kUnitWords;
  }
  SLUICE_DEVICE void Load(int i, TileB (&x)[Unit::kQuads]) const {
    if constexpr (Unit::kQuads == 1) {
      x[0] = LoadHalfTile(words_, round_ + i * kUnitWords);
    } else {
      const TileA both = LoadTile(words_, round_ + i * kUnitWords);
      x[0] = {{both.words[0], both.words[1]}};
      x[1] = {{both.words[2], both.words[3]}};
    }
  }

 private:
  // Puts four columns where lanes read: [unit][lane of four][quad].
  SLUICE_DEVICE void Set(int column, const TileB& quad) const {
    const int in_unit = column % Unit::kColumns;
    const int at = begin_ + column / Unit::kColumns * kUnitWords +
                   in_unit % kTileSide / 4 * kLaneWords +
                   in_unit / kTileSide * 2;
    words_.Set(at, quad.words[0]);
    words_.Set(at + 1, quad.words[1]);
  }

  Block& block_;
  const float* const row_;
  const Shared<uint32_t> words_;
  const int begin_;  // of the warp's words
  int round_ = 0;    // the lane's words of a round's first unit
  int next_ = 0;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_STREAM_INPUTS_H_
