#include "tests/cuda_machine/probes/matrix_rates.h"

#include <cuda_device/gates.h>
#include <cuda_device/groups.h>
#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/cuda/runtime/matrix_fragments.h"

namespace sluice::kernels::cuda {
namespace {

struct RateArgs {
  const uint32_t* operands;
  int32_t times;
  uint32_t* out;
};

SLUICE_DEVICE void StoreRateResult(const Block& block, const RateArgs& args,
                                   int i, uint32_t bits) {
  args.out[(block.index() * kRateResults + i) * block.threads() +
           block.thread()] = bits;
}

// Words of a tile of A, and of eight columns of B, of all lanes.
constexpr int kRateTileWords = 4 * kWarpLanes;
constexpr int kRateOctetWords = 2 * kWarpLanes;

// A warp has sixteen products of tiles under way, none of which waits for
// another one.
template <MatrixUnits kUnits>
struct RateTilesKernel {
  static constexpr RateShape kShape = RateShapeOf(kUnits);
  static constexpr int kThreads = kShape.threads;
  static constexpr int kLeastBlocks = kShape.blocks;
  static constexpr int kTiles = 4;
  static_assert(kRateRows == 16 * kTiles && kShape.columns == 8 * kTiles);
  using Args = RateArgs;

  static SLUICE_DEVICE void Multiply(Block& block, const TileA& a,
                                     const TileB& b, TileC& c) {
    block.MultiplyTile(a, b, c);
  }
  static SLUICE_DEVICE void Multiply(Block& block, const TileA& a,
                                     const TileB& b, TileI& c) {
    block.MultiplyCodes(a, b, c);
  }

  template <typename Sums>
  static SLUICE_DEVICE void RunOf(Block& block, const Args& args) {
    TileA a[kTiles];
    TileB b[kTiles];
    Sums sums[kTiles][kTiles];
    const uint32_t* const from_b = args.operands + kTiles * kRateTileWords;
    SLUICE_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      a[i] = LoadTile(args.operands + i * kRateTileWords + block.lane() * 4);
      b[i] = LoadHalfTile(from_b + i * kRateOctetWords + block.lane() * 2);
      for (int j = 0; j < kTiles; ++j) sums[i][j] = Sums{};
    }
    SLUICE_ROLL
    for (int32_t time = 0; time < args.times; ++time) {
      SLUICE_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        SLUICE_UNROLL
        for (int j = 0; j < kTiles; ++j)
          Multiply(block, a[i], b[j], sums[i][j]);
      }
    }
    SLUICE_UNROLL
    for (int i = 0; i < kRateResults; ++i) {
      StoreRateResult(block, args, i,
                      BitCast<uint32_t>(sums[i / 16][i / 4 % 4].values[i % 4]));
    }
  }
  static SLUICE_DEVICE void Run(Block& block, const Args& args) {
    if constexpr (kUnits == MatrixUnits::kCodes) {
      RunOf<TileI>(block, args);
    } else {
      RunOf<TileC>(block, args);
    }
  }
};

// Four warps wait for their products while those of the multiprocessor's other
// blocks are under way.
struct RateGroupsKernel {
  static constexpr RateShape kShape = RateShapeOf(MatrixUnits::kGroups);
  static constexpr int kThreads = kShape.threads;
  static constexpr int kLeastBlocks = kShape.blocks;
  static constexpr int kSteps = kShape.k / 16;
  static constexpr int kStepWords = kGroupOctets * kRateOctetWords;
  static_assert(kThreads == kGroupWarps * kWarpLanes &&
                kShape.columns == 8 * kGroupOctets &&
                kRateResults == 4 * kGroupOctets);
  static constexpr int kWordsA = kGroupWarps * kSteps * kRateTileWords;
  static constexpr int kWordsB = kSteps * kStepWords;
  static constexpr size_t kSharedBytes =
      kWordsB * sizeof(uint32_t) + 16;  // and a gate
  using Args = RateArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& args) {
    if constexpr (!GroupProducts::kHere) return GroupProducts::Stop();
    constexpr int kOwn = kWordsB / kGroupWarps;
    const auto b = block.Kept(block.Allocate<uint32_t>(kWordsB));
    Gates gates(block, 1, kGroupWarps);
    gates.FenceMemory();
    const int own = block.warp() * kOwn;
    gates.Open(block, 0, kOwn * int{sizeof(uint32_t)});
    gates.Copy(block, 0, b, own, args.operands + kWordsA + own, kOwn);
    block.Sync();
    gates.Wait(block, 0, 0);
    TileA a[kSteps];
    SLUICE_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const int tile = block.warp() * kSteps + step;
      a[step] =
          LoadTile(args.operands + tile * kRateTileWords + block.lane() * 4);
    }
    GroupSums sums;
    SLUICE_UNROLL
    for (TileC& octet : sums) octet = TileC{};
    GroupProducts products;
    SLUICE_ROLL
    for (int32_t time = 0; time < args.times; ++time) {
      products.FenceRegisters(sums);
      SLUICE_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        products.Multiply<kRateOctetWords>(block, a[step], b, step * kStepWords,
                                           sums);
      }
      products.Commit();
      products.WaitFor(block, sums);
    }
    SLUICE_UNROLL
    for (int i = 0; i < kRateResults; ++i) {
      StoreRateResult(block, args, i,
                      BitCast<uint32_t>(sums[i / 4].values[i % 4]));
    }
  }
};

// A word of numbers side by side, of which `at(i)` is number i.
template <typename At>
uint32_t PackedNumbers(MatrixUnits units, const At& at) {
  uint32_t word = 0;
  if (units == MatrixUnits::kCodes) {
    for (int i = 0; i < 4; ++i) {
      word |= static_cast<uint32_t>(at(i) & 255) << (8 * i);
    }
    return word;
  }
  for (int i = 0; i < 2; ++i) {
    const auto value = static_cast<float>(at(i));  // exact in BF16
    word |= __builtin_bit_cast(uint32_t, value) >> 16 << (16 * i);
  }
  return word;
}

}  // namespace

bool HasMatrixUnits(MatrixUnits units, Stream stream) {
  return units != MatrixUnits::kGroups || LimitsOf(stream).group_products;
}

int64_t RateBlocks(MatrixUnits units, Stream stream) {
  return int64_t{RateShapeOf(units).blocks} * LimitsOf(stream).multiprocessors;
}

double RateOperations(MatrixUnits units, int32_t times) {
  const RateShape shape = RateShapeOf(units);
  const int groups = shape.threads / kWarpLanes / shape.warps;
  return 2.0 * kRateRows * shape.columns * shape.k * groups * times;
}

std::vector<uint32_t> RateOperands(MatrixUnits units) {
  const RateShape shape = RateShapeOf(units);
  const bool in_groups = units == MatrixUnits::kGroups;
  const int steps = in_groups ? RateGroupsKernel::kSteps : 1;
  const int octets = shape.columns / 8;
  const int in_word = units == MatrixUnits::kCodes ? 4 : 2;
  // Where a lane's word of a step begins: word 1 is behind word 0 of all lanes.
  const auto k_of = [&](int step, int lane, int word) {
    return shape.k / steps * step + (lane % 4 + word * 4) * in_word;
  };
  std::vector<uint32_t> words;
  for (int i = 0; i < kRateRows / 16 * steps * kRateTileWords; ++i) {
    const int lane = i / 4 % kWarpLanes;
    const int tile = i / kRateTileWords;
    const int row = tile / steps * 16 + lane / 4 + i % 2 * 8;
    const int k = k_of(tile % steps, lane, i % 4 / 2);
    words.push_back(PackedNumbers(
        units, [&](int j) { return RateElementA(row, k + j, shape.k / 2); }));
  }
  for (int i = 0; i < octets * steps * kRateOctetWords; ++i) {
    const int octet = i / kRateOctetWords;
    const int word = in_groups ? i / kWarpLanes % 2 : i % 2;
    const int lane = in_groups ? i % kWarpLanes : i / 2 % kWarpLanes;
    const int column = octet % octets * 8 + lane / 4;
    const int k = k_of(octet / octets, lane, word);
    words.push_back(PackedNumbers(units, [&](int j) {
      return RateElementB(k + j, column, shape.k / 2);
    }));
  }
  return words;
}

void RateMultiply(MatrixUnits units, Stream stream, const uint32_t* operands,
                  int64_t blocks, int32_t times, uint32_t* out) {
  SLUICE_CHECK(times <= kMostRateTimes);
  const RateArgs args = {operands, times, out};
  switch (units) {
    case MatrixUnits::kTiles:
      return Launch<RateTilesKernel<MatrixUnits::kTiles>>(stream, blocks, 0,
                                                          args);
    case MatrixUnits::kCodes:
      return Launch<RateTilesKernel<MatrixUnits::kCodes>>(stream, blocks, 0,
                                                          args);
    case MatrixUnits::kGroups:
      return Launch<RateGroupsKernel>(stream, blocks,
                                      RateGroupsKernel::kSharedBytes, args);
  }
}

}  // namespace sluice::kernels::cuda
