#ifndef SLUICE_COMMON_DEVICE_CUDA_MAKE_COMMUNICATORS_H_
#define SLUICE_COMMON_DEVICE_CUDA_MAKE_COMMUNICATORS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/device/cuda/collective_watch.h"
#include "common/device/cuda/device_communicator.h"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice {

struct CommunicatorOptions {
  // How ranks with a device each reach the others: `nccl`; `peer`, kernels that
  // read and write the others' memory; `staged`, copies through the host's;
  // `auto`: the first of them that works here.
  std::string link = "auto";
  std::string nccl = "libnccl.so.2";  // see NcclLibrary::Load
  // Whether NCCL's gathers are captured with the launches around them. Off
  // unless the environment asks for it (kernels/cuda/runtime/unconfirmed.h). Of
  // ranks of several processes that of rank 0 decides for all.
  bool nccl_in_graphs = false;
  CollectiveLimits limits;
  // See BackendOptions.
  int32_t first_rank = 0;
  int32_t all_ranks = 0;
  std::function<StatusOr<std::string>(std::string own)> share_id;
};

// Returns OK if a process can have ranks [first, first + count) of `all`, or
// all of them where that is 0; else INVALID_ARGUMENT.
Status CheckOwnRanks(int32_t first, int32_t count, int32_t all);

// Returns every rank's communicator, in order, on the rank's runtime, which
// must outlive it; says in the log which link it is, and why no better one.
// Ranks that gather, by NCCL or through the host, are watched
// (CollectiveWatch); those over one device or each other's memory are not: the
// stage's watch over its loop ends a process whose ranks stand still. Runtimes
// are of one device, or of a device each. Ranks of several processes have a
// device each and NCCL. INVALID_ARGUMENT for another link, or ranks that are
// not so, UNAVAILABLE for a link that does not work here; share_id's errors. Of
// ranks of several processes also FAILED_PRECONDITION where NCCL is not there
// or set to return at once, and RESOURCE_EXHAUSTED for a GPU without memory.
StatusOr<std::vector<std::unique_ptr<DeviceCommunicator>>> MakeCommunicators(
    std::span<kernels::cuda::Runtime* const> runtimes,
    const CommunicatorOptions& options = {});

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_MAKE_COMMUNICATORS_H_
