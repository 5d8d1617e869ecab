#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {

Isa DetectIsa() { return Isa::kPortable; }
bool HasIsa(Isa isa) { return isa == Isa::kPortable; }

namespace cpu {

const Ops& OpsFor(Isa) { return kScalarOps; }

}  // namespace cpu
}  // namespace sluice::kernels
