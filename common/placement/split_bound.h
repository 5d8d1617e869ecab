#ifndef SLUICE_COMMON_PLACEMENT_SPLIT_BOUND_H_
#define SLUICE_COMMON_PLACEMENT_SPLIT_BOUND_H_

#include <cstdint>
#include <vector>

#include "common/placement/split_costs.h"

namespace sluice::placement {

// A bound below every split of a problem, and machines that nearly reach it.
struct SplitBound {
  double seconds = kNever;  // no split takes less; kNever: no split fits
  std::vector<int32_t> order;
};

// Reckons with layers that are in no order: a machine between the first and the
// last one takes the cheapest run of so many layers, and of four machines on
// half of its shortest hops in and out. Takes time that grows with the cube of
// the machines and the square of the layers; from 17 machines on with the
// machines alone, for a bound that lets the ends be anywhere. The rules' barred
// machines are left out; the other rules are not reckoned with.
SplitBound BoundOf(const SplitProblem& problem);

}  // namespace sluice::placement

#endif  // SLUICE_COMMON_PLACEMENT_SPLIT_BOUND_H_
