// A text that finds too little memory is an exception, and not a shorter text:
// it may be a file's name.
#include <gtest/gtest.h>

#include <new>
#include <string>

#include "common/base/cat.h"
#include "tests/testing/failing_calls.h"

namespace sluice {
namespace {

TEST(CatMemoryTest, ATextIsWholeOrAnException) {
  const std::string part(100'000, 'x');
  const std::string expected = "a" + part + "3b";
  for (const bool lasts : {false, true}) {
    int thrown = 0;
    for (int n = 1; n <= 8; ++n) {
      try {
        const testing::FailingAllocation failing(n, 1, lasts);
        const std::string text = Cat("a", part, 3, "b");
        EXPECT_EQ(text == expected, true) << n;
      } catch (const std::bad_alloc&) {
        ++thrown;
      }
    }
    EXPECT_GT(thrown, 0);
  }
}

}  // namespace
}  // namespace sluice
