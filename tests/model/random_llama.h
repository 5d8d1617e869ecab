#ifndef SLUICE_TESTS_MODEL_RANDOM_LLAMA_H_
#define SLUICE_TESTS_MODEL_RANDOM_LLAMA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "tests/kernels/block_reference.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {

// GGUF's ids of types.
inline uint32_t GgufIdOf(kernels::BlockFormat format) {
  constexpr uint32_t kIds[kernels::kNumBlockFormats] = {
      8, 2, 3, 6, 7, 20, 39, 10, 11, 12, 13, 14, 23};
  return kIds[static_cast<size_t>(format)];
}

inline constexpr uint64_t kRandomVocab = 90;  // no whole groups of rows

// A llama whose matrices are of `formats` in turn, layer by layer: random
// bytes, scaled so that a row of weights has about the length 1.
// `damaged_token`: whose embedding, of Q8_0, is no number; -1: none.
inline GgufBuilder RandomLlama(const std::vector<kernels::BlockFormat>& formats,
                               int damaged_token = -1, int layers = 3) {
  constexpr uint64_t kHidden = 512;
  GgufBuilder gguf;
  gguf.Text("general.architecture", "llama")
      .U32("llama.embedding_length", kHidden)
      .U32("llama.block_count", layers)
      .U32("llama.attention.head_count", 8)
      .U32("llama.attention.head_count_kv", 2)
      .U32("llama.feed_forward_length", 768)
      .U32("llama.context_length", 512)
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .U32("tokenizer.ggml.eos_token_id", 2);
  size_t next = 0;
  const auto matrix = [&](const std::string& name, uint64_t cols,
                          uint64_t rows) {
    const kernels::BlockFormat format = formats[next % formats.size()];
    auto blocks = kernels::RandomBlockRows(format, 77 + next++,
                                           static_cast<int64_t>(rows),
                                           static_cast<int64_t>(cols));
    if (damaged_token >= 0 && name == "token_embd.weight") {
      const size_t row = blocks.size() / rows;
      const size_t at = row * static_cast<size_t>(damaged_token);
      blocks[at] = 0x00;
      blocks[at + 1] = 0x7E;  // an F16 scale that is no number
    }
    gguf.Tensor(name, {cols, rows}, GgufIdOf(format), BytesOf(blocks));
  };
  const auto norm = [&](const std::string& name, float weight) {
    gguf.Tensor(name, {kHidden}, 0,
                BytesOf(std::vector<float>(kHidden, weight)));
  };
  matrix("token_embd.weight", kHidden, kRandomVocab);
  for (int layer = 0; layer < layers; ++layer) {
    const std::string prefix = Cat("blk.", layer, ".");
    // Small norms: attention that is not all on one position.
    norm(prefix + "attn_norm.weight", 0.01f);
    matrix(prefix + "attn_q.weight", kHidden, 512);
    matrix(prefix + "attn_k.weight", kHidden, 128);
    matrix(prefix + "attn_v.weight", kHidden, 128);
    matrix(prefix + "attn_output.weight", 512, kHidden);
    norm(prefix + "ffn_norm.weight", 0.01f);
    matrix(prefix + "ffn_gate.weight", kHidden, 768);
    matrix(prefix + "ffn_up.weight", kHidden, 768);
    matrix(prefix + "ffn_down.weight", 768, kHidden);
  }
  norm("output_norm.weight", 0.05f);
  matrix("output.weight", kHidden, kRandomVocab);
  return gguf;
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_RANDOM_LLAMA_H_
