#include "kernels/cuda/fast/weight_layout.h"

#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/block_format.h"
#include "kernels/cuda/fast/block_weight_pack.h"
#include "kernels/cuda/fast/weight_code_bits.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8;

constexpr int64_t CeilDiv(int64_t n, int64_t by) { return (n + by - 1) / by; }

// The bytes of a unit's columns as they are stored in a row: of one scale.
constexpr int StoredBytes(WeightType type) {
  if (type == WeightType::kE4m3) return kE4m3RunBytes;
  if (type == WeightType::kE4m3Wide) return kE4m3WideRunBytes;
  return kBlockLayouts[static_cast<int>(type) - kNumPlainTypes].bytes;
}

// Steps or runs of 16 rows.
int64_t UnitsOf(WeightType type, int64_t cols) {
  return CeilDiv(cols, type == WeightType::kBf16 ? kTileSide : kRunCols);
}

// What a lane writes at once.
template <int kWords>
struct alignas(4 * kWords) LaneWords {
  uint32_t words[kWords];
};

template <int kWords>
SLUICE_DEVICE void Write(const LaneWords<kWords>& words, uint8_t* to) {
  *reinterpret_cast<LaneWords<kWords>*>(to) = words;
}

struct PackArgs {
  const uint8_t* stored;
  uint8_t* tiles;
  int64_t rows;
  int64_t cols;
  int64_t units;  // of 16 rows
  int64_t all;    // units of all rows
};

// The two BF16 elements from (row, column) on, zero outside.
SLUICE_DEVICE uint32_t Bf16Pair(const PackArgs& a, int64_t row,
                                int64_t column) {
  if (row >= a.rows || column >= a.cols) return 0;
  const auto* const from =
      reinterpret_cast<const uint16_t*>(a.stored) + row * a.cols + column;
  return from[0] | (column + 1 < a.cols ? uint32_t{from[1]} << 16 : 0u);
}

// Four adjacent bytes, which types align differently.
template <WeightType kType>
SLUICE_DEVICE uint32_t FourBytes(const uint8_t* from) {
  if constexpr (IsE4m3(kType)) {
    return LoadWord(from);
  } else if constexpr (kType == WeightType::kQ8_0) {
    const auto* const halves = reinterpret_cast<const uint16_t*>(from);
    return halves[0] | uint32_t{halves[1]} << 16;
  } else {
    return from[0] | uint32_t{from[1]} << 8 | uint32_t{from[2]} << 16 |
           uint32_t{from[3]} << 24;
  }
}

// Codes of columns 0, 1, 2, 3 as 0, 2, 1, 3.
SLUICE_DEVICE uint32_t SwapMiddle(uint32_t codes) {
  return (codes & 0xFF0000FFu) | (codes >> 8 & 0xFF00u) |
         (codes & 0xFF00u) << 8;
}

// Bytes of which byte i has column i below and column i + 16 above, as one
// row's word of four bits.
SLUICE_DEVICE uint32_t SpreadNibbles(uint32_t bytes) {
  const uint32_t swapped = SwapMiddle(bytes);  // columns 0, 2, 1, 3
  const uint32_t low = swapped & 0x0F0F0F0Fu;
  const uint32_t high = swapped >> 4 & 0x0F0F0F0Fu;
  // Bytes 0 and 1, 2 and 3 of each become a byte of `low`'s and `high`'s.
  const uint32_t first = (low | low >> 4) & 0x00FF00FFu;
  const uint32_t second = (high | high >> 4) & 0x00FF00FFu;
  return first | second << 8;
}

// The bits of 2^(exponent - 127) in BF16; of 255, a NaN.
SLUICE_DEVICE uint32_t Bf16OfExponent(uint32_t exponent) {
  if (exponent == 0) return 0x0040u;
  return exponent == 255 ? 0x7FC0u : exponent << 7;
}

// A warp writes one step of BF16 or one run.
template <WeightType kType>
struct PackKernel {
  static constexpr int kThreads = kWarps * kWarpLanes;
  using Args = PackArgs;

  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t unit = block.index() * kWarps + block.warp();
    if (unit >= a.all) return;
    const int64_t row = unit / a.units * kTileSide;
    const int64_t column = unit % a.units;
    if constexpr (kType == WeightType::kBf16) {
      PackStep(a, row, column * kTileSide, block.lane(),
               a.tiles + unit * kStepBytes);
    } else {
      constexpr RunLayout kLayout = RunLayoutOf(kType);
      PackRun(a, row, column, block.lane(),
              a.tiles + unit / kLayout.runs * kLayout.bytes());
    }
  }

 private:
  static SLUICE_DEVICE void PackStep(const Args& a, int64_t row, int64_t column,
                                     int lane, uint8_t* to) {
    LaneWords<4> words;
    for (int i = 0; i < 4; ++i) {
      words.words[i] = Bf16Pair(a, row + lane / 4 + i % 2 * 8,
                                column + lane % 4 * 4 + i / 2 * 2);
    }
    Write(words, to + 16 * lane);
  }

  // A row's scale and codes of a unit; null past the weight's rows.
  static SLUICE_DEVICE const uint8_t* StoredOf(const Args& a, int64_t row,
                                               int64_t unit) {
    if (row >= a.rows) return nullptr;
    return a.stored + (row * (a.units / RunLayoutOf(kType).runs) + unit) *
                          StoredBytes(kType);
  }

  // `to`: the run's unit.
  static SLUICE_DEVICE void PackRun(const Args& a, int64_t row, int64_t run,
                                    int lane, uint8_t* to) {
    constexpr RunLayout kLayout = RunLayoutOf(kType);
    const int64_t unit = run / kLayout.runs;
    const auto in_unit = static_cast<int>(run % kLayout.runs);
    if (lane < kTileSide && in_unit == 0) {
      PackScale(StoredOf(a, row + lane, unit), lane, to);
    }
    constexpr int kWords = kLayout.lane_bytes / 4;
    // Codes follow what a unit has of scales.
    constexpr int kOfRun = kRunCols * kWords / 4;
    constexpr int kCodes = StoredBytes(kType) - kLayout.runs * kOfRun;
    LaneWords<kWords> words;
    for (int i = 0; i < kWords; ++i) {
      // Of eight bits: both rows of step 0, then of step 1.
      const uint8_t* const from = StoredOf(a, row + lane / 4 + i % 2 * 8, unit);
      const int at =
          kCodes + in_unit * kOfRun + lane % 4 * 4 + i / 2 * kTileSide;
      const uint32_t bytes = from == nullptr ? 0 : FourBytes<kType>(from + at);
      words.words[i] = ArrangeCodes<kType>(kWords == 4 ? SwapMiddle(bytes)
                                                       : SpreadNibbles(bytes));
    }
    Write(words, to + kLayout.codes() + in_unit * kLayout.run_bytes() +
                     kLayout.lane_bytes * lane);
  }

  static SLUICE_DEVICE void PackScale(const uint8_t* stored, int row,
                                      uint8_t* to) {
    to += RunLayoutOf(kType).scale_bytes * ScaleIndex(row);
    if constexpr (IsE4m3(kType)) {
      *reinterpret_cast<uint32_t*>(to) =
          stored == nullptr ? 0 : LoadWord(stored);
    } else {
      uint32_t scale = 0;
      if (stored != nullptr) {
        scale = kType == WeightType::kMxfp4
                    ? Bf16OfExponent(stored[0])
                    : stored[0] | uint32_t{stored[1]} << 8;
      }
      *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(scale);
    }
  }
};

template <WeightType kType>
void LaunchPack(Stream stream, const PackArgs& args) {
  Launch<PackKernel<kType>>(stream, CeilDiv(args.all, kWarps), 0, args);
}

}  // namespace

int64_t TileBytes(WeightType type, int64_t rows, int64_t cols) {
  const int64_t tiles = CeilDiv(rows, kTileSide);
  if (IsInUnits(type)) {
    const BlockTiles layout = BlockTilesOf(type);
    return tiles * (cols / layout.columns()) * layout.bytes();
  }
  if (type != WeightType::kBf16) {
    const RunLayout layout = RunLayoutOf(type);
    return tiles * (cols / layout.columns()) * layout.bytes();
  }
  return tiles * CeilDiv(cols, kTileSide) * kStepBytes;
}

void PackTiles(Stream stream, const WeightView& stored, void* tiles) {
  SLUICE_CHECK(HasTiles(stored.type));
  SLUICE_CHECK(stored.type == WeightType::kBf16 ||
               stored.cols % CutColumns(stored.type) == 0);
  if (IsInUnits(stored.type)) return PackUnits(stream, stored, tiles);
  const int64_t units = UnitsOf(stored.type, stored.cols);
  const PackArgs args = {static_cast<const uint8_t*>(stored.data),
                         static_cast<uint8_t*>(tiles),
                         stored.rows,
                         stored.cols,
                         units,
                         CeilDiv(stored.rows, kTileSide) * units};
  switch (stored.type) {
    case WeightType::kBf16:
      return LaunchPack<WeightType::kBf16>(stream, args);
    case WeightType::kE4m3:
      return LaunchPack<WeightType::kE4m3>(stream, args);
    case WeightType::kE4m3Wide:
      return LaunchPack<WeightType::kE4m3Wide>(stream, args);
    case WeightType::kQ8_0:
      return LaunchPack<WeightType::kQ8_0>(stream, args);
    case WeightType::kQ4_0:
      return LaunchPack<WeightType::kQ4_0>(stream, args);
    default:
      return LaunchPack<WeightType::kMxfp4>(stream, args);
  }
}

}  // namespace sluice::kernels::cuda
