#ifndef SLUICE_COMMON_DEVICE_CPU_CPU_OPTIONS_H_
#define SLUICE_COMMON_DEVICE_CPU_CPU_OPTIONS_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/context.h"

// What a stage and an expert host take from the machine.
namespace sluice {

// The CPUs that this process may run on; at least one.
std::vector<int> AvailableCpus();

// "auto", "avx512", "avx2" or "portable". INVALID_ARGUMENT for another name
// or for more than this CPU has.
StatusOr<kernels::Isa> ParseIsa(const std::string& name);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_CPU_OPTIONS_H_
