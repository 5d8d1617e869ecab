#include <cpuid.h>

#include "kernels/block_matmul.h"
#include "kernels/cpu/block_ops.h"

namespace sluice::kernels {
namespace {

// By cpuid: __builtin_cpu_supports of clang 14 knows no F16C, that of gcc 12
// no AVX-VNNI.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1u) != 0;
}
#ifndef SLUICE_AVX2_AT_MOST
bool HasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax >> 4 & 1u) != 0;
}
#endif

}  // namespace

bool HasDotIsa(DotIsa isa) {
  const Isa best = DetectIsa();
  __builtin_cpu_init();
  switch (isa) {
    case DotIsa::kAvx512Vnni:
      return best == Isa::kAvx512 && __builtin_cpu_supports("avx512vnni");
    case DotIsa::kAvx512:
      return best == Isa::kAvx512;
#ifndef SLUICE_AVX2_AT_MOST
    case DotIsa::kAvxVnni:
      return best >= Isa::kAvx2 && HasF16c() && HasAvxVnni();
#endif
    case DotIsa::kAvx2:
      return best >= Isa::kAvx2 && HasF16c();
    default:
      return isa == DotIsa::kPortable;
  }
}

const cpu::BlockOps& BlockOpsFor(DotIsa isa) {
  switch (isa) {
#ifndef SLUICE_AVX2_AT_MOST
    case DotIsa::kAvx512Vnni:
      return cpu::kAvx512VnniBlockOps;
    case DotIsa::kAvx512:
      return cpu::kAvx512BlockOps;
    case DotIsa::kAvxVnni:
      return cpu::kAvxVnniBlockOps;
#endif
    case DotIsa::kAvx2:
      return cpu::kAvx2BlockOps;
    default:
      return cpu::kSse2BlockOps;
  }
}

}  // namespace sluice::kernels
