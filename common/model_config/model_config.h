#ifndef SLUICE_COMMON_MODEL_CONFIG_MODEL_CONFIG_H_
#define SLUICE_COMMON_MODEL_CONFIG_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/weights/model_file.h"
#include "kernels/route.h"

namespace sluice {

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
  std::string router;            // "mlp.gate": its tensors' name in a layer
  bool router_bias = false;      // added to the logits
  bool correction_bias = false;  // e_score_correction_bias: selects alone
  bool expert_bias = false;
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
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;       // divides num_heads
  int32_t head_dim = 0;           // even
  int32_t intermediate_size = 0;  // of dense layers
  int32_t vocab_size = 0;
  int32_t max_position_embeddings = 0;
  double rms_norm_eps = 0.0;
  double rope_theta = 0.0;
  RopeScaling rope_scaling;
  int32_t rotary_dim = 0;         // even: the first dimensions of a head rotate
  bool rope_interleaved = false;  // pairs (2i, 2i + 1), else (i, i + R/2)
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool qk_norm = false;  // RMS norm of every head of q and k
  bool attention_sinks = false;
  bool sandwich_norms = false;  // also behind attention and behind the MLP
  bool fused_gate_up = false;   // stored as one tensor, gate rows first
  // Tokens that each layer sees, itself included, 0: all; empty: all see all.
  std::vector<int32_t> windows;
  MoeConfig moe;
  // Layers behind the last that plain inference leaves aside (MTP), if the
  // files have them.
  int32_t num_nextn_predict_layers = 0;
  int32_t bos_token_id = -1;           // -1: none
  std::vector<int32_t> eos_token_ids;  // of config.json alone; see StopIds
  // Radians per position of each rotary pair [rotary_dim / 2], scaling
  // applied.
  std::vector<double> inv_freq;

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

// How a checkpoint keeps the experts of its sparse layers.
enum class ExpertStorage {
  kSeparate,    // mlp.experts.J.{gate,up,down}_proj.weight
  kStacked,     // mlp.experts.gate_up_proj [E, 2F, H], down_proj [E, H, F]
  kTransposed,  // mlp.experts.gate_up_proj [E, H, 2F], down_proj [E, F, H]
  kMxfp4,       // mlp.experts.*_blocks and *_scales, rows as in kStacked
};
const char* ToString(ExpertStorage storage);
// What the tensors' names say; kSeparate for a dense model.
ExpertStorage ExpertStorageOf(const ModelConfig& config,
                              const weights::ModelFile& model);

// Every tensor that the model needs, with its shape, embedding first, then
// layer by layer, final norm and head last. The dtype is U8 for MXFP4's
// blocks and scales and is left F32 for the others.
std::vector<weights::TensorInfo> ExpectedTensors(const ModelConfig& config,
                                                 ExpertStorage storage);

// Whether `model` has these tensors in these shapes and types that we read,
// and no tensor of a layer beyond them (layers left aside excepted).
// INVALID_ARGUMENT names the tensor and both shapes.
Status CheckTensors(const ModelConfig& config, const weights::ModelFile& model);

// Parameters of the whole model, without layers left aside; tied embeddings
// count once. Active: those that one token meets.
uint64_t ParameterCount(const ModelConfig& config);
uint64_t ActiveParameterCount(const ModelConfig& config);
uint64_t LayerParameters(const ModelConfig& config, int32_t layer);

// Bytes as stored in the model's files.
struct ModelBytes {
  uint64_t embedding = 0;
  std::vector<uint64_t> layers;   // experts included
  std::vector<uint64_t> experts;  // of each layer; 0 in dense ones
  uint64_t head = 0;  // final norm and lm_head; a tied head counts here not
  uint64_t left_aside = 0;  // in layers behind the last; not in total()
  uint64_t total() const;
};
// Requires CheckTensors to have passed.
ModelBytes StoredBytes(const ModelConfig& config,
                       const weights::ModelFile& model);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_MODEL_CONFIG_H_
