// config.json of the families beyond Llama: what is read, what is refused.
#include "common/model_config/model_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/core/kv_groups.h"
#include "common/model_config/config_reader.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// GLM-4.5-Air's config.
Json Air() {
  return *ParseJson(R"({
    "model_type": "glm4_moe", "hidden_act": "silu", "vocab_size": 151552,
    "hidden_size": 4096, "num_hidden_layers": 46, "num_attention_heads": 96,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10944,
    "moe_intermediate_size": 1408, "n_routed_experts": 128,
    "num_experts_per_tok": 8, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "routed_scaling_factor": 1.0,
    "norm_topk_prob": true, "n_group": 1, "topk_group": 1,
    "use_qk_norm": false, "attention_bias": true,
    "partial_rotary_factor": 0.5, "rope_theta": 1000000,
    "rope_scaling": null, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05, "tie_word_embeddings": false,
    "num_nextn_predict_layers": 1,
    "eos_token_id": [151329, 151336, 151338]})");
}

// gpt-oss-20b's config.
Json GptOss() {
  return *ParseJson(R"({
    "model_type": "gpt_oss", "hidden_act": "silu", "vocab_size": 201088,
    "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "sliding_window": 128, "num_local_experts": 32, "num_experts_per_tok": 4,
    "rms_norm_eps": 1e-05, "rope_theta": 150000, "attention_bias": true,
    "swiglu_limit": 7.0, "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
      "beta_slow": 1.0, "original_max_position_embeddings": 4096,
      "truncate": false},
    "quantization_config": {"quant_method": "mxfp4"},
    "eos_token_id": 200002})");
}

ModelConfig Parsed(const Json& config) {
  const auto parsed = ParseModelConfig(config);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : ModelConfig{};
}

bool HasTensor(const ModelConfig& config, const std::string& name) {
  const auto all = ExpectedTensors(config, ExpertStorage::kSeparate);
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& tensor) { return tensor.name == name; });
}

std::string Refusal(Json config, const char* key, const Json& value) {
  config[key] = value;
  const auto parsed = ParseModelConfig(config);
  return parsed.ok() ? "" : Message(parsed.status());
}

TEST(ModelFamiliesTest, CountsTheParametersOfReleasedModels) {
  const auto billions = [](const Json& config) {
    return std::round(double(ParameterCount(Parsed(config))) * 1e-6) / 1e3;
  };
  EXPECT_EQ(billions(Air()), 106.852);
  Json glm46 = Air();
  glm46.update({{"hidden_size", 5120},
                {"num_hidden_layers", 92},
                {"intermediate_size", 12288},
                {"moe_intermediate_size", 1536},
                {"n_routed_experts", 160},
                {"first_k_dense_replace", 3},
                {"routed_scaling_factor", 2.5},
                {"use_qk_norm", true}});
  EXPECT_NEAR(billions(glm46), 352.80, 0.005);
  EXPECT_NEAR(billions(GptOss()), 20.915, 0.0005);
  Json large = GptOss();
  large.update({{"num_hidden_layers", 36}, {"num_local_experts", 128}});
  EXPECT_NEAR(billions(large), 116.829, 0.0005);
  // Its makers' 5.1 B, and the embedding, which they do not count.
  EXPECT_NEAR(double(ActiveParameterCount(Parsed(large))) * 1e-9, 5.7, 0.05);
  EXPECT_NEAR(billions(*ParseJson(R"({
    "model_type": "glm4", "vocab_size": 151552, "hidden_size": 4096,
    "num_hidden_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 13696,
    "attention_bias": true, "tie_word_embeddings": false,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0})")),
              9.4003, 0.0005);
}

TEST(ModelFamiliesTest, ReadsTheKeysOfGlm4Moe) {
  const ModelConfig config = Parsed(Air());
  EXPECT_EQ(config.ropes[0].rotary_dim, 64);
  EXPECT_EQ(config.ropes[0].inv_freq.size(), 32u);
  EXPECT_FALSE(config.ropes[0].interleaved);
  EXPECT_TRUE(config.layers[1].attention.qkv_bias);
  EXPECT_FALSE(config.layers[1].attention.o_bias);
  EXPECT_EQ(config.layers[1].attention.qk_norm, QkNorm::kNone);
  EXPECT_EQ(config.moe().num_experts, 128);
  EXPECT_EQ(config.moe().experts_per_token, 8);
  EXPECT_EQ(config.moe().shared_intermediate_size, 1408);
  EXPECT_TRUE(
      HasTensor(config, "model.layers.1.mlp.gate.e_score_correction_bias"));
  EXPECT_FALSE(config.is_sparse(0));
  EXPECT_TRUE(config.is_sparse(1));
  EXPECT_EQ(config.num_nextn_predict_layers, 1);
}

TEST(ModelFamiliesTest, ReadsTheKeysOfGptOss) {
  const ModelConfig config = Parsed(GptOss());
  EXPECT_EQ(config.layers[0].attention.window, 128);
  EXPECT_EQ(config.layers[1].attention.window, 0);
  EXPECT_EQ(config.layers[22].attention.window, 128);
  EXPECT_TRUE(HasTensor(config, "model.layers.0.self_attn.sinks"));
  EXPECT_TRUE(config.layers[0].attention.o_bias);
  EXPECT_EQ(config.moe().activation.kind,
            kernels::Activation::Kind::kClampedSwiGlu);
  EXPECT_EQ(config.moe().activation.limit, 7.0f);
  EXPECT_TRUE(config.moe().interleaved);
  EXPECT_TRUE(config.is_sparse(0));
  Json listed = GptOss();
  listed["layer_types"] = Json::array();
  for (int i = 0; i < 24; ++i) {
    listed["layer_types"].push_back(i % 2 == 0 ? "sliding_attention"
                                               : "full_attention");
  }
  EXPECT_EQ(Parsed(listed), config);
}

Json Qwen3Moe() {
  return *ParseJson(R"({
    "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 96, "moe_intermediate_size": 32, "num_experts": 8,
    "num_experts_per_tok": 2, "norm_topk_prob": true, "vocab_size": 128,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    "decoder_sparse_step": 1, "mlp_only_layers": []})");
}

// As transformers' Qwen3MoeDecoderLayer has it: a layer is sparse unless
// mlp_only_layers names it, if (its number + 1) % decoder_sparse_step is 0.
TEST(ModelFamiliesTest, AnyPatternOfDenseAndSparseLayersIsRead) {
  const auto sparse = [](int step, const Json& dense) {
    Json config = Qwen3Moe();
    config["decoder_sparse_step"] = step;
    config["mlp_only_layers"] = dense;
    return SparseLayers(Parsed(config));
  };
  EXPECT_EQ(sparse(1, Json::array()), "0-5");
  EXPECT_EQ(sparse(1, nullptr), "0-5");
  EXPECT_EQ(sparse(1, {0, 3}), "1-2, 4-5");
  EXPECT_EQ(sparse(2, Json::array()), "1, 3, 5");
  EXPECT_EQ(sparse(3, {5, 5, 17}), "2");
  const ModelConfig some = Parsed([] {
    Json config = Qwen3Moe();
    config["mlp_only_layers"] = {0, 5};
    return config;
  }());
  EXPECT_EQ(SparseSpan(some).first, 1);
  EXPECT_EQ(SparseSpan(some).last, 4);

  // Without a sparse layer it is a dense model.
  Json dense = Qwen3Moe();
  dense["decoder_sparse_step"] = 7;
  EXPECT_EQ(Parsed(dense).moe(), MoeConfig());
  dense = Qwen3Moe();
  dense["num_experts"] = 0;
  EXPECT_EQ(Parsed(dense).moe(), MoeConfig());

  EXPECT_THAT(Refusal(Qwen3Moe(), "decoder_sparse_step", 0),
              HasSubstr("decoder_sparse_step"));
  EXPECT_THAT(Refusal(Qwen3Moe(), "mlp_only_layers", 3),
              HasSubstr("mlp_only_layers"));
  EXPECT_THAT(Refusal(Qwen3Moe(), "mlp_only_layers", {1, -1}),
              HasSubstr("mlp_only_layers has -1"));
  EXPECT_THAT(Refusal(Qwen3Moe(), "mlp_only_layers", {"1"}),
              HasSubstr("mlp_only_layers has \"1\""));
}

TEST(ModelFamiliesTest, AWindowThatNoPositionReachesBeyondIsNone) {
  Json config = GptOss();
  config["sliding_window"] = 131071;
  EXPECT_EQ(Parsed(config).layers[0].attention.window, 131071);
  config["sliding_window"] = 131072;
  EXPECT_EQ(Parsed(config).layers[0].attention.window, 0);
  config["sliding_window"] = kMaxKvWindow + 1;
  EXPECT_THAT(Message(ParseModelConfig(config).status()),
              HasSubstr("sliding_window"));
}

TEST(ModelFamiliesTest, YarnIsNotTruncatedAndScalesTheAngles) {
  const ModelConfig config = Parsed(GptOss());
  EXPECT_NEAR(config.ropes[0].scaling.attention_factor, 1.3465736, 1e-7);
  // The ramp goes from pair 8.092779 to pair 17.398024.
  ASSERT_EQ(config.ropes[0].inv_freq.size(), 32u);
  for (int i = 0; i < 32; ++i) {
    const double plain = std::pow(150000.0, -2.0 * i / 64);
    const double ramp =
        std::min(1.0, std::max(0.0, (i - 8.092779) / (17.398024 - 8.092779)));
    const double wanted = ramp * plain / 32 + (1 - ramp) * plain;
    EXPECT_NEAR(config.ropes[0].inv_freq[i], wanted, 1e-6 * wanted) << i;
  }
  Json whole = GptOss();
  whole["rope_scaling"]["truncate"] = true;  // from 8 to 18
  const double plain = std::pow(150000.0, -2.0 * 9 / 64);
  EXPECT_NEAR(Parsed(whole).ropes[0].inv_freq[9], plain * (0.9 + 0.1 / 32),
              1e-12);
  // Both scales of the angles, or the factor's alone.
  const double alone = Parsed(GptOss()).ropes[0].scaling.attention_factor;
  EXPECT_NEAR(alone, 0.1 * std::log(32.0) + 1, 1e-12);
  Json scaled = GptOss();
  scaled["rope_scaling"]["mscale"] = 0.5;
  EXPECT_EQ(Parsed(scaled).ropes[0].scaling.attention_factor, alone);
  scaled["rope_scaling"]["mscale_all_dim"] = 1.0;
  EXPECT_NEAR(Parsed(scaled).ropes[0].scaling.attention_factor,
              (0.05 * std::log(32.0) + 1) / alone, 1e-12);
}

// The table for people and the code's.
TEST(ModelFamiliesTest, ModelsMdIsTheTableOfTypes) {
  std::ifstream file(SLUICE_SOURCE_DIR "/common/model_config/MODELS.md");
  size_t served = 0;
  size_t refused = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| ") || line.starts_with("| type") ||
        line.starts_with("| ---")) {
      continue;
    }
    const size_t models = line.find(" | ");
    const std::string_view state =
        std::string_view(line).substr(line.find(" | ", models + 3) + 3);
    const bool is_served = state.starts_with("served");
    ASSERT_TRUE(is_served || state.starts_with("refused: ")) << line;
    std::istringstream names(line.substr(2, models - 2));
    for (std::string name; std::getline(names >> std::ws, name, ',');) {
      const Json config = {{"model_type", name}};
      EXPECT_EQ(FindFamily(ConfigReader(config)).ok(), is_served) << name;
      ++(is_served ? served : refused);
    }
  }
  EXPECT_GE(served, 45u);
  EXPECT_GE(served + refused, 96u);
}

TEST(ModelFamiliesTest, WhatIsNotBuiltIsRefusedByName) {
  for (const Json& config : {Air(), GptOss()}) {
    EXPECT_THAT(
        Refusal(config, "quantization_config", Json{{"quant_method", "hqq"}}),
        AllOf(HasSubstr("quantization_config"), HasSubstr("\"hqq\""),
              HasSubstr("known are auto-round, auto_round, awq, compressed-")));
    EXPECT_EQ(
        Refusal(config, "quantization_config", Json{{"quant_method", "awq"}}),
        "");
  }
  EXPECT_THAT(Refusal(Air(), "n_group", 3), HasSubstr("n_group 3"));
  EXPECT_THAT(Refusal(Air(), "topk_group", 2), HasSubstr("topk_group"));
  EXPECT_THAT(Refusal(Air(), "num_experts_per_tok", 129),
              HasSubstr("num_experts_per_tok"));
  EXPECT_THAT(Refusal(Air(), "n_routed_experts", 4000),
              HasSubstr("131072 in all"));
  EXPECT_THAT(Refusal(Air(), "first_k_dense_replace", 47),
              HasSubstr("first_k_dense_replace"));
  EXPECT_THAT(Refusal(Air(), "partial_rotary_factor", 0.01),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(Refusal(GptOss(), "layer_types", Json::array({"full"})),
              HasSubstr("at least 24"));
  EXPECT_THAT(
      Refusal(GptOss(), "layer_types", Json::array_t(24, "chunked_attention")),
      HasSubstr("chunked_attention"));
  Json qwen = Air();
  qwen["model_type"] = "qwen3";
  EXPECT_THAT(Refusal(qwen, "model_type", "gguf glm4"),
              HasSubstr("GGUF architecture 'glm4'"));
}

TEST(ModelFamiliesTest, AKeyThatHasNoDefaultIsMissedByName) {
  const auto without = [](Json config, const char* key) {
    config.erase(key);
    const auto parsed = ParseModelConfig(config);
    return parsed.ok() ? "" : Message(parsed.status());
  };
  for (const char* key : {"rms_norm_eps", "rope_theta"}) {
    const auto missed = HasSubstr(Cat("key ", key, " is missing, and a "));
    EXPECT_THAT(without(Air(), key), missed);
    EXPECT_THAT(without(GptOss(), key), missed);
    // Sizes of experts mean nothing to the dense families.
    for (const char* family : {"qwen3", "glm4", "qwen3_moe"}) {
      Json config = Air();
      config["model_type"] = family;
      EXPECT_THAT(without(config, key), missed) << family;
      config[key] = nullptr;
      EXPECT_THAT(Message(ParseModelConfig(config).status()), missed);
    }
  }
  for (const char* key : {"rope_scaling", "max_position_embeddings"}) {
    EXPECT_THAT(without(GptOss(), key),
                HasSubstr(Cat("key ", key, " is missing")));
    EXPECT_EQ(without(Air(), key), "") << key;
  }
  // The newer layout has them within rope_parameters.
  Json nested = GptOss();
  nested["rope_parameters"] = nested["rope_scaling"];
  nested["rope_parameters"]["rope_theta"] = nested["rope_theta"];
  nested.erase("rope_scaling");
  EXPECT_EQ(without(nested, "rope_theta"), "");
}

TEST(ModelFamiliesTest, AGlmLayerThatTheConfigIsSilentOfIsLeftAside) {
  const std::string path = testing::GoldenModel("glm4_moe-air");
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  Json silent = (*model)->config();
  silent.erase("num_nextn_predict_layers");
  const Status status = CheckTensors(Parsed(silent), **model);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GT(StoredBytes(Parsed(silent), **model).left_aside, 0u);
  // One layer, not two: the last of the config's own is not left aside.
  silent["num_hidden_layers"] = silent["num_hidden_layers"].get<int>() - 1;
  EXPECT_THAT(Message(CheckTensors(Parsed(silent), **model)),
              HasSubstr("is not part of"));
}

TEST(ModelFamiliesTest, GoldenLayoutsPassAndTheirBytesAreAllCounted) {
  for (const char* name : {"qwen3", "qwen3_moe", "glm4", "glm4_moe-air",
                           "glm4_moe-46", "gpt_oss", "gpt_oss-mxfp4"}) {
    const std::string path = testing::GoldenModel(name);
    const auto model = OpenModel(path + "/model.safetensors");
    ASSERT_TRUE(model.ok()) << model.status();
    const ModelConfig config =
        Parsed(*ParseJson(testing::ReadFileOrDie(path + "/config.json")));
    const Status status = CheckTensors(config, **model);
    EXPECT_TRUE(status.ok()) << status;
    uint64_t all = 0;
    for (const auto& tensor : (*model)->tensors()) {
      all += static_cast<uint64_t>(tensor.stored_bytes());
    }
    const ModelBytes bytes = StoredBytes(config, **model);
    EXPECT_EQ(bytes.total() + bytes.left_aside, all) << name;
    EXPECT_EQ(bytes.left_aside > 0, config.num_nextn_predict_layers > 0);
    EXPECT_EQ(bytes.experts.back() > 0, config.moe().num_experts > 0);
    // A layer more than the config tells of is not left aside unseen.
    ModelConfig shorter = config;
    shorter.layers.pop_back();
    shorter.num_nextn_predict_layers = 0;
    EXPECT_THAT(Message(CheckTensors(shorter, **model)),
                HasSubstr("is not part of"));
    ModelConfig bare = config;
    bare.layers[0].attention.qkv_bias = !bare.layers[0].attention.qkv_bias;
    EXPECT_THAT(Message(CheckTensors(bare, **model)), HasSubstr("proj.bias"));
  }
}

TEST(ModelFamiliesTest, Mxfp4ExpertsOfOddSizesAreRefused) {
  const std::string path = testing::GoldenModel("gpt_oss-mxfp4");
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  ModelConfig config = Parsed((*model)->config());
  config.layers[0].moe.intermediate_size = 40;
  EXPECT_THAT(Message(CheckTensors(config, **model)),
              AllOf(HasSubstr("gate_up_proj' has shape"),
                    HasSubstr("the config asks for [8, 80, 64]")));
  config.layers[0].moe.intermediate_size = 96;
  EXPECT_THAT(Message(CheckTensors(config, **model)),
              HasSubstr("gate_up_proj' has shape"));
}

}  // namespace
}  // namespace sluice
