#ifndef SLUICE_COMMON_DEVICE_CUDA_MAKE_CUDA_RANKS_H_
#define SLUICE_COMMON_DEVICE_CUDA_MAKE_CUDA_RANKS_H_

#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/device/backend.h"
#include "common/device/cuda/make_communicators.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/weight_type.h"

namespace sluice {

// Returns a backend per rank (MakeCudaBackend), connected to each other, on
// runtimes of one device, or of a device each, and says in the log what memory
// each has. INVALID_ARGUMENT for devices of several architectures with `fast`,
// whose bits would differ; otherwise MakeCommunicators' errors.
StatusOr<std::vector<std::unique_ptr<Backend>>> MakeCudaRanks(
    std::vector<std::unique_ptr<kernels::cuda::Runtime>> runtimes,
    kernels::WeightType kv_type, bool fast,
    const CommunicatorOptions& options = {});

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_MAKE_CUDA_RANKS_H_
