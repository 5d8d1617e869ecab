#include "common/device/cuda/make_cuda_ranks.h"

#include <utility>

#include "common/base/log.h"
#include "common/device/cuda/cuda_backend.h"

namespace sluice {
namespace {

void LogMemory(const kernels::cuda::DeviceFacts& device) {
  LogInfo(NameOf(device), ": ", device.free_memory >> 20, " of ",
          device.total_memory >> 20, " MiB are free, ",
          (device.free_memory - AvailableOf(device)) >> 20,
          " MiB of them are kept for the buffers of a step");
}

}  // namespace

StatusOr<std::vector<std::unique_ptr<Backend>>> MakeCudaRanks(
    std::vector<std::unique_ptr<kernels::cuda::Runtime>> runtimes,
    kernels::WeightType kv_type, bool fast,
    const CommunicatorOptions& options) {
  const kernels::cuda::DeviceFacts& first = runtimes[0]->facts();
  std::vector<kernels::cuda::Runtime*> all;
  for (const auto& runtime : runtimes) {
    const kernels::cuda::DeviceFacts& device = runtime->facts();
    all.push_back(runtime.get());
    if (runtime == runtimes[0] || device.index != first.index) {
      LogMemory(device);
    }
    if (!fast || device.architecture == first.architecture) continue;
    return InvalidArgument(
        "fast numerics are of one architecture: ", NameOf(first), " is of ",
        first.architecture, ", ", NameOf(device), " of ", device.architecture);
  }
  SLUICE_ASSIGN_OR_RETURN(auto communicators, MakeCommunicators(all, options));
  const bool alone = all.size() == 1 && options.all_ranks <= 1;
  std::vector<std::unique_ptr<Backend>> backends;
  for (size_t r = 0; r < runtimes.size(); ++r) {
    const bool shared = all[r]->facts().index == first.index;
    backends.push_back(MakeCudaBackend(
        {std::move(runtimes[r]), kv_type, std::move(communicators[r]),
         shared ? 0 : static_cast<int>(r), fast, alone}));
  }
  return backends;
}

}  // namespace sluice
