#ifndef SLUICE_COMMON_MODEL_CONFIG_MODEL_CONFIG_H_
#define SLUICE_COMMON_MODEL_CONFIG_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "kernels/route.h"

namespace sluice {

struct TensorTable;

// How rotary frequencies differ from theta^(-2i/rotary_dim).
struct RopeScaling {
  enum class Kind {
    kNone,
    kLinear,    // all divided by factor
    kLlama3,    // low ones divided by factor, high ones kept, a ramp between
    kYarn,      // as llama3, the ramp over the pairs' indices
    kDivisors,  // each divided by its own (GGUF's rope_freqs)
  };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 1.0;
  double original_max_position_embeddings = 0.0;
  double beta_fast = 32.0;        // yarn
  double beta_slow = 1.0;         // yarn
  bool truncate = true;           // yarn: the ramp's ends are whole pairs
  double attention_factor = 1.0;  // yarn: multiplies cos and sin
  std::vector<double> divisors;   // rotary_dim / 2
  bool operator==(const RopeScaling&) const = default;
};

// The rotary embedding of some layers. A value.
struct RopeConfig {
  double theta = 0.0;
  RopeScaling scaling;
  int32_t rotary_dim = 0;    // even: the first dimensions of a head rotate
  bool interleaved = false;  // pairs (2i, 2i + 1), else (i, i + R/2)
  // Radians per position of each rotary pair [rotary_dim / 2], scaling
  // applied.
  std::vector<double> inv_freq;
  bool operator==(const RopeConfig&) const = default;
};

// The mixture of experts of a model's sparse layers. A value.
struct MoeConfig {
  int32_t num_experts = 0;   // E; 0: the model is dense
  std::vector<bool> sparse;  // of every layer, whether it has experts
  int32_t experts_per_token = 0;
  int32_t intermediate_size = 0;         // of one expert
  int32_t shared_intermediate_size = 0;  // 0: no shared expert
  // The rule by which the router chooses (see kernels/route.h).
  kernels::RouterRule::Score score = kernels::RouterRule::Score::kSoftmax;
  int32_t num_groups = 1;
  int32_t groups_per_token = 1;
  bool normalise = false;
  double scale = 1.0;
  // Above 0: clamped SwiGLU with this limit; 0: SiLU times up.
  double swiglu_limit = 0.0;
  // Gate and up stand in turns, gate first, where tensors hold both.
  bool interleaved = false;
  bool operator==(const MoeConfig&) const = default;
};

// What the model is, checked: every size is positive and within limits, and
// they agree with one another. Names are config.json's. A value.
struct ModelConfig {
  std::string model_type;
  const TensorTable* tensors = nullptr;  // the family's (tensor_table.h)
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;       // divides num_heads
  int32_t head_dim = 0;           // even
  int32_t intermediate_size = 0;  // of dense layers
  int32_t vocab_size = 0;
  int32_t max_position_embeddings = 0;
  double rms_norm_eps = 0.0;
  std::vector<RopeConfig> ropes = {{}};
  std::vector<int32_t> layer_ropes;  // of each layer, in ropes; empty: all 0
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool qk_norm = false;  // RMS norm of every head of q and k
  // Tokens that each layer sees, itself included, 0: all; empty: all see all.
  std::vector<int32_t> windows;
  MoeConfig moe;
  // Layers behind the last that plain inference leaves aside (MTP), if the
  // files have them.
  int32_t num_nextn_predict_layers = 0;
  int32_t bos_token_id = -1;           // -1: none
  std::vector<int32_t> eos_token_ids;  // of config.json alone; see StopIds

  // Columns of q_proj's and k_proj's outputs.
  int32_t q_size() const { return num_heads * head_dim; }
  int32_t kv_size() const { return num_kv_heads * head_dim; }
  bool is_sparse(int32_t layer) const {
    const auto at = static_cast<size_t>(layer);
    return at < moe.sparse.size() && moe.sparse[at];
  }
  int32_t window(int32_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  size_t rope(int32_t layer) const {  // in ropes
    const auto at = static_cast<size_t>(layer);
    return layer_ropes.empty() ? 0 : static_cast<size_t>(layer_ropes[at]);
  }
  bool operator==(const ModelConfig&) const = default;
};

// Reads config.json's keys. INVALID_ARGUMENT names the key, its limit and its
// value; a model_type that is not built is refused by its name. Keys that
// older files lack have the defaults of transformers' class for the type.
StatusOr<ModelConfig> ParseModelConfig(const Json& config);

// The first and the last sparse layer, both included; of a model with experts.
struct LayerSpan {
  int32_t first = 0;
  int32_t last = 0;
};
LayerSpan SparseSpan(const ModelConfig& config);
// Which layers have experts, as "1-4" or "0-2, 5"; empty: none.
std::string SparseLayers(const ModelConfig& config);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_MODEL_CONFIG_H_
