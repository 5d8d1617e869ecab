#ifndef SLUICE_COMMON_DEVICE_CPU_CPU_OPTIONS_H_
#define SLUICE_COMMON_DEVICE_CPU_CPU_OPTIONS_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/block_matmul.h"
#include "kernels/context.h"

// The CPUs and instruction sets of a stage or an expert host.
namespace sluice {

// The CPUs that this process may run on; at least one.
std::vector<int> AvailableCpus();

// The instruction sets of the products with blocks, and of all other kernels.
struct CpuIsa {
  kernels::DotIsa dot = kernels::DotIsa::kPortable;
  kernels::Isa vectors = kernels::Isa::kPortable;
};

// Parses "auto", or a DotIsa's name: avx512vnni, avx512, avxvnni, avx2,
// neoni8mm, neondot, neon, portable. INVALID_ARGUMENT for another name, or an
// instruction set that this CPU lacks.
StatusOr<CpuIsa> ParseIsa(const std::string& name);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_CPU_OPTIONS_H_
