#ifndef SLUICE_TESTS_DEVICE_CUDA_OP_RESULTS_H_
#define SLUICE_TESTS_DEVICE_CUDA_OP_RESULTS_H_

#include <vector>

namespace sluice::testing {

// An output as floats; every NaN is the same one.
struct OpResult {
  std::vector<float> values;
  bool is_ids = false;  // whole numbers
  bool operator==(const OpResult& other) const = default;
};
using OpResults = std::vector<OpResult>;

bool SameBits(const OpResults& a, const OpResults& b);
// The largest difference, as a share of the largest of the output that is
// wanted; infinite if ids or sizes differ, or a value is not finite. Fast
// numerics are below kMostFastError.
double ErrorOf(const OpResults& got, const OpResults& want);
inline constexpr double kMostFastError = 0.01;

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_DEVICE_CUDA_OP_RESULTS_H_
