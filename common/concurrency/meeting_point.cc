#include "common/concurrency/meeting_point.h"

#include "common/base/control_group.h"
#include "common/concurrency/await_change.h"

namespace sluice {

// Spinning with more threads than cores only delays the awaited thread.
MeetingPoint::MeetingPoint(int num_threads)
    : num_threads_(num_threads),
      spin_(num_threads <= UsableCpus() ? kShortSpin
                                        : std::chrono::microseconds::zero()) {}

void MeetingPoint::Arrive() {
  const uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1);
    WakeSleepers(generation_, sleepers_);
    return;
  }
  AwaitChange(generation_, generation, sleepers_, spin_);
}

}  // namespace sluice
