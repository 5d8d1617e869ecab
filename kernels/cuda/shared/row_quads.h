#ifndef SLUICE_KERNELS_CUDA_SHARED_ROW_QUADS_H_
#define SLUICE_KERNELS_CUDA_SHARED_ROW_QUADS_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/runtime/matrix_fragments.h"
#include "kernels/views.h"

namespace sluice::kernels::cuda {

// Rows of floats that blocks cut into pieces, four elements a thread.

// Whether rows begin at multiples of 16 bytes.
inline bool AreAligned(ConstMatrix x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 4 == 0;
}
// Whether rows may be read in aligned groups of four.
inline bool HasQuads(ConstMatrix x) { return AreAligned(x) && x.cols % 4 == 0; }

SLUICE_DEVICE Quad AddQuads(const Quad& a, const Quad& b) {
  Quad sum = {};
  SLUICE_UNROLL
  for (int i = 0; i < 4; ++i) sum.values[i] = a.values[i] + b.values[i];
  return sum;
}

// A thread's elements of a piece from column `begin` on of rows of `end`
// columns: neighbours where there are quads, or kThreads apart.
template <int kThreads>
class OwnFour {
 public:
  static constexpr int64_t kCols = 4 * kThreads;
  SLUICE_DEVICE OwnFour(const Block& block, int64_t begin, int64_t end,
                        bool quads)
      : first_(begin + (quads ? 4 * block.thread() : block.thread())),
        end_(end),
        quads_(quads) {}

  SLUICE_DEVICE int64_t Column(int i) const {
    return first_ + (quads_ ? i : kThreads * i);
  }
  SLUICE_DEVICE bool Has(int i) const { return Column(i) < end_; }
  // Elements that the row has not are 0.
  SLUICE_DEVICE Quad Load(const float* row) const {
    Quad own = {};
    if (quads_) {
      if (Has(0)) own = LoadQuad(row + first_);
      return own;
    }
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (Has(i)) own.values[i] = row[Column(i)];
    }
    return own;
  }
  SLUICE_DEVICE void Store(float* row, const Quad& own) const {
    if (quads_) {
      if (Has(0)) StoreQuad(row + first_, own);
      return;
    }
    SLUICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (Has(i)) row[Column(i)] = own.values[i];
    }
  }

 private:
  int64_t first_;
  int64_t end_;
  bool quads_;
};

// A block's piece of a row: blocks are numbered by row, then piece.
template <int kThreads>
struct RowPiece {
  int64_t row;
  int64_t begin;
  static int64_t Blocks(int64_t rows, int64_t cols) {
    return rows * Pieces(cols);
  }
  SLUICE_DEVICE static RowPiece Of(const Block& block, int64_t cols) {
    const auto index = static_cast<uint32_t>(block.index());
    const auto pieces = static_cast<uint32_t>(Pieces(cols));
    return {index / pieces, index % pieces * int64_t{OwnFour<kThreads>::kCols}};
  }

 private:
  SLUICE_DEVICE static constexpr int64_t Pieces(int64_t cols) {
    return (cols + OwnFour<kThreads>::kCols - 1) / OwnFour<kThreads>::kCols;
  }
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_ROW_QUADS_H_
