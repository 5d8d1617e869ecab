#ifndef SLUICE_TESTS_CUDA_MACHINE_OPEN_MACHINE_H_
#define SLUICE_TESTS_CUDA_MACHINE_OPEN_MACHINE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "kernels/cuda/runtime/runtime.h"
#include "tests/cuda_machine/machine.h"

namespace sluice::kernels::cuda {

struct MachineOptions {
  Schedule schedule = Schedule::kForward;
  int index = 0;                        // among devices
  uint64_t memory = uint64_t{1} << 30;  // bytes that Allocate has
  bool reaches_peers = true;            // see Runtime::ReachPeer
  UnconfirmedSet asked = UnconfirmedSet::All();
  // Gets how often the lists launch each kernel; null: it is not counted. Read
  // once the runtime is gone.
  std::map<const void*, int>* launches = nullptr;
  // Bytes of `memory` that other processes hold; null: none.
  const std::atomic<uint64_t>* others = nullptr;
};

// Returns a runtime over a Machine of its own. Nothing runs before Sync, in
// the order of the calls, but that a list's launches begin early
// (begun_launches.h). New memory is full of NaN. Sync ends the process with
// the Machine's first fault, if it has one.
std::unique_ptr<Runtime> OpenMachine(const MachineOptions& options);
inline std::unique_ptr<Runtime> OpenMachine(Schedule schedule) {
  return OpenMachine(MachineOptions{schedule});
}

// Returns the index of the device that the calling thread uses, as CUDA's
// current device: of the last runtime that it opened, adopted or had allocate
// or free memory; 0 at first.
int AdoptedDevice();

}  // namespace sluice::kernels::cuda

#endif  // SLUICE_TESTS_CUDA_MACHINE_OPEN_MACHINE_H_
