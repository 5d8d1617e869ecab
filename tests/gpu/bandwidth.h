#ifndef SLUICE_TESTS_GPU_BANDWIDTH_H_
#define SLUICE_TESTS_GPU_BANDWIDTH_H_

#include <string>

#include "common/base/json.h"

namespace sluice::testing {

// Rates of memory: read_gb_per_s and copy_gb_per_s (what is read plus what is
// written), the best of several passes over memory beyond every cache.

// Returns those of one core, which tries tests/gpu/run where there is no GPU.
Json CpuBandwidth();
// Returns those of a GPU, by its number or id, and launch_us, of a kernel that
// does nothing. In a build with SLUICE_CUDA.
Json GpuBandwidth(const std::string& gpu);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_GPU_BANDWIDTH_H_
