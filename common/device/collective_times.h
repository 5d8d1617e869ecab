#ifndef SLUICE_COMMON_DEVICE_COLLECTIVE_TIMES_H_
#define SLUICE_COMMON_DEVICE_COLLECTIVE_TIMES_H_

#include <cstdint>

namespace sluice {

// One rank's times in a step's collectives, in nanoseconds: of its thread on a
// CPU, of its device's stream on a GPU.
struct CollectiveTimes {
  int64_t reduce_ns = 0;  // ReduceTree, Embed
  int64_t gather_ns = 0;  // the gathering of Logits
  int64_t wait_ns = 0;    // of both: its thread waited for the other ranks'
  // Whether the first two have all of the step's collectives.
  bool measured = true;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_COLLECTIVE_TIMES_H_
