#include "common/model_config/model_families.h"

#include <algorithm>
#include <string_view>

#include "common/core/kv_groups.h"
#include "common/model_config/family_readers.h"
#include "common/model_config/gguf_keys.h"

namespace sluice {
namespace {

// The prefix of OpenModel's model_type for a GGUF architecture without a
// family.
constexpr std::string_view kGgufPrefix = "gguf ";

constexpr std::string_view kGelu = "gelu_pytorch_tanh";
constexpr RenamedKey kCohereKeys[] = {{"layer_norm_eps", "rms_norm_eps"}};
constexpr RenamedKey kNemotronKeys[] = {{"norm_eps", "rms_norm_eps"}};
constexpr RenamedKey kStarcoderKeys[] = {{"norm_epsilon", "rms_norm_eps"}};
constexpr RenamedKey kErnieMoeKeys[] = {{"moe_num_experts", "num_experts"},
                                        {"moe_k", "num_experts_per_tok"}};
constexpr RenamedKey kGemma3Keys[] = {
    {"_sliding_window_pattern", "sliding_window_pattern"}};
constexpr RenamedKey kHunyuanKeys[] = {
    {"attention_head_dim", "head_dim", /*yields=*/true}};
constexpr RenamedKey kInternLmKeys[] = {{"attention_bias", "qkv_bias"},
                                        {"mlp_bias", "bias"}};
constexpr RenamedKey kLocalExpertKeys[] = {
    {"num_local_experts", "num_experts"}};

constexpr std::string_view kMistralDefaults =
    R"({"num_key_value_heads": 8, "sliding_window": 4096,
         "max_position_embeddings": 131072})";
constexpr std::string_view kGemma3Defaults =
    R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
         "num_hidden_layers": 26, "num_attention_heads": 8,
         "num_key_value_heads": 4, "head_dim": 256,
         "max_position_embeddings": 131072, "tie_word_embeddings": true,
         "query_pre_attn_scalar": 256, "sliding_window": 4096,
         "rope_theta": 1000000.0})";
constexpr std::string_view kGemma4Defaults =
    R"({"num_key_value_heads": 4, "head_dim": 256,
         "max_position_embeddings": 131072, "tie_word_embeddings": true,
         "sliding_window": 512, "hidden_size_per_layer_input": 256,
         "rope_parameters": {
           "full_attention": {"rope_type": "proportional",
             "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
           "sliding_attention": {"rope_type": "default",
             "rope_theta": 10000.0}}})";
constexpr std::string_view kQwen2Defaults =
    R"({"num_key_value_heads": 32, "max_position_embeddings": 32768,
        "sliding_window": 4096})";
constexpr std::string_view kQwen3VlDefaults =
    R"({"num_key_value_heads": 32, "head_dim": 128,
        "max_position_embeddings": 128000})";
constexpr std::string_view kQwen3VlMoeDefaults =
    R"({"num_key_value_heads": 16, "head_dim": 128,
        "max_position_embeddings": 128000, "tie_word_embeddings": true})";
constexpr std::string_view kGlm4vDefaults =
    R"({"num_key_value_heads": 2, "max_position_embeddings": 32768})";
constexpr std::string_view kGlm4vMoeDefaults =
    R"({"num_key_value_heads": 8, "max_position_embeddings": 65536})";
constexpr std::string_view kQwen2VlDefaults =
    R"({"num_key_value_heads": 8, "max_position_embeddings": 32768,
        "sliding_window": 4096, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
        "max_window_layers": 80})";
constexpr std::string_view kQwen35Defaults =
    R"({"num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 32768, "partial_rotary_factor": 0.25})";
constexpr std::string_view kQwen35MoeDefaults =
    R"({"num_key_value_heads": 2, "head_dim": 256,
        "max_position_embeddings": 32768, "partial_rotary_factor": 0.25, "intermediate_size": 512,
        "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 512})";
constexpr RenamedKey kLfm2Keys[] = {{"norm_eps", "rms_norm_eps"},
                                    {"tie_embedding", "tie_word_embeddings"}};
constexpr std::string_view kDeepseekV3Defaults = R"({
    "head_dim": 64, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_shared_experts": 1, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_group": 8, "topk_group": 4, "moe_intermediate_size": 2048,
    "routed_scaling_factor": 2.5, "max_position_embeddings": 4096})";

// Defaults as transformers 5.3 has them.
constexpr Family kFamilies[] = {
    {"llama", ReadLlama, &kLlamaTensors},
    {"mistral", ReadMistral, &kLlamaTensors, kMistralDefaults},
    {"ministral", ReadMinistral, &kLlamaTensors, kMistralDefaults},
    {"internlm3", ReadInternLm3, &kLlamaTensors,
     R"({"num_key_value_heads": 2, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 32768})",
     kInternLmKeys},
    {"mimo", ReadQwen2, &kLlamaTensors, kQwen2Defaults},
    {"ministral3", ReadMinistral3, &kLlamaTensors,
     R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 262144, "rope_theta": 1000000.0,
         "rope_parameters": {"rope_type": "yarn", "factor": 16.0,
           "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
           "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
           "llama_4_scaling_beta": 0.1}})"},
    {"qwen2", ReadQwen2, &kLlamaTensors, kQwen2Defaults},
    {"qwen3",
     ReadQwen3,
     &kLlamaTensors,
     R"({"num_key_value_heads": 32, "head_dim": 128,
         "max_position_embeddings": 32768})",
     {},
     "silu",
     true},
    {"seed_oss", ReadSeedOss, &kSeedOssTensors,
     R"({"num_key_value_heads": 8, "head_dim": 128,
         "max_position_embeddings": 524288})"},
    {"smollm3", ReadSmolLm3, &kLlamaTensors,
     R"({"num_key_value_heads": 4, "rope_theta": 2000000.0,
         "max_position_embeddings": 32768, "tie_word_embeddings": true})"},
    {"granite", ReadGranite, &kLlamaTensors},
    {"ernie4_5", ReadErnie, &kLlamaTensors,
     R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
         "rope_theta": 500000.0, "max_position_embeddings": 131072,
         "tie_word_embeddings": true})"},
    {"hunyuan_v1_dense", ReadHunyuan, &kHunyuanTensors,
     R"({"rms_norm_eps": 1e-5})", kHunyuanKeys},
    {"glm", ReadGlm, &kGlm4Tensors,
     R"({"num_key_value_heads": 2, "head_dim": 128,
         "rms_norm_eps": 1.5625e-7, "max_position_embeddings": 131072})"},
    {"glm4",
     ReadGlm4,
     &kGlm4Tensors,
     R"({"num_key_value_heads": 2, "head_dim": 128,
         "max_position_embeddings": 131072})",
     {},
     "silu",
     true},
    {"phi3", ReadPhi3, &kPhi3Tensors,
     R"({"rms_norm_eps": 1e-5, "max_position_embeddings": 4096})"},
    {"starcoder2", ReadStarcoder2, &kStarcoder2Tensors,
     R"({"num_key_value_heads": 2, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 4096, "tie_word_embeddings": true})",
     kStarcoderKeys, kGelu},
    {"cohere", ReadCohere, &kCohere2Tensors,
     R"({"rms_norm_eps": 1e-5, "logit_scale": 0.0625, "rope_theta": 500000.0,
         "max_position_embeddings": 8192, "tie_word_embeddings": true})",
     kCohereKeys},
    {"cohere2", ReadCohere2, &kCohere2Tensors,
     R"({"rms_norm_eps": 1e-5, "logit_scale": 0.0625, "sliding_window": 4096,
         "max_position_embeddings": 8192, "tie_word_embeddings": true})",
     kCohereKeys},
    {"apertus",
     ReadApertus,
     &kApertusTensors,
     R"({"rms_norm_eps": 1e-5, "max_position_embeddings": 65536,
         "rope_theta": 12000000.0,
         "rope_parameters": {"rope_type": "llama3", "factor": 8.0,
           "original_max_position_embeddings": 8192, "low_freq_factor": 1.0,
           "high_freq_factor": 4.0}})",
     {},
     "xielu"},
    {"olmo2", ReadOlmo2, &kPostNormTensors, R"({"rms_norm_eps": 1e-5})"},
    {"olmo3", ReadOlmo3, &kPostNormTensors,
     R"({"rms_norm_eps": 1e-5, "rope_theta": 500000.0,
         "sliding_window": 4096})"},
    {"exaone4", ReadExaone4, &kPostNormTensors,
     R"({"rms_norm_eps": 1e-5, "sliding_window": 4096,
         "sliding_window_pattern": 4})"},
    {"helium", ReadHelium, &kLlamaTensors,
     R"({"num_key_value_heads": 20, "head_dim": 128, "rms_norm_eps": 1e-8,
         "rope_theta": 100000.0, "max_position_embeddings": 4096})"},
    {"arcee",
     ReadArcee,
     &kUngatedTensors,
     R"({"rms_norm_eps": 1e-5, "max_position_embeddings": 4096})",
     {},
     "relu2"},
    {"nemotron", ReadNemotron, &kUngatedTensors,
     R"({"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5,
         "max_position_embeddings": 4096})",
     kNemotronKeys, "relu2"},
    {"stablelm", ReadStableLm, &kLlamaTensors,
     R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5,
         "partial_rotary_factor": 0.25, "max_position_embeddings": 4096})",
     kCohereKeys},
    {"gemma",
     ReadGemma1,
     &kLlamaTensors,
     R"({"num_key_value_heads": 16, "head_dim": 256,
         "max_position_embeddings": 8192, "tie_word_embeddings": true})",
     {},
     "gelu"},
    {"gemma2",
     ReadGemma2,
     &kGemmaTensors,
     R"({"num_key_value_heads": 4, "head_dim": 256,
         "max_position_embeddings": 8192, "tie_word_embeddings": true,
         "query_pre_attn_scalar": 256, "sliding_window": 4096,
         "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})",
     {},
     kGelu},
    // The text parts of models that read images, too: of text alone all of a
    // position's numbers are equal, and their RoPE is the plain one.
    {"qwen2_vl", ReadQwen2, &kLlamaTensors, kQwen2VlDefaults},
    {"qwen2_vl_text", ReadQwen2, &kLlamaTensors, kQwen2VlDefaults},
    {"qwen2_5_vl", ReadQwen2, &kLlamaTensors, kQwen2VlDefaults},
    {"qwen2_5_vl_text", ReadQwen2, &kLlamaTensors, kQwen2VlDefaults},
    {"qwen3_vl", ReadQwen3, &kLlamaTensors, kQwen3VlDefaults, {}, "silu", true},
    {"qwen3_vl_text",
     ReadQwen3,
     &kLlamaTensors,
     kQwen3VlDefaults,
     {},
     "silu",
     true},
    {"qwen3_vl_moe", ReadQwen3VlMoe, &kQwen3MoeTensors, kQwen3VlMoeDefaults,
     kLocalExpertKeys, "silu", true},
    {"qwen3_vl_moe_text", ReadQwen3VlMoe, &kQwen3MoeTensors,
     kQwen3VlMoeDefaults, kLocalExpertKeys, "silu", true},
    {"glm4v", ReadGlm4v, &kGlm4Tensors, kGlm4vDefaults, {}, "silu", true},
    {"glm4v_text", ReadGlm4v, &kGlm4Tensors, kGlm4vDefaults, {}, "silu", true},
    {"glm4v_moe",
     ReadGlm4vMoe,
     &kGlm4MoeTensors,
     kGlm4vMoeDefaults,
     {},
     "silu",
     true},
    {"glm4v_moe_text",
     ReadGlm4vMoe,
     &kGlm4MoeTensors,
     kGlm4vMoeDefaults,
     {},
     "silu",
     true},
    {"mistral3", ReadMistral, &kLlamaTensors, kMistralDefaults},
    {"gemma3", ReadGemma3, &kGemmaTensors, kGemma3Defaults, kGemma3Keys, kGelu},
    {"gemma4", ReadGemma4, &kGemma4Tensors, kGemma4Defaults, {}, kGelu},
    {"gemma3_text", ReadGemma3, &kGemmaTensors, kGemma3Defaults, kGemma3Keys,
     kGelu},
    {"gemma4_text", ReadGemma4, &kGemma4Tensors, kGemma4Defaults, {}, kGelu},
    {"lfm2", ReadLfm2, &kLfm2Tensors,
     R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5,
         "rope_theta": 1000000.0, "max_position_embeddings": 128000,
         "tie_word_embeddings": true, "intermediate_size": 12288})",
     kLfm2Keys},
    {"lfm2_moe", ReadLfm2Moe, &kLfm2Tensors,
     R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5,
         "rope_theta": 1000000.0, "max_position_embeddings": 128000,
         "tie_word_embeddings": true, "num_experts": 32,
         "num_experts_per_tok": 4, "moe_intermediate_size": 1792})",
     kLfm2Keys},
    {"qwen3_next", ReadQwen3Next, &kQwen3NextTensors,
     R"({"num_key_value_heads": 2, "head_dim": 256,
         "max_position_embeddings": 32768, "partial_rotary_factor": 0.25,
         "intermediate_size": 5632, "num_experts": 512,
         "num_experts_per_tok": 10, "moe_intermediate_size": 512})"},
    {"qwen3_5", ReadQwen35, &kQwen35Tensors, kQwen35Defaults},
    {"qwen3_5_text", ReadQwen35, &kQwen35Tensors, kQwen35Defaults},
    {"qwen3_5_moe", ReadQwen35Moe, &kQwen35Tensors, kQwen35MoeDefaults},
    {"qwen3_5_moe_text", ReadQwen35Moe, &kQwen35Tensors, kQwen35MoeDefaults},
    {"granitemoehybrid", ReadGraniteHybrid, &kGraniteHybridTensors,
     R"({"intermediate_size": 11008, "num_experts_per_tok": 2,
         "mamba_d_state": 256, "mamba_d_head": "auto"})"},
    {"nemotron_h", ReadNemotronH, &kNemotronHTensors,
     R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 4096, "intermediate_size": 21504,
         "n_groups": 8, "n_routed_experts": 8, "num_experts_per_tok": 2,
         "moe_intermediate_size": 7688,
         "moe_shared_expert_intermediate_size": 7688})",
     kHunyuanKeys},
    {"falcon_h1", ReadFalconH1, &kFalconH1Tensors,
     R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 8192, "mamba_d_state": 256})"},
    {"mixtral", ReadMixtral, &kMixtralTensors,
     R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5,
         "rope_theta": 1000000.0, "num_local_experts": 8,
         "num_experts_per_tok": 2, "max_position_embeddings": 131072})"},
    {"qwen2_moe", ReadQwen2Moe, &kQwen2MoeTensors,
     R"({"num_key_value_heads": 16, "max_position_embeddings": 32768,
         "sliding_window": 4096, "num_experts": 60, "num_experts_per_tok": 4,
         "moe_intermediate_size": 1408})"},
    {"qwen3_moe", ReadQwen3Moe, &kQwen3MoeTensors,
     R"({"num_key_value_heads": 4, "max_position_embeddings": 32768})",
     kLocalExpertKeys, "silu", true},
    {"olmoe", ReadOlmoe, &kQwen3MoeTensors,
     R"({"rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8,
         "max_position_embeddings": 4096})"},
    {"granitemoe", ReadGraniteMoe, &kGraniteMoeTensors,
     R"({"num_local_experts": 8, "num_experts_per_tok": 2})"},
    {"ernie4_5_moe", ReadErnieMoe, &kErnieMoeTensors,
     R"({"num_key_value_heads": 4, "rms_norm_eps": 1e-5,
         "rope_theta": 500000.0, "max_position_embeddings": 131072,
         "tie_word_embeddings": true, "moe_num_shared_experts": 2,
         "num_experts": 64, "num_experts_per_tok": 6,
         "moe_intermediate_size": 1536})",
     kErnieMoeKeys},
    {"hunyuan_v1_moe", ReadHunyuanMoe, &kHunyuanMoeTensors,
     R"({"rms_norm_eps": 1e-5})", kHunyuanKeys},
    {"minimax_m2", ReadMinimaxM2, &kMixtralTensors,
     R"({"num_key_value_heads": 8, "head_dim": 128,
         "rope_theta": 5000000.0, "num_local_experts": 256,
         "num_experts_per_tok": 8, "max_position_embeddings": 196608})"},
    {"dots1", ReadDots1, &kDots1Tensors,
     R"({"num_key_value_heads": 32, "head_dim": 128, "n_shared_experts": 0,
         "first_k_dense_replace": 0, "norm_topk_prob": false,
         "max_position_embeddings": 2048})"},
    {"glm4_moe",
     ReadGlm4Moe,
     &kGlm4MoeTensors,
     R"({"num_key_value_heads": 8, "max_position_embeddings": 131072})",
     {},
     "silu",
     true},
    {"gpt_oss",
     ReadGptOss,
     &kGptOssTensors,
     R"({"num_key_value_heads": 8, "head_dim": 64})",
     {},
     "silu",
     true},
    {"deepseek_v2", ReadDeepseekV2, &kDeepseekTensors,
     R"({"head_dim": 64, "q_lora_rank": 1536, "kv_lora_rank": 512,
         "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
         "n_shared_experts": 2, "n_routed_experts": 64,
         "moe_intermediate_size": 1407})"},
    {"deepseek_v3", ReadDeepseekV3, &kDeepseekTensors, kDeepseekV3Defaults},
    {"kimi_k2", ReadDeepseekV3, &kDeepseekTensors, kDeepseekV3Defaults},
    {"deepseek_v32", ReadDeepseekV32, &kDeepseekTensors,
     R"({"head_dim": 64, "q_lora_rank": 1536, "kv_lora_rank": 512,
         "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
         "n_shared_experts": 1, "n_routed_experts": 256,
         "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
         "moe_intermediate_size": 2048, "routed_scaling_factor": 2.5,
         "max_position_embeddings": 163840, "index_topk": 2048,
         "index_n_heads": 64, "index_head_dim": 128})"},
    {"glm_moe_dsa", ReadGlmMoeDsa, &kDeepseekTensors,
     R"({"head_dim": 64, "rms_norm_eps": 1e-5, "q_lora_rank": 2048,
         "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
         "v_head_dim": 256, "n_shared_experts": 1, "n_routed_experts": 256,
         "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
         "routed_scaling_factor": 2.5, "max_position_embeddings": 202752,
         "index_topk": 2048, "index_n_heads": 32, "index_head_dim": 128})"},
    {"glm4_moe_lite", ReadGlm4MoeLite, &kDeepseekTensors,
     R"({"head_dim": 64, "rms_norm_eps": 1e-5, "q_lora_rank": 768,
         "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
         "v_head_dim": 256, "n_shared_experts": 1, "n_routed_experts": 64,
         "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
         "routed_scaling_factor": 1.8, "max_position_embeddings": 202752})"},
};

}  // namespace

Status CheckQuantisation(const ConfigReader& reader) {
  constexpr std::string_view kMethods[] = {
      "auto-round",   "auto_round", "awq",   "compressed-tensors",
      "fbgemm_fp8",   "fp8",        "gptq",  "modelopt",
      "modelopt_fp4", "mxfp4",      "quark", "sluice"};
  const Json* found = reader.Find("quantization_config");
  if (found == nullptr) return OkStatus();
  const Json method =
      found->is_object() ? found->value("quant_method", Json()) : Json();
  std::string known;
  for (const std::string_view name : kMethods) {
    if (method == Json(name)) return OkStatus();
    known += Cat(known.empty() ? "" : ", ", name);
  }
  return InvalidArgument("quantization_config: quant_method is ",
                         DumpJson(method).substr(0, 100), ", known are ",
                         known);
}

StatusOr<const Family*> FindFamily(const ConfigReader& reader) {
  const Json* found = reader.Find("model_type");
  if (found == nullptr || !found->is_string()) {
    return InvalidArgument("model_type is missing or no string");
  }
  const auto model_type = found->get<std::string>();
  std::string supported;
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
    supported += Cat(supported.empty() ? "" : ", ", family.model_type);
  }
  if (model_type.starts_with(kGgufPrefix)) {
    return InvalidArgument(
        "GGUF architecture '", model_type.substr(kGgufPrefix.size()),
        "' is not supported; of GGUF files ", GgufArchitectures(),
        " are, of safetensors folders ", supported);
  }
  return InvalidArgument("model_type '", model_type,
                         "' is not supported; supported are ", supported);
}

Status ReadLayerTypes(const ConfigReader& reader, ModelConfig& parsed) {
  const Json* found = reader.Find("layer_types");
  if (found == nullptr) return OkStatus();
  const Json& types = *found;
  const size_t layers = parsed.layers.size();
  if (!types.is_array() || types.size() < layers) {
    return InvalidArgument("layer_types is no list of at least ", layers,
                           " layers' types");
  }
  for (size_t i = 0; i < layers; ++i) {
    const Json& type = types[i];
    int32_t& window = parsed.layers[i].attention.window;
    if (type == "sliding_attention") {
      SLUICE_RETURN_IF_ERROR(
          reader.Int("sliding_window", kMaxKvWindow, {}, window));
    } else if (type != "full_attention") {
      return InvalidArgument("layer_types has ", DumpJson(type), " for layer ",
                             i,
                             "; supported are full_attention and "
                             "sliding_attention");
    }
  }
  return OkStatus();
}

}  // namespace sluice
