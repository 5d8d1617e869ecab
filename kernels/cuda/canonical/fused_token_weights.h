#ifndef SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_WEIGHTS_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_WEIGHTS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/canonical/block_formats.h"
#include "kernels/cuda/runtime/matrix_fragments.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// A lane's place among eight chunks of 32 elements of sixteen rows, which are
// four pairs: `half` is a chunk of each pair, `part` a quarter of its elements,
// `row` the first of four rows.
struct UnitLane {
  int half;
  int part;
  int row;
  SLUICE_DEVICE explicit UnitLane(const Block& block)
      : half(block.lane() / 16),
        part(block.lane() % 4),
        row(block.lane() / 4 % 4 * 4) {}
};

// A run of blocks of a group of rows; `last` is the group's last one.
struct UnitPlace {
  const uint8_t* group;
  int32_t first;
  int32_t last;
};

// The packed bytes of a unit, eight short blocks or a long one, in shared
// memory: every lane copies what it will read itself, so no other one waits for
// it. Sub-blocks have 32 elements or, in Q2_K, Q3_K and Q6_K, 16.
template <BlockFormat kFormat>
struct UnitCodes {
  using T = blocks::Blocks<kFormat>;
  static constexpr int kChunks = 8;
  // Sub-blocks of a chunk, of which a lane has one or a part of one; those
  // whose sums a lane gets.
  static constexpr bool kShort = T::kGroups == 4;
  static constexpr int kSets = kShort ? 2 : 1;
  static constexpr bool kByteScales = T::kStored.scale < 0;

  // Vectors of a chunk, and those with sixteen bytes that a lane has of it.
  static constexpr int kVectors = 8 / T::kPerVector;
  static constexpr int kQuads = T::kPerVector == 1 ? 2 : 1;
  static constexpr int kHighVectors = T::kStored.high_bits;
  // Words of integer scales that a lane reads.
  static constexpr int kSubWords = !T::kLong ? 0
                                   : kShort || kFormat == BlockFormat::kIq4Xs
                                       ? 2
                                       : 3;

  // Where the lanes' words begin.
  static constexpr int kLaneQuads = 4 * kWarpLanes;
  static constexpr int kHighAt = kChunks / 2 * kQuads * kLaneQuads;
  static constexpr int kScalesAt =
      kHighAt + (kHighVectors > 0 ? kChunks / 2 * kLaneQuads : 0);
  static constexpr int kMinimaAt =
      kScalesAt + (kByteScales ? 1 : 2) * kWarpLanes;
  static constexpr int kSubsAt = kMinimaAt + (T::kMinima ? 2 * kWarpLanes : 0);
  static constexpr int kWords = (kSubsAt + kSubWords * kWarpLanes + 3) / 4 * 4;

  // The sub-block of the unit whose sums a lane gets as its set `set`: columns
  // of fused_token_multiply.h's products.
  static SLUICE_DEVICE int SubOf(const UnitLane& lane, int set) {
    if constexpr (kShort) {
      return 8 * set + lane.part / 2 * 4 + 2 * lane.half + lane.part % 2;
    }
    return 2 * lane.part + lane.half;
  }

  // Copies a unit to `words`, from word `at` on. Of blocks behind the group's
  // last one that one stands there.
  static SLUICE_DEVICE void Copy(Block& block, const UnitPlace& from,
                                 const Shared<uint32_t>& words, int at) {
    if (T::kLong || from.first + kChunks <= from.last + 1) {
      return CopyBlocks<true>(block, from, words, at);
    }
    CopyBlocks<false>(block, from, words, at);
  }

  // The codes of the lane's rows of pair j: elements 8 * part to 8 * part + 7
  // of its chunk, or of Q8_0 4 * part and 16 + 4 * part on.
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
    if constexpr (kHighVectors > 0) {
      high = LoadTile(words, at + 4 * block.lane() + kHighAt + j * kLaneQuads);
    }
    SLUICE_UNROLL
    for (int r = 0; r < 4; ++r) {
      Widen(block, low.words[r], high.words[r], rows[r]);
    }
  }

  // Word i of a lane's integer scales: a byte of each of its rows.
  static SLUICE_DEVICE uint32_t SubWord(const Block& block,
                                        const Shared<uint32_t>& words, int at,
                                        int i) {
    return words.Get(at + kSubsAt + i * kWarpLanes + block.lane());
  }
  // The scales, and the minima, of the lane's rows of its block.
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
  static SLUICE_DEVICE void Minima(const Block& block,
                                   const Shared<uint32_t>& words, int at,
                                   float (&minima)[4]) {
    LoadHalves(block, words, at + kMinimaAt, minima);
  }

 private:
  static SLUICE_DEVICE const uint32_t* WordsAt(const uint8_t* from) {
    return static_cast<const uint32_t*>(static_cast<const void*>(from));
  }
  // Which of a chunk's vectors have a lane's elements.
  static constexpr SLUICE_DEVICE int LowVector(int part) {
    return kVectors == 2 ? part / 2 : part;
  }
  static constexpr SLUICE_DEVICE int HighVector(int part) {
    return kHighVectors == 2 ? part / 2 : 0;
  }

  // kWhole: the group has all blocks, whose places are then constants apart.
  template <bool kWhole>
  static SLUICE_DEVICE void CopyBlocks(Block& block, const UnitPlace& from,
                                       const Shared<uint32_t>& words, int at) {
    const UnitLane lane(block);
    const int quad = at + 4 * block.lane();
    const uint8_t* const first = from.group + int64_t{from.first} * T::kBytes;
    const auto place = [&](int chunk) {
      if (T::kLong) return 0;
      const int32_t last = from.last - from.first;
      return (kWhole || chunk < last ? chunk : last) * T::kBytes;
    };
    // Vectors of the chunks before, of a long block.
    constexpr int kLowBefore = T::kLong ? kVectors * 64 : 0;
    constexpr int kHighBefore = T::kLong ? kHighVectors * 64 : 0;
    const uint8_t* const own =
        first + 4 * lane.row + (kWhole ? place(lane.half) : 0);
    const uint8_t* const low =
        own + T::kLow + LowVector(lane.part) * 64 + lane.half * kLowBefore;
    const uint8_t* const high =
        own + T::kHigh + HighVector(lane.part) * 64 + lane.half * kHighBefore;
    SLUICE_UNROLL
    for (int j = 0; j < kChunks / 2; ++j) {
      const int there = kWhole ? place(2 * j) : place(2 * j + lane.half);
      SLUICE_UNROLL
      for (int v = 0; v < kQuads; ++v) {
        block.CopyAsync(words, quad + (j * kQuads + v) * kLaneQuads,
                        WordsAt(low + there + 2 * j * kLowBefore + v * 256));
      }
      if constexpr (kHighVectors > 0) {
        block.CopyAsync(words, quad + kHighAt + j * kLaneQuads,
                        WordsAt(high + there + 2 * j * kHighBefore));
      }
    }
    CopyScales(block, lane, first + place(SubOf(lane, 0)), words, at);
  }
  // Copies the scales of a block's rows that the lane has.
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
          WordsAt(from + T::kSubscales +
                  SubByte(SubOf(lane, 0), i) * kGroupRows + lane.row));
    }
  }
  // The byte of integer scales that word i of a lane has of four rows; `sub`:
  // its first set's sub-block.
  static SLUICE_DEVICE int SubByte(int sub, int i) {
    if constexpr (kFormat == BlockFormat::kIq4Xs) {
      return i == 0 ? 2 + sub / 2 : sub / 4;
    }
    if constexpr (kFormat == BlockFormat::kQ3K) {
      return i == 0 ? sub : 8 + sub % 4;
    }
    if constexpr (kShort) return 8 * i + sub;
    return 4 * i + sub % 4;
  }

  // The eight codes of a row that a lane has in one vector each.
  static SLUICE_DEVICE void Widen(const Block& block, uint32_t low,
                                  uint32_t high, uint32_t (&codes)[2]) {
    constexpr int kBits = T::kStored.low_bits;
    constexpr uint32_t kMask = blocks::InEveryByte((1 << kBits) - 1);
    const int part = block.lane() % 4;
    if constexpr (kBits == 2) low >>= part % 2 * 4;
    codes[0] = low & kMask;
    codes[1] = low >> kBits & kMask;
    if constexpr (kHighVectors > 0) {
      constexpr uint32_t kUpper =
          blocks::InEveryByte(((1 << kHighVectors) - 1) << kBits);
      high >>= kHighVectors == 2 ? part % 2 * 4 : part * 2;
      codes[0] |= high << kBits & kUpper;
      codes[1] |= high << (kBits - kHighVectors) & kUpper;
    }
    if constexpr (blocks::HasTable(kFormat)) {
      SLUICE_UNROLL
      for (uint32_t& code : codes) code = blocks::ValuesOf<kFormat>(code);
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

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_WEIGHTS_H_
