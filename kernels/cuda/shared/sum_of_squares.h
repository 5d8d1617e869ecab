#ifndef SLUICE_KERNELS_CUDA_SHARED_SUM_OF_SQUARES_H_
#define SLUICE_KERNELS_CUDA_SHARED_SUM_OF_SQUARES_H_

#include <cuda_device/device.h>

namespace sluice::kernels::cuda {

// A thread's lane of the canonical sum of squares of x[0, count), from `sum`
// on; sixteen threads have one each. What is added next is read meanwhile.
SLUICE_DEVICE float SquaresOfLane(const Block& block, const Shared<float>& x,
                                  int count, float sum) {
  constexpr int kAtOnce = 16;
  constexpr int kStep = 16 * kAtOnce;
  constexpr int kLast = kStep - 16;
  int k = block.lane();
  if (k + kLast < count) {
    float values[kAtOnce];
    SLUICE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) values[i] = x.Get(k + 16 * i);
    for (k += kStep; k + kLast < count; k += kStep) {
      float next[kAtOnce];
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) next[i] = x.Get(k + 16 * i);
      SLUICE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        sum = Fma(values[i], values[i], sum);
        values[i] = next[i];
      }
    }
    SLUICE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) sum = Fma(values[i], values[i], sum);
  }
  for (; k < count; k += 16) sum = Fma(x.Get(k), x.Get(k), sum);
  return sum;
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_SHARED_SUM_OF_SQUARES_H_
