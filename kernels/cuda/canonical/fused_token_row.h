#ifndef SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_ROW_H_
#define SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_ROW_H_

#include <cuda_device/device.h>

#include <cstddef>
#include <cstdint>

#include "kernels/block_format.h"
#include "kernels/cuda/runtime/matrix_fragments.h"
#include "kernels/cuda/shared/math.h"
#include "kernels/cuda/shared/sum_of_squares.h"

namespace sluice::kernels::cuda {

// A row of floats, and the norm that comes before: y = RmsNorm(x), or x.
struct TokenRowArgs {
  const float* x;       // [cols], 16-byte aligned
  const float* norm;    // the same, or null
  const int32_t* rows;  // x is row rows[0] of what begins there; or null
  int64_t stride;       // of those rows
  int32_t cols;         // a multiple of the blocks' elements
  float eps;
};

// A token's activations of eight bits (block_matmul.h) in shared memory: four
// codes a word; sums of kSub codes, 16 or 32. Behind the last block are zeros,
// up to a multiple of 256 elements.
template <int kElements, int kSub>
struct TokenRow {
  Shared<uint32_t> codes;
  Shared<float> scales;
  Shared<int16_t> sums;

  static constexpr SLUICE_DEVICE int64_t Padded(int64_t cols) {
    return (cols + kLongBlock - 1) / kLongBlock * kLongBlock;
  }
  // Arrays begin at multiples of 16 bytes.
  static size_t SharedBytes(int64_t cols) {
    const auto padded = static_cast<size_t>(Padded(cols));
    return padded + (padded / kElements * sizeof(float) + 15) / 16 * 16 +
           padded / kSub * sizeof(int16_t);
  }
  SLUICE_DEVICE TokenRow(Block& block, int64_t cols)
      : codes(block.Allocate<uint32_t>(Padded(cols) / 4)),
        scales(block.Allocate<float>(Padded(cols) / kElements)),
        sums(block.Allocate<int16_t>(Padded(cols) / kSub)) {}
};

// Takes a row, which kernels before write, to shared memory. A warp has runs of
// kRun elements, a lane kSpan quads of a run.
template <int kElements, int kSub, int kThreads>
class TokenRowTaker {
  // Of short blocks, the zeros behind are a sum's.
  static_assert(kSub == kShortBlock || kElements == kLongBlock);

 public:
  static constexpr int kWarps = kThreads / kWarpLanes;
  static constexpr int kSpan = kElements == kLongBlock ? 2 : 1;
  static constexpr int kRun = kSpan * 4 * kWarpLanes;
  // Quads of a thread at once, and of a row that is normed.
  static constexpr int kOwn = 4;
  static constexpr int kNormed = 2;
  using Row = TokenRow<kElements, kSub>;

  // Asks for the norm's first weights, and for the row's number, both of which
  // are there before the inputs are.
  SLUICE_DEVICE TokenRowTaker(Block& block, const TokenRowArgs& args)
      : block_(block),
        args_(args),
        x_(args.rows == nullptr ? args.x
                                : args.x + args.rows[0] * args.stride) {
    if (args.norm != nullptr) Load(args.norm, 0, weights_);
  }
  // All threads call. `room`: the row's floats, if there is a norm, and one
  // more. Returns whether the thread's elements are finite.
  SLUICE_DEVICE bool Take(const Row& row, const Shared<float>& room) {
    const int pad = static_cast<int>(Row::Padded(args_.cols)) - args_.cols;
    if (4 * block_.thread() < pad) {
      row.codes.Set(args_.cols / 4 + block_.thread(), 0);
    }
    if (kShortBlock * block_.thread() < pad) {
      row.scales.Set(args_.cols / kShortBlock + block_.thread(), 0.0f);
      row.sums.Set(args_.cols / kShortBlock + block_.thread(), 0);
    }
    block_.WaitForInputs();
    bool finite = true;
    if (args_.norm == nullptr) {
      for (int begin = 0; begin < args_.cols; begin += BatchOf(kOwn)) {
        Quad own[kOwn];
        Load(x_, begin, own);
        finite = Quantize(row, begin, own) && finite;
      }
      return finite;
    }
    const float scale = ScaleOf(room);
    for (int begin = 0; begin < args_.cols; begin += BatchOf(kNormed)) {
      if (begin > 0) Load(args_.norm, begin, weights_);
      Quad normed[kNormed];
      LoadNormed(room, begin, scale, normed);
      finite = Quantize(row, begin, normed) && finite;
    }
    return finite;
  }

 private:
  // Columns that all threads have at once.
  static constexpr SLUICE_DEVICE int BatchOf(int quads) {
    return quads / kSpan * kWarps * kRun;
  }
  // The column of the thread's quad j from column `begin` on.
  SLUICE_DEVICE int ColumnOf(int begin, int j) const {
    return begin + (j / kSpan * kWarps + block_.warp()) * kRun +
           (j % kSpan * kWarpLanes + block_.lane()) * 4;
  }
  template <int kCount>
  SLUICE_DEVICE void Load(const float* from, int begin,
                          Quad (&own)[kCount]) const {
    SLUICE_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const int column = ColumnOf(begin, j);
      own[j] = {};
      if (column < args_.cols) own[j] = LoadQuad(from + column);
    }
  }
  // Puts the row into `room`. Returns what RmsNorm multiplies it by.
  SLUICE_DEVICE float ScaleOf(const Shared<float>& room) {
    for (int begin = 0; begin < args_.cols; begin += BatchOf(kOwn)) {
      Quad own[kOwn];
      Load(x_, begin, own);
      SLUICE_UNROLL
      for (int j = 0; j < kOwn; ++j) {
        const int column = ColumnOf(begin, j);
        if (column < args_.cols) StoreQuad(room, column, own[j]);
      }
    }
    block_.Sync();
    if (block_.warp() == 0) {
      const float lane = block_.lane() < 16
                             ? SquaresOfLane(block_, room, args_.cols, 0.0f)
                             : 0.0f;
      const float mean =
          SumLanes(block_, lane) / static_cast<float>(args_.cols);
      if (block_.lane() == 0) {
        room.Set(args_.cols, 1.0f / SquareRoot(mean + args_.eps));
      }
    }
    block_.Sync();
    return room.Get(args_.cols);
  }
  // The thread's quads of the normed row.
  SLUICE_DEVICE void LoadNormed(const Shared<float>& room, int begin,
                                float scale, Quad (&own)[kNormed]) const {
    SLUICE_UNROLL
    for (int j = 0; j < kNormed; ++j) {
      const int column = ColumnOf(begin, j);
      own[j] = {};
      if (column >= args_.cols) continue;
      const Quad x = LoadQuad(room, column);
      SLUICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        own[j].values[i] = x.values[i] * scale * weights_[j].values[i];
      }
    }
  }
  // Quantizes the thread's quads, with others of its warp.
  template <int kCount>
  SLUICE_DEVICE bool Quantize(const Row& row, int begin,
                              const Quad (&own)[kCount]) {
    bool finite = true;
    SLUICE_UNROLL
    for (int j = 0; j < kCount; j += kSpan) {
      // Whole warps have nothing.
      if (ColumnOf(begin, j) - 4 * block_.lane() >= args_.cols) break;
      int32_t largest = 0;
      SLUICE_UNROLL
      for (int i = 0; i < 4 * kSpan; ++i) {
        const int32_t one = MagnitudeOf(own[j + i / 4].values[i % 4]);
        largest = one > largest ? one : largest;
      }
      const EightBits bits = EightBitsOf(LargestOfBlock(largest));
      finite = bits.finite && finite;
      SLUICE_UNROLL
      for (int k = j; k < j + kSpan; ++k) {
        Store(row, ColumnOf(begin, k), own[k], bits);
      }
    }
    return finite;
  }
  SLUICE_DEVICE int32_t LargestOfBlock(int32_t largest) {
    if constexpr (kElements == kLongBlock) {
      return static_cast<int32_t>(block_.Most(static_cast<uint32_t>(largest)));
    } else {
      SLUICE_UNROLL
      for (int mask = 4; mask > 0; mask /= 2) {
        const int32_t other = block_.ShuffleXor(largest, mask);
        largest = other > largest ? other : largest;
      }
      return largest;
    }
  }
  // Stores a quad; kSub / 4 lanes have a sum, and those of a block its scale.
  SLUICE_DEVICE void Store(const Row& row, int column, const Quad& own,
                           const EightBits& bits) {
    uint32_t word = 0;
    int32_t sum = 0;
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int32_t code = bits.Code(own.values[i]);
      word |= (static_cast<uint32_t>(code) & 0xFFu) << (8 * i);
      sum += code;
    }
    SLUICE_UNROLL
    for (int mask = kSub / 8; mask > 0; mask /= 2) {
      sum += block_.ShuffleXor(sum, mask);
    }
    if (column >= args_.cols) return;
    row.codes.Set(column / 4, word);
    if (column % kSub == 0) {
      row.sums.Set(column / kSub, static_cast<int16_t>(sum));
    }
    if (column % kElements == 0) row.scales.Set(column / kElements, bits.scale);
  }

  Block& block_;
  const TokenRowArgs& args_;
  const float* const x_;
  Quad weights_[kNormed] = {};
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_CANONICAL_FUSED_TOKEN_ROW_H_
