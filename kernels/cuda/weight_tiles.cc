#include "kernels/cuda/weight_tiles.h"

#include <cstring>

#include "common/base/check.h"

namespace sluice::kernels::cuda {
namespace {

int64_t Rounded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Lane `lane`'s 16 bytes of the BF16 step at (row, column), zero outside.
void PackStep(const WeightView& weight, int64_t row, int64_t column, int lane,
              uint8_t* to) {
  const auto* const from = static_cast<const uint16_t*>(weight.data);
  for (int i = 0; i < 8; ++i) {
    const int word = i / 2;
    const int64_t r = row + lane / 4 + word % 2 * 8;
    const int64_t c = column + lane % 4 * 4 + word / 2 * 2 + i % 2;
    const uint16_t bits =
        r < weight.rows && c < weight.cols ? from[r * weight.cols + c] : 0;
    std::memcpy(to + 2 * i, &bits, sizeof(bits));
  }
}

// The run of E4M3 at (row, column) of 16 rows.
void PackRun(const WeightView& weight, int64_t row, int64_t column,
             uint8_t* to) {
  const auto* const from = static_cast<const uint8_t*>(weight.data);
  std::memset(to, 0, kRunBytes);
  for (int64_t r = 0; r < kTileSide && row + r < weight.rows; ++r) {
    const uint8_t* const run =
        from + ((row + r) * weight.cols + column) / kE4m3Run * kE4m3RunBytes;
    std::memcpy(to + 4 * r, run, 4);
    for (int64_t c = 0; c < kE4m3Run; ++c) {
      const int64_t lane = r % 8 * 4 + c % kTileSide / 4;
      const int64_t word = c / kTileSide * 2 + r / 8;
      const int64_t place = c % 2 * 2 + c % 4 / 2;
      to[64 + lane * 16 + word * 4 + place] = run[4 + c];
    }
  }
}

}  // namespace

int64_t TileBytes(WeightType type, int64_t rows, int64_t cols) {
  const int64_t tiles = Rounded(rows, kTileSide) / kTileSide;
  if (type == WeightType::kE4m3) return tiles * (cols / kE4m3Run) * kRunBytes;
  return tiles * (Rounded(cols, kTileSide) / kTileSide) * kStepBytes;
}

void PackTiles(const WeightView& weight, uint8_t* to) {
  SLUICE_CHECK(HasTiles(weight.type));
  const bool coded = weight.type == WeightType::kE4m3;
  SLUICE_CHECK(!coded || weight.cols % kE4m3Run == 0);
  const int64_t width = coded ? kE4m3Run : kTileSide;
  for (int64_t row = 0; row < weight.rows; row += kTileSide) {
    for (int64_t column = 0; column < weight.cols; column += width) {
      if (coded) {
        PackRun(weight, row, column, to);
        to += kRunBytes;
        continue;
      }
      for (int lane = 0; lane < 32; ++lane) {
        PackStep(weight, row, column, lane, to + 16 * lane);
      }
      to += kStepBytes;
    }
  }
}

}  // namespace sluice::kernels::cuda
