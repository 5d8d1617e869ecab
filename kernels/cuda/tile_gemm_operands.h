#ifndef SLUICE_KERNELS_CUDA_TILE_GEMM_OPERANDS_H_
#define SLUICE_KERNELS_CUDA_TILE_GEMM_OPERANDS_H_

#include <cuda_device/device.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/math.h"
#include "kernels/cuda/tile_codes.h"
#include "kernels/cuda/weight_tiles.h"

namespace sluice::kernels::cuda {

// How a warp of tile_gemm.cc multiplies a run of 32 columns in shared memory:
// First, then what may wait for the next run, then Second, of what First and
// LoadAhead have in registers.

// The words of 16 rows' or of eight tokens' step of 16 columns.
inline constexpr int kOctetStepWords = 2 * kWarpLanes;
inline constexpr int kOctetRunWords = 2 * kOctetStepWords;

// Where a warp's part of a run is.
struct RunPlace {
  const Shared<uint32_t>& words;
  int weights;  // of its first row tile
  int rows;     // of its first octet of tokens
  bool whole;   // false: the first step alone
};

SLUICE_DEVICE TileB LoadOctet(Block& block, const RunPlace& at, int octet,
                              int step) {
  return LoadHalfTile(at.words, at.rows + octet * kOctetRunWords +
                                    step * kOctetStepWords + block.lane() * 2);
}

template <int kTiles, int kOctets>
struct Bf16Operand {
  static constexpr bool kInRuns = false;
  static constexpr int kRunWords = 2 * kStepBytes / 4;
  using Sums = TileC[kTiles][kOctets];
  struct Step {
    TileA a[kTiles];
    TileB b[kOctets];
  };

  SLUICE_DEVICE void LoadAhead(Block& block, const RunPlace& at) {
    Load(block, at, 0, first_);
  }
  SLUICE_DEVICE void First(Block& block, const RunPlace& at, Sums& sums) {
    whole_ = at.whole;
    if (whole_) Load(block, at, 1, second_);
    Multiply(block, first_, sums);
  }
  SLUICE_DEVICE void Second(Block& block, Sums& sums) {
    if (whole_) Multiply(block, second_, sums);
  }

 private:
  static SLUICE_DEVICE void Load(Block& block, const RunPlace& at, int step,
                                 Step& to) {
    for (int i = 0; i < kTiles; ++i) {
      to.a[i] =
          LoadTile(at.words, at.weights + i * kRunWords +
                                 step * (kStepBytes / 4) + block.lane() * 4);
    }
    for (int o = 0; o < kOctets; ++o) {
      to.b[o] = LoadOctet(block, at, o, step);
    }
  }
  static SLUICE_DEVICE void Multiply(Block& block, const Step& step,
                                     Sums& sums) {
    for (int i = 0; i < kTiles; ++i) {
      for (int o = 0; o < kOctets; ++o) {
        block.MultiplyTile(step.a[i], step.b[o], sums[i][o]);
      }
    }
  }

  Step first_;
  Step second_;
  bool whole_;
};

// Codes are widened by each warp that multiplies them.
template <typename Codes, int kTiles, int kOctets>
struct RunOperand {
  static constexpr RunLayout kLayout = RunLayoutOf(Codes::kType);
  static constexpr bool kInRuns = true;
  static constexpr int kRunWords = kLayout.bytes() / 4;
  using Words = std::conditional_t<kLayout.lane_bytes == 16, TileA, TileB>;
  using Sums = TileC[kTiles][kOctets];

  SLUICE_DEVICE void LoadAhead(Block&, const RunPlace&) {}
  SLUICE_DEVICE void First(Block& block, const RunPlace& at, Sums& sums) {
    TileB rows[2][kOctets];
    for (int step = 0; step < 2; ++step) {
      for (int o = 0; o < kOctets; ++o) {
        rows[step][o] = LoadOctet(block, at, o, step);
      }
    }
    for (int i = 0; i < kTiles; ++i) {
      Tile(block, at.words, at.weights + i * kRunWords, rows, sums[i]);
    }
  }
  SLUICE_DEVICE void Second(Block&, Sums&) {}

 private:
  static SLUICE_DEVICE void Tile(Block& block, const Shared<uint32_t>& words,
                                 int run, const TileB (&rows)[2][kOctets],
                                 TileC (&sums)[kOctets]) {
    const Words codes = LoadCodes(words, run, block.lane());
    const float scales[2] = {Scale(words, run, block.lane() / 4),
                             Scale(words, run, block.lane() / 4 + 8)};
    const TileA first = Codes::Step(codes, 0);
    const TileA second = Codes::Step(codes, 1);
    TileC parts[kOctets] = {};
    for (int o = 0; o < kOctets; ++o) {
      block.MultiplyTile(first, rows[0][o], parts[o]);
    }
    for (int o = 0; o < kOctets; ++o) {
      block.MultiplyTile(second, rows[1][o], parts[o]);
    }
    for (int o = 0; o < kOctets; ++o) {
      for (int v = 0; v < 4; ++v) {
        sums[o].values[v] =
            Fma(parts[o].values[v], scales[v / 2], sums[o].values[v]);
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
  static SLUICE_DEVICE float Scale(const Shared<uint32_t>& words, int run,
                                   int row) {
    if constexpr (kLayout.scale_bytes == 4) {
      return BitCast<float>(words.Get(run + row));
    } else {
      const uint32_t bits =
          words.Get(run + row / 2) >> (row % 2 * 16) & 0xFFFFu;
      if constexpr (Codes::kType == WeightType::kMxfp4) {
        return BitCast<float>(bits << 16);
      } else {
        return HalfOfBits(bits);
      }
    }
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TILE_GEMM_OPERANDS_H_
