#include "kernels/block_matmul.h"
#include "kernels/cpu/block_ops.h"

namespace sluice::kernels {

bool HasDotIsa(DotIsa isa) { return isa == DotIsa::kPortable; }

const cpu::BlockOps& BlockOpsFor(DotIsa) { return cpu::kScalarBlockOps; }

}  // namespace sluice::kernels
