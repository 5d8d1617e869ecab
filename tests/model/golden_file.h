#ifndef SLUICE_TESTS_MODEL_GOLDEN_FILE_H_
#define SLUICE_TESTS_MODEL_GOLDEN_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/ids.h"

namespace sluice::testing {

// What a reference answered to one prompt.
struct GoldenPrompt {
  std::vector<TokenId> ids;
  std::vector<float> logits;        // [T, V], all positions
  std::vector<TokenId> greedy_ids;  // what follows
};

// Reads a golden model's expected.safetensors; aborts the test if it is not
// as its README says.
std::vector<GoldenPrompt> ReadGolden(const std::string& folder);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_GOLDEN_FILE_H_
