#include "common/concurrency/meeting_point.h"

#include "common/base/control_group.h"

namespace sluice {
namespace {

// Long enough to bridge the skew of equal work on idle cores (some tens of
// microseconds), short enough not to take a core from working threads.
constexpr int kSpins = 2000;

inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spinning with more threads than cores only delays the awaited thread.
int SpinsFor(int num_threads) {
  return num_threads <= UsableCpus() ? kSpins : 0;
}

}  // namespace

MeetingPoint::MeetingPoint(int num_threads)
    : num_threads_(num_threads), spins_(SpinsFor(num_threads)) {}

void MeetingPoint::Arrive() {
  const uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    generation_.notify_all();
    return;
  }
  for (int i = 0; i < spins_; ++i) {
    if (generation_.load(std::memory_order_acquire) != generation) return;
    CpuRelax();
  }
  while (generation_.load(std::memory_order_acquire) == generation) {
    generation_.wait(generation, std::memory_order_acquire);
  }
}

}  // namespace sluice
