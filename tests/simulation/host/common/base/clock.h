#ifndef SLUICE_TESTS_SIMULATION_HOST_COMMON_BASE_CLOCK_H_
#define SLUICE_TESTS_SIMULATION_HOST_COMMON_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace sluice {

// The clock of the process whose fibre runs.
struct Clock {
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr bool is_steady = true;
  static time_point now() noexcept;
};
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

inline double Seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
inline int64_t ToNanos(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             time.time_since_epoch())
      .count();
}
inline int64_t MonotonicNanos() { return ToNanos(Clock::now()); }

}  // namespace sluice

#endif  // SLUICE_TESTS_SIMULATION_HOST_COMMON_BASE_CLOCK_H_
