#ifndef SLUICE_TESTS_GPU_BANDWIDTH_H_
#define SLUICE_TESTS_GPU_BANDWIDTH_H_

#include <string>

#include "common/base/json.h"

namespace sluice::testing {

// Returns a device's rates: read_gb_per_s and copy_gb_per_s (what is read plus
// what is written), the best of several passes over memory beyond every cache,
// and launch_us, of a kernel that does nothing, on a GPU.
Json MeasureBandwidth(const std::string& device);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_GPU_BANDWIDTH_H_
