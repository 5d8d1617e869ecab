#ifndef SLUICE_TESTS_TESTING_SHARED_DATA_H_
#define SLUICE_TESTS_TESTING_SHARED_DATA_H_

#include <optional>
#include <string>
#include <string_view>

namespace sluice::testing {

// Path of `relative` ("data/vocab/llama2-tokenizer.model") within the shared
// test data: the folder named by the environment's SLUICE_SHARED, else
// `../shared` beside the checkout. nullopt if it is not there: the test then
// skips and says so.
std::optional<std::string> SharedData(std::string_view relative);

// SmolLM2-135M-Instruct.Q4_1.gguf: the file named by the environment's
// SLUICE_SMOLLM2, else the one that deploy/local/up keeps in the user's cache
// ($XDG_CACHE_HOME or ~/.cache, sluice/models). nullopt if it is not there.
std::optional<std::string> SmolLm2Path();

// Whole file as bytes; aborts the test if it cannot be read.
std::string ReadFileOrDie(const std::string& path);

}  // namespace sluice::testing

// First line of a test that needs `relative`: defines `path`, or skips.
#define SLUICE_REQUIRE_SHARED(path, relative)                           \
  const auto path##_found = ::sluice::testing::SharedData(relative);    \
  if (!path##_found) {                                                  \
    GTEST_SKIP() << "needs the shared test data: " << (relative)        \
                 << " (set SLUICE_SHARED to the folder that holds it)"; \
  }                                                                     \
  const std::string& path = *path##_found

// First line of a test that needs the real model: defines `path`, or skips.
#define SLUICE_REQUIRE_SMOLLM2(path)                                     \
  const auto path##_found = ::sluice::testing::SmolLm2Path();            \
  if (!path##_found) {                                                   \
    GTEST_SKIP() << "needs SmolLM2-135M-Instruct.Q4_1.gguf (fetched by " \
                    "deploy/local/up, or named by SLUICE_SMOLLM2)";      \
  }                                                                      \
  const std::string& path = *path##_found

#endif  // SLUICE_TESTS_TESTING_SHARED_DATA_H_
