#include "kernels/cuda/fast/block_weight_layout.h"

#include <cuda_device/device.h>
#include <cuda_device/launch.h>

#include "kernels/cuda/fast/block_weight_pack.h"
#include "kernels/cuda/fast/multiply_block_run.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kUnitWarps = 8;
constexpr int kUnitRows = 16;  // rows of a unit

constexpr BlockLayout LayoutOfType(WeightType type) {
  return kBlockLayouts[static_cast<int>(type) - kNumPlainTypes];
}

// Where the low bits of element k stand in a block, and its high ones: those
// of the elements behind it are in the next bytes, but for the high bits of
// short blocks, which are the next bits.
struct CodeSpot {
  int byte;
  int shift;
};
template <WeightType kType>
SLUICE_DEVICE CodeSpot LowSpot(int k) {
  constexpr int kLow = LayoutOfType(kType).low;
  if constexpr (kType == WeightType::kQ2K || kType == WeightType::kQ3K) {
    return {kLow + k / 128 * 32 + k % 32, k % 128 / 32 * 2};
  } else if constexpr (kType == WeightType::kQ4K || kType == WeightType::kQ5K) {
    return {kLow + k / 64 * 32 + k % 32, k / 32 % 2 * 4};
  } else if constexpr (kType == WeightType::kQ6K) {
    return {kLow + k / 128 * 64 + k % 64, k % 128 / 64 * 4};
  } else {
    return {kLow + k % 16, k / 16 * 4};
  }
}
template <WeightType kType>
SLUICE_DEVICE CodeSpot HighSpot(int k) {
  constexpr int kHigh = LayoutOfType(kType).high;
  if constexpr (kType == WeightType::kQ3K || kType == WeightType::kQ5K) {
    return {kHigh + k % 32, k / 32};
  } else if constexpr (kType == WeightType::kQ6K) {
    return {kHigh + k / 128 * 32 + k % 32, k % 128 / 32 * 2};
  } else {
    return {kHigh + k / 8, k % 8};
  }
}

// Blocks are aligned to two bytes.
SLUICE_DEVICE uint32_t TwoBytesOf(const uint8_t* from) {
  return *reinterpret_cast<const uint16_t*>(from);
}
SLUICE_DEVICE uint32_t FourBytesOf(const uint8_t* from) {
  return TwoBytesOf(from) | TwoBytesOf(from + 2) << 16;
}

// The codes of elements k to k + 3, k a multiple of four, one per byte.
template <WeightType kType>
SLUICE_DEVICE uint32_t FourCodes(const uint8_t* block, int k) {
  constexpr BlockTiles kTiles = BlockTilesOf(kType);
  constexpr uint32_t kLowMask = ((1u << kTiles.low_bits) - 1) * 0x01010101u;
  const CodeSpot low = LowSpot<kType>(k);
  uint32_t codes = FourBytesOf(block + low.byte) >> low.shift & kLowMask;
  if constexpr (kTiles.high_bits != 0) {
    constexpr uint32_t kHighMask = ((1u << kTiles.high_bits) - 1) * 0x01010101u;
    const CodeSpot high = HighSpot<kType>(k);
    uint32_t bits = 0;
    if constexpr (kTiles.runs == 1) {
      const uint32_t dense = block[high.byte] >> high.shift & 15u;
      bits = dense * 0x00204081u;
    } else {
      bits = FourBytesOf(block + high.byte) >> high.shift;
    }
    codes |= (bits & kHighMask) << kTiles.low_bits;
  }
  return codes;
}

struct UnitPackArgs {
  const uint8_t* stored;
  uint8_t* tiles;
  int64_t rows;
  int64_t units;  // of 16 rows
  int64_t all;    // units of all rows
};

// A warp writes a unit. What rows past the weight's have is zero.
template <WeightType kType>
struct PackUnitKernel {
  static constexpr int kThreads = kUnitWarps * kWarpLanes;
  static constexpr BlockLayout kLayout = LayoutOfType(kType);
  static constexpr BlockTiles kTiles = BlockTilesOf(kType);
  static_assert(kTiles.bytes() == kUnitRows * kLayout.bytes);
  static_assert(kTiles.columns() == kLayout.elements);
  using Args = UnitPackArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t unit = block.index() * kUnitWarps + block.warp();
    if (unit >= a.all) return;
    const int lane = block.lane();
    uint8_t* const to = a.tiles + unit * kTiles.bytes();
    if (lane < kUnitRows) PackHead(StoredAt(a, unit, lane), lane, to);
    const uint8_t* const rows[2] = {StoredAt(a, unit, lane / 4),
                                    StoredAt(a, unit, lane / 4 + 8)};
    for (int run = 0; run < kTiles.runs; ++run) {
      PackCodes(rows, 32 * run + lane % 4 * 4, lane,
                to + kTiles.head_bytes + run * kTiles.run_bytes());
    }
  }

 private:
  // A row's block; null past the weight's rows.
  static SLUICE_DEVICE const uint8_t* StoredAt(const Args& a, int64_t unit,
                                               int row) {
    const int64_t own = unit / a.units * kUnitRows + row;
    if (own >= a.rows) return nullptr;
    return a.stored + (own * a.units + unit % a.units) * kLayout.bytes;
  }
  // Halves of a row's block, `flip` XORed into each.
  static SLUICE_DEVICE void CopyHalves(const uint8_t* from, int bytes,
                                       uint32_t flip, uint8_t* to) {
    for (int i = 0; i < bytes; i += 2) {
      const uint32_t half = from == nullptr ? 0 : TwoBytesOf(from + i) ^ flip;
      *reinterpret_cast<uint16_t*>(to + i) = static_cast<uint16_t>(half);
    }
  }
  static SLUICE_DEVICE void PackHead(const uint8_t* block, int row,
                                     uint8_t* to) {
    constexpr int kHalves = kLayout.minimum >= 0 ? 4 : 2;  // bytes
    const auto at = [&](int offset) {
      return block == nullptr ? nullptr : block + offset;
    };
    if constexpr (kType == WeightType::kQ4K || kType == WeightType::kQ5K) {
      CopyHalves(block, 16, 0, to + 16 * row);
    } else {
      constexpr int kBytes = kLayout.subscale_bytes;
      constexpr uint32_t kFlip = kType == WeightType::kQ6K ? 0x8080u : 0;
      CopyHalves(at(kLayout.subscales), kBytes, kFlip, to + kBytes * row);
      CopyHalves(at(kLayout.scale), kHalves, 0,
                 to + kUnitRows * kBytes + kHalves * row);
    }
  }
  // A lane's codes, of columns from `column` of the block on.
  static SLUICE_DEVICE void PackCodes(const uint8_t* const (&rows)[2],
                                      int column, int lane, uint8_t* run) {
    constexpr int kLow = kTiles.low_bits;
    constexpr int kHigh = kTiles.high_bits;
    uint32_t low[2] = {};
    uint32_t high = 0;
    SLUICE_UNROLL
    for (int n = 0; n < kUnitRows; ++n) {
      const LaneCode place = {n / 8, n / 4 % 2, n % 4};
      if (rows[place.half] == nullptr) continue;
      const uint32_t four =
          FourCodes<kType>(rows[place.half], column + kUnitRows * place.step);
      const uint32_t code = four >> (8 * place.column) & 255u;
      const int bit = place.bit(kLow);
      low[bit / 32] |= (code & ((1u << kLow) - 1)) << bit % 32;
      if constexpr (kHigh != 0) high |= code >> kLow << place.bit(kHigh);
    }
    for (int i = 0; i < kLow / 2; ++i) {
      reinterpret_cast<uint32_t*>(run)[kLow / 2 * lane + i] = low[i];
    }
    uint8_t* const upper = run + kTiles.high() + 2 * kHigh * lane;
    if constexpr (kHigh == 2) *reinterpret_cast<uint32_t*>(upper) = high;
    if constexpr (kHigh == 1) {
      *reinterpret_cast<uint16_t*>(upper) = static_cast<uint16_t>(high);
    }
  }
};

}  // namespace

void PackUnits(Stream stream, const WeightView& stored, void* tiles) {
  const BlockTiles layout = BlockTilesOf(stored.type);
  const int64_t units = stored.cols / layout.columns();
  const UnitPackArgs args = {static_cast<const uint8_t*>(stored.data),
                             static_cast<uint8_t*>(tiles), stored.rows, units,
                             (stored.rows + kUnitRows - 1) / kUnitRows * units};
  WithBlocks(stored.type, [&](auto math) {
    Launch<PackUnitKernel<decltype(math)::kType>>(
        stream, (args.all + kUnitWarps - 1) / kUnitWarps, 0, args);
  });
}

}  // namespace sluice::kernels::cuda
