#include <algorithm>
#include <string>

#include "common/base/json.h"
#include "common/model_config/gguf_keys.h"
#include "common/model_config/gguf_readers.h"
#include "common/model_config/gguf_rows.h"

namespace sluice::gguf {
namespace {

using weights::GgufMetadata;

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

// A layer's indexer; which layers have one of their own, ReadIndexedGguf reads.
constexpr GgufKey kIndexer[] = {
    ReadAs(".attention.indexer.head_count", "index_n_heads", kInt),
    ReadAs(".attention.indexer.key_length", "index_head_dim", kInt),
    ReadAs(".attention.indexer.top_k", "index_topk", kInt)};
constexpr auto kIndexed = Joined(kLatent, kIndexer);

// The loader reads them: tensors of a checkpoint (StoredAs::kLayerNumber).
constexpr GgufKey kApertus[] = {
    ReadApart("xielu.alpha_p"), ReadApart("xielu.alpha_n"),
    ReadApart("xielu.beta"), ReadApart("xielu.eps")};

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

// Heads, their keys' number and the MLP's width are ReadGemma4Gguf's to read.
constexpr GgufKey kGemma4[] = {
    ReadAs(".attention.key_length", "global_head_dim", kInt),
    ReadAs(".attention.key_length_swa", "head_dim", kInt),
    ReadApart(".attention.head_count_kv"),
    ReadApart(".feed_forward_length"),
    ReadApart(".attention.value_length"),
    ReadApart(".attention.value_length_swa"),
    ReadApart(".rope.dimension_count"),
    ReadApart(".rope.dimension_count_swa"),
    ReadAs(".rope.freq_base_swa", "rope_local_base_freq", kFloat, TenThousand),
    ReadAs(".final_logit_softcapping", "final_logit_softcapping", kFloat, Null),
    ReadAs(".attention.shared_kv_layers", "num_kv_shared_layers", kInt, Zero),
    ReadAs(".embedding_length_per_layer_input", "hidden_size_per_layer_input",
           kInt, Zero),
    ReadApart(".attention.sliding_window"),
    ReadApart(".attention.sliding_window_pattern"),
    ReadAs(".expert_count", "num_experts", kInt, Zero),
    ReadAs(".expert_used_count", "top_k_experts", kInt, Zero),
    ReadAs(".expert_feed_forward_length", "moe_intermediate_size", kInt, Null)};

constexpr GgufKey kCommandR[] = {kCohere2[0]};
// Some files have both norms' keys, with one value.
constexpr GgufKey kNemotron[] = {ReadApart(kRmsEpsilon)};
// The tensors tell whether attention and MLP read the same rows; here they do
// not.
constexpr GgufKey kStableLm[] = {
    {".use_parallel_residual", nullptr, kBool,
     [](const ModelConfig&) -> Json { return false; }}};

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
// Tells GLM-4.1V from GLM-4, as llama.cpp does: its first two sections are
// above 0.
bool HasSections(const GgufMetadata& metadata) {
  const auto sections = metadata.Ints("glm4.rope.dimension_sections");
  return sections.ok() && sections->size() > 1 && (*sections)[0] > 0 &&
         (*sections)[1] > 0;
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
    {.architecture = "qwen2vl",
     .model_type = "qwen2_vl",
     .hugging_face = "Qwen2VLForConditionalGeneration",
     .read = ReadQwen2Gguf,
     .is_written = false,
     .three_sections = true},
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
    {.architecture = "qwen3vl",
     .model_type = "qwen3_vl",
     .hugging_face = "Qwen3VLForConditionalGeneration",
     .read = ReadWholeHeadsGguf,
     .is_written = false,
     .three_sections = true},
    {.architecture = "qwen3vlmoe",
     .model_type = "qwen3_vl_moe",
     .hugging_face = "Qwen3VLMoeForConditionalGeneration",
     .keys = kQwen3Moe,
     .gating = GgufGating::kSoftmax,
     .read = ReadQwen3VlMoeGguf,
     .is_written = false,
     .three_sections = true},
    {.architecture = "glm4",
     .model_type = "glm4v",
     .hugging_face = "Glm4vForConditionalGeneration",
     .halved = true,
     .has = HasSections,
     .is_written = false,
     .three_sections = true},
    {.architecture = "glm4",
     .model_type = "glm4",
     .hugging_face = "Glm4ForCausalLM",
     .three_sections = true},
    {.architecture = "glm4moe",
     .model_type = "glm4_moe",
     .hugging_face = "Glm4MoeForCausalLM",
     .keys = kGlm4Moe,
     .gating = GgufGating::kSigmoid,
     .three_sections = true},
    {.architecture = "deepseek2",
     .model_type = "deepseek_v3",
     .hugging_face = "DeepseekV3ForCausalLM",
     .keys = kLatent,
     .gating = GgufGating::kSigmoid,
     .has = HasSigmoid,
     .read = ReadLatentGguf,
     .own_head_sizes = true,
     .is_written = false},
    {.architecture = "deepseek2",
     .model_type = "deepseek_v2",
     .hugging_face = "DeepseekV2ForCausalLM",
     .keys = kLatent,
     .gating = GgufGating::kSoftmax,
     .read = ReadLatentGguf,
     .own_head_sizes = true,
     .is_written = false},
    {.architecture = "deepseek32",
     .model_type = "deepseek_v32",
     .hugging_face = "DeepseekV32ForCausalLM",
     .keys = kIndexed,
     .gating = GgufGating::kSigmoid,
     .read = ReadIndexedGguf,
     .own_head_sizes = true,
     .is_written = false},
    {.architecture = "glm-dsa",
     .model_type = "glm_moe_dsa",
     .hugging_face = "GlmMoeDsaForCausalLM",
     .keys = kIndexed,
     .gating = GgufGating::kSigmoid,
     .read = ReadGlmDsaGguf,
     .own_head_sizes = true,
     .is_written = false},
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
    {.architecture = "gemma",
     .model_type = "gemma",
     .hugging_face = "GemmaForCausalLM",
     .activation = kGelu,
     .read = ReadGemma1Gguf},
    {.architecture = "arcee",
     .model_type = "arcee",
     .hugging_face = "ArceeForCausalLM",
     .permuted = true,
     .activation = "relu2",
     .read = ReadArceeGguf},
    {.architecture = "command-r",
     .model_type = "cohere",
     .hugging_face = "CohereForCausalLM",
     .keys = kCommandR,
     .layer_norm_epsilon = "layer_norm_eps",
     .read = ReadWholeHeadsGguf},
    {.architecture = "stablelm",
     .model_type = "stablelm",
     .hugging_face = "StableLmForCausalLM",
     .keys = kStableLm,
     .layer_norm_epsilon = "layer_norm_eps",
     .read = ReadStableLmGguf},
    {.architecture = "nemotron",
     .model_type = "nemotron",
     .hugging_face = "NemotronForCausalLM",
     .keys = kNemotron,
     .activation = "relu2",
     .layer_norm_epsilon = "norm_eps",
     .read = ReadNemotronGguf},
    {.architecture = "apertus",
     .model_type = "apertus",
     .hugging_face = "ApertusForCausalLM",
     .keys = kApertus,
     .activation = "xielu",
     .read = ReadWholeHeadsGguf,
     .is_written = false},
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
    {.architecture = "gemma4",
     .model_type = "gemma4_text",
     .hugging_face = "Gemma4ForCausalLM",
     .keys = kGemma4,
     .gating = GgufGating::kSoftmax,
     .activation = kGelu,
     .read = ReadGemma4Gguf,
     .own_head_sizes = true,
     .is_written = false},
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

std::span<const GgufFamily> Families() { return kGgufFamilies; }

}  // namespace sluice::gguf
