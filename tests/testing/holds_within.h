// Waiting for what other threads or processes bring about.
#ifndef SLUICE_TESTS_TESTING_HOLDS_WITHIN_H_
#define SLUICE_TESTS_TESTING_HOLDS_WITHIN_H_

#include <chrono>
#include <thread>

#include "common/base/clock.h"

namespace sluice::testing {

// Looks at most four times in a millisecond whether `condition` holds; false
// once `limit` has passed. Sleeps between two looks: another test needs the
// CPU.
template <typename Condition>
bool HoldsWithin(Duration limit, const Condition& condition) {
  const TimePoint deadline = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(250));
  }
  return true;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_HOLDS_WITHIN_H_
