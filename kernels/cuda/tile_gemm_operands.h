#ifndef SLUICE_KERNELS_CUDA_TILE_GEMM_OPERANDS_H_
#define SLUICE_KERNELS_CUDA_TILE_GEMM_OPERANDS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/math.h"
#include "kernels/cuda/tile_codes.h"
#include "kernels/cuda/tile_elements.h"
#include "kernels/cuda/weight_tiles.h"

namespace sluice::kernels::cuda {

// How a warp of tile_gemm.cc multiplies runs of 32 columns in shared memory, in
// two halves: between them the block waits for the next run. Each half loads
// what the half after it multiplies, so nothing waits for shared memory: First
// loads of the same run, Second of the next one, Start of the first one.

// The words of 16 rows' or of eight tokens' step of 16 columns.
inline constexpr int kOctetStepWords = 2 * kWarpLanes;
inline constexpr int kOctetRunWords = 2 * kOctetStepWords;

// Where a warp's part of a run is.
struct RunPlace {
  const Shared<uint32_t>& words;
  int weights;  // of its first row tile
  int rows;     // of its first octet of tokens
};

SLUICE_DEVICE TileB LoadOctet(Block& block, const RunPlace& at, int octet,
                              int step) {
  return LoadHalfTile(at.words, at.rows + octet * kOctetRunWords +
                                    step * kOctetStepWords + block.lane() * 2);
}

// Halves are steps of 16 columns. A weight's last run may have the first alone.
template <int kTiles, int kOctets>
struct Bf16Operand {
  static constexpr bool kInRuns = false;
  static constexpr int kRunWords = 2 * kStepBytes / 4;
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
    return LoadTile(at.words, at.weights + i * kRunWords +
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

// Halves are those of the warp's octets, of a whole run. Codes are widened by
// each warp that multiplies them, once the run before has been multiplied.
template <typename Codes, int kTiles, int kOctets>
struct RunOperand {
  static constexpr RunLayout kLayout = RunLayoutOf(Codes::kType);
  static constexpr bool kInRuns = true;
  static constexpr int kRunWords = kLayout.bytes() / 4;
  static constexpr int kHalf = kOctets / 2;
  using Words = std::conditional_t<kLayout.lane_bytes == 16, TileA, TileB>;
  using Sums = TileC[kTiles][kOctets];
  using Rows = TileB[2][kHalf];  // of both steps

  SLUICE_DEVICE void Start(Block& block, const RunPlace& at) {
    LoadRows(block, at, 0, first_);
    Run next[kTiles];
    LoadRun(block, at, next);
    Widen(next);
  }
  SLUICE_DEVICE void First(Block& block, const RunPlace& at, Sums& sums) {
    LoadRows(block, at, kHalf, second_);
    Multiply(block, first_, 0, sums);
  }
  SLUICE_DEVICE void Second(Block& block, const RunPlace& next, Sums& sums) {
    Run codes[kTiles];
    LoadRun(block, next, codes);
    LoadRows(block, next, 0, first_);
    Multiply(block, second_, kHalf, sums);
    Widen(codes);
  }
  SLUICE_DEVICE void FirstAlone(Block&, Sums&) {}  // runs are whole

 private:
  // A row tile's run as it is stored.
  struct Run {
    Words codes;
    float scales[2];
  };

  static SLUICE_DEVICE void LoadRows(Block& block, const RunPlace& at,
                                     int octet, Rows& rows) {
    for (int o = 0; o < kHalf; ++o) {
      for (int step = 0; step < 2; ++step) {
        rows[step][o] = LoadOctet(block, at, octet + o, step);
      }
    }
  }
  static SLUICE_DEVICE void LoadRun(Block& block, const RunPlace& at,
                                    Run (&runs)[kTiles]) {
    const int lane = block.lane();
    for (int i = 0; i < kTiles; ++i) {
      const int run = at.weights + i * kRunWords;
      runs[i].codes = LoadCodes(at.words, run, lane);
      LoadScales<Codes::kType>(
          at.words, run + kLayout.scale_bytes * ScaleIndex(lane / 4) / 4,
          runs[i].scales);
    }
  }
  SLUICE_DEVICE void Widen(const Run (&runs)[kTiles]) {
    for (int i = 0; i < kTiles; ++i) {
      for (int step = 0; step < 2; ++step) {
        weights_[step][i] = Codes::Step(runs[i].codes, step);
      }
      scales_[i][0] = runs[i].scales[0];
      scales_[i][1] = runs[i].scales[1];
    }
  }
  // Two octets at once: the second step of one follows its first at a distance.
  SLUICE_DEVICE void Multiply(Block& block, const Rows& rows, int octet,
                              Sums& sums) const {
    SLUICE_UNROLL
    for (int from = 0; from < kHalf; from += 2) {
      TileC parts[kTiles][2] = {};
      SLUICE_UNROLL
      for (int n = 0; n < 4 * kTiles; ++n) {
        const int i = n / 2 % kTiles;
        const int step = n / (2 * kTiles);
        block.MultiplyTile(weights_[step][i], rows[step][from + n % 2],
                           parts[i][n % 2]);
      }
      SLUICE_UNROLL
      for (int n = 0; n < 8 * kTiles; ++n) {
        const int i = n / 4 % kTiles;
        const int o = n / (4 * kTiles);
        const int v = n % 4;
        float& sum = sums[i][octet + from + o].values[v];
        sum = Fma(parts[i][o].values[v], scales_[i][v / 2], sum);
      }
    }
  }
  static SLUICE_DEVICE Words LoadCodes(const Shared<uint32_t>& words, int run,
                                       int lane) {
    const int at = run + kLayout.codes() / 4 + lane * (kLayout.lane_bytes / 4);
    if constexpr (kLayout.lane_bytes == 16) {
      return LoadTile(words, at);
    } else {
      return LoadHalfTile(words, at);
    }
  }
  TileA weights_[2][kTiles];
  float scales_[kTiles][2];
  Rows first_;
  Rows second_;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_GEMM_OPERANDS_H_
