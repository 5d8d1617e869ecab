#include <memory>
#include <utility>
#include <vector>

#include "common/device/cuda/cuda_backend.h"
#include "kernels/cuda/device_host/open_machine.h"
#include "tests/device/cuda/device_backends.h"

namespace sluice::testing {

using kernels::cuda::Schedule;

BackendFactory DeviceBackends(Turns turns, Numerics numerics) {
  const Schedule schedule =
      turns == Turns::kForward ? Schedule::kForward : Schedule::kBackward;
  return [schedule, numerics](const BackendOptions& options)
             -> StatusOr<std::vector<std::unique_ptr<Backend>>> {
    const auto table = std::make_shared<VirtualRankTable>(options.ranks);
    std::vector<std::unique_ptr<Backend>> backends;
    for (int32_t rank = 0; rank < options.ranks; ++rank) {
      backends.push_back(MakeCudaBackend({kernels::cuda::OpenMachine(schedule),
                                          options.kv_type, table, rank,
                                          numerics == Numerics::kFast}));
    }
    return backends;
  };
}

std::string NoDevice() { return ""; }

}  // namespace sluice::testing
