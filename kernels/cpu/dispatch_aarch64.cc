#include "kernels/cpu/dispatch.h"

namespace sluice::kernels {

// Every CPU of this architecture has NEON.
Isa DetectIsa() { return Isa::kNeon; }
bool HasIsa(Isa isa) { return isa == Isa::kNeon || isa == Isa::kPortable; }

namespace cpu {

const Ops& OpsFor(Isa isa) { return isa == Isa::kNeon ? kNeonOps : kScalarOps; }

}  // namespace cpu
}  // namespace sluice::kernels
