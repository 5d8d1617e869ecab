// Keys that the reference reads in its own way: the whole's before the text
// part's, a class's own before the usual, spellings of transformers 5.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/quantisation.h"
#include "common/weights/text_part.h"
#include "tests/weights/model_files.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A config of `model_type` with `keys` besides.
Json ConfigOfType(const char* model_type, const char* keys) {
  Json config = *ParseJson(R"({
    "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 128, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0})");
  config["model_type"] = model_type;
  const Json more = *ParseJson(keys);
  for (const auto& [key, value] : more.items()) config[key] = value;
  return config;
}

ModelConfig ParsedAs(const char* model_type, const char* keys) {
  const auto parsed = ParseModelConfig(ConfigOfType(model_type, keys));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : ModelConfig{.layers = {{}, {}}};
}

std::string RefusalAs(const char* model_type, const char* keys) {
  return Message(ParseModelConfig(ConfigOfType(model_type, keys)).status());
}

TEST(TextPartTest, TheWholesOwnKeyTellsWhetherTheHeadIsTied) {
  const auto ties = [](const char* type, bool whole, bool text) {
    return weights::TextPartOf(
        {{"model_type", type},
         {"tie_word_embeddings", whole},
         {"text_config",
          {{"hidden_size", 8},
           {"tie_word_embeddings", text}}}})["tie_word_embeddings"];
  };
  EXPECT_EQ(ties("gemma3", false, true), false);
  EXPECT_EQ(ties("mistral3", true, false), true);
  EXPECT_EQ(ties("qwen2_vl", false, true), true);
  EXPECT_EQ(ties("qwen2_vl", true, false), true);
  // A size beside the text part does not take its place.
  const Json part = weights::TextPartOf(
      {{"hidden_size", 8}, {"text_config", {{"hidden_size", 16}}}});
  EXPECT_EQ(part["hidden_size"], 16);
}

TEST(ReferenceKeysTest, AClasssOwnNameComesBeforeTheUsualOne) {
  EXPECT_EQ(ParsedAs("cohere", R"({"layer_norm_eps": 0.5})").rms_norm_eps, 0.5);
  const ModelConfig lfm2 = ParsedAs(
      "lfm2", R"({"tie_embedding": false, "tie_word_embeddings": true})");
  EXPECT_FALSE(lfm2.tie_word_embeddings);
  EXPECT_FALSE(ParsedAs("cohere2", R"({"tie_word_embeddings": false})")
                   .tie_word_embeddings);
}

TEST(ReferenceKeysTest, RoutersOfQwen3VlAndQwen35AlwaysNormalise) {
  constexpr const char* kKeys = R"({"num_local_experts": 4,
      "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
      "norm_topk_prob": false})";
  EXPECT_TRUE(ParsedAs("qwen3_vl_moe", kKeys).moe().normalise);
  EXPECT_TRUE(ParsedAs("qwen3_5_moe", kKeys).moe().normalise);
  EXPECT_FALSE(ParsedAs("qwen3_moe", kKeys).moe().normalise);
}

TEST(ReferenceKeysTest, MinistralHasWindowsByLayerTypes) {
  const ModelConfig parsed = ParsedAs("ministral", R"({"sliding_window": 32,
      "layer_types": ["full_attention", "sliding_attention"]})");
  EXPECT_EQ(parsed.layers[0].attention.window, 0);
  EXPECT_EQ(parsed.layers[1].attention.window, 32);
}

TEST(ReferenceKeysTest, LimitsOfTimeStepsAreRead) {
  constexpr const char* kMamba = R"({"mamba_n_heads": 4, "mamba_d_head": 32,
      "mamba_d_ssm": 128, "time_step_limit": [0.25, 2.0]})";
  const kernels::StateMixer mixer =
      ParsedAs("falcon_h1", kMamba).layers[0].state.mixer;
  EXPECT_EQ(mixer.time_step_min, 0.25f);
  EXPECT_EQ(mixer.time_step_max, 2.0f);
  const ModelConfig open = ParsedAs("falcon_h1", R"({"mamba_n_heads": 4,
      "mamba_d_head": 32, "mamba_d_ssm": 128,
      "time_step_limit": [0.0, {"__float__": "Infinity"}]})");
  EXPECT_EQ(open.layers[0].state.mixer.time_step_max, 0.0f);
  EXPECT_THAT(RefusalAs("falcon_h1", R"({"mamba_n_heads": 4,
      "mamba_d_head": 32, "mamba_d_ssm": 128, "time_step_limit": [2, 1]})"),
              HasSubstr("time_step_limit is [2,1]"));
}

TEST(ReferenceKeysTest, WhatChangesTheArithmeticIsRefused) {
  for (const char* type : {"gemma", "gemma2", "gemma3_text", "gemma4_text"}) {
    EXPECT_THAT(RefusalAs(type, R"({"use_bidirectional_attention": true})"),
                HasSubstr("use_bidirectional_attention"))
        << type;
  }
  EXPECT_EQ(RefusalAs("gemma4_text", R"({"hidden_size_per_layer_input": 0,
      "use_bidirectional_attention": "vision"})"),
            "");
  EXPECT_THAT(RefusalAs("gpt_oss", R"({"swiglu_alpha": 1.5,
      "rope_scaling": {"rope_type": "default"}, "num_local_experts": 4,
      "num_experts_per_tok": 2})"),
              HasSubstr("swiglu_alpha"));
}

TEST(ReferenceKeysTest, NemotronHsLayersTellTheirNumber) {
  Json config = ConfigOfType("nemotron_h", R"({"mamba_num_heads": 4,
      "mamba_head_dim": 32, "n_groups": 2, "layers_block_type":
      ["linear_attention", "full_attention", "mlp"]})");
  config.erase("num_hidden_layers");
  const auto parsed = ParseModelConfig(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->num_layers(), 3);
  EXPECT_TRUE(parsed->layers[0].state.present());
  EXPECT_TRUE(parsed->layers[1].attention.present);
  config["layers_block_type"] = {"linear_attention", "ssm"};
  EXPECT_THAT(Message(ParseModelConfig(config).status()),
              HasSubstr("layers_block_type has \"ssm\" for layer 1"));
}

TEST(ReferenceKeysTest, AMixerWithoutColumnsIsRefused) {
  EXPECT_THAT(RefusalAs("nemotron_h", R"({"mamba_head_dim": "auto",
      "hybrid_override_pattern": "M*"})"),
              HasSubstr("mamba_head_dim is \"auto\""));
}

TEST(ReferenceKeysTest, Gemma1sGeluHasTanhAndStarcodersHasNot) {
  EXPECT_EQ(ParsedAs("gemma", R"({"hidden_act": "gelu"})")
                .layers[0]
                .mlp.activation.kind,
            kernels::Activation::Kind::kGeluTanh);
  EXPECT_THAT(RefusalAs("starcoder2", R"({"hidden_act": "gelu"})"),
              HasSubstr("gelu"));
}

TEST(ReferenceKeysTest, Gemma4sGlobalHeadsStandInItsLayers) {
  const ModelConfig parsed = ParsedAs("gemma4_text", R"({
      "hidden_size_per_layer_input": 0, "sliding_window": 32,
      "layer_types": ["sliding_attention", "full_attention"],
      "attention_k_eq_v": true, "per_layer_config":
      {"01": {"head_dim": 32, "num_key_value_heads": 1}}})");
  EXPECT_EQ(parsed.layers[0].attention.head_dim, 16);
  EXPECT_EQ(parsed.layers[1].attention.head_dim, 32);
  EXPECT_EQ(parsed.layers[1].attention.num_kv_heads, 1);
  EXPECT_THAT(RefusalAs("gemma4_text", R"({"per_layer_config":
      {"0": {"head_dim": 32}}, "sliding_window": 32,
      "layer_types": ["sliding_attention", "full_attention"]})"),
              HasSubstr("for layer 0"));
}

TEST(QuantisationTest, AutoRoundsZerosAreLessByOneForAutoGptqAlone) {
  const auto version = [](const char* packing) {
    return weights::QuantisationOf({{"quantization_config",
                                     {{"quant_method", "auto-round"},
                                      {"sym", false},
                                      {"packing_format", packing}}}})
        .version;
  };
  EXPECT_EQ(version("auto_round:auto_gptq"), "gptq");
  EXPECT_EQ(version("auto_round:exllamav2"), "gptq_v2");
  EXPECT_EQ(version("auto_round:gptqmodel"), "gptq_v2");
}

// A model of one layer whose config has `keys`, and its head's values.
Json OpenedConfig(const testing::TempDir& dir, const std::string& config) {
  dir.Write("config.json", config);
  dir.Write("model.safetensors",
            testing::Safetensors(
                R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                std::string(4, '\0')));
  const auto model = OpenModel(dir.path());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? (*model)->config() : Json();
}

TEST(OddFilesTest, PythonsWordsForNumbersAreNull) {
  const testing::TempDir dir;
  const Json config = OpenedConfig(
      dir, R"({"time_step_limit": [0.0, Infinity], "a": -Infinity,)"
           R"("b": NaN, "c": "Infinity \" NaN"})");
  EXPECT_EQ(config["time_step_limit"], Json({0.0, nullptr}));
  EXPECT_TRUE(config["a"].is_null());
  EXPECT_TRUE(config["b"].is_null());
  EXPECT_EQ(config["c"], "Infinity \" NaN");
}

TEST(CheckTensorsTest, ATiedHeadThatDiffersIsRefused) {
  const testing::TempDir dir;
  const auto refusal = [&](float head) {
    const std::vector<float> embedding = {1, 2, 3, 4};
    std::vector<float> other = embedding;
    other[1] = head;
    dir.Write("model.safetensors",
              testing::Safetensors(
                  R"({"lm_head.weight":{"dtype":"F32","shape":[2,2],)"
                  R"("data_offsets":[0,16]},"model.embed_tokens.weight":)"
                  R"({"dtype":"F32","shape":[2,2],"data_offsets":[16,32]}})",
                  testing::BytesOf(other) + testing::BytesOf(embedding)));
    dir.Write("config.json", R"({"model_type": "llama"})");
    const auto model = OpenModel(dir.path());
    EXPECT_TRUE(model.ok()) << model.status();
    ModelConfig config = ParsedAs("llama", R"({"tie_word_embeddings": true})");
    return Message(CheckTensors(config, **model));
  };
  EXPECT_THAT(refusal(5), HasSubstr("'lm_head.weight' differs from"));
  EXPECT_THAT(refusal(2), Not(HasSubstr("lm_head")));
}

TEST(TensorTableTest, Qwen3VlsReleasedExpertsAreTransposed) {
  const ModelConfig config =
      ParsedAs("qwen3_vl_moe", R"({"num_experts": 2, "num_experts_per_tok": 2,
      "moe_intermediate_size": 48})");
  const auto storage = [&](const char* shape) {
    const testing::TempDir dir;
    constexpr size_t kBytes = size_t{2} * 64 * 96 * 2;
    dir.Write("config.json", R"({"model_type": "llama"})");
    dir.Write("model.safetensors",
              testing::Safetensors(
                  Cat(R"({"model.layers.0.mlp.experts.gate_up_proj":)",
                      R"({"dtype":"BF16","shape":)", shape,
                      R"(,"data_offsets":[0,)", kBytes, "]}}"),
                  std::string(kBytes, '\0')));
    const auto model = OpenModel(dir.path());
    EXPECT_TRUE(model.ok()) << model.status();
    return ExpertStorageOf(config, **model);
  };
  EXPECT_EQ(storage("[2,64,96]"), ExpertStorage::kTransposed);
  EXPECT_EQ(storage("[2,96,64]"), ExpertStorage::kStacked);
}

}  // namespace
}  // namespace sluice
