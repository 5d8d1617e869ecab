// The golden models that tests/model/gguf_families_test.cc writes as GGUFs,
// with the keys that llama.cpp's converter gives their architectures.

#ifndef SLUICE_TESTS_MODEL_GGUF_CASES_H_
#define SLUICE_TESTS_MODEL_GGUF_CASES_H_

#include <cstdint>
#include <ostream>
#include <utility>
#include <vector>

#include "common/base/json.h"

namespace sluice::testing {

enum GgufLayout {
  kUsual,
  kPermuted,           // rows of q and k alternate between halves
  kFusedQkv,           // q, k and v in one tensor
  kFusedExperts,       // gate and up in one tensor
  kNormsPlusOne,       // norms' weights with the 1 that the family adds
  kHalved,             // rows of q and k that turn, even ones first
  kTransposedExperts,  // a checkpoint's are transposed
  kDivisors            // of RoPE's frequencies, in F32
};

struct GgufCase {
  const char* golden;
  const char* architecture;
  // Of post_attention_layernorm, the norm in front of the MLP.
  const char* mlp_norm;
  std::vector<std::pair<const char*, const char*>> keys;  // beyond common ones
  std::vector<std::pair<const char*, Json>> more = {};    // with their values
  GgufLayout layout = kUsual;
  int32_t stages = 2;  // 1: its layers stay together
};

inline std::ostream& operator<<(std::ostream& out, const GgufCase& family) {
  return out << family.golden;
}

inline GgufCase Oss(const char* golden) {
  return {golden,
          "gpt-oss",
          "post_attention_norm",
          {{"expert_count", "num_local_experts"},
           {"expert_used_count", "num_experts_per_tok"},
           {"expert_feed_forward_length", "intermediate_size"},
           {"attention.sliding_window", "sliding_window"}}};
}

inline std::vector<std::pair<const char*, const char*>> Granite() {
  return {{"attention.scale", "attention_multiplier"},
          {"embedding_scale", "embedding_multiplier"},
          {"residual_scale", "residual_multiplier"},
          {"logit_scale", "logits_scaling"}};
}

inline std::vector<std::pair<const char*, const char*>> Experts(
    const char* count) {
  return {{"expert_count", count},
          {"expert_used_count", "num_experts_per_tok"}};
}

// The sections of positions of a model that reads images.
inline std::vector<std::pair<const char*, Json>> Sections(
    const std::vector<int>& sections) {
  Json four = sections;
  four.push_back(0);
  return {{"rope.dimension_sections", four}};
}

// Gemma 4: heads of two sizes, windows in all but every third layer.
inline GgufCase Gemma4(const char* golden, const Json& kv, const Json& widths) {
  return {golden,
          "gemma4",
          "post_attention_norm",
          {{"attention.key_length", "global_head_dim"},
           {"attention.value_length", "global_head_dim"},
           {"rope.dimension_count", "global_head_dim"},
           {"attention.key_length_swa", "head_dim"},
           {"attention.value_length_swa", "head_dim"},
           {"rope.dimension_count_swa", "head_dim"},
           {"attention.sliding_window", "sliding_window"},
           {"attention.shared_kv_layers", "num_kv_shared_layers"},
           {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
           {"final_logit_softcapping", "final_logit_softcapping"}},
          {{"attention.head_count_kv", kv},
           {"feed_forward_length", widths},
           {"rope.freq_base_swa", 10000.0},
           {"attention.sliding_window_pattern",
            Json::array({true, true, false, true, true, false})}}};
}

inline std::vector<GgufCase> GgufCases() {
  GgufCase gemma4_e = Gemma4("gemma4_text-e", Json(1),
                             Json::array({64, 64, 64, 128, 128, 128}));
  gemma4_e.stages = 1;
  GgufCase gemma4_moe =
      Gemma4("gemma4_text-moe", Json::array({2, 2, 1, 2, 2, 1}), Json(48));
  for (const auto& key :
       {std::pair("expert_count", "num_experts"),
        std::pair("expert_used_count", "top_k_experts"),
        std::pair("expert_feed_forward_length", "moe_intermediate_size")}) {
    gemma4_moe.keys.push_back(key);
  }
  GgufCase qwen3_vl = {
      "qwen3_vl", "qwen3vl", "ffn_norm", {}, Sections({4, 2, 2})};
  qwen3_vl.more.emplace_back("n_deepstack_layers", 1);
  return {
      GgufCase{"qwen3", "qwen3", "ffn_norm", {}},
      GgufCase{"qwen3_moe",
               "qwen3moe",
               "ffn_norm",
               {{"expert_count", "num_experts"},
                {"expert_used_count", "num_experts_per_tok"},
                {"expert_feed_forward_length", "moe_intermediate_size"}}},
      GgufCase{"glm4", "glm4", "ffn_norm", {}},
      GgufCase{"glm4_moe-air",
               "glm4moe",
               "post_attention_norm",
               {{"expert_count", "n_routed_experts"},
                {"expert_used_count", "num_experts_per_tok"},
                {"expert_feed_forward_length", "moe_intermediate_size"},
                {"expert_shared_count", "n_shared_experts"},
                {"leading_dense_block_count", "first_k_dense_replace"},
                {"expert_weights_scale", "routed_scaling_factor"},
                {"expert_weights_norm", "norm_topk_prob"},
                {"expert_group_count", "n_group"},
                {"expert_group_used_count", "topk_group"},
                {"nextn_predict_layers", "num_nextn_predict_layers"}}},
      GgufCase{"qwen2_vl", "qwen2vl", "ffn_norm", {}, Sections({2, 3, 3})},
      GgufCase{"qwen2_5_vl", "qwen2vl", "ffn_norm", {}, Sections({2, 3, 3})},
      qwen3_vl,
      GgufCase{"qwen3_vl_moe",
               "qwen3vlmoe",
               "ffn_norm",
               {{"expert_count", "num_experts"},
                {"expert_used_count", "num_experts_per_tok"},
                {"expert_feed_forward_length", "moe_intermediate_size"}},
               qwen3_vl.more,
               kTransposedExperts},
      GgufCase{"glm4v", "glm4", "ffn_norm", {}, Sections({1, 1, 2}), kHalved},
      GgufCase{"glm4v_moe",
               "glm4moe",
               "post_attention_norm",
               {{"expert_count", "n_routed_experts"},
                {"expert_used_count", "num_experts_per_tok"},
                {"expert_feed_forward_length", "moe_intermediate_size"},
                {"expert_shared_count", "n_shared_experts"},
                {"leading_dense_block_count", "first_k_dense_replace"},
                {"expert_weights_scale", "routed_scaling_factor"},
                {"expert_weights_norm", "norm_topk_prob"},
                {"expert_group_count", "n_group"},
                {"expert_group_used_count", "topk_group"}},
               Sections({2, 2, 2})},
      GgufCase{"apertus", "apertus", "", {}, {}, kDivisors},
      Oss("gpt_oss"),
      Oss("gpt_oss-mxfp4"),
      GgufCase{"mistral", "llama", "ffn_norm", {}, {}, kPermuted},
      GgufCase{"mixtral",
               "llama",
               "ffn_norm",
               Experts("num_local_experts"),
               {},
               kPermuted},
      GgufCase{"ministral3",
               "mistral3",
               "ffn_norm",
               {},
               {{"attention.temperature_scale", 0.1},
                {"rope.scaling.yarn_log_multiplier", 1.0}},
               kPermuted},
      GgufCase{"qwen2", "qwen2", "ffn_norm", {}},
      GgufCase{"qwen2_moe", "qwen2moe", "ffn_norm", Experts("num_experts")},
      GgufCase{"gemma", "gemma", "ffn_norm", {}, {}, kNormsPlusOne},
      gemma4_e,
      gemma4_moe,
      GgufCase{"arcee", "arcee", "ffn_norm", {}, {}, kPermuted},
      GgufCase{"cohere",
               "command-r",
               "",
               {{"attention.layer_norm_epsilon", "layer_norm_eps"},
                {"logit_scale", "logit_scale"}}},
      GgufCase{"stablelm",
               "stablelm",
               "ffn_norm",
               {{"attention.layer_norm_epsilon", "layer_norm_eps"},
                {"use_parallel_residual", "use_parallel_residual"}}},
      GgufCase{"nemotron",
               "nemotron",
               "ffn_norm",
               {{"attention.layer_norm_epsilon", "norm_eps"}},
               {},
               kNormsPlusOne},
      GgufCase{"seed_oss", "seed_oss", "post_attention_norm", {}},
      GgufCase{"granite", "granite", "ffn_norm", Granite(), {}, kPermuted},
      GgufCase{"granitemoe",
               "granitemoe",
               "ffn_norm",
               Granite(),
               {{"expert_count", 8}, {"expert_used_count", 2}},
               kPermuted},
      GgufCase{"ernie4_5", "ernie4_5", "ffn_norm", {}},
      GgufCase{"ernie4_5_moe",
               "ernie4_5-moe",
               "ffn_norm",
               {{"expert_count", "moe_num_experts"},
                {"expert_used_count", "moe_k"},
                {"expert_feed_forward_length", "moe_intermediate_size"},
                {"expert_shared_count", "moe_num_shared_experts"},
                {"leading_dense_block_count", "moe_layer_start_index"},
                {"interleave_moe_layer_step", "moe_layer_interval"}},
               // The converter's, whatever the tensors have.
               {{"expert_shared_feed_forward_length", 48}}},
      GgufCase{"glm", "chatglm", "ffn_norm", {}, {}, kFusedQkv},
      GgufCase{"phi3",
               "phi3",
               "ffn_norm",
               {{"attention.sliding_window", "sliding_window"},
                {"rope.scaling.original_context_length",
                 "original_max_position_embeddings"}},
               {{"rope.scaling.attn_factor", 1.2711803}}},
      GgufCase{"phi3-window",
               "phi3",
               "ffn_norm",
               {{"attention.sliding_window", "sliding_window"}}},
      GgufCase{"cohere2",
               "cohere2",
               "",
               {{"attention.layer_norm_epsilon", "layer_norm_eps"},
                {"attention.sliding_window", "sliding_window"},
                {"logit_scale", "logit_scale"}},
               {{"attention.sliding_window_pattern",
                 Json::array({true, true, false, true, true, false})}}},
      GgufCase{"olmo2", "olmo2", "post_attention_norm", {}},
      GgufCase{"olmo3",
               "olmo2",
               "post_attention_norm",
               {{"attention.sliding_window", "sliding_window"}},
               {{"rope.scaling.yarn_attn_factor", 1.2079441541679836},
                {"attention.sliding_window_pattern",
                 Json::array({true, true, false, true, true, false})}}},
      GgufCase{"olmoe",
               "olmoe",
               "ffn_norm",
               Experts("num_experts"),
               {},
               kFusedExperts},
      GgufCase{"minimax_m2",
               "minimax-m2",
               "ffn_norm",
               {{"expert_count", "num_local_experts"},
                {"expert_used_count", "num_experts_per_tok"},
                {"expert_feed_forward_length", "intermediate_size"}},
               {{"expert_gating_func", 2}}},
      GgufCase{"dots1",
               "dots1",
               "ffn_norm",
               {{"expert_count", "n_routed_experts"},
                {"expert_used_count", "num_experts_per_tok"},
                {"expert_feed_forward_length", "moe_intermediate_size"},
                {"expert_shared_count", "n_shared_experts"},
                {"leading_dense_block_count", "first_k_dense_replace"},
                {"expert_weights_scale", "routed_scaling_factor"},
                {"expert_weights_norm", "norm_topk_prob"}},
               {{"expert_gating_func", 2}}}};
}

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_GGUF_CASES_H_
