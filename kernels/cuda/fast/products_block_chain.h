#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_BLOCK_CHAIN_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_BLOCK_CHAIN_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/multiply_block_run.h"
#include "kernels/cuda/fast/products_chains.h"

namespace sluice::kernels::cuda {

// The chain of a type in units; leaves are whole units.
template <typename Math>
struct BlockChain {
  static constexpr BlockTiles kTiles = Math::kTiles;

  template <int kOctets>
  static SLUICE_DEVICE void Run(Block& block, const TileArgs& a, const void* w,
                                int64_t row_tile, int32_t begin, int32_t end,
                                TileC (&sums)[kOctets],
                                const TileRows<kOctets>& x) {
    const uint8_t* at =
        static_cast<const uint8_t*>(w) +
        (row_tile * (a.cols / kTiles.columns()) + begin / kTiles.columns()) *
            kTiles.bytes();
    for (int32_t k = begin; k < end; k += kTiles.columns()) {
      Unit(block, {at}, k, sums, x);
      at += kTiles.bytes();
    }
  }

 private:
  template <int kOctets>
  static SLUICE_DEVICE void Unit(Block& block, const MemoryWords& unit,
                                 int64_t column, TileC (&sums)[kOctets],
                                 const TileRows<kOctets>& x) {
    typename Math::Head heads[2];
    for (int half = 0; half < 2; ++half) {
      heads[half].Load(unit, block.lane() / 4 + 8 * half);
    }
    for (int run = 0; run < kTiles.runs; ++run) {
      const RunCodes codes = Math::Load(
          unit.From(Math::kHeadWords + run * Math::kRunWords), block.lane());
      typename Math::Scales scales[2];
      for (int half = 0; half < 2; ++half) heads[half].Of(run, scales[half]);
      const TileA weights[2] = {Math::Step(codes, 0), Math::Step(codes, 1)};
      const int64_t k = column + run * kRunCols;
      const int64_t from = k + block.lane() % 4 * 4;
      for (int o = 0; o < kOctets; ++o) {
        const TileB first = x.Load(o, from, k + kRunCols);
        const TileB second = x.Load(o, from + kTileSide, k + kRunCols);
        typename Math::Totals totals;
        Math::Sum(block, first, second, totals);
        Math::Multiply(block, weights, scales, first, second, totals, sums[o]);
      }
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_BLOCK_CHAIN_H_
