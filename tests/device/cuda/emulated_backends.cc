#include <memory>
#include <utility>
#include <vector>

#include "common/device/cuda/make_cuda_ranks.h"
#include "tests/cuda_machine/open_machine.h"
#include "tests/device/cuda/device_backends.h"
#include "tests/device/cuda/emulated_gpus.h"

namespace sluice::testing {

using kernels::cuda::Schedule;

BackendFactory DeviceBackends(Turns turns, Numerics numerics) {
  const Schedule schedule =
      turns == Turns::kForward ? Schedule::kForward : Schedule::kBackward;
  return [schedule, numerics](const BackendOptions& options) {
    std::vector<std::unique_ptr<kernels::cuda::Runtime>> runtimes;
    for (int32_t rank = 0; rank < options.ranks; ++rank) {
      runtimes.push_back(kernels::cuda::OpenMachine(schedule));
    }
    return MakeCudaRanks(std::move(runtimes), options.kv_type,
                         numerics == Numerics::kFast);
  };
}

std::string NcclToTest(FakeNccl* plan) { return UseFakeNccl(plan); }

std::string NoDevice() { return ""; }

}  // namespace sluice::testing
