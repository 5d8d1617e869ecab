#ifndef SLUICE_COMMON_CONCURRENCY_AWAIT_CHANGE_H_
#define SLUICE_COMMON_CONCURRENCY_AWAIT_CHANGE_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sluice {

// Longer than the serial stretches between two kernels of a decode step and
// the skew of equal work on idle cores, shorter than what another process on
// the same core would notice.
inline constexpr std::chrono::microseconds kShortSpin{40};

// Returns a value of `word` that differs from `old`, or `old` if there is none
// until `deadline`. Spins: see AwaitChange.
uint32_t SpinForChange(const std::atomic<uint32_t>& word, uint32_t old,
                       std::chrono::steady_clock::time_point deadline);

// Returns the first value of `word` that differs from `old`: spins for `spin`,
// then sleeps. std::atomic's wait yields before it sleeps, and a yield beside
// threads that compute costs a whole slice of theirs, some milliseconds on
// Linux 6.6 and later. `sleepers` counts sleeping threads, so that WakeSleepers
// asks the system only for those. The caller sees what was written before the
// change.
uint32_t AwaitChange(const std::atomic<uint32_t>& word, uint32_t old,
                     std::atomic<uint32_t>& sleepers,
                     std::chrono::microseconds spin = kShortSpin);

// Wakes the threads that wait for a change of `word`, which the caller has
// changed with memory_order_seq_cst.
void WakeSleepers(const std::atomic<uint32_t>& word,
                  const std::atomic<uint32_t>& sleepers);

}  // namespace sluice

#endif  // SLUICE_COMMON_CONCURRENCY_AWAIT_CHANGE_H_
