#ifndef SLUICE_COMMON_DEVICE_CPU_CPU_BACKEND_H_
#define SLUICE_COMMON_DEVICE_CPU_CPU_BACKEND_H_

#include <memory>

#include "common/concurrency/thread_team.h"
#include "common/device/backend.h"
#include "common/device/cpu/cpu_options.h"
#include "common/device/cpu/thread_communicator.h"
#include "kernels/block_format.h"
#include "kernels/weight_type.h"

namespace sluice {

struct CpuBackendOptions {
  ThreadTeamOptions team;
  CpuIsa isa;
  kernels::WeightType kv_type = kernels::WeightType::kF32;  // BF16, Q8_0
  kernels::BlockActivations activations = kernels::BlockActivations::kEightBits;
  // Shared by the stage's backends, with this one's number among them.
  std::shared_ptr<RankTable> ranks;
  int rank = 0;
};

// Returns the backend over the kernels of this process's CPU: operations are
// done when they return, spread over a team of threads that includes the
// caller. Device addresses are host addresses.
std::unique_ptr<Backend> MakeCpuBackend(CpuBackendOptions options);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_CPU_BACKEND_H_
