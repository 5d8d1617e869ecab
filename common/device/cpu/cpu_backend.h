#ifndef SLUICE_COMMON_DEVICE_CPU_CPU_BACKEND_H_
#define SLUICE_COMMON_DEVICE_CPU_CPU_BACKEND_H_

#include <memory>

#include "common/device/backend.h"
#include "kernels/context.h"

namespace sluice {

// The backend over the kernels of this process's CPU. Operations are inline
// calls that spread over context.executor, which must outlive the backend.
// Weights stay as they are handed in: packing for the CPU comes later.
std::unique_ptr<Backend> MakeCpuBackend(const kernels::Context& context,
                                        const BackendShape& shape);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_CPU_BACKEND_H_
