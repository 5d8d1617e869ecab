#ifndef SLUICE_COMMON_MODEL_CONFIG_MODEL_CONFIG_H_
#define SLUICE_COMMON_MODEL_CONFIG_MODEL_CONFIG_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/base/status.h"
#include "common/model_config/latent_config.h"
#include "kernels/elementwise.h"
#include "kernels/route.h"
#include "kernels/state_mixer.h"

namespace sluice {

struct TensorTable;
using ReadKeys = std::set<std::string, std::less<>>;  // config_reader.h

// How rotary frequencies derive from theta^(-2i/rotary_dim).
struct RopeScaling {
  enum class Kind {
    kNone,
    kLinear,    // all divided by factor
    kLlama3,    // low ones divided by factor, high ones kept, a ramp between
    kYarn,      // as llama3, with a ramp over the pairs' indices
    kDivisors,  // each divided by its own divisor (GGUF's rope_freqs)
    kLongRope,  // divided by `divisors`, or by `long_divisors` in long contexts
    kDynamic,   // Hunyuan's: theta times alpha^(R / (R - 2))
    kProportional,  // the first share of the pairs turns, the rest stands
  };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 1.0;
  double original_max_position_embeddings = 0.0;
  double beta_fast = 32.0;        // yarn
  double beta_slow = 1.0;         // yarn
  bool truncate = true;           // yarn: the ramp's ends are whole pairs
  double attention_factor = 1.0;  // yarn, longrope: multiplies cos and sin
  double mscale_all_dim = 0.0;    // yarn: of the scores of latent attention
  double alpha = 1.0;             // dynamic
  double share = 1.0;             // proportional: of the pairs that turn
  std::vector<double> divisors;   // rotary_dim / 2
  // longrope: of contexts above original_max_position_embeddings.
  std::vector<double> long_divisors;
  bool operator==(const RopeScaling&) const = default;
};

// The rotary embedding of some layers. A value.
struct RopeConfig {
  double theta = 0.0;
  RopeScaling scaling;
  int32_t rotary_dim = 0;    // even: the first dimensions of a head rotate
  bool interleaved = false;  // pairs (2i, 2i + 1), else (i, i + R/2)
  // Radians per position of each rotary pair [rotary_dim / 2], scaled.
  std::vector<double> inv_freq;
  // longrope: as inv_freq, in contexts above the original's; empty: the same.
  std::vector<double> long_inv_freq;
  bool operator==(const RopeConfig&) const = default;
};

// RMS norms of q and k.
enum class QkNorm : uint8_t {
  kNone,
  kHeads,           // of every head, before RoPE
  kHeadsAfterRope,  // of every head, behind RoPE
  kAllHeads,        // of all heads together, before RoPE
};

// q *= 1 + beta ln(1 + floor(position / original)), behind RoPE. A value.
struct QueryGrowthConfig {
  double beta = 0.0;  // 0: none
  double original = 1.0;
  bool operator==(const QueryGrowthConfig&) const = default;
};

// Attention of one layer. With latent attention there is one kv head: its key
// is the row that the cache keeps, its values are the row's latent part. A
// value.
struct AttentionConfig {
  // A layer without attention has its heads all the same: they tell how the
  // layer's products are cut (rank_plan.h).
  bool present = true;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;  // divides num_heads
  int32_t head_dim = 0;      // even
  int32_t window = 0;        // visible tokens, with the query's own; 0: all
  int32_t rope = 0;          // index into ModelConfig::ropes
  double scale = 1.0;        // of the products of queries and keys
  bool qkv_bias = false;
  bool o_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  bool sinks = false;
  double soft_cap = 0.0;  // of scores: cap * tanh(score / cap); 0: none
  double clip_qkv = 0.0;  // q, k and v within +-clip_qkv; 0: none
  QueryGrowthConfig growth;
  bool gate = false;       // what the heads give, times sigmoid(W x)
  double out_scale = 1.0;  // of what attention adds
  bool v_norm = false;     // RMS norm of every head of v, without a weight
  bool k_is_v = false;     // v is k_proj's output, before norm and RoPE
  int32_t kv_layer = -1;   // the layer that has this one's keys and values
  LatentConfig latent;

  bool is_latent() const { return latent.kv_rank > 0; }
  // Columns of q_proj's and k_proj's outputs.
  int64_t q_size() const { return present ? int64_t{num_heads} * head_dim : 0; }
  int64_t kv_size() const {
    return present ? int64_t{num_kv_heads} * head_dim : 0;
  }
  // Columns of o_proj's input, and those of one head.
  int64_t o_dim() const { return is_latent() ? latent.value_dim : head_dim; }
  int64_t o_size() const { return present ? num_heads * o_dim() : 0; }
  // Elements of a token that the KV cache keeps.
  int64_t cached_size() const {
    if (!is_latent()) return 2 * kv_size();
    return kv_size() + (latent.indexer.own ? latent.indexer.head_dim : 0);
  }
  bool operator==(const AttentionConfig&) const = default;
};

// The norms of one layer. A value.
struct NormConfig {
  double eps = 0.0;
  bool before = true;  // before attention and MLP
  bool after = false;  // behind attention and MLP
  // One norm before both: attention and MLP read the same rows.
  bool parallel = false;
  bool layer_norm = false;  // LayerNorms, else RMS norms
  bool bias = false;        // of LayerNorms
  bool operator==(const NormConfig&) const = default;
};

// The MLP of a dense layer. A value.
struct MlpConfig {
  int32_t intermediate_size = 0;  // 0: the layer has no MLP
  bool bias = false;
  kernels::Activation activation;
  double gate_scale = 1.0;  // of the gate, before the activation
  double out_scale = 1.0;   // of what the MLP adds
  bool operator==(const MlpConfig&) const = default;
};

// The mixer of a layer that carries a state from token to token, in the place
// of attention or beside it. A value.
struct StateConfig {
  kernels::StateMixer mixer;  // over all heads
  bool conv_bias = false;
  double out_scale = 1.0;  // of what it adds
  // Qwen3-Next: q, k and v are one tensor, z another, and not all by key heads.
  bool qkvz_apart = false;
  bool present() const { return mixer.shape.channels > 0; }
  // The least columns of the output projection that a rank holds: those of the
  // heads that share a key, or a norm.
  int64_t unit() const;
  bool operator==(const StateConfig&) const = default;
};

// The experts of a sparse layer. A value.
struct MoeConfig {
  int32_t num_experts = 0;  // E; 0: the layer is dense
  int32_t experts_per_token = 0;
  int32_t intermediate_size = 0;         // of one expert
  int32_t shared_intermediate_size = 0;  // 0: no shared expert
  kernels::Activation activation;        // of the shared expert, too
  // The router's scoring (see kernels/route.h).
  kernels::RouterRule::Score score = kernels::RouterRule::Score::kSoftmax;
  int32_t num_groups = 1;
  int32_t groups_per_token = 1;
  int32_t group_best = 2;  // a group's score is the sum of so many
  bool normalise = false;
  double scale = 1.0;
  double sum_floor = 1e-20;  // normalise divides by the sum and this
  bool correction = false;   // the router adds a bias to choose
  // The shared expert and the experts have norms of their own before and
  // behind them, and the router has another: Gemma 4's MLP beside experts.
  bool own_norms = false;
  bool shared_gate = false;  // the shared expert's output * sigmoid(w x)
  // Gate and up alternate, gate first, in tensors that hold both.
  bool interleaved = false;
  bool operator==(const MoeConfig&) const = default;
};

// One decoder layer. A value.
struct LayerConfig {
  AttentionConfig attention;
  StateConfig state;
  NormConfig norm;
  MlpConfig mlp;
  MoeConfig moe;                // of a sparse layer, without MLP
  double residual_scale = 1.0;  // of what attention and MLP add
  bool own_input = false;       // adds what per_layer_input tells
  bool output_scale = false;    // a tensor has a multiplier of the residual
  // The layer's tensors are a GGUF's where these differ from a checkpoint's: a
  // state's rates of decay for their logarithms, gate and up apart.
  bool of_gguf = false;
  bool is_sparse() const { return moe.num_experts > 0; }
  bool operator==(const LayerConfig&) const = default;
};

// A checked model: every size is positive, within limits and consistent with
// the others. Names are config.json's. A value.
struct ModelConfig {
  std::string model_type;
  const TensorTable* tensors = nullptr;  // the family's (tensor_table.h)
  int32_t hidden_size = 0;
  int32_t vocab_size = 0;
  int32_t max_position_embeddings = 0;
  double rms_norm_eps = 0.0;  // of the norm behind the last layer
  // Norms' weights w stand for 1 + w, those of the heads too.
  bool norms_add_one = false;
  // Elements of each layer's own input, which the token and its embedding tell,
  // and which go along behind the residual; 0: none.
  int32_t per_layer_input = 0;
  double embedding_scale = 1.0;  // of the embedding's rows
  double logit_scale = 1.0;
  double logit_soft_cap = 0.0;  // cap * tanh(logit / cap), last; 0: none
  bool tie_word_embeddings = false;
  std::vector<RopeConfig> ropes = {{}};
  std::vector<LayerConfig> layers;  // each may differ
  // Layers behind the last, which plain inference does not use (MTP), if the
  // files have them.
  int32_t num_nextn_predict_layers = 0;
  int32_t bos_token_id = -1;           // -1: none
  std::vector<int32_t> eos_token_ids;  // of config.json alone; see StopIds

  // Elements of a row between stages: the residual and what goes along.
  int32_t row_size() const {
    return hidden_size + num_layers() * per_layer_input;
  }
  int32_t num_layers() const { return static_cast<int32_t>(layers.size()); }
  bool is_sparse(int32_t layer) const {
    return layers[static_cast<size_t>(layer)].is_sparse();
  }
  // Returns the experts of the first sparse layer; of a dense model, no
  // experts. With remote experts all sparse layers are equal
  // (CheckSameExperts).
  const MoeConfig& moe() const;
  bool operator==(const ModelConfig&) const = default;
};

// Reads the keys of config.json. Absent keys have the defaults of transformers'
// class for the model_type. INVALID_ARGUMENT names the key, its limit and its
// value, or a model_type that is not built.
StatusOr<ModelConfig> ParseModelConfig(const Json& config);
// The same; `read` gets the keys that were asked for.
StatusOr<ModelConfig> ParseAndRecord(const Json& config, ReadKeys& read);

// The first and the last sparse layer, both included, of a model with experts.
struct LayerSpan {
  int32_t first = 0;
  int32_t last = 0;
};
LayerSpan SparseSpan(const ModelConfig& config);
// INVALID_ARGUMENT, with the layer and both numbers, unless all sparse layers
// have equal numbers of experts: placements on hosts need that.
Status CheckSameExperts(const ModelConfig& config);
// Returns the layers with experts, as "1-4" or "0-2, 5"; empty: none.
std::string SparseLayers(const ModelConfig& config);

}  // namespace sluice

#endif  // SLUICE_COMMON_MODEL_CONFIG_MODEL_CONFIG_H_
