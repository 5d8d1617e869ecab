#ifndef SLUICE_COMMON_DEVICE_CUDA_ATTENTION_PASS_H_
#define SLUICE_COMMON_DEVICE_CUDA_ATTENTION_PASS_H_

#include <algorithm>
#include <cstdint>

namespace sluice {

// Floats of attention's partials at once: 64 MiB.
inline constexpr int64_t kAttentionFloats = 1 << 24;

// Tokens whose attention is computed at once, and floats that they need. Those
// rise with the chunks of a token, as StepShapes has it.
struct AttentionPass {
  int64_t rows;
  int64_t floats;
};
// Of the first of `tokens` tokens, with so many floats for each.
inline AttentionPass PassOf(int64_t tokens, int64_t each) {
  const int64_t rows = std::clamp<int64_t>(
      kAttentionFloats / std::max<int64_t>(each, 1), 1, tokens);
  return {rows, std::max(each * rows, rows < tokens ? kAttentionFloats : 0)};
}

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_ATTENTION_PASS_H_
