#ifndef SLUICE_TESTS_TESTING_ALLOCATION_COUNT_H_
#define SLUICE_TESTS_TESTING_ALLOCATION_COUNT_H_

#include <cstddef>

namespace sluice::testing {

// What the process has asked of malloc, in whatever language: a binary that
// links allocation_count.cc has its own malloc, which counts and passes on.
// Not for builds with a sanitizer, which bring theirs.
struct AllocationCount {
  size_t total_bytes = 0;  // ever asked for
  size_t peak_bytes = 0;   // held at once, above what was held at the start
};

// Starts to count anew.
void StartAllocationCount();
AllocationCount TakeAllocationCount();

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_ALLOCATION_COUNT_H_
