#ifndef SLUICE_TESTS_KERNELS_CUDA_BOTH_WAYS_H_
#define SLUICE_TESTS_KERNELS_CUDA_BOTH_WAYS_H_

#include <cuda_device/device.h>

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/kernel_tester.h"

namespace sluice::kernels::cuda {

// Runs op(stream) with threads and blocks forward, then backward; each returns
// a vector of floats. Expects no faults and the same bits; returns them.
template <typename Op>
std::vector<float> BothWays(const Op& op) {
  Machine forward(Schedule::kForward);
  const std::vector<float> result = op(&forward);
  EXPECT_THAT(forward.faults(), testing::IsEmpty());
  Machine backward(Schedule::kBackward);
  EXPECT_TRUE(SameBits(op(&backward), result))
      << "threads race in device memory";
  EXPECT_THAT(backward.faults(), testing::IsEmpty());
  return result;
}

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_KERNELS_CUDA_BOTH_WAYS_H_
