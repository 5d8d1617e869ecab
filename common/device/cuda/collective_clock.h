#ifndef SLUICE_COMMON_DEVICE_CUDA_COLLECTIVE_CLOCK_H_
#define SLUICE_COMMON_DEVICE_CUDA_COLLECTIVE_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/device/collective_times.h"
#include "kernels/cuda/runtime/runtime.h"

namespace sluice {

// One rank's times in collectives, step by step. The device notes when its
// stream comes to a collective's begin and to its end: a host that only
// enqueues a collective knows nothing of the links. The host reads these
// moments when it has waited for the step's end anyway. Moments are made once,
// and a step whose collectives have too few of them is not measured. Used by
// the rank's thread. The runtime must outlive the clock, which has all of its
// moments.
class CollectiveClock {
 public:
  // What a collective's time counts as.
  using Kind = int64_t CollectiveTimes::*;
  // Collectives of the steps that are not taken: two of some 250 layers.
  static constexpr size_t kMostSpans = 1024;

  // Makes moments of `spans` collectives; 0: none is measured. May allocate
  // memory of the device.
  CollectiveClock(kernels::cuda::Runtime* runtime, size_t spans);

  // A collective begins here on the stream, if it has not begun.
  void Begin(Kind kind);
  // It ends here, if it has begun.
  void End();
  // A collective of the present step is not measured, and so is the step.
  void Skip() { present_.times.measured = false; }
  // The rank's thread has waited for other ranks.
  void NoteWait(int64_t ns) { present_.times.wait_ns += ns; }

  // All of the present step is enqueued.
  void SubmitStep();
  // Returns the times of the oldest step that was submitted and not taken. The
  // stream has done it.
  CollectiveTimes TakeTimes();

 private:
  struct Step {
    CollectiveTimes times;
    uint64_t end = 0;  // of its collectives: the number of the next one
  };
  size_t PlaceOf(uint64_t span) const { return span % kinds_.size(); }

  kernels::cuda::Runtime& runtime_;
  std::vector<Kind> kinds_;  // by place
  uint64_t ended_ = 0;       // collectives so far
  uint64_t taken_ = 0;       // of those
  bool is_open_ = false;     // one has begun
  Step present_;
  std::vector<Step> submitted_;  // oldest first
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_COLLECTIVE_CLOCK_H_
