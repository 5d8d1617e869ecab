#ifndef SLUICE_COMMON_CONCURRENCY_MEETING_POINT_H_
#define SLUICE_COMMON_CONCURRENCY_MEETING_POINT_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sluice {

// A point where a fixed number of threads meet. Waiting threads spin briefly if
// each has a core, then sleep and leave the CPU to working threads.
class MeetingPoint {
 public:
  explicit MeetingPoint(int num_threads);
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  // Returns when all threads have called it. Every thread then sees the others'
  // earlier writes.
  void Arrive();

 private:
  const int num_threads_;
  const std::chrono::microseconds spin_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> generation_{0};
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CONCURRENCY_MEETING_POINT_H_
