#ifndef SLUICE_TESTS_MODEL_RANDOM_FP8_LLAMA_H_
#define SLUICE_TESTS_MODEL_RANDOM_FP8_LLAMA_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "tests/weights/model_files.h"
#include "tests/weights/quantised_matrix.h"

namespace sluice::testing {

// Writes the folder of a llama of one layer whose matrices are FP8 with a scale
// per block of 128 rows and columns; the shards of down_proj end at such
// blocks, and those of o_proj, too, if its heads have `head_dim` = 128
// elements. With heads of another length (a multiple of 16) o_proj is F32, of
// values that BF16 has. A row of FP8 weights has about the length 1.
inline void WriteFp8Llama(const TempDir& dir, int64_t vocab,
                          int64_t head_dim = 128) {
  constexpr int64_t kHidden = 256;
  const int64_t query_rows = 4 * head_dim;
  const int64_t key_rows = 2 * head_dim;
  const auto blocks = [](int64_t count) { return (count + 127) / 128; };
  SafetensorsBuilder tensors;
  std::mt19937 random(5);
  const auto matrix = [&](const std::string& stem, int64_t rows, int64_t cols) {
    std::vector<uint8_t> codes(static_cast<size_t>(rows * cols));
    // Up to 2 and of both signs, and some that are subnormal.
    for (uint8_t& code : codes) {
      const uint32_t bits = random();
      code = static_cast<uint8_t>((bits & 0x80) | bits % 0x41);
    }
    std::vector<float> scales;
    for (int64_t i = 0; i < blocks(rows) * blocks(cols); ++i) {
      const auto each = static_cast<float>(1 + i % 3);
      scales.push_back(each / std::sqrt(static_cast<float>(cols)));
    }
    tensors.Tensor(stem + ".weight", "F8_E4M3", {rows, cols}, BytesOf(codes));
    tensors.Tensor(stem + ".weight_scale_inv", "F32",
                   {blocks(rows), blocks(cols)}, BytesOf(scales));
  };
  const auto plain = [&](const std::string& name, std::vector<int64_t> shape,
                         bool is_norm) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      const float each = static_cast<float>(random() >> 8) * 0x1p-24f - 0.5f;
      // Of 16 bits: what BF16 has, too.
      const auto bits = std::bit_cast<uint32_t>(is_norm ? 1.0f + each : each);
      values.push_back(std::bit_cast<float>(bits & 0xFFFF0000u));
    }
    tensors.Tensor(name, "F32", shape, BytesOf(values));
  };
  plain("model.embed_tokens.weight", {vocab, kHidden}, false);
  const std::string layer = "model.layers.0.";
  plain(layer + "input_layernorm.weight", {kHidden}, true);
  matrix(layer + "self_attn.q_proj", query_rows, kHidden);
  matrix(layer + "self_attn.k_proj", key_rows, kHidden);
  matrix(layer + "self_attn.v_proj", key_rows, kHidden);
  if (head_dim == 128) {
    matrix(layer + "self_attn.o_proj", kHidden, query_rows);
  } else {
    plain(layer + "self_attn.o_proj.weight", {kHidden, query_rows}, false);
  }
  plain(layer + "post_attention_layernorm.weight", {kHidden}, true);
  matrix(layer + "mlp.gate_proj", 512, kHidden);
  matrix(layer + "mlp.up_proj", 512, kHidden);
  matrix(layer + "mlp.down_proj", kHidden, 512);
  plain("model.norm.weight", {kHidden}, true);
  plain("lm_head.weight", {vocab, kHidden}, false);
  dir.Write("model.safetensors", tensors.Build());
  dir.Write("config.json", Cat(R"({"model_type": "llama", "hidden_size": 256,
  "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 512, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "max_position_embeddings": 512, "eos_token_id": 2,
  "tie_word_embeddings": false, "quantization_config":
  {"quant_method": "fp8", "weight_block_size": [128, 128]}, "head_dim": )",
                               head_dim, R"(, "vocab_size": )", vocab, "}"));
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_RANDOM_FP8_LLAMA_H_
