#ifndef SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_OPERANDS_H_
#define SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_OPERANDS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/fast/weight_layout.h"

namespace sluice::kernels::cuda {

// How a warp of products_many_tokens.cc multiplies runs of 32 columns in shared
// memory, in two halves: between them the block waits for the next run. Each
// half loads what the half after it multiplies, so nothing waits for shared
// memory: First loads of the same run, Second of the next one, Start of the
// first one.

// The words of eight tokens' step of 16 columns.
inline constexpr int kOctetStepWords = 2 * kWarpLanes;
inline constexpr int kOctetRunWords = 2 * kOctetStepWords;

// What eight tokens have of a run: a lane's operands of both steps, then, for
// operands with kTotals, so many sums of each token's activations.
constexpr int OctetWords(int totals) { return kOctetRunWords + 8 * totals; }

// Where a warp's part of a run is.
struct RunPlace {
  const Shared<uint32_t>& words;
  int weights;  // of its first row tile
  int rows;     // of its first octet of tokens
  int run;      // of the weight, that is multiplied
};

template <int kTotals = 0>
SLUICE_DEVICE TileB LoadOctet(Block& block, const RunPlace& at, int octet,
                              int step) {
  return LoadHalfTile(at.words, at.rows + octet * OctetWords(kTotals) +
                                    step * kOctetStepWords + block.lane() * 2);
}

// How an operand's runs lie in a tile: units of kRuns runs, each of kWords
// words behind a head of all. In shared memory every run has the head.
template <int kHead, int kWords, int kRuns>
struct UnitRuns {
  static constexpr bool kInGroups = false;
  static constexpr int kUnitRuns = kRuns;
  static constexpr int kHeadWords = kHead;
  static constexpr int kUnitWords = kHead + kRuns * kWords;
  static constexpr int kRunWords = kHead + kWords;
  // The words of so many runs of a tile, whole units.
  static SLUICE_DEVICE int64_t WordsOf(int64_t runs) {
    return runs / kRuns * kUnitWords;
  }
  // From 16 bytes of run `run`, its chunk `chunk`, to those of the next run.
  static SLUICE_DEVICE int WordsToNext(int run, int chunk) {
    const bool last = run % kRuns == kRuns - 1;
    if (4 * chunk < kHead) return last ? kUnitWords : 0;
    return kWords + (last ? kHead : 0);
  }
};
// Runs of kWords words, one after the other.
template <int kWords>
struct EqualRuns : UnitRuns<0, kWords, 1> {
  static constexpr int kTotals = 0;
};

// Halves are steps of 16 columns. A weight's last run may have the first alone.
template <int kTiles, int kOctets>
struct Bf16Operand : EqualRuns<2 * kStepBytes / 4> {
  static constexpr bool kInRuns = false;
  using Sums = TileC[kTiles][kOctets];
  struct Step {
    TileA a[kTiles];
    TileB b[kOctets];
  };

  SLUICE_DEVICE void Start(Block& block, const RunPlace& at) {
    for (int o = 0; o < kOctets; ++o) first_.b[o] = LoadOctet(block, at, o, 0);
    for (int i = 0; i < kTiles; ++i) first_.a[i] = Tile(block, at, i, 0);
  }
  SLUICE_DEVICE void First(Block& block, const RunPlace& at, Sums& sums) {
    Multiply(block, first_, sums,
             [&](int i) { Load(block, at, 1, i, second_); });
  }
  SLUICE_DEVICE void Second(Block& block, const RunPlace& next, Sums& sums) {
    Multiply(block, second_, sums,
             [&](int i) { Load(block, next, 0, i, first_); });
  }
  SLUICE_DEVICE void FirstAlone(Block& block, Sums& sums) {
    Multiply(block, first_, sums, [](int) {});
  }

 private:
  static SLUICE_DEVICE TileA Tile(Block& block, const RunPlace& at, int i,
                                  int step) {
    return LoadTile(at.words, at.weights + i * Bf16Operand::kRunWords +
                                  step * (kStepBytes / 4) + block.lane() * 4);
  }
  // Load `i` of a step's kOctets + kTiles.
  static SLUICE_DEVICE void Load(Block& block, const RunPlace& at, int step,
                                 int i, Step& to) {
    if (i < kOctets) {
      to.b[i] = LoadOctet(block, at, i, step);
    } else if (i < kOctets + kTiles) {
      to.a[i - kOctets] = Tile(block, at, i - kOctets, step);
    }
  }
  // Loads stand between products, each of which gives them time.
  template <typename Loads>
  static SLUICE_DEVICE void Multiply(Block& block, const Step& step, Sums& sums,
                                     const Loads& loads) {
    constexpr int kProducts = kTiles * kOctets;
    constexpr int kEach =
        (kTiles + kOctets + kProducts - 1) / kProducts;  // loads of a product
    SLUICE_UNROLL
    for (int n = 0; n < kProducts; ++n) {
      block.MultiplyTile(step.a[n / kOctets], step.b[n % kOctets],
                         sums[n / kOctets][n % kOctets]);
      SLUICE_UNROLL
      for (int i = n * kEach; i < (n + 1) * kEach; ++i) loads(i);
    }
  }

  Step first_;
  Step second_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_FAST_PRODUCTS_MANY_TOKENS_OPERANDS_H_
