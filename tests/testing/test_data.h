#ifndef SLUICE_TESTS_TESTING_TEST_DATA_H_
#define SLUICE_TESTS_TESTING_TEST_DATA_H_

#include <optional>
#include <string>
#include <string_view>

namespace sluice::testing {

// Path of `relative` ("tokenizers/qwen3") within build/data, which
// tests/test_data/fetch.py makes from published packages; the environment's
// SLUICE_TEST_DATA names another folder. nullopt if it is not there: the test
// then skips and says so.
std::optional<std::string> TestData(std::string_view relative);

// Whole file as bytes; aborts the test if it cannot be read.
std::string ReadFileOrDie(const std::string& path);

}  // namespace sluice::testing

// First line of a test that needs `relative`: defines `path`, or skips.
#define SLUICE_REQUIRE_TEST_DATA(path, relative)                   \
  const auto path##_found = ::sluice::testing::TestData(relative); \
  if (!path##_found) {                                             \
    GTEST_SKIP() << "needs build/data/" << (relative)              \
                 << ", which tests/test_data/fetch.py makes";      \
  }                                                                \
  const std::string& path = *path##_found

#endif  // SLUICE_TESTS_TESTING_TEST_DATA_H_
