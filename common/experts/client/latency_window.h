#ifndef SLUICE_COMMON_EXPERTS_CLIENT_LATENCY_WINDOW_H_
#define SLUICE_COMMON_EXPERTS_CLIENT_LATENCY_WINDOW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

// The recent times of requests by size, which tell when a request is late.
// Sizes with the same highest bit share a window of the latest 256 requests.
// Used by one thread at a time.
class LatencyWindow {
 public:
  // The time after which a request is late: while its window has fewer than 32
  // requests, and at the least.
  static constexpr int64_t kUnknownNs = 100'000'000;
  static constexpr int64_t kMinNs = 2'000'000;

  // Adds the time of an answered request of `size` >= 1.
  void Add(int64_t size, int64_t nanos);
  // Returns the 99th percentile of requests of this size.
  int64_t LateNanos(int64_t size) const;

 private:
  static constexpr size_t kClasses = 24;
  static constexpr size_t kWindow = 256;
  static constexpr size_t kFewest = 32;
  static constexpr size_t kRefresh = 16;  // additions between two looks

  struct Class {
    std::vector<int64_t> latest;  // a ring once it is full
    size_t next = 0;
    size_t since_refresh = 0;
    int64_t late_ns = kUnknownNs;
  };
  static size_t ClassOf(int64_t size);
  std::array<Class, kClasses> classes_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_EXPERTS_CLIENT_LATENCY_WINDOW_H_
