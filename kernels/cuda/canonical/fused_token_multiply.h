#ifndef SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_MULTIPLY_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_MULTIPLY_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/canonical/block_formats.h"
#include "kernels/cuda/canonical/fused_token_weights.h"
#include "kernels/cuda/runtime/matrix_fragments.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {

// A unit: eight short blocks, or a long one. A warp multiplies it by a token's
// codes on integer matrix units: operand A has eight rows of both chunks of a
// pair, twice, operand B the token's codes of a pair's sub-blocks in some of
// its columns, and zeros in the others. So the columns of the sums are
// sub-blocks, and a lane's own ones are four rows of one of them. Sub-blocks of
// sixteen elements have twice as many columns, two sets: a set has two pairs,
// and a column the codes of half a chunk.
template <BlockFormat kFormat>
struct TokenUnit {
  using T = blocks::Blocks<kFormat>;
  using Codes = UnitCodes<kFormat>;
  static constexpr int kSets = Codes::kSets;
  static constexpr int kBlocks = T::kLong ? 1 : Codes::kChunks;
  static constexpr int kElements = T::kStored.elements;  // of a block
  static constexpr int kSubElements = 4 * T::kGroups;
  static constexpr int kTerms = T::kMinima ? 2 : 1;
  static constexpr int kWords = Codes::kWords;
  // Whether the sum of a unit's products fits into the bits of a float.
  static constexpr bool kExactFloats = !T::kLong;

  static_assert(kSets == 1 || T::kLong);

  // What a lane's four rows of a block add.
  struct Terms {
    Quad values[kTerms];
    Quad factors[kTerms];
  };

  // The block of the unit whose terms a lane has, and whether it stores them:
  // of a long block all lanes that have the same rows have the same terms.
  static SLUICE_DEVICE int OwnBlock(const UnitLane& lane) {
    return kBlocks == 1 ? 0 : Codes::SubOf(lane, 0);
  }
  static SLUICE_DEVICE bool Stores(const UnitLane& lane) {
    return kBlocks > 1 || lane.half + lane.part == 0;
  }

  // A token's codes of a unit in operand B's order, and of them the sums of the
  // lane's sub-blocks and the scale of its block.
  struct Token {
    TileB codes[kSets];
    int32_t sums[kSets];
    float scale;
  };
  // `row` is a TokenRow, `first` the unit's first block.
  template <typename Row>
  static SLUICE_DEVICE Token LoadToken(const Block& block, const Row& row,
                                       int32_t first) {
    const UnitLane lane(block);
    Token token;
    token.scale = row.scales.Get(first + OwnBlock(lane));
    SLUICE_UNROLL
    for (int set = 0; set < kSets; ++set) {
      token.codes[set] =
          LoadCodes(block, row.codes, first * (kElements / 4), set);
      token.sums[set] = row.sums.Get(first * (kElements / kSubElements) +
                                     Codes::SubOf(lane, set));
    }
    return token;
  }

  // The terms of the lane's rows of its block. A whole warp calls.
  static SLUICE_DEVICE void Multiply(Block& block,
                                     const Shared<uint32_t>& words, int at,
                                     const Token& x, Terms& terms) {
    Products products;
    Dot(block, words, at, x, products);
    Whole whole = {};
    if constexpr (T::kLong) {
      Weigh(block, words, at, products, x, whole);
    } else {
      SLUICE_UNROLL
      for (int r = 0; r < 4; ++r) {
        whole.sums[r] = products.sums[0][r];
        whole.least[r] = x.sums[0];
      }
    }
    float scales[4];
    Codes::Scales(block, words, at, scales);
    SLUICE_UNROLL
    for (int r = 0; r < 4; ++r) {
      terms.values[0].values[r] =
          kExactFloats ? BitCast<float>(whole.sums[r]) - 12582912.0f
                       : static_cast<float>(whole.sums[r]);
      terms.factors[0].values[r] = scales[r] * x.scale;
    }
    if constexpr (T::kMinima) {
      float minima[4];
      Codes::Minima(block, words, at, minima);
      SLUICE_UNROLL
      for (int r = 0; r < 4; ++r) {
        terms.values[1].values[r] = static_cast<float>(whole.least[r]);
        terms.factors[1].values[r] =
            (T::kLong ? -minima[r] : minima[r]) * x.scale;
      }
    }
  }

 private:
  // Of the lane's four rows and sub-blocks.
  struct Products {
    int32_t sums[kSets][4];
  };
  // Of the lane's four rows and its block, and what their minimum multiplies.
  struct Whole {
    int32_t sums[4];
    int32_t least[4];
  };

  // Codes from word `at` on. Columns of one set are the unit's chunks; of two,
  // half a chunk each: of a set's first pair, then of its second one, first
  // halves before second ones.
  static SLUICE_DEVICE TileB LoadCodes(const Block& block,
                                       const Shared<uint32_t>& codes, int at,
                                       int set) {
    const int column = block.lane() / 4;
    const int part = block.lane() % 4;
    if constexpr (kSets == 1) {
      const int from = at + column * 8;
      if constexpr (Codes::kQuads == 1) {
        return LoadHalfTile(codes, from + 2 * part);
      }
      return {{codes.Get(from + part), codes.Get(from + 4 + part)}};
    } else {
      const int chunk = 4 * set + column / 4 * 2 + column % 2;
      const TileB own = LoadHalfTile(codes, at + chunk * 8 + 2 * part);
      const bool is_own = part / 2 == column / 2 % 2;
      return {{is_own ? own.words[0] : 0, is_own ? own.words[1] : 0}};
    }
  }

  // The products of the lane's sub-blocks and rows, without what the codes have
  // too much.
  static SLUICE_DEVICE void Dot(Block& block, const Shared<uint32_t>& words,
                                int at, const Token& x, Products& to) {
    constexpr uint32_t kExact = kExactFloats ? 0x4B400000u : 0;
    TileI pairs[kSets][2];
    SLUICE_UNROLL
    for (int set = 0; set < kSets; ++set) {
      const int32_t first =
          static_cast<int32_t>(kExact) - T::kZero * x.sums[set];
      for (TileI& pair : pairs[set]) pair = {{first, first, first, first}};
    }
    constexpr int kPairs = Codes::kChunks / 2 / kSets;  // of a set
    SLUICE_UNROLL
    for (int j = 0; j < Codes::kChunks / 2; ++j) {
      const bool own = block.lane() * kPairs / kWarpLanes == j % kPairs;
      const TileB& of = x.codes[j / kPairs];
      const TileB codes = {{own ? of.words[0] : 0, own ? of.words[1] : 0}};
      uint32_t rows[4][2];
      Codes::Unpack(block, words, at, j, rows);
      SLUICE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const auto& a = rows[2 * i];
        const auto& b = rows[2 * i + 1];
        block.MultiplyCodes({{a[0], b[0], a[1], b[1]}}, codes,
                            pairs[j / kPairs][i]);
      }
    }
    const bool second = block.lane() >= 16;
    SLUICE_UNROLL
    for (int set = 0; set < kSets; ++set) {
      SLUICE_UNROLL
      for (int r = 0; r < 4; ++r) {
        const int32_t(&of)[4] = pairs[set][r / 2].values;
        to.sums[set][r] = second ? of[r % 2 * 2 + 1] : of[r % 2 * 2];
      }
    }
  }

  // A long block's sums, and those of its minima: those of its sub-blocks times
  // their integer scales.
  static SLUICE_DEVICE void Weigh(Block& block, const Shared<uint32_t>& words,
                                  int at, const Products& products,
                                  const Token& x, Whole& to) {
    SLUICE_UNROLL
    for (int set = 0; set < kSets; ++set) {
      const SubWords own = SubWordsOf(block, words, at, set);
      SLUICE_UNROLL
      for (int r = 0; r < 4; ++r) {
        to.sums[r] += products.sums[set][r] * ScaleOf(own.scales >> (8 * r));
        to.least[r] +=
            x.sums[set] * static_cast<int32_t>(own.minima >> (8 * r) & 0xFFu);
      }
    }
    SLUICE_UNROLL
    for (int r = 0; r < 4; ++r) {
      to.sums[r] = SumOfSubs(block, to.sums[r]);
      if constexpr (T::kMinima) to.least[r] = SumOfSubs(block, to.least[r]);
    }
  }

  // The integer scales of a set's sub-block, a byte per row, and its minima.
  struct SubWords {
    uint32_t scales;
    uint32_t minima;
  };
  // As blocks::Blocks::SubScales.
  static SLUICE_DEVICE SubWords SubWordsOf(const Block& block,
                                           const Shared<uint32_t>& words,
                                           int at, int set) {
    const int sub = Codes::SubOf(UnitLane(block), set);
    const auto word = [&](int i) {
      return Codes::SubWord(block, words, at, i);
    };
    if constexpr (kFormat == BlockFormat::kQ2K) {
      return {word(set) & 0x0F0F0F0Fu, word(set) >> 4 & 0x0F0F0F0Fu};
    } else if constexpr (kFormat == BlockFormat::kQ6K) {
      return {word(set), 0};
    } else if constexpr (kFormat == BlockFormat::kQ3K) {
      return {(word(0) >> (4 * set) & 0x0F0F0F0Fu) |
                  (word(1) >> (sub / 4 * 2) & 0x03030303u) << 4,
              0};
    } else if constexpr (kFormat == BlockFormat::kIq4Xs) {
      return {(word(0) >> (sub % 2 * 4) & 0x0F0F0F0Fu) |
                  (word(1) >> (sub % 4 * 2) & 0x03030303u) << 4,
              0};
    } else {
      const uint32_t both = word(2);
      if (sub < 4) return {word(0) & 0x3F3F3F3Fu, word(1) & 0x3F3F3F3Fu};
      return {(both & 0x0F0F0F0Fu) | (word(0) >> 2 & 0x30303030u),
              (both >> 4 & 0x0F0F0F0Fu) | (word(1) >> 2 & 0x30303030u)};
    }
  }
  // What the lowest byte stands for.
  static SLUICE_DEVICE int32_t ScaleOf(uint32_t scales) {
    if constexpr (kFormat == BlockFormat::kQ6K) {
      return static_cast<int8_t>(scales & 0xFFu);
    }
    const auto scale = static_cast<int32_t>(scales & 0xFFu);
    constexpr bool kSigned =
        kFormat == BlockFormat::kQ3K || kFormat == BlockFormat::kIq4Xs;
    return kSigned ? scale - 32 : scale;
  }
  // The sum over the lanes that have the same rows.
  static SLUICE_DEVICE int32_t SumOfSubs(Block& block, int32_t sum) {
    sum += block.ShuffleXor(sum, 1);
    sum += block.ShuffleXor(sum, 2);
    return sum + block.ShuffleXor(sum, 16);
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_MULTIPLY_H_
