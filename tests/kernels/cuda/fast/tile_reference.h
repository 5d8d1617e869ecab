#ifndef SLUICE_TESTS_KERNELS_CUDA_FAST_TILE_REFERENCE_H_
#define SLUICE_TESTS_KERNELS_CUDA_FAST_TILE_REFERENCE_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "kernels/block_format.h"
#include "kernels/cuda/fast/weight_layout.h"
#include "tests/kernels/block_reference.h"

namespace sluice::kernels::cuda {

// Every type with tiles.
inline std::vector<WeightType> TiledTypes() {
  std::vector<WeightType> types;
  for (int i = 0; i < kNumWeightTypes; ++i) {
    const auto type = static_cast<WeightType>(i);
    if (HasTiles(type)) types.push_back(type);
  }
  return types;
}
inline BlockFormat FormatOfType(WeightType type) {
  return static_cast<BlockFormat>(static_cast<int>(type) - kNumPlainTypes);
}
// `cols`, with a unit in the place of each 32 columns where a type's is longer.
inline int64_t ColsOf(WeightType type, int64_t cols) {
  return cols / kRunCols * CutColumns(type) + cols % kRunCols;
}

// Lane `lane`'s 16 bytes of the BF16 step at (row, column), zero outside.
inline void PackStep(const WeightView& weight, int64_t row, int64_t column,
                     int lane, uint8_t* to) {
  const auto* const from = static_cast<const uint16_t*>(weight.data);
  for (int i = 0; i < 8; ++i) {
    const int word = i / 2;
    const int64_t r = row + lane / 4 + word % 2 * 8;
    const int64_t c = column + lane % 4 * 4 + word / 2 * 2 + i % 2;
    const uint16_t bits =
        r < weight.rows && c < weight.cols ? from[r * weight.cols + c] : 0;
    std::memcpy(to + 2 * i, &bits, sizeof(bits));
  }
}

// The bytes of a unit's columns of a row as they are stored.
inline int64_t StoredBytes(WeightType type) {
  if (type == WeightType::kE4m3) return kE4m3RunBytes;
  if (type == WeightType::kE4m3Wide) return kE4m3WideRunBytes;
  return kBlockLayouts[static_cast<int>(type) - kNumPlainTypes].bytes;
}

// The bits of 2^(exponent - 127) in BF16; of 255, a NaN.
inline uint16_t Bf16OfExponent(uint8_t exponent) {
  if (exponent == 0) return 0x0040;
  return exponent == 255 ? 0x7FC0 : static_cast<uint16_t>(exponent << 7);
}

// What a row has of a unit: its scale's bytes and its codes, one per byte.
inline void ReadRun(WeightType type, const uint8_t* run, uint8_t* scale,
                    uint8_t* codes) {
  if (type == WeightType::kE4m3 || type == WeightType::kE4m3Wide) {
    std::memcpy(scale, run, 4);
    std::memcpy(codes, run + 4,
                static_cast<size_t>(RunLayoutOf(type).columns()));
    return;
  }
  if (type == WeightType::kQ8_0) {
    std::memcpy(scale, run, 2);
    std::memcpy(codes, run + 2, kRunCols);
    return;
  }
  const bool mxfp4 = type == WeightType::kMxfp4;
  const uint16_t exponent = Bf16OfExponent(run[0]);
  std::memcpy(scale, mxfp4 ? reinterpret_cast<const uint8_t*>(&exponent) : run,
              2);
  const uint8_t* const halves = run + (mxfp4 ? 1 : 2);
  for (int i = 0; i < kRunCols; ++i) {
    codes[i] = halves[i % 16] >> (i / 16 * 4) & 15;
  }
}

// A word of codes with both halves' bits moved: which bit of a half comes to
// 15, 14 and so on.
inline uint32_t Arranged(WeightType type, uint32_t word) {
  static constexpr int kOrders[2][16] = {
      {7, 14, 13, 12, 15, 6, 5, 4, 3, 2, 1, 0, 11, 10, 9, 8},
      {3, 11, 15, 7, 10, 9, 8, 2, 1, 0, 6, 5, 4, 14, 13, 12}};
  const bool mxfp4 = type == WeightType::kMxfp4;
  const bool e4m3 = type == WeightType::kE4m3 || type == WeightType::kE4m3Wide;
  if (!e4m3 && !mxfp4) return word;
  const int* const order = kOrders[mxfp4 ? 1 : 0];
  uint32_t to = 0;
  for (int i = 0; i < 32; ++i) {
    const int from = i / 16 * 16 + order[15 - i % 16];
    to |= (word >> from & 1u) << i;
  }
  return to;
}

// The unit of runs at (row, column) of 16 rows.
inline void PackRuns(const WeightView& weight, int64_t row, int64_t column,
                     uint8_t* to) {
  const RunLayout layout = RunLayoutOf(weight.type);
  const int64_t stored = StoredBytes(weight.type);
  std::memset(to, 0, static_cast<size_t>(layout.bytes()));
  for (int r = 0; r < kTileSide && row + r < weight.rows; ++r) {
    uint8_t codes[kE4m3WideRun];
    ReadRun(weight.type,
            static_cast<const uint8_t*>(weight.data) +
                ((row + r) * weight.cols + column) / layout.columns() * stored,
            to + layout.scale_bytes * (r % 8 * 2 + r / 8), codes);
    for (int c = 0; c < layout.columns(); ++c) {
      const CodePlace place = CodePlaceOf(layout, r, c);
      to[place.byte] |= static_cast<uint8_t>(codes[c] << place.shift);
    }
  }
  for (int at = layout.codes(); at < layout.bytes(); at += 4) {
    uint32_t word;
    std::memcpy(&word, to + at, 4);
    word = Arranged(weight.type, word);
    std::memcpy(to + at, &word, 4);
  }
}

// ORs `code` into the lowest of `bits` bits from bit `at` of `to` on.
inline void PutBits(int code, int bits, int at, uint8_t* to) {
  for (int i = 0; i < bits; ++i) {
    const int bit = at + i;
    to[bit / 8] |= static_cast<uint8_t>((code >> i & 1) << bit % 8);
  }
}

// What row r of 16 has of a unit's head, from its stored block.
inline void PackHead(WeightType type, const uint8_t* block, int r,
                     uint8_t* unit) {
  switch (type) {
    case WeightType::kQ4_1:
    case WeightType::kQ5_1:
      std::memcpy(unit + 4 * r, block, 4);
      return;
    case WeightType::kQ5_0:
      std::memcpy(unit + 2 * r, block, 2);
      return;
    case WeightType::kQ2K:
      std::memcpy(unit + 16 * r, block, 16);
      std::memcpy(unit + 256 + 4 * r, block + 80, 4);
      return;
    case WeightType::kQ3K:
      std::memcpy(unit + 12 * r, block + 96, 12);
      std::memcpy(unit + 192 + 2 * r, block + 108, 2);
      return;
    case WeightType::kQ6K:
      for (int i = 0; i < 16; ++i) unit[16 * r + i] = block[192 + i] ^ 0x80;
      std::memcpy(unit + 256 + 2 * r, block + 208, 2);
      return;
    default:
      std::memcpy(unit + 16 * r, block, 16);
  }
}

// The least integer that a code of the type stands for.
inline int LeastCode(WeightType type) {
  switch (type) {
    case WeightType::kQ5_0:
      return -16;
    case WeightType::kQ3K:
      return -4;
    case WeightType::kQ6K:
      return -32;
    default:
      return 0;
  }
}

// The unit at (row, column) of 16 rows, as fast/block_weight_layout.h's words
// say.
inline void PackUnit(const WeightView& weight, int64_t row, int64_t column,
                     uint8_t* to) {
  const BlockTiles tiles = BlockTilesOf(weight.type);
  const BlockFormat format = FormatOfType(weight.type);
  std::memset(to, 0, static_cast<size_t>(tiles.bytes()));
  for (int r = 0; r < kTileSide && row + r < weight.rows; ++r) {
    const uint8_t* const block = static_cast<const uint8_t*>(weight.data) +
                                 ((row + r) * weight.cols + column) /
                                     tiles.columns() * BlockBytes(format);
    PackHead(weight.type, block, r, to);
    const BlockNumbers numbers = ReadBlock(format, block);
    for (int c = 0; c < tiles.columns(); ++c) {
      const int code = numbers.code[c] - LeastCode(weight.type);
      uint8_t* const run = to + tiles.head_bytes +
                           c / 32 * 64 * (tiles.low_bits + tiles.high_bits);
      const int lane = r % 8 * 4 + c % 16 / 4;
      const int h = r / 8;
      const int i = c % 32 / 16 * 2 + c % 4 / 2;
      const int u = c % 2;
      if (tiles.low_bits == 4) {
        PutBits(code % 16, 4, 32 * h + 4 * i + 16 * u, run + 8 * lane);
      } else {
        PutBits(code % 4, 2, 2 * (4 * h + i) + 16 * u, run + 4 * lane);
      }
      const int rest = code >> tiles.low_bits;
      uint8_t* const high = run + 64 * tiles.low_bits;
      if (tiles.high_bits == 2) {
        PutBits(rest, 2, 2 * (4 * h + i) + 16 * u, high + 4 * lane);
      } else if (tiles.high_bits == 1) {
        PutBits(rest, 1, 4 * h + i + 8 * u, high + 2 * lane);
      }
    }
  }
}

// Writes the tiles of a weight that has them, all memory the host's: what
// fast/weight_layout.h's PackTiles must write, as that header's words say.
inline void PackTilesPlainly(const WeightView& weight, uint8_t* to) {
  SLUICE_CHECK(HasTiles(weight.type));
  if (IsInUnits(weight.type)) {
    const BlockTiles tiles = BlockTilesOf(weight.type);
    SLUICE_CHECK(weight.cols % tiles.columns() == 0);
    for (int64_t row = 0; row < weight.rows; row += kTileSide) {
      for (int64_t column = 0; column < weight.cols;
           column += tiles.columns()) {
        PackUnit(weight, row, column, to);
        to += tiles.bytes();
      }
    }
    return;
  }
  const bool coded = weight.type != WeightType::kBf16;
  const int64_t width = coded ? RunLayoutOf(weight.type).columns() : kTileSide;
  SLUICE_CHECK(!coded || weight.cols % width == 0);
  for (int64_t row = 0; row < weight.rows; row += kTileSide) {
    for (int64_t column = 0; column < weight.cols; column += width) {
      if (coded) {
        PackRuns(weight, row, column, to);
        to += RunLayoutOf(weight.type).bytes();
        continue;
      }
      for (int lane = 0; lane < 32; ++lane) {
        PackStep(weight, row, column, lane, to + 16 * lane);
      }
      to += kStepBytes;
    }
  }
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_KERNELS_CUDA_FAST_TILE_REFERENCE_H_
