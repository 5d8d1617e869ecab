#include "common/device/make_backends.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include "common/base/cat.h"
#include "common/base/control_group.h"
#include "common/device/cpu/available_memory.h"
#include "common/device/cpu/cpu_backend.h"
#include "common/device/cpu/cpu_options.h"
#include "common/device/device_choice.h"
#ifdef SLUICE_CUDA
#include "common/device/cuda/cuda_backend.h"
#include "common/device/cuda/make_cuda_ranks.h"
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
using Runtimes = std::vector<std::unique_ptr<kernels::cuda::Runtime>>;

StatusOr<std::unique_ptr<kernels::cuda::Runtime>> OpenGpu(
    const std::string& device, const std::string& gpu) {
  std::string error;
  int index = 0;
  const char* const end = gpu.data() + gpu.size();
  if (std::from_chars(gpu.data(), end, index).ptr != end) {
    index = kernels::cuda::Runtime::Find(gpu, &error);
  }
  auto runtime =
      index < 0 ? nullptr : kernels::cuda::Runtime::Open(index, &error);
  if (runtime != nullptr) return runtime;
  return FailedPrecondition("device ", device, ": ", error);
}

// Opens a runtime per rank, on a GPU each or all on one.
StatusOr<Runtimes> OpenGpus(const std::string& device,
                            const DeviceChoice& choice, int32_t ranks) {
  Runtimes runtimes;
  std::vector<int> seen;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const bool shared = choice.gpus.size() == 1;
    SLUICE_ASSIGN_OR_RETURN(
        auto runtime,
        OpenGpu(device, choice.gpus[static_cast<size_t>(shared ? 0 : rank)]));
    const int index = runtime->facts().index;
    if (!shared && std::find(seen.begin(), seen.end(), index) != seen.end()) {
      return InvalidArgument("device ", device, " names GPU ", index,
                             " twice: ", runtime->facts().id);
    }
    seen.push_back(index);
    runtimes.push_back(std::move(runtime));
  }
  return runtimes;
}

StatusOr<std::vector<std::unique_ptr<Backend>>> MakeCudaBackends(
    const BackendOptions& options, const DeviceChoice& choice,
    Numerics numerics) {
  constexpr int32_t kMaxRanks = 16;  // what a join of nodes takes
  SLUICE_ASSIGN_OR_RETURN(const int32_t ranks,
                          RanksOn(options.device, options.ranks));
  SLUICE_RETURN_IF_ERROR(
      CheckOwnRanks(options.first_rank, ranks, options.all_ranks));
  if (const int32_t all = std::max(ranks, options.all_ranks); all > kMaxRanks) {
    return InvalidArgument("device ", options.device, ": ", all,
                           " ranks, at most ", kMaxRanks, " there can be");
  }
  SLUICE_ASSIGN_OR_RETURN(Runtimes runtimes,
                          OpenGpus(options.device, choice, ranks));
  CommunicatorOptions links;
  links.first_rank = options.first_rank;
  links.all_ranks = options.all_ranks;
  links.share_id = options.share_id;
  return MakeCudaRanks(std::move(runtimes), options.kv_type,
                       numerics == Numerics::kFast, links);
}

StatusOr<std::vector<FoundDevice>> FindGpus(const std::string& device,
                                            const DeviceChoice& choice) {
  SLUICE_ASSIGN_OR_RETURN(
      const Runtimes runtimes,
      OpenGpus(device, choice, static_cast<int32_t>(choice.gpus.size())));
  std::vector<FoundDevice> found;
  for (const auto& runtime : runtimes) {
    const kernels::cuda::DeviceFacts& facts = runtime->facts();
    found.push_back(
        {NameOf(facts), AvailableOf(facts), facts.bytes_per_second});
  }
  return found;
}
#else
Status NoCuda(const std::string& device) {
  return FailedPrecondition(
      "device ", device,
      ": this build has no CUDA; configure one with -DSLUICE_CUDA=ON");
}
StatusOr<std::vector<std::unique_ptr<Backend>>> MakeCudaBackends(
    const BackendOptions& options, const DeviceChoice&, Numerics) {
  return NoCuda(options.device);
}
StatusOr<std::vector<FoundDevice>> FindGpus(const std::string& device,
                                            const DeviceChoice&) {
  return NoCuda(device);
}
#endif

}  // namespace

StatusOr<int> CountGpus() {
#ifdef SLUICE_CUDA
  std::string error;
  const int count = kernels::cuda::Runtime::Count(&error);
  if (count > 0) return count;
  return FailedPrecondition("device cuda: ", error);
#else
  return NoCuda("cuda");
#endif
}

StatusOr<std::vector<FoundDevice>> FindDevices(const std::string& text) {
  SLUICE_ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(text));
  if (choice.cuda) return FindGpus(text, choice);
  return std::vector<FoundDevice>{{"the CPU", AvailableMemory()}};
}

StatusOr<int32_t> StepTokensOn(const std::string& text, int32_t ranks) {
  SLUICE_ASSIGN_OR_RETURN(const DeviceChoice choice, ParseDevice(text));
  if (!choice.cuda) return kStepTokens;
  SLUICE_ASSIGN_OR_RETURN(const auto gpus, FindGpus(text, choice));
  const auto least =
      std::ranges::min_element(gpus, {}, &FoundDevice::available);
  const auto on_each = static_cast<uint64_t>(ranks) / gpus.size();
  return StepTokensOfGpu(least->available / std::max<uint64_t>(on_each, 1));
}

StatusOr<std::vector<std::unique_ptr<Backend>>> MakeBackends(
    const BackendOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const DeviceChoice device,
                          ParseDevice(options.device));
  SLUICE_ASSIGN_OR_RETURN(const Numerics numerics,
                          ParseNumerics(options.numerics, device));
  SLUICE_RETURN_IF_ERROR(
      CheckActivations(options.activations, options.device, options.numerics));
  if (device.cuda) return MakeCudaBackends(options, device, numerics);
  if (options.first_rank != 0 ||
      (options.all_ranks != 0 && options.all_ranks != options.ranks)) {
    return InvalidArgument("ranks of several processes need GPUs, device is ",
                           options.device);
  }
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
    backends.push_back(MakeCpuBackend(
        {team, isa, options.kv_type, options.activations, table, rank}));
  }
  return backends;
}

}  // namespace sluice
