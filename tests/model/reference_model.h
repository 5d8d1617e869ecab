#ifndef SLUICE_TESTS_MODEL_REFERENCE_MODEL_H_
#define SLUICE_TESTS_MODEL_REFERENCE_MODEL_H_

#include <memory>
#include <string>
#include <vector>

#include "common/core/ids.h"

namespace sluice::testing {

// A model folder computed in double with plain loops, one after another, from
// its config.json and its tensors: no cache, no batch, nothing of
// common/model. What rounding and RoPE's angles cost others is measured
// against it. Families: llama, qwen3, qwen3_moe, glm4, glm4_moe, gpt_oss, in
// the layouts that released checkpoints have.
class ReferenceModel {
 public:
  // Aborts the test for a folder that is no such model.
  explicit ReferenceModel(const std::string& folder);
  ~ReferenceModel();

  // Logits at all positions, [T, V].
  std::vector<double> Logits(const std::vector<TokenId>& ids) const;

 private:
  class Impl;
  const std::unique_ptr<const Impl> impl_;
};

// The largest |a - b|, over as many as `b` has.
template <typename A, typename B>
double LargestDifference(const A& a, const B& b) {
  double largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double off = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    largest = off > largest ? off : -off > largest ? -off : largest;
  }
  return largest;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_REFERENCE_MODEL_H_
