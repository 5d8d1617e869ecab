#ifndef SLUICE_KERNELS_CUDA_FAST_BLOCK_SCALES_H_
#define SLUICE_KERNELS_CUDA_FAST_BLOCK_SCALES_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/block_weight_layout.h"

namespace sluice::kernels::cuda {

// Words of a unit of block_weight_layout.h in memory, and in shared memory from
// word `at` on.
struct MemoryWords {
  const uint8_t* at;
  SLUICE_DEVICE MemoryWords From(int word) const { return {at + 4 * word}; }
  SLUICE_DEVICE uint32_t Word(int i) const { return LoadWord(at + 4 * i); }
  SLUICE_DEVICE TileB Two(int i) const { return LoadHalfTile(at + 4 * i); }
  SLUICE_DEVICE TileA Four(int i) const { return LoadTile(at + 4 * i); }
};
struct SharedWords {
  const Shared<uint32_t>& words;
  int at;
  SLUICE_DEVICE SharedWords From(int word) const { return {words, at + word}; }
  SLUICE_DEVICE uint32_t Word(int i) const { return words.Get(at + i); }
  SLUICE_DEVICE TileB Two(int i) const { return LoadHalfTile(words, at + i); }
  SLUICE_DEVICE TileA Four(int i) const { return LoadTile(words, at + i); }
};

// What a part of a row's run is multiplied by, in F32: an element is its
// integer times `scale`, plus `least`. Scales of parts times the block's are
// exact.
struct PartScales {
  float scale;
  float least;
};

// An F16 times the bytes of a word, less `zero`: a byte at bit 8 of 2^23 is 256
// times it.
class ByteScale {
 public:
  SLUICE_DEVICE void Set(float scale, int zero) {
    scale_ = scale * 0x1p-8f;
    shift_ = -(0x1p23f + 256.0f * static_cast<float>(zero)) * scale_;
  }
  SLUICE_DEVICE float Of(uint32_t word, int byte) const {
    const auto places = 0x7604u | static_cast<uint32_t>(byte) << 4;
    return Fma(BitCast<float>(PickBytes(word, 0x4B000000u, places)), scale_,
               shift_);
  }

 private:
  float scale_;
  float shift_;
};

// The scales of a row's block: Load reads them, Of finds those of a run;
// Advance puts those of the last four runs in the place of the first four's.
// kZero: the code of 0. kParts: of a run with scales of their own. kHasLeast:
// elements have a minimum.
template <WeightType kType>
struct BlockHead;

template <int kZeroCode, bool kHasMinimum>
struct ShortHead {
  static constexpr int kZero = kZeroCode;
  static constexpr int kParts = 1;
  static constexpr bool kHasLeast = kHasMinimum;
  template <typename Words>
  SLUICE_DEVICE void Load(const Words& unit, int row) {
    if constexpr (kHasLeast) {
      const uint32_t halves = unit.Word(row);
      own_ = {LowerHalfAsFloat(halves), LowerHalfAsFloat(halves >> 16)};
    } else {
      const uint32_t halves = unit.Word(row / 2);
      own_ = {row % 2 == 0 ? LowerHalfAsFloat(halves)
                           : LowerHalfAsFloat(halves >> 16),
              0.0f};
    }
  }
  SLUICE_DEVICE void Of(int, PartScales (&parts)[kParts]) const {
    parts[0] = own_;
  }
  SLUICE_DEVICE void Advance() {}

 private:
  PartScales own_;
};
template <>
struct BlockHead<WeightType::kQ4_1> : ShortHead<0, true> {};
template <>
struct BlockHead<WeightType::kQ5_0> : ShortHead<16, false> {};
template <>
struct BlockHead<WeightType::kQ5_1> : ShortHead<0, true> {};

// Eight scales and minima of six bits.
struct SixBitHead {
  static constexpr int kZero = 0;
  static constexpr int kParts = 1;
  static constexpr bool kHasLeast = true;
  template <typename Words>
  SLUICE_DEVICE void Load(const Words& unit, int row) {
    const TileA w = unit.Four(4 * row);
    scale_.Set(LowerHalfAsFloat(w.words[0]), 0);
    least_.Set(-LowerHalfAsFloat(w.words[0] >> 16), 0);
    scales_[0] = w.words[1] & 0x3F3F3F3Fu;
    leasts_[0] = w.words[2] & 0x3F3F3F3Fu;
    scales_[1] = (w.words[3] & 0x0F0F0F0Fu) | (w.words[1] >> 2 & 0x30303030u);
    leasts_[1] =
        (w.words[3] >> 4 & 0x0F0F0F0Fu) | (w.words[2] >> 2 & 0x30303030u);
  }
  SLUICE_DEVICE void Of(int run, PartScales (&parts)[kParts]) const {
    const uint32_t scales = run < 4 ? scales_[0] : scales_[1];
    const uint32_t leasts = run < 4 ? leasts_[0] : leasts_[1];
    parts[0] = {scale_.Of(scales, run % 4), least_.Of(leasts, run % 4)};
  }
  SLUICE_DEVICE void Advance() {
    scales_[0] = scales_[1];
    leasts_[0] = leasts_[1];
  }

 private:
  ByteScale scale_;
  ByteScale least_;
  uint32_t scales_[2];
  uint32_t leasts_[2];
};
template <>
struct BlockHead<WeightType::kQ4K> : SixBitHead {};
template <>
struct BlockHead<WeightType::kQ5K> : SixBitHead {};

// One of four words in registers.
SLUICE_DEVICE uint32_t WordOf(const uint32_t (&words)[4], int i) {
  const uint32_t lower = i % 2 == 0 ? words[0] : words[1];
  const uint32_t upper = i % 2 == 0 ? words[2] : words[3];
  return i < 2 ? lower : upper;
}

// Sixteen scales, a byte each.
template <int kZeroCode, int kZeroScale>
struct SixteenHead {
  static constexpr int kZero = kZeroCode;
  static constexpr int kParts = 2;
  static constexpr bool kHasLeast = false;
  SLUICE_DEVICE void Of(int run, PartScales (&parts)[kParts]) const {
    const uint32_t bytes = WordOf(bytes_, run / 2);
    for (int p = 0; p < kParts; ++p) {
      parts[p] = {scale_.Of(bytes, run % 2 * 2 + p), 0.0f};
    }
  }
  SLUICE_DEVICE void Advance() {
    bytes_[0] = bytes_[2];
    bytes_[1] = bytes_[3];
  }

 protected:
  // `halves`: the rows' F16.
  template <typename Words>
  SLUICE_DEVICE void SetScale(const Words& halves, int row) {
    const uint32_t word = halves.Word(row / 2);
    scale_.Set(
        row % 2 == 0 ? LowerHalfAsFloat(word) : LowerHalfAsFloat(word >> 16),
        kZeroScale);
  }
  ByteScale scale_;
  uint32_t bytes_[4];
};
template <>
struct BlockHead<WeightType::kQ6K> : SixteenHead<32, 128> {
  template <typename Words>
  SLUICE_DEVICE void Load(const Words& unit, int row) {
    const TileA w = unit.Four(4 * row);
    for (int i = 0; i < 4; ++i) bytes_[i] = w.words[i];
    SetScale(unit.From(64), row);
  }
};
template <>
struct BlockHead<WeightType::kQ3K> : SixteenHead<4, 32> {
  template <typename Words>
  SLUICE_DEVICE void Load(const Words& unit, int row) {
    const uint32_t upper = unit.Word(3 * row + 2);
    for (int i = 0; i < 4; ++i) {
      const uint32_t lower = unit.Word(3 * row + i % 2) >> (i / 2 * 4);
      bytes_[i] = (lower & 0x0F0F0F0Fu) | (upper >> (2 * i) & 0x03030303u) << 4;
    }
    SetScale(unit.From(48), row);
  }
};

// Sixteen scales and minima of four bits.
template <>
struct BlockHead<WeightType::kQ2K> {
  static constexpr int kZero = 0;
  static constexpr int kParts = 2;
  static constexpr bool kHasLeast = true;
  template <typename Words>
  SLUICE_DEVICE void Load(const Words& unit, int row) {
    const TileA w = unit.Four(4 * row);
    for (int i = 0; i < 4; ++i) bytes_[i] = w.words[i];
    const uint32_t halves = unit.Word(64 + row);
    scale_.Set(LowerHalfAsFloat(halves), 0);
    least_.Set(-LowerHalfAsFloat(halves >> 16), 0);
  }
  SLUICE_DEVICE void Of(int run, PartScales (&parts)[kParts]) const {
    const uint32_t bytes = WordOf(bytes_, run / 2);
    const uint32_t scales = bytes & 0x0F0F0F0Fu;
    const uint32_t leasts = bytes >> 4 & 0x0F0F0F0Fu;
    for (int p = 0; p < kParts; ++p) {
      const int byte = run % 2 * 2 + p;
      parts[p] = {scale_.Of(scales, byte), least_.Of(leasts, byte)};
    }
  }
  SLUICE_DEVICE void Advance() {
    bytes_[0] = bytes_[2];
    bytes_[1] = bytes_[3];
  }

 private:
  ByteScale scale_;
  ByteScale least_;
  uint32_t bytes_[4];
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_BLOCK_SCALES_H_
