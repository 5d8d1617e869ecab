#include <algorithm>
#include <string>

#include "common/base/cat.h"
#include "tests/model/state_gguf.h"

namespace sluice::testing {

std::string StateCase::Name() const {
  std::string name = Cat(golden, old ? "_old" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::ostream& operator<<(std::ostream& out, const StateCase& family) {
  return out << family.Name();
}

std::vector<StateCase> StateCases() {
  using Keys = std::vector<std::pair<const char*, const char*>>;
  const Keys delta = {{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                      {"attention.key_length", "head_dim"},
                      {"attention.value_length", "head_dim"},
                      {"attention.head_count_kv", "num_key_value_heads"},
                      {"ssm.conv_kernel", "linear_conv_kernel_dim"},
                      {"ssm.state_size", "linear_key_head_dim"},
                      {"ssm.group_count", "linear_num_key_heads"},
                      {"ssm.time_step_rank", "linear_num_value_heads"},
                      {"full_attention_interval", "full_attention_interval"}};
  Keys delta_moe = delta;
  for (const auto& key :
       Keys{{"expert_count", "num_experts"},
            {"expert_used_count", "num_experts_per_tok"},
            {"expert_feed_forward_length", "moe_intermediate_size"},
            {"expert_shared_feed_forward_length",
             "shared_expert_intermediate_size"}}) {
    delta_moe.push_back(key);
  }
  const Keys lfm2 = {{"attention.layer_norm_rms_epsilon", "norm_eps"},
                     {"shortconv.l_cache", "conv_L_cache"}};
  Keys lfm2_moe = lfm2;
  for (const auto& key :
       Keys{{"expert_count", "num_experts"},
            {"expert_used_count", "num_experts_per_tok"},
            {"expert_feed_forward_length", "moe_intermediate_size"},
            {"leading_dense_block_count", "num_dense_layers"}}) {
    lfm2_moe.push_back(key);
  }
  const Keys nemotron = {
      {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"},
      {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
      {"attention.key_length", "head_dim"},
      {"attention.value_length", "head_dim"},
      {"ssm.conv_kernel", "conv_kernel"},
      {"ssm.state_size", "ssm_state_size"},
      {"ssm.group_count", "n_groups"},
      {"ssm.time_step_rank", "mamba_num_heads"}};
  Keys nemotron_moe = nemotron;
  for (const auto& key :
       Keys{{"expert_count", "n_routed_experts"},
            {"expert_used_count", "num_experts_per_tok"},
            {"expert_feed_forward_length", "moe_intermediate_size"},
            {"expert_shared_feed_forward_length",
             "moe_shared_expert_intermediate_size"},
            {"expert_shared_count", "n_shared_experts"},
            {"expert_weights_norm", "norm_topk_prob"},
            {"expert_weights_scale", "routed_scaling_factor"},
            {"expert_group_count", "n_group"},
            {"expert_group_used_count", "topk_group"}}) {
    nemotron_moe.push_back(key);
  }
  const Keys mamba = {{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                      {"ssm.conv_kernel", "mamba_d_conv"},
                      {"ssm.state_size", "mamba_d_state"},
                      {"ssm.group_count", "mamba_n_groups"},
                      {"ssm.time_step_rank", "mamba_n_heads"}};
  Keys granite = mamba;
  for (const auto& key : Keys{
           {"attention.scale", "attention_multiplier"},
           {"embedding_scale", "embedding_multiplier"},
           {"residual_scale", "residual_multiplier"},
           {"logit_scale", "logits_scaling"},
           {"expert_count", "num_local_experts"},
           {"expert_used_count", "num_experts_per_tok"},
           {"expert_shared_feed_forward_length", "shared_intermediate_size"}}) {
    granite.push_back(key);
  }
  Keys falcon = mamba;
  for (const auto& key :
       Keys{{"attention.key_length", "head_dim"},
            {"attention.value_length", "head_dim"},
            {"attention.head_count_kv", "num_key_value_heads"}}) {
    falcon.push_back(key);
  }
  return {{"qwen3_next", "qwen3next", delta_moe},
          {"qwen3_next", "qwen3next", delta_moe, /*old=*/true},
          {"qwen3_5_text", "qwen35", delta},
          {"qwen3_5_moe", "qwen35moe", delta_moe},
          {"lfm2", "lfm2", lfm2},
          {"lfm2_moe", "lfm2moe", lfm2_moe},
          {"granitemoehybrid", "granitehybrid", granite},
          {"nemotron_h", "nemotron_h", nemotron},
          {"nemotron_h-moe", "nemotron_h_moe", nemotron_moe},
          {"falcon_h1", "falcon-h1", falcon}};
}

}  // namespace sluice::testing
