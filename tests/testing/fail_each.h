#ifndef SLUICE_TESTS_TESTING_FAIL_EACH_H_
#define SLUICE_TESTS_TESTING_FAIL_EACH_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>
#include <string_view>

#include "tests/testing/failing_calls.h"

namespace sluice::testing {

// Runs `work`, which returns a text, and again with each of its allocations of
// at least `min_bytes` failed once, and failed together with all behind it; of
// more than `most` allocations, as many evenly. `work` then throws
// std::bad_alloc or returns the same text, and returns it when memory is there
// again. Prints how many failures were tried.
template <typename Work>
void ExpectEachFailureThrows(std::string_view what, uint64_t min_bytes,
                             uint64_t most, Work work) {
  const std::string expected = work();
  uint64_t count = 0;
  {
    const FailingAllocation none(0, min_bytes);
    work();
    count = none.count();
  }
  ASSERT_GT(count, 0u) << what;
  uint64_t tried = 0, thrown = 0;
  const uint64_t step = std::max<uint64_t>(1, count / most);
  for (uint64_t n = 1; n <= count; n += step) {
    for (const bool lasts : {false, true}) {
      try {
        const FailingAllocation failing(n, min_bytes, lasts);
        const std::string text = work();
        EXPECT_EQ(text == expected, true) << what << ", allocation " << n;
      } catch (const std::bad_alloc&) {
        ++thrown;
      }
      ++tried;
      ASSERT_EQ(work() == expected, true) << what << ", behind " << n;
    }
  }
  EXPECT_GT(thrown, 0u) << what;
  std::printf(
      "%.*s: %lu allocations of at least %lu bytes, %lu failures, %lu thrown\n",
      static_cast<int>(what.size()), what.data(),
      static_cast<unsigned long>(count), static_cast<unsigned long>(min_bytes),
      static_cast<unsigned long>(tried), static_cast<unsigned long>(thrown));
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_FAIL_EACH_H_
