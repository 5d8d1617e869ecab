#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_RUNS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_RUNS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/fast/products_many_tokens_operands.h"
#include "kernels/cuda/fast/weight_elements.h"
#include "kernels/cuda/fast/widen_codes.h"

namespace sluice::kernels::cuda {

// Operands of products_many_tokens.cc of types in runs. Codes are widened by
// each warp that multiplies them, while it multiplies others.

template <typename Codes>
struct CodeRuns : UnitRuns<RunLayoutOf(Codes::kType).codes() / 4,
                           RunLayoutOf(Codes::kType).run_bytes() / 4,
                           RunLayoutOf(Codes::kType).runs> {
  static constexpr bool kInRuns = true;
  static constexpr int kTotals = 0;
};

// A row tile's run as it is stored, and widened.
template <typename Codes>
struct StoredTile {
  static constexpr RunLayout kLayout = RunLayoutOf(Codes::kType);
  static constexpr int kRunWords = CodeRuns<Codes>::kRunWords;
  std::conditional_t<kLayout.lane_bytes == 16, TileA, TileB> codes;
  float scales[2];

  SLUICE_DEVICE void Load(Block& block, const RunPlace& at, int tile) {
    const int lane = block.lane();
    const int run = at.weights + tile * kRunWords;
    const int own = run + kLayout.codes() / 4 + lane * (kLayout.lane_bytes / 4);
    if constexpr (kLayout.lane_bytes == 16) {
      codes = LoadTile(at.words, own);
    } else {
      codes = LoadHalfTile(at.words, own);
    }
    LoadScales<Codes::kType>(
        at.words, run + kLayout.scale_bytes * ScaleIndex(lane / 4) / 4, scales);
  }
};
template <typename Codes>
struct WideTile {
  TileA steps[2];
  float scales[2];

  SLUICE_DEVICE void Widen(const StoredTile<Codes>& stored) {
    for (int i = 0; i < 2; ++i) {
      steps[i] = Codes::Step(stored.codes, i);
      scales[i] = stored.scales[i];
    }
  }
  // Adds the run's products with kCount octets from octet `from` on, of which
  // both steps are in `rows`. The second step of an octet follows its first at
  // a distance.
  template <int kCount, int kOctets>
  SLUICE_DEVICE void Multiply(Block& block, const TileB (&rows)[kOctets][2],
                              int from, TileC (&sums)[kOctets]) const {
    TileC parts[kCount] = {};
    SLUICE_UNROLL
    for (int n = 0; n < 2 * kCount; ++n) {
      const int o = n % kCount;
      block.MultiplyTile(steps[n / kCount], rows[from + o][n / kCount],
                         parts[o]);
    }
    SLUICE_UNROLL
    for (int n = 0; n < 4 * kCount; ++n) {
      float& sum = sums[from + n / 4].values[n % 4];
      sum = Fma(parts[n / 4].values[n % 4], scales[n % 4 / 2], sum);
    }
  }
};

// Octets [from, from + kCount) of a run.
template <int kCount, int kOctets>
SLUICE_DEVICE void LoadOctets(Block& block, const RunPlace& at, int from,
                              TileB (&rows)[kOctets][2]) {
  SLUICE_UNROLL
  for (int n = 0; n < 2 * kCount; ++n) {
    rows[from + n / 2][n % 2] = LoadOctet(block, at, from + n / 2, n % 2);
  }
}

// Halves are those of the warp's two tiles: one's codes are widened while the
// other's are multiplied.
template <typename Codes, int kOctets>
struct TileHalves : CodeRuns<Codes> {
  using Sums = TileC[2][kOctets];

  SLUICE_DEVICE void Start(Block& block, const RunPlace& at) {
    LoadOctets<kOctets>(block, at, 0, rows_);
    StoredTile<Codes> stored;
    stored.Load(block, at, 0);
    first_.Widen(stored);
  }
  SLUICE_DEVICE void First(Block& block, const RunPlace& at, Sums& sums) {
    StoredTile<Codes> stored;
    stored.Load(block, at, 1);
    SLUICE_UNROLL
    for (int o = 0; o < kOctets; o += 4) {
      first_.template Multiply<4>(block, rows_, o, sums[0]);
      if (o == 0) second_.Widen(stored);
    }
  }
  SLUICE_DEVICE void Second(Block& block, const RunPlace& next, Sums& sums) {
    StoredTile<Codes> stored;
    stored.Load(block, next, 0);
    SLUICE_UNROLL
    for (int o = 0; o < kOctets; o += 4) {
      second_.template Multiply<4>(block, rows_, o, sums[1]);
      LoadOctets<4>(block, next, o, rows_);
      if (o == 0) first_.Widen(stored);
    }
  }
  SLUICE_DEVICE void FirstAlone(Block&, Sums&) {}  // runs are whole

 private:
  WideTile<Codes> first_;
  WideTile<Codes> second_;
  TileB rows_[kOctets][2];
};

// Halves are those of the warp's octets: fewer registers.
template <typename Codes, int kTiles, int kOctets>
struct OctetHalves : CodeRuns<Codes> {
  static constexpr int kHalf = kOctets / 2;
  using Sums = TileC[kTiles][kOctets];

  SLUICE_DEVICE void Start(Block& block, const RunPlace& at) {
    LoadOctets<kHalf>(block, at, 0, rows_);
    StoredTile<Codes> stored[kTiles];
    Load(block, at, stored);
    Widen(stored);
  }
  SLUICE_DEVICE void First(Block& block, const RunPlace& at, Sums& sums) {
    LoadOctets<kHalf>(block, at, kHalf, rows_);
    Multiply(block, 0, sums);
  }
  SLUICE_DEVICE void Second(Block& block, const RunPlace& next, Sums& sums) {
    StoredTile<Codes> stored[kTiles];
    Load(block, next, stored);
    LoadOctets<kHalf>(block, next, 0, rows_);
    Multiply(block, kHalf, sums);
    Widen(stored);
  }
  SLUICE_DEVICE void FirstAlone(Block&, Sums&) {}

 private:
  static SLUICE_DEVICE void Load(Block& block, const RunPlace& at,
                                 StoredTile<Codes> (&stored)[kTiles]) {
    for (int i = 0; i < kTiles; ++i) stored[i].Load(block, at, i);
  }
  SLUICE_DEVICE void Widen(const StoredTile<Codes> (&stored)[kTiles]) {
    for (int i = 0; i < kTiles; ++i) weights_[i].Widen(stored[i]);
  }
  SLUICE_DEVICE void Multiply(Block& block, int from, Sums& sums) const {
    SLUICE_UNROLL
    for (int o = from; o < from + kHalf; o += 2) {
      for (int i = 0; i < kTiles; ++i) {
        weights_[i].template Multiply<2>(block, rows_, o, sums[i]);
      }
    }
  }

  WideTile<Codes> weights_[kTiles];
  TileB rows_[kOctets][2];
};

// Eight octets of types that have a scale for each run leave too few registers
// for both halves' codes.
template <typename Codes, int kTiles, int kOctets>
inline constexpr bool kHalvesAreTiles = kTiles == 2 &&
                                        (kOctets < 8 ||
                                         (CodeRuns<Codes>::kUnitRuns > 1));
template <typename Codes, int kTiles, int kOctets>
using RunOperand = std::conditional_t<kHalvesAreTiles<Codes, kTiles, kOctets>,
                                      TileHalves<Codes, kOctets>,
                                      OctetHalves<Codes, kTiles, kOctets>>;

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_RUNS_H_
