#ifndef SLUICE_COMMON_MODEL_MODEL_CONFIG_H_
#define SLUICE_COMMON_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/weights/model_file.h"

namespace sluice {

// How rotary frequencies differ from theta^(-2i/head_dim).
struct RopeScaling {
  enum class Kind {
    kNone,
    kLinear,    // all divided by factor
    kLlama3,    // low ones divided by factor, high ones kept, a ramp between
    kDivisors,  // each divided by its own (GGUF's rope_freqs)
  };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 1.0;
  double original_max_position_embeddings = 0.0;
  std::vector<double> divisors;  // head_dim / 2
  bool operator==(const RopeScaling&) const = default;
};

// What the model is, checked: every size is positive and within limits, and
// they agree with one another. Names are config.json's. A value.
struct ModelConfig {
  std::string model_type;
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;  // divides num_heads
  int32_t head_dim = 0;      // even
  int32_t intermediate_size = 0;
  int32_t vocab_size = 0;
  int32_t max_position_embeddings = 0;
  double rms_norm_eps = 0.0;
  double rope_theta = 0.0;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  int32_t bos_token_id = -1;           // -1: none
  std::vector<int32_t> eos_token_ids;  // of config.json alone; see StopIds
  // Radians per position of each rotary pair [head_dim / 2], scaling applied.
  std::vector<double> inv_freq;

  // Columns of q_proj's and k_proj's outputs.
  int32_t q_size() const { return num_heads * head_dim; }
  int32_t kv_size() const { return num_kv_heads * head_dim; }
  bool operator==(const ModelConfig&) const = default;
};

// Reads config.json's keys. INVALID_ARGUMENT names the key, its limit and its
// value; a model_type that is not built is refused by its name. Keys that
// older files lack have the defaults of transformers' LlamaConfig.
StatusOr<ModelConfig> ParseModelConfig(const Json& config);

// Every tensor that the model needs, with its shape (dtype is left F32),
// embedding first, then layer by layer, final norm and head last.
std::vector<weights::TensorInfo> ExpectedTensors(const ModelConfig& config);

// Whether `model` has these tensors in these shapes and types that we read,
// and no tensor of a layer beyond them. INVALID_ARGUMENT names the tensor and
// both shapes.
Status CheckTensors(const ModelConfig& config, const weights::ModelFile& model);

// Parameters of the whole model; tied embeddings count once.
uint64_t ParameterCount(const ModelConfig& config);
uint64_t ParametersPerLayer(const ModelConfig& config);

// Bytes as stored in the model's files.
struct ModelBytes {
  uint64_t embedding = 0;
  std::vector<uint64_t> layers;
  uint64_t head = 0;  // final norm and lm_head; a tied head counts here not
  uint64_t total() const;
};
// Requires CheckTensors to have passed.
ModelBytes StoredBytes(const ModelConfig& config,
                       const weights::ModelFile& model);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_MODEL_CONFIG_H_
