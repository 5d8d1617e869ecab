#ifndef SLUICE_COMMON_DEVICE_CPU_CPU_BACKEND_H_
#define SLUICE_COMMON_DEVICE_CPU_CPU_BACKEND_H_

#include <memory>

#include "common/concurrency/thread_team.h"
#include "common/device/backend.h"
#include "common/device/cpu/cpu_options.h"
#include "common/device/cpu/thread_communicator.h"

namespace sluice {

struct CpuBackendOptions {
  ThreadTeamOptions team;
  CpuIsa isa;
  // Of all the stage's backends, and this one's number among them.
  std::shared_ptr<RankTable> ranks;
  int rank = 0;
};

// The backend over the kernels of this process's CPU: operations are done
// when they return, spread over a team of threads, one of which is the
// caller. Device addresses are host addresses.
std::unique_ptr<Backend> MakeCpuBackend(CpuBackendOptions options);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_CPU_BACKEND_H_
