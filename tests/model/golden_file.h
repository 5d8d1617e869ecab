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
  // [K, V]: of the prompt's last positions, from first_position on.
  std::vector<float> last_logits;
  int64_t vocab_size = 0;
  int64_t first_position = 0;
  std::vector<TokenId> greedy_ids;  // what follows
};

// Reads a golden model's expected.safetensors, which tests/golden/make.py
// writes; aborts the test if it is another file.
std::vector<GoldenPrompt> ReadGolden(const std::string& folder);

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_GOLDEN_FILE_H_
