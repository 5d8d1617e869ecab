#ifndef SLUICE_TESTS_TESTING_DEFAULT_MODEL_H_
#define SLUICE_TESTS_TESTING_DEFAULT_MODEL_H_

#include <optional>
#include <string>

namespace sluice::testing {

// SmolLM2-135M-Instruct.Q4_1.gguf: the file named by the environment's
// SLUICE_SMOLLM2, else the one that deploy/local/up keeps in the user's cache
// ($XDG_CACHE_HOME or ~/.cache, sluice/models). nullopt if it is not there.
std::optional<std::string> SmolLm2Path();

}  // namespace sluice::testing

// First line of a test that needs the real model: defines `path`, or skips.
#define SLUICE_REQUIRE_SMOLLM2(path)                                     \
  const auto path##_found = ::sluice::testing::SmolLm2Path();            \
  if (!path##_found) {                                                   \
    GTEST_SKIP() << "needs SmolLM2-135M-Instruct.Q4_1.gguf (fetched by " \
                    "deploy/local/up, or named by SLUICE_SMOLLM2)";      \
  }                                                                      \
  const std::string& path = *path##_found

#endif  // SLUICE_TESTS_TESTING_DEFAULT_MODEL_H_
