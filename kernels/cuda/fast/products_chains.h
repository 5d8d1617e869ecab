#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_CHAINS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_CHAINS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/fast/weight_elements.h"
#include "kernels/cuda/fast/widen_codes.h"
#include "kernels/cuda/shared/product_shards.h"
#include "kernels/cuda/shared/product_tile.h"

namespace sluice::kernels::cuda {

// The chains of products.h, which its kernels share, and what they read.

// Steps whose weights are on the way at once.
inline constexpr int kDeep = 4;

struct TileArgs {
  ConstMatrix x;
  const void* w;
  int64_t rows;
  int64_t cols;
  const float* bias;
  ShardArgs shards;
  GroupedRows grouped;
  int64_t aligned;  // four columns of x from a multiple of four on
};
// Launches are compared as bytes (LaunchList).
static_assert(std::has_unique_object_representations_v<TileArgs>);

// Four elements of a row of x from `column` on; zero from `end` on.
SLUICE_DEVICE Quad LoadColumns(const float* row, bool aligned, int64_t column,
                               int64_t end) {
  Quad x = {};
  if (aligned && column + 4 <= end) {
    x = LoadQuad(row + column);
  } else {
    for (int i = 0; i < 4; ++i) {
      if (column + i < end) x.values[i] = row[column + i];
    }
  }
  return x;
}
// The same as a lane's operand B.
SLUICE_DEVICE TileB PackQuad(const Quad& x) {
  return {
      {PackPair(x.values[0], x.values[1]), PackPair(x.values[2], x.values[3])}};
}
SLUICE_DEVICE TileB LoadOperand(const float* row, bool aligned, int64_t column,
                                int64_t end) {
  return PackQuad(LoadColumns(row, aligned, column, end));
}

// A lane's rows of x, one per octet of tokens.
template <int kOctets>
class TileRows {
 public:
  SLUICE_DEVICE TileRows(const Block& block, const TileArgs& a,
                         const ProductTile& tile)
      : aligned_(a.aligned) {
    for (int o = 0; o < kOctets; ++o) {
      const int n = o * 8 + block.lane() / 4;
      rows_[o] = n < tile.tokens ? a.x.data + tile.In(n) * a.x.stride : nullptr;
    }
  }
  // Operand B from column `column` on, the lane's own; zero from `end` on.
  SLUICE_DEVICE TileB Load(int octet, int64_t column, int64_t end) const {
    const float* const from = rows_[octet];
    return from == nullptr ? TileB{} : LoadOperand(from, aligned_, column, end);
  }

 private:
  const float* rows_[kOctets];
  const bool aligned_;
};

// The chain of one leaf, columns [begin, end), of 16 rows of a BF16 weight.
struct Bf16Chain {
  template <int kOctets>
  static SLUICE_DEVICE void Run(Block& block, const TileArgs& a, const void* w,
                                int64_t row_tile, int32_t begin, int32_t end,
                                TileC (&sums)[kOctets],
                                const TileRows<kOctets>& x) {
    if (begin % kTileSide == 0) {
      return Columns(block, At(a, w, row_tile, begin), begin, end, sums, x);
    }
    for (int32_t k = begin; k < end; k += kTileSide) {
      const int64_t row = row_tile * kTileSide + block.lane() / 4;
      const int64_t column = k + block.lane() % 4 * 4;
      const TileA weight = {{Pair(a, w, row, column, end),
                             Pair(a, w, row + 8, column, end),
                             Pair(a, w, row, column + 2, end),
                             Pair(a, w, row + 8, column + 2, end)}};
      for (int o = 0; o < kOctets; ++o) {
        block.MultiplyTile(weight, x.Load(o, column, end), sums[o]);
      }
    }
  }
  // The bytes of 16 rows from column `column` on, a multiple of 16.
  static SLUICE_DEVICE const uint8_t* At(const TileArgs& a, const void* w,
                                         int64_t row_tile, int32_t column) {
    return static_cast<const uint8_t*>(w) +
           (row_tile * StepsOf(a.cols) + column / kTileSide) * kStepBytes;
  }
  // Columns [k, end) of a chain, of the weight at `at`. X: TileRows, or what
  // loads as it does.
  template <int kOctets, typename X>
  static SLUICE_DEVICE void Columns(Block& block, const uint8_t* at, int32_t k,
                                    int32_t end, TileC (&sums)[kOctets],
                                    const X& x) {
    for (; k + kDeep * kTileSide <= end; k += kDeep * kTileSide) {
      Steps<kDeep>(block, at, k, end, sums, x);
      at += kDeep * kStepBytes;
    }
    for (; k < end; k += kTileSide) {
      Steps<1>(block, at, k, end, sums, x);
      at += kStepBytes;
    }
  }
  template <int kSteps, int kOctets, typename X>
  static SLUICE_DEVICE void Steps(Block& block, const uint8_t* at, int64_t k,
                                  int64_t end, TileC (&sums)[kOctets],
                                  const X& x) {
    TileA weights[kSteps];
    for (int i = 0; i < kSteps; ++i) {
      weights[i] = LoadTile(at + i * kStepBytes + block.lane() * 16);
    }
    for (int i = 0; i < kSteps; ++i) {
      const int64_t column = k + i * kTileSide + block.lane() % 4 * 4;
      for (int o = 0; o < kOctets; ++o) {
        block.MultiplyTile(weights[i], x.Load(o, column, end), sums[o]);
      }
    }
  }
  // Two columns of a leaf that begins within a step.
  static SLUICE_DEVICE uint32_t Pair(const TileArgs& a, const void* w,
                                     int64_t row, int64_t column, int64_t end) {
    const uint32_t lower = column < end ? Bf16Of(w, a.cols, row, column) : 0;
    const uint32_t upper =
        column + 1 < end ? Bf16Of(w, a.cols, row, column + 1) : 0;
    return lower | upper << 16;
  }
};

// The chain of a type in runs; leaves are whole units.
template <typename Codes>
struct RunChain {
  static constexpr RunLayout kLayout = RunLayoutOf(Codes::kType);
  using Words = std::conditional_t<kLayout.lane_bytes == 16, TileA, TileB>;

  template <int kOctets>
  static SLUICE_DEVICE void Run(Block& block, const TileArgs& a, const void* w,
                                int64_t row_tile, int32_t begin, int32_t end,
                                TileC (&sums)[kOctets],
                                const TileRows<kOctets>& x) {
    Columns(block, At(a, w, row_tile, begin), begin, end, sums, x);
  }
  // The unit of column `column`.
  static SLUICE_DEVICE const uint8_t* At(const TileArgs& a, const void* w,
                                         int64_t row_tile, int32_t column) {
    constexpr int kColumns = kLayout.columns();
    return static_cast<const uint8_t*>(w) +
           (row_tile * (a.cols / kColumns) + column / kColumns) *
               kLayout.bytes();
  }
  template <int kOctets, typename X>
  static SLUICE_DEVICE void Columns(Block& block, const uint8_t* at, int32_t k,
                                    int32_t end, TileC (&sums)[kOctets],
                                    const X& x) {
    constexpr int kRuns = kDeep / 2;
    static_assert(kLayout.runs == 1 || kLayout.runs % kRuns == 0);
    for (; k + kRuns * kRunCols <= end; k += kRuns * kRunCols) {
      Runs<kRuns>(block, at, k, end, sums, x);
      at = Next(at, k, kRuns);
    }
    for (; k < end; k += kRunCols) {
      Runs<1>(block, at, k, end, sums, x);
      at = Next(at, k, 1);
    }
  }
  // The unit of the column `runs` runs behind k, of which `at` is the unit: at
  // most the next one.
  static SLUICE_DEVICE const uint8_t* Next(const uint8_t* at, int32_t k,
                                           int runs) {
    if constexpr (kLayout.runs == 1) {
      return at + runs * kLayout.bytes();
    } else {
      const bool same = k / kRunCols % kLayout.runs + runs < kLayout.runs;
      return same ? at : at + kLayout.bytes();
    }
  }
  // Of run `run` of a unit.
  static SLUICE_DEVICE Words LoadCodes(const uint8_t* unit, int run, int lane) {
    const uint8_t* const at = unit + kLayout.codes() +
                              run * kLayout.run_bytes() +
                              lane * kLayout.lane_bytes;
    if constexpr (kLayout.lane_bytes == 16) {
      return LoadTile(at);
    } else {
      return LoadHalfTile(at);
    }
  }
  template <int kRuns, int kOctets, typename X>
  static SLUICE_DEVICE void Runs(Block& block, const uint8_t* at, int64_t k,
                                 int64_t end, TileC (&sums)[kOctets],
                                 const X& x) {
    Words codes[kRuns];
    float scales[kRuns][2];
    for (int i = 0; i < kRuns; ++i) {
      const bool alone = kLayout.runs == 1;
      const uint8_t* const unit = alone ? at + i * kLayout.bytes() : at;
      const int run =
          alone ? 0 : static_cast<int>(k / kRunCols % kLayout.runs) + i;
      codes[i] = LoadCodes(unit, run, block.lane());
      LoadScales<Codes::kType>(unit, block.lane() / 4, scales[i]);
    }
    for (int i = 0; i < kRuns; ++i) {
      const int64_t column = k + i * kRunCols + block.lane() % 4 * 4;
      const TileA first = Codes::Step(codes[i], 0);
      const TileA second = Codes::Step(codes[i], 1);
      for (int o = 0; o < kOctets; ++o) {
        TileC part = {};
        block.MultiplyTile(first, x.Load(o, column, end), part);
        block.MultiplyTile(second, x.Load(o, column + kTileSide, end), part);
        for (int v = 0; v < 4; ++v) {
          sums[o].values[v] =
              Fma(part.values[v], scales[i][v / 2], sums[o].values[v]);
        }
      }
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_CHAINS_H_
