#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {

Isa DetectIsa() {
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#ifndef SLUICE_AVX2_AT_MOST
  if (avx2 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
#endif
  return avx2 ? Isa::kAvx2 : Isa::kPortable;
}

bool HasIsa(Isa isa) { return isa != Isa::kNeon && isa <= DetectIsa(); }

namespace cpu {

const Ops& OpsFor(Isa isa) {
  switch (isa) {
#ifndef SLUICE_AVX2_AT_MOST
    case Isa::kAvx512:
      return kAvx512Ops;
#endif
    case Isa::kAvx2:
      return kAvx2Ops;
    default:
      return kSse2Ops;
  }
}

}  // namespace cpu
}  // namespace sluice::kernels
