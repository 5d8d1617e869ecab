#include "tests/device/cuda/emulated_gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/device/cuda/make_cuda_ranks.h"
#include "kernels/cuda/device_host/open_machine.h"

namespace sluice::testing {

using Runtimes = std::vector<std::unique_ptr<kernels::cuda::Runtime>>;
using kernels::cuda::MachineOptions;
using kernels::cuda::OpenMachine;

std::string UseFakeNccl(FakeNccl* plan) {
  plan->enqueue = [](void* stream, std::function<void()> work) {
    static_cast<kernels::cuda::Machine*>(stream)->Enqueue(std::move(work));
  };
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
  return [=](const BackendOptions& backends) mutable {
    memory.resize(static_cast<size_t>(backends.ranks), memory.back());
    options.first_rank = backends.first_rank;
    options.all_ranks = backends.all_ranks;
    options.share_id = backends.share_id;
    return MakeCudaRanks(EmulatedGpus(memory), backends.kv_type,
                         numerics == Numerics::kFast, options);
  };
}

}  // namespace sluice::testing
