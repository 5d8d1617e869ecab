#ifndef SLUICE_TESTS_PLACEMENT_PUBLISHED_MODELS_H_
#define SLUICE_TESTS_PLACEMENT_PUBLISHED_MODELS_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "common/model_config/described_model.h"
#include "common/model_config/model_config.h"
#include "common/placement/cluster_plan.h"

namespace sluice::placement {

// The sizes in config.json of released models.
inline constexpr char kLlama70b[] = R"({"model_type": "llama",
  "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
  "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 28672,
  "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
  "max_position_embeddings": 131072, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16"})";
// GLM-4.5-Air; INTELLECT-3 has the same.
inline constexpr char kGlmAir[] = R"({"model_type": "glm4_moe",
  "hidden_size": 4096, "num_hidden_layers": 46, "num_attention_heads": 96,
  "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10944,
  "moe_intermediate_size": 1408, "n_routed_experts": 128,
  "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 1,
  "routed_scaling_factor": 1.0, "norm_topk_prob": true, "n_group": 1,
  "topk_group": 1, "use_qk_norm": false, "attention_bias": true,
  "partial_rotary_factor": 0.5, "rope_theta": 1000000.0,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
  "vocab_size": 151552, "tie_word_embeddings": false})";

// layer_types is to be filled.
inline constexpr char kGptOss120b[] = R"({"model_type": "gpt_oss",
  "torch_dtype": "bfloat16", "vocab_size": 201088, "hidden_size": 2880,
  "num_hidden_layers": 36, "num_attention_heads": 64,
  "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880,
  "num_local_experts": 128, "num_experts_per_tok": 4,
  "experts_per_token": 4, "sliding_window": 128, "rope_theta": 150000,
  "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
    "original_max_position_embeddings": 4096, "rope_type": "yarn",
    "truncate": false}, "initial_context_length": 4096,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
  "attention_bias": true, "swiglu_limit": 7.0, "tie_word_embeddings": false,
  "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert":
    ["model.layers.*.self_attn", "model.layers.*.mlp.router",
     "model.embed_tokens", "lm_head"]}})";

// A model of a config.json alone.
struct PaperModel {
  explicit PaperModel(const std::string& json,
                      std::optional<weights::DType> stored = {}) {
    const std::string folder =
        (std::filesystem::temp_directory_path() /
         Cat("paper-", ::getpid(), "-",
             ::testing::UnitTest::GetInstance()->current_test_info()->name()))
            .string();
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json") << json;
    auto opened = DescribeModel(folder, stored);
    std::filesystem::remove_all(folder);
    EXPECT_TRUE(opened.ok()) << opened.status();
    file = *std::move(opened);
    config = *ParseModelConfig(file->config());
  }

  std::unique_ptr<weights::ModelFile> file;
  ModelConfig config;
};

// Returns a request for `count` machines of these figures (ParseMachine).
inline PlanRequest On(const std::string& machine, int count) {
  PlanRequest request;
  for (int i = 0; i < count; ++i) {
    Machine one = *ParseMachine(machine);
    one.name = Cat("m-", i);
    request.machines.machines.push_back(one);
  }
  request.loads.kv_type = kernels::WeightType::kBf16;
  return request;
}

}  // namespace sluice::placement

#endif  // SLUICE_TESTS_PLACEMENT_PUBLISHED_MODELS_H_
