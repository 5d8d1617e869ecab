#ifndef SLUICE_KERNELS_CPU_DISPATCH_H_
#define SLUICE_KERNELS_CPU_DISPATCH_H_

#include <cstdint>

#include "kernels/context.h"
#include "kernels/cpu/ops.h"

namespace sluice::kernels::cpu {

// The functions of `isa`; of the portable set where this build has no code
// for `isa`.
const Ops& OpsFor(Isa isa);

// Number of tasks worth making of `work` multiply-adds: 1 where waking the
// team would cost more than it saves.
int NumTasks(const Context& context, int64_t work);

// Part `index` of [0, count) cut into `parts` contiguous ranges whose inner
// ends are multiples of `align`.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};
Range PartOf(int64_t count, int index, int parts, int64_t align);

}  // namespace sluice::kernels::cpu

#endif  // SLUICE_KERNELS_CPU_DISPATCH_H_
