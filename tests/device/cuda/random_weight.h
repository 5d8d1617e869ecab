#ifndef SLUICE_TESTS_DEVICE_CUDA_RANDOM_WEIGHT_H_
#define SLUICE_TESTS_DEVICE_CUDA_RANDOM_WEIGHT_H_

#include <cstdint>

#include "common/device/weight.h"
#include "kernels/weight_type.h"

namespace sluice::testing {

// A weight [rows, cols] of finite elements, the same for the same arguments.
HostWeight RandomWeight(kernels::WeightType type, uint64_t seed, int64_t rows,
                        int64_t cols);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_DEVICE_CUDA_RANDOM_WEIGHT_H_
