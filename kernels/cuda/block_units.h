#ifndef SLUICE_KERNELS_CUDA_BLOCK_UNITS_H_
#define SLUICE_KERNELS_CUDA_BLOCK_UNITS_H_

// Size: what a unit is in every format, one function per step.

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/block_formats.h"
#include "kernels/cuda/math.h"
#include "kernels/cuda/tile.h"

namespace sluice::kernels::cuda {

// A lane's place among eight sub-blocks of 32 elements of sixteen rows, which
// are four pairs: `half` is a sub-block of each pair, `part` a quarter of its
// elements, `row` the first of four rows.
struct UnitLane {
  int half;
  int part;
  int row;
  SLUICE_DEVICE explicit UnitLane(const Block& block)
      : half(block.lane() / 16),
        part(block.lane() % 4),
        row(block.lane() / 4 % 4 * 4) {}
  // The sub-block whose products a lane gets, of its four rows.
  SLUICE_DEVICE int sub() const { return 2 * part + half; }
};

// A run of blocks of a group of rows; `last` is the group's last one.
struct UnitPlace {
  const uint8_t* group;
  int32_t first;
  int32_t last;
};

// A unit: eight short blocks, or a long one. A warp multiplies it by a token's
// codes on integer matrix units: operand A has eight rows of both sub-blocks of
// a pair, twice, operand B the token's codes of a pair's sub-blocks in two of
// its columns, and zeros in the others. So the columns of the sums are the
// sub-blocks, and a lane's own ones are four rows of one of them. Every lane
// copies what it will read itself.
template <BlockFormat kFormat>
struct BlockUnit {
  using T = blocks::Blocks<kFormat>;
  static constexpr int kSubs = 8;
  static constexpr int kBlocks = T::kLong ? 1 : kSubs;
  static constexpr int kElements = T::kStored.elements;  // of a block
  static constexpr int kTerms = T::kMinima ? 2 : 1;
  // Sixteen bytes of low bits that a lane has of a pair.
  static constexpr int kQuads = 2 / T::kPerVector;
  static constexpr bool kHigh = T::kStored.high_bits != 0;
  static constexpr bool kByteScales = T::kStored.scale < 0;
  // Words of integer scales that a lane reads.
  static constexpr int kSubWords = !T::kLong                        ? 0
                                   : kFormat == BlockFormat::kIq4Xs ? 2
                                                                    : 3;
  // Whether the sum of a unit's products fits into the bits of a float.
  static constexpr bool kExactFloats = !T::kLong;

  // Where the lanes' words begin.
  static constexpr int kLaneQuads = 4 * kWarpLanes;
  static constexpr int kHighAt = kSubs / 2 * kQuads * kLaneQuads;
  static constexpr int kScalesAt =
      kHighAt + (kHigh ? kSubs / 2 * kLaneQuads : 0);
  static constexpr int kMinimaAt =
      kScalesAt + (kByteScales ? 1 : 2) * kWarpLanes;
  static constexpr int kSubsAt = kMinimaAt + (T::kMinima ? 2 * kWarpLanes : 0);
  static constexpr int kWords = (kSubsAt + kSubWords * kWarpLanes + 3) / 4 * 4;

  static_assert(T::kGroups == 8 && T::kStored.high_bits <= 1);

  // What a lane's four rows of a block add.
  struct Terms {
    Quad values[kTerms];
    Quad factors[kTerms];
  };

  // Copies a unit to `words`, from word `at` on. Of blocks behind the group's
  // last one that one stands there.
  static SLUICE_DEVICE void Copy(Block& block, const UnitPlace& from,
                                 const Shared<uint32_t>& words, int at) {
    if (T::kLong || from.first + kSubs <= from.last + 1) {
      return CopyBlocks<true>(block, from, words, at);
    }
    CopyBlocks<false>(block, from, words, at);
  }

  // The token's codes of a unit in operand B's order: its column is the lane's
  // sub-block. `at`: the word of the unit's first four.
  static SLUICE_DEVICE TileB LoadCodes(const Block& block,
                                       const Shared<uint32_t>& codes, int at) {
    const int column = at + block.lane() / 4 * 8;
    const int part = block.lane() % 4;
    if constexpr (kQuads == 1) return LoadHalfTile(codes, column + 2 * part);
    return {{codes.Get(column + part), codes.Get(column + 4 + part)}};
  }

  // A token's codes, and of them the sum of the lane's sub-block and the scale
  // of its block.
  struct Token {
    TileB codes;
    int32_t sum;
    float scale;
  };
  // The terms of the lane's rows of its block. A whole warp calls.
  static SLUICE_DEVICE void Multiply(Block& block,
                                     const Shared<uint32_t>& words, int at,
                                     const Token& x, Terms& terms) {
    constexpr uint32_t kExact = kExactFloats ? 0x4B400000u : 0;
    int32_t sums[4];
    Dot(block, words, at, x, static_cast<int32_t>(kExact) - T::kZero * x.sum,
        sums);
    [[maybe_unused]] int32_t least[4] = {x.sum, x.sum, x.sum, x.sum};
    if constexpr (T::kLong) {
      Weigh(block, words, at, sums, least);
      SLUICE_UNROLL
      for (int r = 0; r < 4; ++r) {
        sums[r] = SumOfSubs(block, sums[r]);
        if constexpr (T::kMinima) least[r] = SumOfSubs(block, least[r]);
      }
    }
    float scales[4];
    Scales(block, words, at, scales);
    SLUICE_UNROLL
    for (int r = 0; r < 4; ++r) {
      terms.values[0].values[r] = kExactFloats
                                      ? BitCast<float>(sums[r]) - 12582912.0f
                                      : static_cast<float>(sums[r]);
      terms.factors[0].values[r] = scales[r] * x.scale;
    }
    if constexpr (T::kMinima) {
      float minima[4];
      LoadHalves(block, words, at + kMinimaAt, minima);
      SLUICE_UNROLL
      for (int r = 0; r < 4; ++r) {
        terms.values[1].values[r] = static_cast<float>(least[r]);
        terms.factors[1].values[r] =
            (T::kLong ? -minima[r] : minima[r]) * x.scale;
      }
    }
  }

 private:
  static SLUICE_DEVICE const uint32_t* WordsAt(const uint8_t* from) {
    return static_cast<const uint32_t*>(static_cast<const void*>(from));
  }
  // kWhole: the group has all blocks, whose places are then constants apart.
  template <bool kWhole>
  static SLUICE_DEVICE void CopyBlocks(Block& block, const UnitPlace& from,
                                       const Shared<uint32_t>& words, int at) {
    const UnitLane lane(block);
    const int quad = at + 4 * block.lane();
    const uint8_t* const first = from.group + int64_t{from.first} * T::kBytes;
    const auto place = [&](int sub) {
      if (T::kLong) return 0;
      const int32_t last = from.last - from.first;
      return (kWhole || sub < last ? sub : last) * T::kBytes;
    };
    const uint8_t* const own =
        first + 4 * lane.row + (kWhole ? place(lane.half) : 0) +
        (T::kLong ? lane.half * (4 * kQuads * 64) : 0) + lane.part * 64;
    SLUICE_UNROLL
    for (int j = 0; j < kSubs / 2; ++j) {
      const uint8_t* const pair =
          own + (kWhole ? place(2 * j) : place(2 * j + lane.half)) +
          (T::kLong ? 2 * j * (4 * kQuads * 64) : 0);
      SLUICE_UNROLL
      for (int v = 0; v < kQuads; ++v) {
        block.CopyAsync(words, quad + (j * kQuads + v) * kLaneQuads,
                        WordsAt(pair + T::kLow + v * 256));
      }
      if constexpr (kHigh) {
        const int behind =
            lane.part * 64 +
            (T::kLong ? (2 * j + lane.half) * (4 * kQuads * 64 - 64) : 0);
        block.CopyAsync(words, quad + kHighAt + j * kLaneQuads,
                        WordsAt(pair + T::kHigh - behind));
      }
    }
    CopyScales(block, lane, first + place(lane.sub()), words, at);
  }
  // Copies the scales of a block's rows that the lane has. Size: both ends, and
  // the lane.
  static SLUICE_DEVICE void CopyScales(Block& block, const UnitLane& lane,
                                       const uint8_t* from,
                                       const Shared<uint32_t>& words, int at) {
    const int own = block.lane();
    if constexpr (kByteScales) {
      block.CopyAsync<4>(words, at + kScalesAt + own, WordsAt(from + lane.row));
    } else {
      block.CopyAsync<8>(words, at + kScalesAt + 2 * own,
                         WordsAt(from + 2 * lane.row));
    }
    if constexpr (T::kMinima) {
      block.CopyAsync<8>(words, at + kMinimaAt + 2 * own,
                         WordsAt(from + T::kMinimum + 2 * lane.row));
    }
    SLUICE_UNROLL
    for (int i = 0; i < kSubWords; ++i) {
      block.CopyAsync<4>(
          words, at + kSubsAt + i * kWarpLanes + own,
          WordsAt(from + T::kSubscales + SubByte(lane.sub(), i) * kGroupRows +
                  lane.row));
    }
  }
  // The byte of integer scales that word i of a lane has of four rows.
  static SLUICE_DEVICE int SubByte(int sub, int i) {
    if constexpr (kFormat == BlockFormat::kIq4Xs) {
      return i == 0 ? 2 + sub / 2 : sub / 4;
    }
    return 4 * i + sub % 4;
  }

  // The products of the lane's sub-block and rows, and `first`.
  // Size: both operands.
  static SLUICE_DEVICE void Dot(Block& block, const Shared<uint32_t>& words,
                                int at, const Token& x, int32_t first,
                                int32_t (&sums)[4]) {
    TileI pairs[2];
    for (TileI& pair : pairs) pair = {{first, first, first, first}};
    SLUICE_UNROLL
    for (int j = 0; j < kSubs / 2; ++j) {
      const bool own = block.lane() / 8 == j;
      const TileB codes = {
          {own ? x.codes.words[0] : 0, own ? x.codes.words[1] : 0}};
      uint32_t rows[4][2];
      Unpack(block, words, at, j, rows);
      SLUICE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const auto& a = rows[2 * i];
        const auto& b = rows[2 * i + 1];
        block.MultiplyCodes({{a[0], b[0], a[1], b[1]}}, codes, pairs[i]);
      }
    }
    const bool second = block.lane() >= 16;
    SLUICE_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int32_t(&of)[4] = pairs[r / 2].values;
      sums[r] = second ? of[r % 2 * 2 + 1] : of[r % 2 * 2];
    }
  }
  // The codes of the lane's rows of pair j. Size: the unit, and the pair.
  static SLUICE_DEVICE void Unpack(const Block& block,
                                   const Shared<uint32_t>& words, int at, int j,
                                   uint32_t (&rows)[4][2]) {
    const int quad = at + 4 * block.lane() + j * kQuads * kLaneQuads;
    const TileA low = LoadTile(words, quad);
    if constexpr (kQuads == 2) {
      const TileA behind = LoadTile(words, quad + kLaneQuads);
      SLUICE_UNROLL
      for (int r = 0; r < 4; ++r) {
        rows[r][0] = low.words[r];
        rows[r][1] = behind.words[r];
      }
      return;
    }
    TileA high = {};
    if constexpr (kHigh) {
      high = LoadTile(words, at + 4 * block.lane() + kHighAt + j * kLaneQuads);
    }
    SLUICE_UNROLL
    for (int r = 0; r < 4; ++r) {
      rows[r][0] = low.words[r] & 0x0F0F0F0Fu;
      rows[r][1] = low.words[r] >> 4 & 0x0F0F0F0Fu;
      if constexpr (kHigh) {
        const uint32_t bits = high.words[r] >> (block.lane() % 4 * 2);
        rows[r][0] |= bits << 4 & 0x10101010u;
        rows[r][1] |= bits << 3 & 0x10101010u;
      }
      if constexpr (blocks::HasTable(kFormat)) {
        SLUICE_UNROLL
        for (uint32_t& code : rows[r]) code = blocks::ValuesOf<kFormat>(code);
      }
    }
  }

  // Multiplies by the integer scales and minima of the lane's sub-block.
  // Size: the unit, and what is weighed.
  static SLUICE_DEVICE void Weigh(const Block& block,
                                  const Shared<uint32_t>& words, int at,
                                  int32_t (&sums)[4], int32_t (&least)[4]) {
    const int sub = UnitLane(block).sub();
    const auto word = [&](int i) {
      return words.Get(at + kSubsAt + i * kWarpLanes + block.lane());
    };
    uint32_t scales;
    uint32_t minima = 0;
    if constexpr (kFormat == BlockFormat::kIq4Xs) {
      scales = (word(0) >> (sub % 2 * 4) & 0x0F0F0F0Fu) |
               (word(1) >> (sub % 4 * 2) & 0x03030303u) << 4;
    } else {
      const uint32_t both = word(2);
      const bool upper = sub >= 4;
      scales = upper ? (both & 0x0F0F0F0Fu) | (word(0) >> 2 & 0x30303030u)
                     : word(0) & 0x3F3F3F3Fu;
      minima = upper ? (both >> 4 & 0x0F0F0F0Fu) | (word(1) >> 2 & 0x30303030u)
                     : word(1) & 0x3F3F3F3Fu;
    }
    SLUICE_UNROLL
    for (int r = 0; r < 4; ++r) {
      const auto scale = static_cast<int32_t>(scales >> (8 * r) & 0xFFu);
      sums[r] *= kFormat == BlockFormat::kIq4Xs ? scale - 32 : scale;
      least[r] *= static_cast<int32_t>(minima >> (8 * r) & 0xFFu);
    }
  }
  // The sum over the lanes that have the same rows.
  static SLUICE_DEVICE int32_t SumOfSubs(Block& block, int32_t sum) {
    sum += block.ShuffleXor(sum, 1);
    sum += block.ShuffleXor(sum, 2);
    return sum + block.ShuffleXor(sum, 16);
  }

  static SLUICE_DEVICE void Scales(const Block& block,
                                   const Shared<uint32_t>& words, int at,
                                   float (&scales)[4]) {
    if constexpr (!kByteScales) {
      return LoadHalves(block, words, at + kScalesAt, scales);
    } else {
      // As blocks::Blocks::Scale.
      const uint32_t bytes = words.Get(at + kScalesAt + block.lane());
      SLUICE_UNROLL
      for (int r = 0; r < 4; ++r) {
        const auto e = static_cast<int32_t>(bytes >> (8 * r) & 0xFFu);
        scales[r] = BitCast<float>(e < 2 ? (e + 1) << 21 : (e - 1) << 23);
      }
    }
  }
  static SLUICE_DEVICE void LoadHalves(const Block& block,
                                       const Shared<uint32_t>& words, int at,
                                       float (&to)[4]) {
    const TileB halves = LoadHalfTile(words, at + 2 * block.lane());
    SLUICE_UNROLL
    for (int r = 0; r < 4; ++r) {
      to[r] = LowerHalfAsFloat(halves.words[r / 2] >> (r % 2 * 16));
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_BLOCK_UNITS_H_
