#ifndef SLUICE_KERNELS_CUDA_SHARED_TREE_SUM_H_
#define SLUICE_KERNELS_CUDA_SHARED_TREE_SUM_H_

#include <cuda_device/device.h>

#include <cstdint>

#include "kernels/cuda/runtime/matrix_fragments.h"

namespace sluice::kernels::cuda {

// The sum of values at rising leaves of the tree of reduction_tree.h; leaves
// without a value are skipped. A finished aligned node stands for its first
// leaf. Leaves are below 2^23.
class TreeSum {
 public:
  SLUICE_DEVICE TreeSum() {}
  SLUICE_DEVICE bool empty() const { return depth_ == 0; }

  // Whether a's highest bit is below b's.
  static SLUICE_DEVICE bool IsBelow(int32_t a, int32_t b) {
    return a < b && a < (a ^ b);
  }

  SLUICE_DEVICE void Add(int32_t leaf, float value) {
    // The highest bit in which two leaves differ names the node at which they
    // meet: nodes below that of this leaf and the last one are finished.
    const int32_t split = leaf ^ last_;
    while (depth_ > 1 && IsBelow(splits_[depth_ - 1], split)) Join();
    values_[depth_] = value;
    splits_[depth_] = split;
    ++depth_;
    last_ = leaf;
  }

  // Needs a value.
  SLUICE_DEVICE float Root() {
    while (depth_ > 1) Join();
    return values_[0];
  }

 private:
  static constexpr int kMostLevels = 24;

  SLUICE_DEVICE void Join() {
    --depth_;
    values_[depth_ - 1] = values_[depth_ - 1] + values_[depth_];
  }

  float values_[kMostLevels];
  int32_t splits_[kMostLevels];  // of a value and the one before it
  int depth_ = 0;
  int32_t last_ = 0;
};

// The same of at most kMost values of four elements, in registers: what is not
// finished moves by one where a value comes or goes, so no place is computed.
template <int kMost>
class QuadTreeSum {
 public:
  SLUICE_DEVICE QuadTreeSum() {}
  SLUICE_DEVICE bool empty() const { return depth_ == 0; }

  SLUICE_DEVICE void Add(int32_t leaf, const Quad& value) {
    const int32_t split = leaf ^ last_;
    while (depth_ > 1 && TreeSum::IsBelow(splits_[0], split)) Join();
    SLUICE_UNROLL
    for (int i = kMost - 1; i > 0; --i) {
      values_[i] = values_[i - 1];
      splits_[i] = splits_[i - 1];
    }
    values_[0] = value;
    splits_[0] = split;
    ++depth_;
    last_ = leaf;
  }

  // Needs a value.
  SLUICE_DEVICE Quad Root() {
    while (depth_ > 1) Join();
    return values_[0];
  }

 private:
  SLUICE_DEVICE void Join() {
    --depth_;
    SLUICE_UNROLL
    for (int c = 0; c < 4; ++c) {
      values_[0].values[c] = values_[1].values[c] + values_[0].values[c];
    }
    splits_[0] = splits_[1];
    SLUICE_UNROLL
    for (int i = 1; i < kMost - 1; ++i) {
      values_[i] = values_[i + 1];
      splits_[i] = splits_[i + 1];
    }
  }

  Quad values_[kMost] = {};  // the last one first
  int32_t splits_[kMost] = {};
  int depth_ = 0;
  int32_t last_ = 0;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_TREE_SUM_H_
