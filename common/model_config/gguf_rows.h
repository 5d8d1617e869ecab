#ifndef SLUICE_COMMON_MODEL_CONFIG_GGUF_ROWS_H_
#define SLUICE_COMMON_MODEL_CONFIG_GGUF_ROWS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/json.h"
#include "common/model_config/gguf_keys.h"
#include "common/model_config/model_config.h"
#include "common/model_config/portable_math.h"

// Rows of GGUF's keys that several families have, and the tables of families,
// which gguf_keys.cc searches.
namespace sluice::gguf {

using enum GgufKey::Type;

// Of each architecture its families stand together.
std::span<const GgufFamily> Families();       // gguf_families.cc
std::span<const GgufFamily> StateFamilies();  // gguf_state_families.cc

inline constexpr std::string_view kRmsEpsilon =
    ".attention.layer_norm_rms_epsilon";

inline const LayerConfig& First(const ModelConfig& config) {
  return config.layers.front();
}

// The value of a key that is read alone.
inline Json Unwritten(const ModelConfig&) { return nullptr; }
constexpr GgufKey ReadAs(std::string_view key, const char* config,
                         GgufKey::Type type,
                         Json (*absent)(const Json& config) = nullptr) {
  return {key, config, type, Unwritten, absent};
}
// A key that the family's `read` reads.
constexpr GgufKey ReadApart(std::string_view key) {
  return {key, nullptr, kInt, Unwritten};
}
// Returns the keys of both, for a table of a family that has them all.
template <size_t A, size_t B>
constexpr std::array<GgufKey, A + B> Joined(const GgufKey (&a)[A],
                                            const GgufKey (&b)[B]) {
  std::array<GgufKey, A + B> all{};
  std::copy(a, a + A, all.begin());
  std::copy(b, b + B, all.begin() + A);
  return all;
}
inline Json Null(const Json&) { return nullptr; }
inline Json Zero(const Json&) { return 0; }
inline Json One(const Json&) { return 1; }
inline Json Yes(const Json&) { return true; }
inline Json No(const Json&) { return false; }
inline Json Unit(const Json&) { return 1.0; }
inline Json TenThousand(const Json&) { return 10000.0; }

// A dynamic scaling is another theta.
inline Json ThetaOf(const ModelConfig& config) {
  const RopeConfig& rope = config.ropes.front();
  if (rope.scaling.kind != RopeScaling::Kind::kDynamic) return rope.theta;
  return rope.theta *
         OwnPow(rope.scaling.alpha, rope.rotary_dim / (rope.rotary_dim - 2.0));
}

inline int32_t WidestWindow(const ModelConfig& config) {
  int32_t window = 0;
  for (const LayerConfig& layer : config.layers) {
    window = std::max(window, layer.attention.window);
  }
  return window;
}

inline constexpr GgufKey kShared[] = {
    {".embedding_length", "hidden_size", kInt,
     [](const ModelConfig& c) -> Json { return c.hidden_size; }},
    {".block_count", "num_hidden_layers", kInt,
     [](const ModelConfig& c) -> Json {
       return c.num_layers() + c.num_nextn_predict_layers;
     }},
    {".attention.head_count", "num_attention_heads", kInt,
     [](const ModelConfig& c) -> Json { return First(c).attention.num_heads; }},
    {".attention.head_count_kv", "num_key_value_heads", kInt,
     [](const ModelConfig& c) -> Json {
       return First(c).attention.num_kv_heads;
     },
     [](const Json& config) { return config.at("num_attention_heads"); }},
    {".feed_forward_length", "intermediate_size", kInt,
     [](const ModelConfig& c) -> Json {
       return First(c).mlp.intermediate_size;
     }},
    {".context_length", "max_position_embeddings", kInt,
     [](const ModelConfig& c) -> Json { return c.max_position_embeddings; }},
    {kRmsEpsilon, "rms_norm_eps", kFloat,
     [](const ModelConfig& c) -> Json { return c.rms_norm_eps; }},
    {".rope.freq_base", "rope_theta", kFloat, ThetaOf, TenThousand},
    // Older files leave the size of a head out.
    {".attention.key_length", "head_dim", kInt,
     [](const ModelConfig& c) -> Json { return First(c).attention.head_dim; },
     [](const Json& config) -> Json {
       const auto heads = config.at("num_attention_heads").get<int64_t>();
       const auto hidden = config.at("hidden_size").get<int64_t>();
       return heads > 0 ? hidden / heads : 0;
     }},
    // The rows of the embedding stand for it.
    {".vocab_size", "vocab_size", kInt,
     [](const ModelConfig& c) -> Json { return c.vocab_size; },
     [](const Json& config) { return config.at("vocab_size"); }},
};

// Windows. llama.cpp reads none of llama, phi3 and starcoder2.
inline constexpr GgufKey kWindow = {".attention.sliding_window", nullptr, kInt,
                                    [](const ModelConfig& c) -> Json {
                                      const int32_t window = WidestWindow(c);
                                      return window > 0 ? Json(window) : Json();
                                    }};
// A window beyond the last position is none in a config.
inline constexpr GgufKey kNeededWindow = {
    ".attention.sliding_window", nullptr, kInt,
    [](const ModelConfig& c) -> Json {
      const int32_t window = WidestWindow(c);
      return window > 0 ? window : c.max_position_embeddings;
    }};
// Which layers have windows, where not all but every `period`-th have.
template <int period>
inline constexpr GgufKey kPattern = {
    ".attention.sliding_window_pattern", nullptr, kBools,
    [](const ModelConfig& c) -> Json {
      Json windowed = Json::array();
      bool is_usual = true;
      for (int32_t i = 0; i < c.num_layers(); ++i) {
        const bool has = c.layers[static_cast<size_t>(i)].attention.window > 0;
        windowed.push_back(has);
        is_usual = is_usual && has == ((i + 1) % period != 0);
      }
      return is_usual || WidestWindow(c) == 0 ? Json() : windowed;
    }};

// Experts.
inline constexpr GgufKey NumExperts(const char* config) {
  return {".expert_count", config, kInt,
          [](const ModelConfig& c) -> Json { return c.moe().num_experts; }};
}
inline constexpr GgufKey ExpertsUsed(const char* config) {
  return {".expert_used_count", config, kInt, [](const ModelConfig& c) -> Json {
            return c.moe().experts_per_token;
          }};
}
inline constexpr GgufKey kExpertsUsed = ExpertsUsed("num_experts_per_tok");
inline Json ExpertSize(const ModelConfig& c) {
  return c.moe().intermediate_size;
}
inline constexpr GgufKey kExpertSize = {
    ".expert_feed_forward_length", "moe_intermediate_size", kInt, ExpertSize};
// Of files whose experts may tell it, or where it is the MLP's.
inline constexpr GgufKey ExpertSizeOrNull(const char* config) {
  return {".expert_feed_forward_length", config, kInt, ExpertSize, Null};
}
inline constexpr GgufKey SharedSize(const char* config) {
  return {".expert_shared_feed_forward_length", config, kInt,
          [](const ModelConfig& c) -> Json {
            const int32_t size = c.moe().shared_intermediate_size;
            return size > 0 ? Json(size) : Json();
          },
          Null};
}
inline constexpr GgufKey SharedCount(const char* config,
                                     Json (*absent)(const Json& config)) {
  return {".expert_shared_count", config, kInt,
          [](const ModelConfig& c) -> Json {
            return c.moe().shared_intermediate_size /
                   std::max(c.moe().intermediate_size, 1);
          },
          absent};
}
inline constexpr GgufKey DenseLayers(const char* config,
                                     Json (*absent)(const Json& config)) {
  return {".leading_dense_block_count", config, kInt,
          [](const ModelConfig& c) -> Json {
            const auto sparse = std::find_if(
                c.layers.begin(), c.layers.end(),
                [](const LayerConfig& layer) { return layer.is_sparse(); });
            return sparse - c.layers.begin();
          },
          absent};
}
inline constexpr GgufKey Normalised(Json (*absent)(const Json& config)) {
  return {".expert_weights_norm", "norm_topk_prob", kBool,
          [](const ModelConfig& c) -> Json { return c.moe().normalise; },
          absent};
}
inline constexpr GgufKey kGroups = {
    ".expert_group_count", "n_group", kInt,
    [](const ModelConfig& c) -> Json { return c.moe().num_groups; }, One};
inline constexpr GgufKey kGroupsUsed = {
    ".expert_group_used_count", "topk_group", kInt,
    [](const ModelConfig& c) -> Json { return c.moe().groups_per_token; }, One};
inline constexpr GgufKey kRoutedScale = {
    ".expert_weights_scale", "routed_scaling_factor", kFloat,
    [](const ModelConfig& c) -> Json { return c.moe().scale; }, Unit};

inline constexpr GgufKey kAttentionScale = {
    ".attention.scale", "attention_multiplier", kFloat,
    [](const ModelConfig& c) -> Json { return First(c).attention.scale; },
    Null};
inline constexpr GgufKey kEmbeddingScale = {
    ".embedding_scale", "embedding_multiplier", kFloat,
    [](const ModelConfig& c) -> Json { return c.embedding_scale; }, Unit};
inline constexpr GgufKey kResidualScale = {
    ".residual_scale", "residual_multiplier", kFloat,
    [](const ModelConfig& c) -> Json { return First(c).residual_scale; }, Unit};
// Logits are divided by it.
inline constexpr GgufKey kLogitsScaling = {
    ".logit_scale", "logits_scaling", kFloat,
    [](const ModelConfig& c) -> Json { return 1.0 / c.logit_scale; }};

}  // namespace sluice::gguf

#endif  // SLUICE_COMMON_MODEL_CONFIG_GGUF_ROWS_H_
