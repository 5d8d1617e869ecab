#include "common/model_config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "common/base/json.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "tests/testing/default_model.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"
#include "tests/weights/model_files.h"

namespace sluice {
namespace {

using sluice::testing::BytesOf;
using sluice::testing::GgufBuilder;
using sluice::testing::ReadFileOrDie;
using sluice::testing::TempDir;
using sluice::testing::TinyLlama;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Llama-3.2-1B's config.
Json Llama1b() {
  return *ParseJson(R"({
    "model_type": "llama", "hidden_act": "silu", "vocab_size": 128256,
    "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192},
    "max_position_embeddings": 131072, "tie_word_embeddings": true,
    "attention_bias": false, "mlp_bias": false, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009]})");
}

std::string RefusalOf(const Json& config) {
  const auto parsed = ParseModelConfig(config);
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  return Message(parsed.status());
}

// The refusal of the config above with one key changed.
std::string Refusal(const char* key, const Json& value) {
  Json config = Llama1b();
  config[key] = value;
  return RefusalOf(config);
}

std::string ScalingRefusal(const char* key, const Json& value) {
  Json config = Llama1b();
  config["rope_scaling"][key] = value;
  return RefusalOf(config);
}

TEST(ModelConfigTest, ReadsTheKeysOfLlama3) {
  const auto config = ParseModelConfig(Llama1b());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->hidden_size, 2048);
  EXPECT_EQ(config->num_layers(), 16);
  EXPECT_EQ(config->layers[15].attention.q_size(), 2048);
  EXPECT_EQ(config->layers[15].attention.kv_size(), 512);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->ropes[0].scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(128001, 128008, 128009));
  EXPECT_EQ(config->ropes[0].inv_freq.size(), 32u);
}

TEST(ModelConfigTest, CountsTheParametersOfReleasedModels) {
  const auto one = ParseModelConfig(Llama1b());
  EXPECT_EQ(ParameterCount(*one), 1'235'814'400u);
  Json eight = Llama1b();
  eight.update({{"hidden_size", 4096},
                {"num_hidden_layers", 32},
                {"head_dim", 128},
                {"intermediate_size", 14336},
                {"tie_word_embeddings", false}});
  EXPECT_EQ(ParameterCount(*ParseModelConfig(eight)), 8'030'261'248u);
}

TEST(ModelConfigTest, OldConfigsGetTheDefaultsOfTheirTime) {
  const auto config = ParseModelConfig(*ParseJson(R"({
    "model_type": "llama", "hidden_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "intermediate_size": 100, "vocab_size": 250})"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->layers[2].attention.num_kv_heads, 4);
  EXPECT_EQ(config->layers[2].attention.head_dim, 12);
  EXPECT_EQ(config->ropes[0].theta, 10000.0);
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->max_position_embeddings, 2048);
  EXPECT_EQ(config->ropes[0].scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->bos_token_id, -1);
  EXPECT_THAT(config->eos_token_ids, ElementsAre());
}

TEST(ModelConfigTest, NewConfigsHaveThetaAndScalingInRopeParameters) {
  Json config = Llama1b();
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = 500000.0;
  config.erase("rope_scaling");
  config.erase("rope_theta");
  EXPECT_EQ(*ParseModelConfig(config), *ParseModelConfig(Llama1b()));
  config["rope_parameters"] =
      Json{{"rope_type", "default"}, {"rope_theta", 1e5}};
  EXPECT_EQ(ParseModelConfig(config)->ropes[0].theta, 1e5);
}

TEST(ModelConfigTest, FrequenciesAreThoseOfTheReference) {
  const Json golden =
      *ParseJson(ReadFileOrDie("tests/model_config/rope_inv_freq.json"));
  int compared = 0;
  for (const auto& [name, values] : golden.items()) {
    if (!name.starts_with("llama")) continue;
    Json config = Llama1b();
    const bool small = name.find("head_dim 64") != std::string::npos;
    config["head_dim"] = small ? 64 : 128;
    config["rope_scaling"]["factor"] =
        name.find("factor 32") != std::string::npos ? 32.0 : 8.0;
    const auto parsed = ParseModelConfig(config);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ASSERT_EQ(parsed->ropes[0].inv_freq.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      const double wanted = values[i].get<double>();
      EXPECT_NEAR(parsed->ropes[0].inv_freq[i], wanted, 1e-14 * wanted)
          << name << i;
    }
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

TEST(ModelConfigTest, DivisorsOfAGgufGiveTheSameFrequenciesAsLlama3) {
  const auto scaled = ParseModelConfig(Llama1b());
  Json config = Llama1b();
  config.erase("rope_scaling");
  const auto plain = ParseModelConfig(config);
  Json divisors = Json::array();
  for (size_t i = 0; i < plain->ropes[0].inv_freq.size(); ++i) {
    divisors.push_back(plain->ropes[0].inv_freq[i] /
                       scaled->ropes[0].inv_freq[i]);
  }
  config["rope_scaling"] =
      Json{{"rope_type", "divisors"}, {"divisors", divisors}};
  const auto divided = ParseModelConfig(config);
  ASSERT_TRUE(divided.ok()) << divided.status();
  for (size_t i = 0; i < scaled->ropes[0].inv_freq.size(); ++i) {
    EXPECT_DOUBLE_EQ(divided->ropes[0].inv_freq[i],
                     scaled->ropes[0].inv_freq[i]);
  }
  divisors[0] = 0.0;
  EXPECT_THAT(ScalingRefusal("rope_type", "divisors"), HasSubstr("32 numbers"));
  config["rope_scaling"]["divisors"] = divisors;
  EXPECT_THAT(RefusalOf(config), HasSubstr("divisors has 0"));
}

TEST(ModelConfigTest, FrequenciesAboveOneAreRefused) {
  EXPECT_THAT(Refusal("rope_theta", 1e-9), HasSubstr("rope_theta 1e-09"));
  Json config = Llama1b();
  config["rope_scaling"] = Json{{"rope_type", "divisors"},
                                {"divisors", std::vector<double>(32, 1e-300)}};
  EXPECT_THAT(RefusalOf(config), HasSubstr("pair 0 frequency 1e+300"));
}

TEST(ModelConfigTest, OtherFamiliesAreRefusedByName) {
  EXPECT_THAT(Refusal("model_type", "bloom"), HasSubstr("'bloom'"));
  EXPECT_THAT(Refusal("model_type", nullptr), HasSubstr("model_type"));
  EXPECT_THAT(Refusal("model_type", 7), HasSubstr("model_type"));
  EXPECT_THAT(RefusalOf(Json::array()), HasSubstr("expected an object"));
}

TEST(ModelConfigTest, FeaturesThatAreNotBuiltAreRefusedByName) {
  EXPECT_THAT(Refusal("attention_bias", 1), HasSubstr("attention_bias"));
  EXPECT_THAT(Refusal("mlp_bias", 1), HasSubstr("mlp_bias"));
  EXPECT_THAT(Refusal("hidden_act", "gelu"), HasSubstr("\"gelu\""));
  EXPECT_THAT(Refusal("partial_rotary_factor", 0.5),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(Refusal("quantization_config", Json::object()),
              HasSubstr("quantization_config"));
  EXPECT_THAT(ScalingRefusal("rope_type", "ntk"), HasSubstr("'ntk'"));
  EXPECT_EQ(Refusal("partial_rotary_factor", 1.0), "");
}

TEST(ModelConfigTest, SizesOutOfRangeAreRefusedWithKeyAndValue) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
        "max_position_embeddings"}) {
    for (const Json& value :
         {Json(0), Json(-1), Json(int64_t{1} << 40), Json(~uint64_t{0}),
          Json(1.5), Json("8"), Json(true), Json::array({8})}) {
      EXPECT_THAT(Refusal(key, value), HasSubstr(key)) << value;
    }
  }
  Json config = Llama1b();
  config.erase("hidden_size");
  EXPECT_THAT(RefusalOf(config), HasSubstr("hidden_size is missing"));
}

TEST(ModelConfigTest, NumbersThatAreNoneAreRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const char* key : {"rms_norm_eps", "rope_theta"}) {
    for (const Json& value : {Json(kNan), Json(kInf), Json(0.0), Json(-1e-5),
                              Json("1e-5"), Json(true)}) {
      EXPECT_THAT(Refusal(key, value), HasSubstr(key)) << value;
    }
  }
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor",
                          "original_max_position_embeddings"}) {
    for (const Json& value : {Json(kNan), Json(kInf), Json(0.0), Json(-8.0),
                              Json(nullptr), Json("8")}) {
      // The length that a model was trained for may be its longest.
      const bool has_default =
          value.is_null() &&
          key == std::string_view("original_max_position_embeddings");
      EXPECT_THAT(ScalingRefusal(key, value), HasSubstr(has_default ? "" : key))
          << value;
    }
  }
  EXPECT_THAT(ScalingRefusal("high_freq_factor", 1.0),
              HasSubstr("not above low_freq_factor"));
}

TEST(ModelConfigTest, SizesThatContradictOneAnotherAreRefused) {
  EXPECT_THAT(Refusal("num_key_value_heads", 5), HasSubstr("no multiple"));
  EXPECT_THAT(Refusal("head_dim", 63), HasSubstr("odd"));
  Json config = Llama1b();
  config.erase("head_dim");
  config["hidden_size"] = 2050;
  EXPECT_THAT(RefusalOf(config), HasSubstr("no head_dim"));
}

TEST(ModelConfigTest, AGgufOfAKindThatIsReadFromSafetensorsAloneIsRefused) {
  const TempDir dir;
  for (const char* architecture : {"qwen9", "gpt_oss"}) {
    const auto model = OpenModel(
        dir.Write("m.gguf", GgufBuilder()
                                .Text("general.architecture", architecture)
                                .U32(Cat(architecture, ".block_count"), 2)
                                .Tensor("blk.0.attn_q.weight", {2}, 0,
                                        BytesOf(std::vector<float>{1, 2}))
                                .Build()));
    ASSERT_TRUE(model.ok()) << model.status();
    const auto config = ParseModelConfig((*model)->config());
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
    const std::string message(Message(config.status()));
    EXPECT_THAT(message, HasSubstr(Cat("GGUF architecture '", architecture,
                                       "' is not supported; of GGUF files ")));
    for (const char* served :
         {"llama, ", "qwen3moe", "gpt-oss", "minimax-m2", "gemma3_text"}) {
      EXPECT_THAT(message, HasSubstr(served));
    }
  }
}

// A header alone: sizes of a mixture, and what `add` adds.
template <typename Add>
Status GgufRefusal(const std::string& architecture, Add add) {
  const TempDir dir;
  GgufBuilder gguf;
  gguf.Text("general.architecture", architecture);
  for (const char* key :
       {"embedding_length", "block_count", "attention.head_count",
        "feed_forward_length", "context_length", "expert_count",
        "expert_used_count", "expert_feed_forward_length"}) {
    gguf.U32(Cat(architecture, ".", key), 8);
  }
  gguf.F32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  add(gguf);
  gguf.Tensor("token_embd.weight", {1}, 0, BytesOf(1.0f));
  return OpenModel(dir.Write("m.gguf", gguf.Build())).status();
}

TEST(ModelConfigTest, GgufKeysOfWhatNoFamilyComputesAreRefused) {
  EXPECT_EQ(Message(GgufRefusal("qwen3moe", [](GgufBuilder&) {})), "");
  EXPECT_THAT(Message(GgufRefusal("qwen3moe",
                                  [](GgufBuilder& gguf) {
                                    gguf.U32("qwen3moe.expert_gating_func", 2);
                                  })),
              HasSubstr("expert_gating_func is 2, supported for this "
                        "architecture is 1"));
  EXPECT_THAT(Message(GgufRefusal("qwen3moe",
                                  [](GgufBuilder& gguf) {
                                    gguf.F32("qwen3moe.expert_weights_scale",
                                             2.5f);
                                  })),
              HasSubstr("expert_weights_scale is 2.5, supported is 1"));
  EXPECT_THAT(
      Message(GgufRefusal("gpt-oss",
                          [](GgufBuilder& gguf) {
                            gguf.Text("gpt-oss.rope.scaling.type", "yarn")
                                .F32("gpt-oss.rope.scaling.factor", 32)
                                .F32("gpt-oss.rope.scaling.attn_factor", 2);
                          })),
      HasSubstr("attn_factor is 2, supported is 1"));
}

// Recipes of tests/golden are of more families than are built: a family that is
// not built is refused by its type, and a family that is has a row in
// tests/model/golden_test.cc, or is `stories`.
TEST(ModelConfigTest, AGoldenFamilyIsBuiltOrRefusedByName) {
  const std::set<std::string> waiting = {"llama4_text"};
  size_t seen = 0;
  for (const std::string& name : testing::GoldenModelNames()) {
    const auto model = OpenModel(testing::GoldenModel(name));
    ASSERT_TRUE(model.ok()) << model.status();
    const auto config = ParseModelConfig((*model)->config());
    EXPECT_NE(config.ok(), waiting.contains(name)) << name << config.status();
    if (config.ok()) {
      ++seen;
    } else {
      EXPECT_THAT(std::string(Message(config.status())),
                  HasSubstr("is not supported"))
          << name;
    }
  }
  EXPECT_GE(seen, 60u);
}

TEST(CheckTensorsTest, ReleasedLayoutsPass) {
  for (const char* name : {"llama3-tied", "llama2-bf16-sharded", "stories"}) {
    const std::string path = testing::GoldenModel(name);
    const auto model = OpenModel(path);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto config = ParseModelConfig((*model)->config());
    ASSERT_TRUE(config.ok()) << config.status();
    const Status status = CheckTensors(*config, **model);
    EXPECT_TRUE(status.ok()) << status;
    int64_t parameters = 0;
    uint64_t bytes = 0;
    for (const auto& info : (*model)->tensors()) {
      parameters += info.elements();
      bytes += static_cast<uint64_t>(info.stored_bytes());
    }
    EXPECT_EQ(ParameterCount(*config), static_cast<uint64_t>(parameters));
    EXPECT_EQ(StoredBytes(*config, **model).total(), bytes);
  }
}

TEST(CheckTensorsTest, TheGgufOfSmolLm2IsALlamaOfThirtyLayers) {
  SLUICE_REQUIRE_SMOLLM2(path);
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_layers(), 30);
  EXPECT_EQ(config->hidden_size, 576);
  const AttentionConfig& attention = config->layers[29].attention;
  EXPECT_EQ(attention.num_heads, 9);
  EXPECT_EQ(attention.num_kv_heads, 3);
  EXPECT_EQ(attention.head_dim, 64);
  EXPECT_EQ(config->vocab_size, 49152);
  EXPECT_EQ(config->ropes[0].theta, 100000.0);
  EXPECT_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_TRUE(config->tie_word_embeddings);
  // By a key, and <|endoftext|> by its text.
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2, 0));
  EXPECT_EQ(ParameterCount(*config), 134'515'008u);
  const Status status = CheckTensors(*config, **model);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CheckTensorsTest, ContradictionsNameTheTensorAndBothShapes) {
  const TempDir dir;
  const auto model = OpenModel(dir.Write("tiny.gguf", TinyLlama().Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(CheckTensors(*config, **model).ok());
  const auto refusal = [&](const ModelConfig& other) {
    const Status status = CheckTensors(other, **model);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return Message(status);
  };
  ModelConfig other = *config;
  other.layers[0].mlp.intermediate_size = 13;
  EXPECT_THAT(refusal(other),
              AllOf(HasSubstr("model.layers.0.mlp.gate_proj.weight"),
                    HasSubstr("[12, 8]"), HasSubstr("[13, 8]")));
  other = *config;
  other.layers.push_back(other.layers[1]);
  EXPECT_THAT(refusal(other), HasSubstr("model.layers.2"));
  other = *config;
  other.layers.pop_back();
  EXPECT_THAT(refusal(other), HasSubstr("not part of"));
  other = *config;
  other.tie_word_embeddings = false;
  EXPECT_THAT(refusal(other), HasSubstr("lm_head.weight"));
  other = *config;
  other.vocab_size = 7;
  EXPECT_THAT(refusal(other), HasSubstr("model.embed_tokens.weight"));
}

}  // namespace
}  // namespace sluice
