#ifndef SLUICE_COMMON_CONCURRENCY_MEETING_POINT_H_
#define SLUICE_COMMON_CONCURRENCY_MEETING_POINT_H_

#include <atomic>
#include <cstdint>

namespace sluice {

// A point where a fixed number of threads meet. Waiting threads spin for some
// tens of microseconds, if there is a core for each, and then sleep, so that
// they get out of the way of those that still work.
class MeetingPoint {
 public:
  explicit MeetingPoint(int num_threads);
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  // Returns when all threads have called it; what they wrote before is seen
  // by all after.
  void Arrive();

 private:
  const int num_threads_;
  const int spins_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> generation_{0};
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CONCURRENCY_MEETING_POINT_H_
