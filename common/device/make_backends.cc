#include "common/device/make_backends.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/base/cat.h"
#include "common/base/control_group.h"
#include "common/device/cpu/cpu_backend.h"
#include "common/device/cpu/cpu_options.h"
#include "common/device/device_choice.h"
#ifdef SLUICE_CUDA
#include "common/device/cuda/cuda_backend.h"
#endif

namespace sluice {
namespace {

// Returns the CPUs to which the team of rank `rank` is pinned; empty: none.
std::vector<int> CpusOf(const BackendOptions& options,
                        const std::vector<int>& cpus, int32_t rank,
                        int32_t per_rank) {
  const size_t first = static_cast<size_t>(rank) * per_rank;
  const size_t needed = static_cast<size_t>(options.ranks) * per_rank;
  if (!options.pin_threads || needed > cpus.size()) return {};
  return {cpus.begin() + static_cast<std::ptrdiff_t>(first),
          cpus.begin() + static_cast<std::ptrdiff_t>(first + per_rank)};
}

#ifdef SLUICE_CUDA
StatusOr<std::vector<std::unique_ptr<Backend>>> MakeCudaBackends(
    const BackendOptions& options, int index, Numerics numerics) {
  constexpr int32_t kMaxRanks = 16;  // what a join of nodes takes
  if (options.ranks > kMaxRanks) {
    return InvalidArgument("device ", options.device, ": ", options.ranks,
                           " ranks, at most ", kMaxRanks, " share a GPU");
  }
  const auto table = std::make_shared<VirtualRankTable>(options.ranks);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    std::string error;
    auto runtime = kernels::cuda::Runtime::Open(index, &error);
    if (runtime == nullptr) {
      return FailedPrecondition("device ", options.device, ": ", error);
    }
    backends.push_back(
        MakeCudaBackend({std::move(runtime), options.kv_type, table, rank,
                         numerics == Numerics::kFast}));
  }
  return backends;
}
#else
StatusOr<std::vector<std::unique_ptr<Backend>>> MakeCudaBackends(
    const BackendOptions& options, int, Numerics) {
  return FailedPrecondition(
      "device ", options.device,
      ": this build has no CUDA; configure one with -DSLUICE_CUDA=ON");
}
#endif

}  // namespace

StatusOr<std::vector<std::unique_ptr<Backend>>> MakeBackends(
    const BackendOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const DeviceChoice device,
                          ParseDevice(options.device));
  SLUICE_ASSIGN_OR_RETURN(const Numerics numerics,
                          ParseNumerics(options.numerics, device));
  if (device.cuda) return MakeCudaBackends(options, device.index, numerics);
  SLUICE_ASSIGN_OR_RETURN(const CpuIsa isa, ParseIsa(options.isa));
  const std::vector<int> cpus = AvailableCpus();
  const int32_t threads = options.threads == 0 ? UsableCpus() : options.threads;
  const int32_t per_rank = std::max(1, threads / options.ranks);
  const auto table = std::make_shared<RankTable>(options.ranks);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    const ThreadTeamOptions team = {
        per_rank, CpusOf(options, cpus, rank, per_rank),
        options.name.empty() ? Cat("rank", rank) : options.name};
    backends.push_back(
        MakeCpuBackend({team, isa, options.kv_type, table, rank}));
  }
  return backends;
}

}  // namespace sluice
