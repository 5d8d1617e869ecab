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

StatusOr<CpuIsa> ParseIsa(const std::string& name) {
  using kernels::DotIsa;
  using kernels::Isa;
  const Isa widest = kernels::DetectIsa();
  const DotIsa best = kernels::DotIsaFor(widest);
  if (name == "auto") return CpuIsa{best, widest};
  static constexpr CpuIsa kIsas[] = {
      {DotIsa::kPortable, Isa::kPortable}, {DotIsa::kAvx2, Isa::kAvx2},
      {DotIsa::kAvxVnni, Isa::kAvx2},      {DotIsa::kAvx512, Isa::kAvx512},
      {DotIsa::kAvx512Vnni, Isa::kAvx512}, {DotIsa::kNeon, Isa::kNeon},
      {DotIsa::kNeonDot, Isa::kNeon},      {DotIsa::kNeonI8mm, Isa::kNeon}};
  for (const CpuIsa& isa : kIsas) {
    if (name != kernels::ToString(isa.dot)) continue;
    if (!kernels::HasIsa(isa.vectors) || !kernels::HasDotIsa(isa.dot)) {
      return InvalidArgument("isa ", name, ": this CPU has ",
                             kernels::ToString(best), " at most");
    }
    return isa;
  }
  return InvalidArgument(
      "isa must be auto, avx512vnni, avx512, avxvnni, avx2, neoni8mm, "
      "neondot, neon or portable, got '",
      name, "'");
}

}  // namespace sluice
