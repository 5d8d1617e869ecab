#include "common/device/cpu/cpu_options.h"

#include <sched.h>

namespace sluice {

std::vector<int> AvailableCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

StatusOr<kernels::Isa> ParseIsa(const std::string& name) {
  using kernels::Isa;
  const Isa best = kernels::DetectIsa();
  if (name == "auto") return best;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (name != kernels::ToString(isa)) continue;
    if (isa > best) {
      return InvalidArgument("isa ", name, ": this CPU has ",
                             kernels::ToString(best), " at most");
    }
    return isa;
  }
  return InvalidArgument("isa must be auto, avx512, avx2 or portable, got '",
                         name, "'");
}

}  // namespace sluice
