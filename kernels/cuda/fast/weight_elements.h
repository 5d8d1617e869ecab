#ifndef SLUICE_KERNELS_CUDA_FAST_WEIGHT_ELEMENTS_H_
#define SLUICE_KERNELS_CUDA_FAST_WEIGHT_ELEMENTS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/multiply_block_run.h"
#include "kernels/cuda/fast/weight_code_bits.h"
#include "kernels/cuda/fast/weight_layout.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// Single elements of a weight's tiles, for embeddings and for shards that begin
// within a step.

SLUICE_DEVICE int64_t StepsOf(int64_t cols) {
  return (cols + kTileSide - 1) / kTileSide;
}

// A BF16 element's bits.
SLUICE_DEVICE uint32_t Bf16Of(const void* tiles, int64_t cols, int64_t row,
                              int64_t column) {
  const int64_t step = row / kTileSide * StepsOf(cols) + column / kTileSide;
  const int64_t r = row % kTileSide;
  const int64_t c = column % kTileSide;
  const int64_t lane = r % 8 * 4 + c / 4;
  const int64_t word = r / 8 + c % 4 / 2 * 2;
  return static_cast<const uint16_t*>(
      tiles)[step * (kStepBytes / 2) + lane * 8 + word * 2 + c % 2];
}

// The scales of two rows from the words that have them, one number after the
// other.
template <WeightType kType>
SLUICE_DEVICE void ScalesOf(const TileB& words, float (&scales)[2]) {
  const uint32_t word = words.words[0];
  if constexpr (IsE4m3(kType)) {
    scales[0] = BitCast<float>(word);
    scales[1] = BitCast<float>(words.words[1]);
  } else if constexpr (kType == WeightType::kMxfp4) {
    scales[0] = BitCast<float>(word << 16);
    scales[1] = BitCast<float>(word & 0xFFFF0000u);
  } else {
    scales[0] = LowerHalfAsFloat(word);
    scales[1] = LowerHalfAsFloat(word >> 16);
  }
}
// The same from where a unit's scales of rows g and g + 8 are.
template <WeightType kType>
SLUICE_DEVICE void LoadScales(const Shared<uint32_t>& words, int at,
                              float (&scales)[2]) {
  if constexpr (RunLayoutOf(kType).scale_bytes == 4) {
    ScalesOf<kType>(LoadHalfTile(words, at), scales);
  } else {
    ScalesOf<kType>({{words.Get(at)}}, scales);
  }
}
template <WeightType kType>
SLUICE_DEVICE void LoadScales(const uint8_t* unit, int g, float (&scales)[2]) {
  const uint8_t* const at =
      unit + RunLayoutOf(kType).scale_bytes * ScaleIndex(g);
  if constexpr (RunLayoutOf(kType).scale_bytes == 4) {
    ScalesOf<kType>(LoadHalfTile(at), scales);
  } else {
    ScalesOf<kType>({{LoadWord(at)}}, scales);
  }
}

// An element of a type in units, with the roundings of block_pack.h's WidenRow;
// the sign of zero may be another.
template <WeightType kType>
SLUICE_DEVICE float UnitElement(const void* tiles, int64_t cols, int64_t row,
                                int64_t column) {
  constexpr BlockTiles kTiles = BlockTilesOf(kType);
  using Head = BlockHead<kType>;
  const auto r = static_cast<int>(row % kTileSide);
  const auto c = static_cast<int>(column % kTiles.columns());
  const uint8_t* const unit = static_cast<const uint8_t*>(tiles) +
                              (row / kTileSide * (cols / kTiles.columns()) +
                               column / kTiles.columns()) *
                                  kTiles.bytes();
  const int lane = r % 8 * 4 + c % kTileSide / 4;
  const LaneCode place = {r / 8, c % kRunCols / kTileSide, c % 4};
  const auto bits = [&](int count, int from) {
    const uint8_t* const own = unit + kTiles.head_bytes +
                               c / kRunCols * kTiles.run_bytes() + from +
                               2 * count * lane;
    const int bit = place.bit(count);
    return static_cast<int>(own[bit / 8] >> bit % 8 & ((1 << count) - 1));
  };
  int code = bits(kTiles.low_bits, 0);
  if constexpr (kTiles.high_bits != 0) {
    code |= bits(kTiles.high_bits, kTiles.high()) << kTiles.low_bits;
  }
  Head head;
  head.Load(MemoryWords{unit}, r);
  PartScales parts[Head::kParts];
  head.Of(c / kRunCols, parts);
  const PartScales& own = parts[Head::kParts == 1 ? 0 : place.step];
  const float value = static_cast<float>(code - Head::kZero) * own.scale;
  return Head::kHasLeast ? value + own.least : value;
}

// An element as F32: its code times its scale, rounded once, with the bits of
// math.h's Element and of block_pack.h's WidenRow.
template <WeightType kType>
SLUICE_DEVICE float TileElement(const void* tiles, int64_t cols, int64_t row,
                                int64_t column) {
  if constexpr (kType == WeightType::kBf16) {
    return BitCast<float>(Bf16Of(tiles, cols, row, column) << 16);
  } else if constexpr (IsInUnits(kType)) {
    return UnitElement<kType>(tiles, cols, row, column);
  } else {
    constexpr RunLayout kLayout = RunLayoutOf(kType);
    constexpr int kColumns = kLayout.columns();
    const uint8_t* const unit =
        static_cast<const uint8_t*>(tiles) +
        (row / kTileSide * (cols / kColumns) + column / kColumns) *
            kLayout.bytes();
    const auto r = static_cast<int>(row % kTileSide);
    const CodePlace place =
        CodePlaceOf(kLayout, r, static_cast<int>(column % kColumns));
    const uint32_t word =
        PlainCodes<kType>(LoadWord(unit + place.byte / 4 * 4));
    const uint32_t code = word >> (place.byte % 4 * 8 + place.shift) & 255u;
    float value = 0.0f;
    if constexpr (IsE4m3(kType)) {
      value = E4m3Value(code);
    } else if constexpr (kType == WeightType::kQ8_0) {
      value = static_cast<float>(static_cast<int8_t>(code));
    } else if constexpr (kType == WeightType::kQ4_0) {
      value = static_cast<float>(static_cast<int32_t>(code & 15u) - 8);
    } else {
      const uint32_t power = code & 7u;
      // Two bits of exponent, one of mantissa, from 2^-1 on.
      value = BitCast<float>(power << 22) * 0x1p126f;
      value = (code & 8u) != 0 ? 0.0f - value : value;  // no -0
    }
    float scales[2];
    LoadScales<kType>(unit, r % 8, scales);
    return value * scales[r / 8];
  }
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_WEIGHT_ELEMENTS_H_
