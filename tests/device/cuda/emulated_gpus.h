#ifndef SLUICE_TESTS_DEVICE_CUDA_EMULATED_GPUS_H_
#define SLUICE_TESTS_DEVICE_CUDA_EMULATED_GPUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/device/cuda/make_communicators.h"
#include "common/device/device_choice.h"
#include "common/device/make_backends.h"
#include "kernels/cuda/runtime/runtime.h"
#include "tests/device/cuda/fake_nccl.h"

namespace sluice::testing {

// Loads the library that stands for NCCL and tells it `plan`, whose work goes
// to emulated devices' streams. Returns its name, for CommunicatorOptions.
std::string UseFakeNccl(FakeNccl* plan);

// Returns so many emulated GPUs, numbered from 0, or with so much memory each.
std::vector<std::unique_ptr<kernels::cuda::Runtime>> EmulatedGpus(int count);
std::vector<std::unique_ptr<kernels::cuda::Runtime>> EmulatedGpus(
    const std::vector<uint64_t>& memory);

// Processes that are threads of this one: the id of their ranks' devices.
class SharedId {
 public:
  // BackendOptions::share_id of any of them.
  std::string Share(const std::string& own) {
    MutexLock lock(mutex_);
    if (!own.empty()) id_ = own;
    told_.NotifyAll();
    while (id_.empty()) told_.Wait(mutex_);
    return id_;
  }

 private:
  Mutex mutex_;
  CondVar told_;
  std::string id_ ABSL_GUARDED_BY(mutex_);
};

// Backends with an emulated GPU for each rank, connected as `options` say. GPUs
// have `memory` bytes, the last of them for all further ranks; none: enough.
// Of ranks of several processes (BackendOptions::all_ranks) each call makes one
// process's, in a process of its own or on a thread of this one, with GPUs that
// are numbered from 0.
BackendFactory RankedBackends(CommunicatorOptions options,
                              std::vector<uint64_t> memory = {},
                              Numerics numerics = Numerics::kCanonical);
// All ranks' backends, made by `made` as of so many processes, each with as
// many ranks.
BackendFactory BackendsOfProcesses(BackendFactory made, int32_t processes);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_DEVICE_CUDA_EMULATED_GPUS_H_
