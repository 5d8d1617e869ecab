#ifndef SLUICE_KERNELS_CUDA_TILE_STREAM_UNITS_H_
#define SLUICE_KERNELS_CUDA_TILE_STREAM_UNITS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/tile_chains.h"
#include "kernels/cuda/tile_codes.h"
#include "kernels/cuda/tile_elements.h"

namespace sluice::kernels::cuda {

// What a lane has of a step of BF16 weights, or of a run of codes, on its way
// from memory: kColumns columns of 16 rows in kBytes bytes, multiplied by
// kQuads times four activations of each lane. kAhead of them are on their way
// at once, and the activations of kNear.

struct Bf16Unit {
  static constexpr int kColumns = kTileSide;
  static constexpr int kBytes = kStepBytes;
  static constexpr int kQuads = 1;
  static constexpr int kAhead = 8;
  static constexpr int kNear = 4;

  SLUICE_DEVICE void Load(const uint8_t* at, int lane) {
    words = StreamTile(at + lane * 16);
  }
  SLUICE_DEVICE void Multiply(Block& block, const TileB (&x)[kQuads],
                              TileC& sum) const {
    block.MultiplyTile(words, x[0], sum);
  }
  TileA words;
};

template <typename Codes>
struct RunUnit {
  static constexpr RunLayout kLayout = RunLayoutOf(Codes::kType);
  static constexpr int kColumns = kRunCols;
  static constexpr int kBytes = kLayout.bytes();
  static constexpr int kQuads = 2;
  static constexpr int kAhead = 8;
  static constexpr int kNear = 2;
  using Words = std::conditional_t<kLayout.lane_bytes == 16, TileA, TileB>;

  SLUICE_DEVICE void Load(const uint8_t* at, int lane) {
    const uint8_t* const codes = at + kLayout.codes() + lane * sizeof(Words);
    if constexpr (kLayout.lane_bytes == 16) {
      words = StreamTile(codes);
    } else {
      words = StreamHalfTile(codes);
    }
    for (int half = 0; half < 2; ++half) {
      scales[half] = ScaleBits(at, lane / 4 + 8 * half);
    }
  }
  // As they are stored: what has not arrived yet cannot be widened.
  static SLUICE_DEVICE uint32_t ScaleBits(const uint8_t* run, int row) {
    if constexpr (kLayout.scale_bytes == 4) {
      return LoadWord(run + 4 * row);
    } else {
      return reinterpret_cast<const uint16_t*>(run)[row];
    }
  }
  static SLUICE_DEVICE float Scale(uint32_t bits) {
    if constexpr (kLayout.scale_bytes == 4) {
      return BitCast<float>(bits);
    } else if constexpr (Codes::kType == WeightType::kMxfp4) {
      return BitCast<float>(bits << 16);
    } else {
      return HalfOfBits(bits);
    }
  }
  SLUICE_DEVICE void Multiply(Block& block, const TileB (&x)[kQuads],
                              TileC& sum) const {
    TileC part = {};
    block.MultiplyTile(Codes::Step(words, 0), x[0], part);
    block.MultiplyTile(Codes::Step(words, 1), x[1], part);
    for (int v = 0; v < 4; ++v) {
      sum.values[v] = Fma(part.values[v], Scale(scales[v / 2]), sum.values[v]);
    }
  }
  Words words;
  uint32_t scales[2];
};

// A lane's row of x.
struct StreamRow {
  const float* row;  // null: zeros
  bool aligned;
  // The lane's column of a unit's first step.
  int64_t column;
  int64_t end;  // zeros from here on

  template <int kQuads>
  SLUICE_DEVICE void Load(int64_t unit_column, Quad (&to)[kQuads]) const {
    SLUICE_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      to[q] = row == nullptr
                  ? Quad{}
                  : LoadColumns(row, aligned,
                                unit_column + column + q * kTileSide, end);
    }
  }
};

// One leaf's weights, in a ring.
template <typename Unit>
class UnitStream {
 public:
  // `units` of the leaf from `at` on.
  SLUICE_DEVICE void Begin(const uint8_t* at, int units, int lane) {
    at_ = at;
    units_ = units;
    lane_ = lane;
    SLUICE_UNROLL
    for (int i = 0; i < Unit::kAhead; ++i) {
      if (i < units_) ring_[i].Load(at_ + int64_t{i} * Unit::kBytes, lane_);
    }
  }
  // Asks for more of the leaf, for as long as a kernel waits for its inputs.
  SLUICE_DEVICE void Prefetch(Block& block) const {
    constexpr int kMost = 12 * 1024 / Unit::kBytes;
    const int more =
        units_ - Unit::kAhead < kMost ? units_ - Unit::kAhead : kMost;
    if (more > 0 && lane_ == 0) {
      block.Prefetch(at_ + Unit::kAhead * Unit::kBytes, more * Unit::kBytes);
    }
  }
  // Adds the leaf's chain from column `begin` on to `sum`.
  SLUICE_DEVICE void Multiply(Block& block, const StreamRow& x, int64_t begin,
                              TileC& sum) {
    static_assert(Unit::kAhead % Unit::kNear == 0);
    Quad near[Unit::kNear][Unit::kQuads];
    SLUICE_UNROLL
    for (int i = 0; i < Unit::kNear; ++i) {
      if (i < units_) x.Load(begin + int64_t{i} * Unit::kColumns, near[i]);
    }
    for (int base = 0; base < units_; base += Unit::kAhead) {
      SLUICE_UNROLL
      for (int i = 0; i < Unit::kAhead; ++i) {
        const int unit = base + i;
        if (unit >= units_) continue;
        TileB operands[Unit::kQuads];
        SLUICE_UNROLL
        for (int q = 0; q < Unit::kQuads; ++q) {
          operands[q] = PackQuad(near[i % Unit::kNear][q]);
        }
        ring_[i].Multiply(block, operands, sum);
        if (unit + Unit::kAhead < units_) {
          ring_[i].Load(at_ + int64_t{unit + Unit::kAhead} * Unit::kBytes,
                        lane_);
        }
        if (unit + Unit::kNear < units_) {
          x.Load(begin + int64_t{unit + Unit::kNear} * Unit::kColumns,
                 near[i % Unit::kNear]);
        }
      }
    }
  }

 private:
  const uint8_t* at_;
  int units_;
  int lane_;
  Unit ring_[Unit::kAhead];
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_STREAM_UNITS_H_
