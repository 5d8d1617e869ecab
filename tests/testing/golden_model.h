#ifndef SLUICE_TESTS_TESTING_GOLDEN_MODEL_H_
#define SLUICE_TESTS_TESTING_GOLDEN_MODEL_H_

#include <string>
#include <string_view>
#include <vector>

namespace sluice::testing {

// Folder of the golden model `name` ("qwen3"), which tests/golden/make.py
// makes: in the folder that the environment's SLUICE_GOLDEN names, else in
// build/golden. Throws where it is not there, so that the test fails.
std::string GoldenModel(std::string_view name);

// The reference's answers to ten chats with the default model (SmolLM2).
std::string SmolLm2Chats();

// Names of all golden models: of the recipes in tests/golden.
std::vector<std::string> GoldenModelNames();

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_TESTING_GOLDEN_MODEL_H_
