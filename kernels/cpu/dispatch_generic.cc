#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {

Isa DetectIsa() { return Isa::kPortable; }

namespace cpu {

const Ops& OpsFor(Isa) { return kPortableOps; }

}  // namespace cpu
}  // namespace sluice::kernels
