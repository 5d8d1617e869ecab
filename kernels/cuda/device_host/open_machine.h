#ifndef SLUICE_KERNELS_CUDA_DEVICE_HOST_OPEN_MACHINE_H_
#define SLUICE_KERNELS_CUDA_DEVICE_HOST_OPEN_MACHINE_H_

#include <cstdint>
#include <memory>

#include "kernels/cuda/device_host/machine.h"
#include "kernels/cuda/runtime.h"

namespace sluice::kernels::cuda {

// The memory of a machine that is not told another.
inline constexpr uint64_t kMachineMemory = uint64_t{1} << 30;

// Returns a runtime over a Machine of its own, device `index`, with `memory`
// bytes, of which Allocate counts whole ones. Nothing runs before Sync, in
// the order of the calls. New memory is full of NaN. Sync ends the process with
// the Machine's first fault, if it has one.
std::unique_ptr<Runtime> OpenMachine(Schedule schedule, int index = 0,
                                     uint64_t memory = kMachineMemory);

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_KERNELS_CUDA_DEVICE_HOST_OPEN_MACHINE_H_
