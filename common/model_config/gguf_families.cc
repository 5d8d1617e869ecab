// Size: the keys of all architectures.
#include <algorithm>
#include <string>

#include "common/base/json.h"
#include "common/model_config/gguf_keys.h"
#include "common/model_config/gguf_readers.h"
#include "common/model_config/portable_math.h"

namespace sluice {
namespace {

using weights::GgufMetadata;
using enum GgufKey::Type;

constexpr std::string_view kRmsEpsilon = ".attention.layer_norm_rms_epsilon";

const LayerConfig& First(const ModelConfig& config) {
  return config.layers.front();
}

Json Null(const Json&) { return nullptr; }
Json Zero(const Json&) { return 0; }
Json One(const Json&) { return 1; }
Json Yes(const Json&) { return true; }
Json No(const Json&) { return false; }
Json Unit(const Json&) { return 1.0; }

// A dynamic scaling is another theta.
Json ThetaOf(const ModelConfig& config) {
  const RopeConfig& rope = config.ropes.front();
  if (rope.scaling.kind != RopeScaling::Kind::kDynamic) return rope.theta;
  return rope.theta *
         OwnPow(rope.scaling.alpha, rope.rotary_dim / (rope.rotary_dim - 2.0));
}

int32_t WidestWindow(const ModelConfig& config) {
  int32_t window = 0;
  for (const LayerConfig& layer : config.layers) {
    window = std::max(window, layer.attention.window);
  }
  return window;
}

constexpr GgufKey kShared[] = {
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
    {".rope.freq_base", "rope_theta", kFloat, ThetaOf,
     [](const Json&) -> Json { return 10000.0; }},
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
constexpr GgufKey kWindow = {".attention.sliding_window", nullptr, kInt,
                             [](const ModelConfig& c) -> Json {
                               const int32_t window = WidestWindow(c);
                               return window > 0 ? Json(window) : Json();
                             }};
// A window beyond the last position is none in a config.
constexpr GgufKey kNeededWindow = {
    ".attention.sliding_window", nullptr, kInt,
    [](const ModelConfig& c) -> Json {
      const int32_t window = WidestWindow(c);
      return window > 0 ? window : c.max_position_embeddings;
    }};
// Which layers have windows, where not all but every `period`-th have.
template <int period>
constexpr GgufKey kPattern = {
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
constexpr GgufKey NumExperts(const char* config) {
  return {".expert_count", config, kInt,
          [](const ModelConfig& c) -> Json { return c.moe().num_experts; }};
}
constexpr GgufKey ExpertsUsed(const char* config) {
  return {".expert_used_count", config, kInt, [](const ModelConfig& c) -> Json {
            return c.moe().experts_per_token;
          }};
}
constexpr GgufKey kExpertsUsed = ExpertsUsed("num_experts_per_tok");
Json ExpertSize(const ModelConfig& c) { return c.moe().intermediate_size; }
constexpr GgufKey kExpertSize = {".expert_feed_forward_length",
                                 "moe_intermediate_size", kInt, ExpertSize};
// Of files whose experts may tell it, or where it is the MLP's.
constexpr GgufKey ExpertSizeOrNull(const char* config) {
  return {".expert_feed_forward_length", config, kInt, ExpertSize, Null};
}
constexpr GgufKey SharedSize(const char* config) {
  return {".expert_shared_feed_forward_length", config, kInt,
          [](const ModelConfig& c) -> Json {
            const int32_t size = c.moe().shared_intermediate_size;
            return size > 0 ? Json(size) : Json();
          },
          Null};
}
constexpr GgufKey SharedCount(const char* config,
                              Json (*absent)(const Json& config)) {
  return {".expert_shared_count", config, kInt,
          [](const ModelConfig& c) -> Json {
            return c.moe().shared_intermediate_size /
                   std::max(c.moe().intermediate_size, 1);
          },
          absent};
}
constexpr GgufKey DenseLayers(const char* config,
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
constexpr GgufKey Normalised(Json (*absent)(const Json& config)) {
  return {".expert_weights_norm", "norm_topk_prob", kBool,
          [](const ModelConfig& c) -> Json { return c.moe().normalise; },
          absent};
}
constexpr GgufKey kGroups = {
    ".expert_group_count", "n_group", kInt,
    [](const ModelConfig& c) -> Json { return c.moe().num_groups; }, One};
constexpr GgufKey kGroupsUsed = {
    ".expert_group_used_count", "topk_group", kInt,
    [](const ModelConfig& c) -> Json { return c.moe().groups_per_token; }, One};
constexpr GgufKey kRoutedScale = {
    ".expert_weights_scale", "routed_scaling_factor", kFloat,
    [](const ModelConfig& c) -> Json { return c.moe().scale; }, Unit};

constexpr GgufKey kQwen2Moe[] = {NumExperts("num_experts"), kExpertsUsed,
                                 ExpertSizeOrNull("moe_intermediate_size"),
                                 SharedSize("shared_expert_intermediate_size")};

constexpr GgufKey kQwen3Moe[] = {NumExperts("num_experts"), kExpertsUsed,
                                 kExpertSize, Normalised(Yes)};

constexpr GgufKey kGptOss[] = {
    NumExperts("num_local_experts"),
    kExpertsUsed,
    kExpertSize,
    // The gating normalises.
    {".expert_weights_norm", "norm_topk_prob", kBool,
     [](const ModelConfig&) -> Json { return nullptr; }, Yes},
    {".attention.sliding_window", "sliding_window", kInt, kNeededWindow.value,
     [](const Json&) -> Json { return 128; }}};

constexpr GgufKey kGlm4Moe[] = {
    NumExperts("n_routed_experts"),
    kExpertsUsed,
    kExpertSize,
    Normalised(Yes),
    kGroups,
    kGroupsUsed,
    SharedCount("n_shared_experts", One),
    DenseLayers("first_k_dense_replace", One),
    kRoutedScale,
    {".nextn_predict_layers", "num_nextn_predict_layers", kInt,
     [](const ModelConfig& c) -> Json { return c.num_nextn_predict_layers; },
     Zero}};

constexpr GgufKey kDots1[] = {NumExperts("n_routed_experts"),
                              kExpertsUsed,
                              kExpertSize,
                              Normalised(No),
                              kGroups,
                              kGroupsUsed,
                              SharedCount("n_shared_experts", Zero),
                              DenseLayers("first_k_dense_replace", Zero),
                              kRoutedScale};

// Sizes of heads are ReadLatentGguf's to read.
constexpr GgufKey kLatent[] = {
    {".attention.q_lora_rank", "q_lora_rank", kInt,
     [](const ModelConfig& c) -> Json {
       const int32_t rank = First(c).attention.latent.q_rank;
       return rank > 0 ? Json(rank) : Json();
     },
     Null},
    {".attention.kv_lora_rank", "kv_lora_rank", kInt,
     [](const ModelConfig& c) -> Json {
       return First(c).attention.latent.kv_rank;
     }},
    {".rope.dimension_count", "qk_rope_head_dim", kInt,
     [](const ModelConfig& c) -> Json {
       return First(c).attention.latent.rope_dim;
     }},
    NumExperts("n_routed_experts"),
    kExpertsUsed,
    kExpertSize,
    Normalised(No),
    kGroups,
    kGroupsUsed,
    SharedCount("n_shared_experts", Zero),
    DenseLayers("first_k_dense_replace", Zero),
    kRoutedScale};

constexpr GgufKey kErnieMoe[] = {
    NumExperts("moe_num_experts"),
    ExpertsUsed("moe_k"),
    kExpertSize,
    SharedCount("moe_num_shared_experts", Zero),
    // The converter writes another number: the count above tells.
    SharedSize(nullptr),
    DenseLayers("moe_layer_start_index", Zero),
    {".interleave_moe_layer_step", "moe_layer_interval", kInt,
     [](const ModelConfig& c) -> Json {
       // Between the first two sparse layers.
       const auto is_sparse = [](const LayerConfig& layer) {
         return layer.is_sparse();
       };
       const auto& layers = c.layers;
       const auto one = std::find_if(layers.begin(), layers.end(), is_sparse);
       if (one == layers.end()) return 1;
       const auto two = std::find_if(one + 1, layers.end(), is_sparse);
       return two == layers.end() ? 1 : two - one;
     },
     One}};

constexpr GgufKey kHunyuanMoe[] = {
    NumExperts("num_experts"), ExpertsUsed("moe_topk"),
    ExpertSizeOrNull(nullptr), SharedSize(nullptr)};

constexpr GgufKey kMinimaxM2[] = {NumExperts("num_local_experts"), kExpertsUsed,
                                  ExpertSizeOrNull(nullptr)};

constexpr GgufKey kMixtral[] = {NumExperts("num_local_experts"), kExpertsUsed,
                                kWindow};

constexpr GgufKey kOlmoe[] = {NumExperts("num_experts"),
                              kExpertsUsed,
                              {".attention.clamp_kqv", "clip_qkv", kFloat,
                               [](const ModelConfig& c) -> Json {
                                 const double clip =
                                     First(c).attention.clip_qkv;
                                 return clip > 0.0 ? Json(clip) : Json();
                               },
                               Null}};

constexpr GgufKey kAttentionScale = {
    ".attention.scale", "attention_multiplier", kFloat,
    [](const ModelConfig& c) -> Json { return First(c).attention.scale; },
    Null};
constexpr GgufKey kEmbeddingScale = {
    ".embedding_scale", "embedding_multiplier", kFloat,
    [](const ModelConfig& c) -> Json { return c.embedding_scale; }, Unit};
constexpr GgufKey kResidualScale = {
    ".residual_scale", "residual_multiplier", kFloat,
    [](const ModelConfig& c) -> Json { return First(c).residual_scale; }, Unit};
// Logits are divided by it.
constexpr GgufKey kLogitsScaling = {
    ".logit_scale", "logits_scaling", kFloat,
    [](const ModelConfig& c) -> Json { return 1.0 / c.logit_scale; }};

constexpr GgufKey kGranite[] = {kAttentionScale, kEmbeddingScale,
                                kResidualScale, kLogitsScaling};
constexpr GgufKey kGraniteMoe[] = {
    kAttentionScale, kEmbeddingScale, kResidualScale,
    kLogitsScaling,  kExpertsUsed,    NumExperts("num_local_experts")};

constexpr GgufKey kMinistral3[] = {
    {".attention.temperature_scale", nullptr, kFloat,
     [](const ModelConfig& c) -> Json {
       const double beta = First(c).attention.growth.beta;
       return beta > 0.0 ? Json(beta) : Json();
     }},
    {".rope.scaling.yarn_log_multiplier", nullptr, kFloat,
     [](const ModelConfig& c) -> Json {
       const double scale = c.ropes.front().scaling.mscale_all_dim;
       return scale > 0.0 ? Json(scale) : Json();
     }}};

constexpr GgufKey kWindows[] = {kWindow};

constexpr GgufKey kPhi3[] = {
    // 0: no window.
    {".attention.sliding_window", nullptr, kInt,
     [](const ModelConfig& c) -> Json { return WidestWindow(c); }}};

// Logits are multiplied by it.
constexpr GgufKey kCohere2[] = {
    {".logit_scale", "logit_scale", kFloat,
     [](const ModelConfig& c) -> Json { return c.logit_scale; }},
    kNeededWindow,
    kPattern<4>};

constexpr GgufKey kFullOfFour[] = {kWindow, kPattern<4>};

Json LogitCap(const ModelConfig& c) {
  return c.logit_soft_cap > 0.0 ? Json(c.logit_soft_cap) : Json();
}
constexpr GgufKey kGemma2[] = {
    {".attn_logit_softcapping", "attn_logit_softcapping", kFloat,
     [](const ModelConfig& c) -> Json {
       const double cap = First(c).attention.soft_cap;
       return cap > 0.0 ? Json(cap) : Json();
     },
     [](const Json&) -> Json { return 50.0; }},
    {".final_logit_softcapping", "final_logit_softcapping", kFloat, LogitCap,
     [](const Json&) -> Json { return 30.0; }},
    kNeededWindow,
    kPattern<2>};
constexpr GgufKey kGemma3[] = {
    {".final_logit_softcapping", "final_logit_softcapping", kFloat, LogitCap,
     Null},
    {".rope.freq_base_swa", "rope_local_base_freq", kFloat,
     [](const ModelConfig& c) -> Json { return c.ropes.back().theta; },
     [](const Json&) -> Json { return 10000.0; }},
    kNeededWindow,
    kPattern<6>};

template <const char* const& key>
bool IsAboveZero(const GgufMetadata& metadata) {
  const auto architecture = metadata.String("general.architecture");
  if (!architecture.ok()) return false;
  const auto value = metadata.Int(Cat(*architecture, key));
  return value.ok() && *value > 0;
}
constexpr const char* kExpertCount = ".expert_count";
// Tells DeepSeek V3's router from V2's.
bool HasSigmoid(const GgufMetadata& metadata) {
  const auto gating = metadata.Int("deepseek2.expert_gating_func");
  return gating.ok() && *gating == static_cast<int64_t>(GgufGating::kSigmoid);
}
constexpr const char* kSlidingWindow = ".attention.sliding_window";

constexpr std::string_view kGelu = "gelu_pytorch_tanh";

// Of an architecture of several families, the first whose `has` agrees.
constexpr GgufFamily kGgufFamilies[] = {
    {.architecture = "llama",
     .model_type = "mixtral",
     .hugging_face = "MixtralForCausalLM",
     .keys = kMixtral,
     .gating = GgufGating::kSoftmax,
     .permuted = true,
     .has = IsAboveZero<kExpertCount>,
     .read = ReadMixtralGguf},
    {.architecture = "llama",
     .model_type = "mistral",
     .hugging_face = "MistralForCausalLM",
     .keys = kWindows,
     .permuted = true,
     .has = IsAboveZero<kSlidingWindow>,
     .read = ReadWindowsGguf},
    {.architecture = "llama",
     .model_type = "llama",
     .hugging_face = "LlamaForCausalLM",
     .permuted = true,
     .read = ReadLlamaGguf},
    {.architecture = "mistral3",
     .model_type = "ministral3",
     .hugging_face = "Ministral3ForCausalLM",
     .keys = kMinistral3,
     .permuted = true,
     .read = ReadMinistral3Gguf},
    {.architecture = "qwen2",
     .model_type = "qwen2",
     .hugging_face = "Qwen2ForCausalLM",
     .read = ReadQwen2Gguf},
    {.architecture = "qwen2moe",
     .model_type = "qwen2_moe",
     .hugging_face = "Qwen2MoeForCausalLM",
     .keys = kQwen2Moe,
     .gating = GgufGating::kSoftmax,
     .read = ReadQwen2MoeGguf},
    {.architecture = "qwen3",
     .model_type = "qwen3",
     .hugging_face = "Qwen3ForCausalLM"},
    {.architecture = "qwen3moe",
     .model_type = "qwen3_moe",
     .hugging_face = "Qwen3MoeForCausalLM",
     .keys = kQwen3Moe,
     .gating = GgufGating::kSoftmax},
    {.architecture = "glm4",
     .model_type = "glm4",
     .hugging_face = "Glm4ForCausalLM"},
    {.architecture = "glm4moe",
     .model_type = "glm4_moe",
     .hugging_face = "Glm4MoeForCausalLM",
     .keys = kGlm4Moe,
     .gating = GgufGating::kSigmoid},
    {.architecture = "deepseek2",
     .model_type = "deepseek_v3",
     .hugging_face = "DeepseekV3ForCausalLM",
     .keys = kLatent,
     .gating = GgufGating::kSigmoid,
     .has = HasSigmoid,
     .read = ReadLatentGguf,
     .latent = true},
    {.architecture = "deepseek2",
     .model_type = "deepseek_v2",
     .hugging_face = "DeepseekV2ForCausalLM",
     .keys = kLatent,
     .gating = GgufGating::kSoftmax,
     .read = ReadLatentGguf,
     .latent = true},
    {.architecture = "gpt-oss",
     .model_type = "gpt_oss",
     .hugging_face = "GptOssForCausalLM",
     .keys = kGptOss,
     .gating = GgufGating::kSoftmaxOfSelected},
    {.architecture = "seed_oss",
     .model_type = "seed_oss",
     .hugging_face = "SeedOssForCausalLM",
     .read = ReadSeedOssGguf},
    {.architecture = "smollm3",
     .model_type = "smollm3",
     .hugging_face = "SmolLM3ForCausalLM",
     .permuted = true,
     .read = ReadSmolLm3Gguf},
    {.architecture = "granite",
     .model_type = "granite",
     .hugging_face = "GraniteForCausalLM",
     .keys = kGranite,
     .permuted = true,
     .read = ReadGraniteGguf},
    {.architecture = "granitemoe",
     .model_type = "granitemoe",
     .hugging_face = "GraniteMoeForCausalLM",
     .keys = kGraniteMoe,
     .gating = GgufGating::kSoftmax,
     .permuted = true,
     .read = ReadGraniteMoeGguf},
    {.architecture = "ernie4_5",
     .model_type = "ernie4_5",
     .hugging_face = "Ernie4_5ForCausalLM",
     .read = ReadErnieGguf},
    {.architecture = "ernie4_5-moe",
     .model_type = "ernie4_5_moe",
     .hugging_face = "Ernie4_5_MoeForCausalLM",
     .keys = kErnieMoe,
     .gating = GgufGating::kSoftmax,
     .read = ReadErnieMoeGguf},
    {.architecture = "hunyuan-dense",
     .model_type = "hunyuan_v1_dense",
     .hugging_face = "HunYuanDenseV1ForCausalLM",
     .read = ReadWholeHeadsGguf},
    {.architecture = "hunyuan-moe",
     .model_type = "hunyuan_v1_moe",
     .hugging_face = "HunYuanMoEV1ForCausalLM",
     .keys = kHunyuanMoe,
     .gating = GgufGating::kSoftmax,
     .read = ReadHunyuanMoeGguf},
    {.architecture = "chatglm",
     .model_type = "glm",
     .hugging_face = "GlmForCausalLM",
     .read = ReadGlmGguf},
    {.architecture = "phi3",
     .model_type = "phi3",
     .hugging_face = "Phi3ForCausalLM",
     .keys = kPhi3,
     .read = ReadPhi3Gguf},
    {.architecture = "starcoder2",
     .model_type = "starcoder2",
     .hugging_face = "Starcoder2ForCausalLM",
     .keys = kWindows,
     .activation = kGelu,
     .layer_norm_epsilon = "norm_epsilon",
     .read = ReadStarcoder2Gguf},
    {.architecture = "cohere2",
     .model_type = "cohere2",
     .hugging_face = "Cohere2ForCausalLM",
     .keys = kCohere2,
     .layer_norm_epsilon = "layer_norm_eps",
     .read = ReadCohere2Gguf},
    {.architecture = "olmo2",
     .model_type = "olmo3",
     .hugging_face = "Olmo3ForCausalLM",
     .keys = kFullOfFour,
     .has = IsAboveZero<kSlidingWindow>,
     .read = ReadOlmo3Gguf},
    {.architecture = "olmo2",
     .model_type = "olmo2",
     .hugging_face = "Olmo2ForCausalLM",
     .read = ReadWholeHeadsGguf},
    {.architecture = "olmoe",
     .model_type = "olmoe",
     .hugging_face = "OlmoeForCausalLM",
     .keys = kOlmoe,
     .gating = GgufGating::kSoftmax,
     .read = ReadOlmoeGguf},
    {.architecture = "exaone4",
     .model_type = "exaone4",
     .hugging_face = "Exaone4ForCausalLM",
     .keys = kFullOfFour,
     .read = ReadExaone4Gguf},
    {.architecture = "gemma2",
     .model_type = "gemma2",
     .hugging_face = "Gemma2ForCausalLM",
     .keys = kGemma2,
     .activation = kGelu,
     .read = ReadGemma2Gguf},
    {.architecture = "gemma3",
     .model_type = "gemma3_text",
     .hugging_face = "Gemma3ForCausalLM",
     .keys = kGemma3,
     .activation = kGelu,
     .read = ReadGemma3Gguf},
    {.architecture = "minimax-m2",
     .model_type = "minimax_m2",
     .hugging_face = "MiniMaxM2ForCausalLM",
     .keys = kMinimaxM2,
     .gating = GgufGating::kSigmoid,
     .read = ReadMinimaxM2Gguf},
    {.architecture = "dots1",
     .model_type = "dots1",
     .hugging_face = "Dots1ForCausalLM",
     .keys = kDots1,
     .gating = GgufGating::kSigmoid,
     .read = ReadWholeHeadsGguf},
};

}  // namespace

std::vector<GgufKey> KeysOf(const GgufFamily& family) {
  std::vector<GgufKey> keys(std::begin(kShared), std::end(kShared));
  for (GgufKey& key : keys) {
    if (family.layer_norm_epsilon == nullptr || key.gguf != kRmsEpsilon) {
      continue;
    }
    key.gguf = ".attention.layer_norm_epsilon";
    key.config = family.layer_norm_epsilon;
  }
  keys.insert(keys.end(), family.keys.begin(), family.keys.end());
  return keys;
}

const GgufFamily* FindGgufFamily(const GgufMetadata& metadata) {
  const auto architecture = metadata.String("general.architecture");
  if (!architecture.ok()) return nullptr;
  for (const GgufFamily& family : kGgufFamilies) {
    if (family.architecture == *architecture &&
        (family.has == nullptr || family.has(metadata))) {
      return &family;
    }
  }
  return nullptr;
}

const GgufFamily* GgufFamilyOf(std::string_view model_type) {
  for (const GgufFamily& family : kGgufFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string GgufArchitectures() {
  std::string names;
  std::string_view last;
  for (const GgufFamily& family : kGgufFamilies) {
    if (family.architecture == last) continue;
    last = family.architecture;
    names += Cat(names.empty() ? "" : ", ", last);
  }
  return names;
}

}  // namespace sluice
