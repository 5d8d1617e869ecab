#ifndef SLUICE_COMMON_BASE_CLOCK_H_
#define SLUICE_COMMON_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace sluice {

// Monotonic time of this process. Code never subtracts stamps of two processes.
using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

inline double Seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

// Nanoseconds since an arbitrary start, for trace stamps on the wire.
inline int64_t ToNanos(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             time.time_since_epoch())
      .count();
}
inline int64_t MonotonicNanos() { return ToNanos(Clock::now()); }

}  // namespace sluice

#endif  // SLUICE_COMMON_BASE_CLOCK_H_
