#include "tests/device/cuda/emulated_gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/device/cuda/make_cuda_ranks.h"
#include "tests/cuda_machine/open_machine.h"

namespace sluice::testing {

using Runtimes = std::vector<std::unique_ptr<kernels::cuda::Runtime>>;
using kernels::cuda::MachineOptions;
using kernels::cuda::OpenMachine;

std::string UseFakeNccl(FakeNccl* plan) {
  plan->enqueue = [](void* stream, std::function<void()> work) {
    static_cast<kernels::cuda::Machine*>(stream)->Enqueue(std::move(work));
  };
  plan->device = &kernels::cuda::AdoptedDevice;
  const std::string name = SLUICE_FAKE_NCCL;
  void* const library = ::dlopen(name.c_str(), RTLD_NOW);
  SLUICE_CHECK(library != nullptr);
  auto* const tell =
      reinterpret_cast<TellFakeNccl*>(::dlsym(library, "SluiceFakeNccl"));
  SLUICE_CHECK(tell != nullptr);
  tell(plan);
  return name;
}

Runtimes EmulatedGpus(const std::vector<uint64_t>& memory) {
  Runtimes runtimes;
  for (size_t i = 0; i < memory.size(); ++i) {
    runtimes.push_back(
        OpenMachine({.index = static_cast<int>(i), .memory = memory[i]}));
  }
  return runtimes;
}

Runtimes EmulatedGpus(int count) {
  return EmulatedGpus(std::vector<uint64_t>(static_cast<size_t>(count),
                                            MachineOptions().memory));
}

BackendFactory RankedBackends(CommunicatorOptions options,
                              std::vector<uint64_t> memory, Numerics numerics) {
  if (memory.empty()) memory = {MachineOptions().memory};
  return [=](const BackendOptions& backends) {
    std::vector<uint64_t> own = memory;
    own.resize(static_cast<size_t>(backends.ranks), memory.back());
    CommunicatorOptions links = options;
    links.first_rank = backends.first_rank;
    links.all_ranks = backends.all_ranks;
    links.share_id = backends.share_id;
    return MakeCudaRanks(EmulatedGpus(own), backends.kv_type,
                         numerics == Numerics::kFast, links);
  };
}

BackendFactory BackendsOfProcesses(BackendFactory made, int32_t processes) {
  using Backends = std::vector<std::unique_ptr<Backend>>;
  return [=](const BackendOptions& all) -> StatusOr<Backends> {
    SharedId id;
    BackendOptions own = all;
    own.ranks = all.ranks / processes;
    own.all_ranks = all.ranks;
    own.share_id = [&id](const std::string& of) { return id.Share(of); };
    std::vector<StatusOr<Backends>> parts(static_cast<size_t>(processes));
    std::vector<std::thread> threads;
    for (auto& part : parts) {
      threads.emplace_back([&part, made, own] { part = made(own); });
      own.first_rank += own.ranks;
    }
    for (auto& thread : threads) thread.join();
    Backends backends;
    for (auto& part : parts) {
      if (!part.ok()) return part.status();
      std::ranges::move(*part, std::back_inserter(backends));
    }
    return backends;
  };
}

}  // namespace sluice::testing
