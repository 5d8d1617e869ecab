#ifndef SLUICE_COMMON_DEVICE_COLLECTIVE_TIMES_H_
#define SLUICE_COMMON_DEVICE_COLLECTIVE_TIMES_H_

#include <algorithm>
#include <cstdint>
#include <span>

namespace sluice {

// One rank's times in a step's collectives, in nanoseconds: of its thread on a
// CPU, of its device's stream on a GPU.
struct CollectiveTimes {
  int64_t reduce_ns = 0;  // ReduceTree, Embed
  int64_t gather_ns = 0;  // the gathering of Logits
  int64_t wait_ns = 0;    // of both: its thread waited for the other ranks'
  // Whether the first two have all of the step's collectives.
  bool measured = true;
  // Its device waited for the other ranks': see NoteDeviceWaits.
  int64_t device_wait_ns = 0;

  int64_t all_ns() const { return reduce_ns + gather_ns; }
};

// Sets the devices' waits in a step of all `ranks`, whose threads do not wait
// for devices. A collective ends for all devices at once, so what a rank's
// collectives take beyond those of the rank with the least is what its device
// waited, less what that rank's did. Nothing is set in a step that is not
// measured.
inline void NoteDeviceWaits(std::span<CollectiveTimes> ranks) {
  if (!std::ranges::all_of(ranks, &CollectiveTimes::measured)) return;
  const auto least =
      std::ranges::min_element(ranks, {}, &CollectiveTimes::all_ns);
  if (least == ranks.end()) return;
  const int64_t least_ns = least->all_ns();
  for (CollectiveTimes& times : ranks) {
    times.device_wait_ns = times.all_ns() - least_ns;
  }
}

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_COLLECTIVE_TIMES_H_
