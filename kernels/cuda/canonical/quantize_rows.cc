#include <cuda_device/device.h>
#include <cuda_device/launch.h>

#include "common/base/check.h"
#include "kernels/cuda/canonical/products.h"
#include "kernels/cuda/shared/math.h"

namespace sluice::kernels::cuda {
namespace {

// A block per piece of a row; a warp per block of its elements.
template <int kElements>
struct QuantizeKernel {
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / kWarpLanes;
  static constexpr size_t kSharedBytes = sizeof(int32_t) * kWarps;
  static constexpr int kEach = kElements / kWarpLanes;
  // Blocks of a warp whose elements are asked for together.
  static constexpr int kAtOnce = 4;
  struct Args {
    ConstMatrix x;
    FlaggedRows to;
  };
  static SLUICE_DEVICE void Run(Block& block, const Args& a) {
    const int64_t row = block.index() / kFinitePieces;
    const int64_t piece = block.index() % kFinitePieces;
    const int64_t blocks = a.x.cols / kElements;
    const int64_t each = (blocks + kFinitePieces - 1) / kFinitePieces;
    const int64_t behind = (piece + 1) * each;
    const int64_t end = behind < blocks ? behind : blocks;
    const auto shared = block.Allocate<int32_t>(kWarps);
    bool finite = true;
    for (int64_t b = piece * each + block.warp(); b < end;
         b += kAtOnce * kWarps) {
      float x[kAtOnce][kEach];
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce * kEach; ++i) {
        const int64_t own = b + i / kEach * kWarps;
        if (own >= end) continue;
        x[i / kEach][i % kEach] =
            a.x.data[row * a.x.stride + own * kElements + block.lane() +
                     i % kEach * kWarpLanes];
      }
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int64_t own = b + i * kWarps;
        if (own >= end) break;
        finite = QuantizeBlock(block, a, row, own, x[i]) && finite;
      }
    }
    if (block.lane() == 0) shared.Set(block.warp(), finite ? 1 : 0);
    block.Sync();
    if (block.thread() != 0) return;
    int32_t all = 1;
    for (int w = 0; w < kWarps; ++w) all &= shared.Get(w);
    a.to.finite[row * kFinitePieces + piece] = all != 0;
  }
  static SLUICE_DEVICE bool QuantizeBlock(Block& block, const Args& a,
                                          int64_t row, int64_t b,
                                          const float (&x)[kEach]) {
    const int64_t at = b * kElements + block.lane();
    int32_t largest = 0;
    SLUICE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int32_t own = MagnitudeOf(x[i]);
      largest = own > largest ? own : largest;
    }
    const EightBits bits = EightBitsOf(LargestOf(block, largest));
    const QuantizedRows& to = a.to.rows;
    if (block.lane() == 0) {
      to.scales[row * (a.x.cols / kElements) + b] = bits.scale;
    }
    SLUICE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int64_t place = row * a.x.cols + at + i * kWarpLanes;
      const int32_t code = bits.Code(x[i]);
      to.codes[place] = static_cast<int8_t>(code);
      int32_t sum = code;
      SLUICE_UNROLL
      for (int mask = 8; mask > 0; mask /= 2) {
        sum += block.ShuffleXor(sum, mask);
      }
      if (block.lane() % 16 == 0) {
        to.sums[place / 16] = static_cast<int16_t>(sum);
      }
    }
    return bits.finite;
  }
  static void Start(Stream stream, const Args& a) {
    Launch<QuantizeKernel>(stream, a.x.rows * kFinitePieces, kSharedBytes, a);
  }
};

}  // namespace

void QuantizeRows(Stream stream, ConstMatrix x, const FlaggedRows& to) {
  const QuantizedRows& rows = to.rows;
  SLUICE_CHECK(x.rows == rows.rows && x.cols == rows.cols);
  SLUICE_CHECK(x.cols % rows.block == 0);
  if (rows.block == kShortBlock) {
    return QuantizeKernel<kShortBlock>::Start(stream, {x, to});
  }
  SLUICE_CHECK(rows.block == kLongBlock);
  QuantizeKernel<kLongBlock>::Start(stream, {x, to});
}

}  // namespace sluice::kernels::cuda
