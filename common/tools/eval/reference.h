#ifndef SLUICE_COMMON_TOOLS_EVAL_REFERENCE_H_
#define SLUICE_COMMON_TOOLS_EVAL_REFERENCE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace sluice::eval {

// A trusted implementation's answer to one prompt. Any field after `ids` may be
// empty; the others are compared.
struct ReferencePrompt {
  std::string name;
  std::vector<int64_t> ids;             // [T]
  std::vector<double> prompt_logprobs;  // [T], per id; the first is NaN
  std::vector<float> logits;            // [T, V], after each id
  size_t vocab_size = 0;                // V
  std::vector<int64_t> greedy_ids;      // [G]
  std::vector<double> greedy_logprobs;  // [G]
  std::vector<double> gaps;             // [G], between the two best logits
  // [T + G], the likeliest ids of each position with their log probabilities,
  // falling; the first position has none.
  std::vector<std::vector<std::pair<int64_t, double>>> top;
};

// Reads a reference:
//   a folder, or its expected.safetensors: prompt_N.ids (I64), and if there
//     are any prompt_N.logits (F32 [T, V]) and prompt_N.greedy_ids (I64);
//   a JSON file: {"prompts": [{"ids": [..], "prompt_logprobs": [null, ..],
//     "logits": [[..], ..], "greedy_ids": [..], "greedy_logprobs": [..],
//     "gaps": [..], "top_ids": [[], [..], ..], "top_logprobs": [[], [..], ..],
//     "name": ".."}, ..]}; "prompt_ids" and "logprobs" may stand for "ids" and
//     "greedy_logprobs".
// INVALID_ARGUMENT names the prompt and the field that is wrong.
StatusOr<std::vector<ReferencePrompt>> ReadReference(const std::string& path);

// Returns the JSON form of `prompts`, without logits.
std::string ReferenceJson(const std::string& made_by,
                          const std::vector<ReferencePrompt>& prompts);

// Returns the prompts of a file of JSON lines {"prompt": text or token ids},
// each as JSON. INVALID_ARGUMENT names the bad line.
StatusOr<std::vector<std::string>> ReadPromptLines(const std::string& path);

// Returns the log softmax of `row`, in double precision.
std::vector<double> LogSoftmax(const float* row, size_t size);

}  // namespace sluice::eval

#endif  // SLUICE_COMMON_TOOLS_EVAL_REFERENCE_H_
