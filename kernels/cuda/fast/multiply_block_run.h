#ifndef SLUICE_KERNELS_CUDA_FAST_MULTIPLY_BLOCK_RUN_H_
#define SLUICE_KERNELS_CUDA_FAST_MULTIPLY_BLOCK_RUN_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/block_scales.h"

namespace sluice::kernels::cuda {

// A lane's codes of a run of block_weight_layout.h, where bit n is of a lower
// column and bit n + 16 of an upper one.
struct RunCodes {
  uint32_t low[2];
  uint32_t high;
};

// The sums of eight tokens' activations of a run's parts, as operand C has the
// tokens: every row's.
template <int kParts>
SLUICE_DEVICE void SumOfRows(Block& block, const TileB& first,
                             const TileB& second, TileC (&totals)[kParts]) {
  constexpr uint32_t kOnes = 0x3F803F80u;
  const TileA ones = {{kOnes, kOnes, kOnes, kOnes}};
  totals[0] = block.TileProduct(ones, first);
  if constexpr (kParts == 1) {
    block.MultiplyTile(ones, second, totals[0]);
  } else {
    totals[1] = block.TileProduct(ones, second);
  }
}

// What products of tiles in units do with a type. With a part of 16 or 32
// columns, fma(part, its scale, sum) adds its codes' products, and then
// fma(sum of its activations, its least, sum) its minimum.
template <WeightType kBlockType>
struct BlockMath {
  static constexpr WeightType kType = kBlockType;
  static constexpr BlockTiles kTiles = BlockTilesOf(kType);
  using Head = BlockHead<kType>;
  static constexpr int kParts = Head::kParts;  // of a run
  static constexpr int kHeadWords = kTiles.head_bytes / 4;
  static constexpr int kRunWords = kTiles.run_bytes() / 4;
  static constexpr int kUnitWords = kTiles.bytes() / 4;
  // What a part's products and activations are multiplied by.
  using Scales = PartScales[kParts];
  using Totals = TileC[kParts];

  // Of the run that begins where `run` does.
  template <typename Words>
  static SLUICE_DEVICE RunCodes Load(const Words& run, int lane) {
    RunCodes codes = {};
    if constexpr (kTiles.low_bits == 4) {
      const TileB low = run.Two(2 * lane);
      codes.low[0] = low.words[0];
      codes.low[1] = low.words[1];
    } else {
      codes.low[0] = run.Word(lane);
    }
    constexpr int kHigh = kTiles.high() / 4;
    if constexpr (kTiles.high_bits == 2) {
      codes.high = run.Word(kHigh + lane);
    } else if constexpr (kTiles.high_bits == 1) {
      codes.high = PickBytes(run.Word(kHigh + lane / 2), 0,
                             lane % 2 == 0 ? 0x4140u : 0x4342u);
    }
    return codes;
  }

  // The integers that a step's codes stand for, exactly.
  static SLUICE_DEVICE TileA Step(const RunCodes& codes, int step) {
    constexpr uint32_t kZero = 0x4300u + Head::kZero;
    TileA a;
    SLUICE_UNROLL
    for (int v = 0; v < 4; ++v) {
      const int half = v % 2;
      const int i = 2 * step + v / 2;
      uint32_t pair = 0x43004300u;
      if constexpr (kTiles.low_bits == 4) {
        pair = WithBits<0x000F000Fu>(pair, codes.low[half] >> (4 * i));
      } else {
        pair =
            WithBits<0x00030003u>(pair, codes.low[0] >> (2 * (4 * half + i)));
      }
      if constexpr (kTiles.high_bits != 0) {
        constexpr uint32_t kOne = (1u << kTiles.high_bits) - 1;
        const int at = kTiles.high_bits * (4 * half + i) - kTiles.low_bits;
        const uint32_t high = at < 0 ? codes.high << -at : codes.high >> at;
        constexpr uint32_t kMask = (kOne | kOne << 16) << kTiles.low_bits;
        pair = WithBits<kMask>(pair, high);
      }
      a.words[v] = SubtractPairs(pair, kZero | kZero << 16);
    }
    return a;
  }

  // The sums of a run's activations, of each part, where there are minima.
  static SLUICE_DEVICE void Sum(Block& block, const TileB& first,
                                const TileB& second, Totals& totals) {
    if constexpr (Head::kHasLeast) SumOfRows(block, first, second, totals);
  }

  // Adds a run of eight tokens: `weights` and `x` of both steps, `scales` of
  // rows g and g + 8.
  static SLUICE_DEVICE void Multiply(Block& block, const TileA (&weights)[2],
                                     const Scales (&scales)[2],
                                     const TileB& first, const TileB& second,
                                     const Totals& totals, TileC& sum) {
    TileC parts[kParts];
    parts[0] = block.TileProduct(weights[0], first);
    if constexpr (kParts == 1) {
      block.MultiplyTile(weights[1], second, parts[0]);
    } else {
      parts[1] = block.TileProduct(weights[1], second);
    }
    SLUICE_UNROLL
    for (int p = 0; p < kParts; ++p) {
      SLUICE_UNROLL
      for (int v = 0; v < 4; ++v) {
        const PartScales& own = scales[v / 2][p];
        sum.values[v] = Fma(parts[p].values[v], own.scale, sum.values[v]);
        if constexpr (Head::kHasLeast) {
          sum.values[v] = Fma(totals[p].values[v], own.least, sum.values[v]);
        }
      }
    }
  }
};

// Calls `with` with a type's BlockMath.
template <typename With>
auto WithBlocks(WeightType type, const With& with) {
  switch (type) {
    case WeightType::kQ4_1:
      return with(BlockMath<WeightType::kQ4_1>());
    case WeightType::kQ5_0:
      return with(BlockMath<WeightType::kQ5_0>());
    case WeightType::kQ5_1:
      return with(BlockMath<WeightType::kQ5_1>());
    case WeightType::kQ2K:
      return with(BlockMath<WeightType::kQ2K>());
    case WeightType::kQ3K:
      return with(BlockMath<WeightType::kQ3K>());
    case WeightType::kQ4K:
      return with(BlockMath<WeightType::kQ4K>());
    case WeightType::kQ5K:
      return with(BlockMath<WeightType::kQ5K>());
    default:
      return with(BlockMath<WeightType::kQ6K>());
  }
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_MULTIPLY_BLOCK_RUN_H_
