#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_BLOCKS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_BLOCKS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/multiply_block_run.h"
#include "kernels/cuda/fast/products_many_tokens_operands.h"

namespace sluice::kernels::cuda {

// An operand of products_many_tokens.cc of a type in units
// (block_weight_layout.h). A tile's run in shared memory is its unit's head and
// the run itself.
template <typename Math, int kTiles, int kOctets>
struct BlockOperand
    : UnitRuns<Math::kHeadWords, Math::kRunWords, Math::kTiles.runs> {
  using Runs = UnitRuns<Math::kHeadWords, Math::kRunWords, Math::kTiles.runs>;
  static constexpr bool kInRuns = true;
  static constexpr int kTotals = Math::Head::kHasLeast ? Math::kParts : 0;
  using Sums = TileC[kTiles][kOctets];

  SLUICE_DEVICE void Start(Block&, const RunPlace&) {}
  SLUICE_DEVICE void First(Block& block, const RunPlace& at, Sums& sums) {
    TileA weights[kTiles][2];
    typename Math::Scales scales[kTiles][2];
    SLUICE_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const SharedWords words = {at.words, at.weights + i * Runs::kRunWords};
      for (int half = 0; half < 2; ++half) {
        typename Math::Head head;
        head.Load(words, block.lane() / 4 + 8 * half);
        head.Of(at.run % Runs::kUnitRuns, scales[i][half]);
      }
      const RunCodes codes =
          Math::Load(words.From(Runs::kHeadWords), block.lane());
      weights[i][0] = Math::Step(codes, 0);
      weights[i][1] = Math::Step(codes, 1);
    }
    SLUICE_UNROLL
    for (int o = 0; o < kOctets; ++o) {
      // Loads of later octets would take the registers of sums.
      constexpr bool kOften = Math::kType == WeightType::kQ3K;
      const bool pauses =
          kTotals > 0 ? o >= 4 : o > 0 && (kOften || o % 4 == 0);
      if (Math::kParts == 2 && pauses) block.SyncWarp();
      const TileB first = LoadOctet<kTotals>(block, at, o, 0);
      const TileB second = LoadOctet<kTotals>(block, at, o, 1);
      typename Math::Totals totals;
      for (int p = 0; p < kTotals; ++p) {
        const TileB two = LoadHalfTile(
            at.words, at.rows + o * OctetWords(kTotals) + kOctetRunWords +
                          8 * p + block.lane() % 4 * 2);
        for (int v = 0; v < 4; ++v) {
          totals[p].values[v] = BitCast<float>(two.words[v % 2]);
        }
      }
      SLUICE_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        Math::Multiply(block, weights[i], scales[i], first, second, totals,
                       sums[i][o]);
      }
    }
  }
  SLUICE_DEVICE void Second(Block&, const RunPlace&, Sums&) {}
  SLUICE_DEVICE void FirstAlone(Block&, Sums&) {}
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_BLOCKS_H_
