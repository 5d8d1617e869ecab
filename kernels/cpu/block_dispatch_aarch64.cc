#include <sys/auxv.h>

#include "kernels/block_matmul.h"
#include "kernels/cpu/block_ops.h"

namespace sluice::kernels {

bool HasDotIsa(DotIsa isa) {
  if (isa == DotIsa::kNeonDot) {
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  }
  if (isa == DotIsa::kNeonI8mm) {
    return HasDotIsa(DotIsa::kNeonDot) &&
           (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  }
  return isa == DotIsa::kNeon || isa == DotIsa::kPortable;
}

const cpu::BlockOps& BlockOpsFor(DotIsa isa) {
  switch (isa) {
    case DotIsa::kNeonI8mm:
      return cpu::kNeonI8mmBlockOps;
    case DotIsa::kNeonDot:
      return cpu::kNeonDotBlockOps;
    case DotIsa::kNeon:
      return cpu::kNeonBlockOps;
    default:
      return cpu::kScalarBlockOps;
  }
}

}  // namespace sluice::kernels
