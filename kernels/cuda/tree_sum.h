#ifndef SLUICE_KERNELS_CUDA_TREE_SUM_H_
#define SLUICE_KERNELS_CUDA_TREE_SUM_H_

#include <cuda_device/device.h>

#include <cstdint>

namespace sluice::kernels::cuda {

// The sum of values at rising leaves of the tree of reduction_tree.h; leaves
// without a value are skipped. A finished aligned node stands for its first
// leaf. Leaves are below 2^23.
class TreeSum {
 public:
  SLUICE_DEVICE TreeSum() {}
  SLUICE_DEVICE bool empty() const { return depth_ == 0; }

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

  // Whether a's highest bit is below b's.
  static SLUICE_DEVICE bool IsBelow(int32_t a, int32_t b) {
    return a < b && a < (a ^ b);
  }
  SLUICE_DEVICE void Join() {
    --depth_;
    values_[depth_ - 1] = values_[depth_ - 1] + values_[depth_];
  }

  float values_[kMostLevels];
  int32_t splits_[kMostLevels];  // of a value and the one before it
  int depth_ = 0;
  int32_t last_ = 0;
};

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_TREE_SUM_H_
