// Every key is read, known to have no effect, or reported; the identity of a
// model covers what is computed.

#include "common/model_config/config_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/base/json_difference.h"
#include "common/model_config/open_model.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"
#include "tests/weights/quantised_matrix.h"

namespace sluice {
namespace {

using sluice::testing::BytesOf;
using sluice::testing::GgufBuilder;
using sluice::testing::TempDir;
using sluice::testing::TinyLlama;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Unread(const Json& config) {
  ReadKeys read;
  const auto parsed = ParseAndRecord(config, read);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return UnreadConfigKeys(config, read);
}

Json Llama() {
  return *ParseJson(R"({
    "model_type": "llama", "hidden_act": "silu", "vocab_size": 8,
    "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "intermediate_size": 4, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "max_position_embeddings": 64,
    "tie_word_embeddings": true, "torch_dtype": "float32", "use_cache": true,
    "eos_token_id": 2, "architectures": ["LlamaForCausalLM"]})");
}

TEST(ConfigReportTest, KeysThatNoReaderAsksForAreReported) {
  Json config = Llama();
  EXPECT_THAT(Unread(config), ElementsAre());
  config["logit_scale"] = 0.5;
  config["scale_emb"] = nullptr;
  config["rope_parameters"] = {{"rope_theta", 10000.0}, {"new_key", 1}};
  EXPECT_THAT(Unread(config),
              ElementsAre("logit_scale", "rope_parameters.new_key"));
  // A family that asks for a key has it read.
  Json granite = Llama();
  granite["model_type"] = "granite";
  granite["residual_multiplier"] = 0.22;
  EXPECT_THAT(Unread(granite), ElementsAre());
  granite["model_type"] = "llama";
  EXPECT_THAT(Unread(granite), ElementsAre("residual_multiplier"));
}

TEST(ConfigReportTest, ReleasedConfigsHaveNoKeyThatIsUnknown) {
  for (const char* name :
       {"llama3-tied", "qwen3", "qwen3_moe", "glm4", "glm4_moe-46", "gpt_oss",
        "ministral", "internlm3", "mimo", "qwen2_vl", "qwen2_5_vl", "qwen3_vl",
        "qwen3_vl_moe", "glm4v", "glm4v_moe", "kimi_k2", "deepseek_v32"}) {
    const auto model = OpenModel(testing::GoldenModel(name));
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_TRUE((*model)->computed().has_value()) << name;
    EXPECT_THAT((*model)->computed()->unread_keys, ElementsAre()) << name;
  }
}

TEST(ConfigReportTest, AModelOfAnotherKindIsRefused) {
  Json config = Llama();
  config["is_encoder_decoder"] = true;
  EXPECT_THAT(Message(ParseModelConfig(config).status()),
              HasSubstr("is_encoder_decoder"));
}

class GgufKeysTest : public ::testing::Test {
 protected:
  StatusOr<std::unique_ptr<weights::ModelFile>> Open(const GgufBuilder& gguf) {
    return OpenModel(dir_.Write("tiny.gguf", gguf.Build()));
  }
  const TempDir dir_;
};

TEST_F(GgufKeysTest, UnknownKeysAreReportedAndOthersAreKnown) {
  const auto model = Open(TinyLlama()
                              .Text("general.name", "tiny")
                              .Text("tokenizer.chat_template", "x")
                              .U32("tokenizer.ggml.fim_pre_token_id", 1)
                              .U32("llama.rope.scaling.finetuned", 1)
                              .U32("llama.new_key", 3)
                              .U32("tokenizer.ggml.new_key", 3)
                              .F32("llama.logit_scale", 1.0f));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->computed()->unread_keys,
              ElementsAre("llama.new_key", "tokenizer.ggml.new_key"));
}

TEST_F(GgufKeysTest, AKeyThatChangesTheModelIsRefusedByName) {
  EXPECT_THAT(
      Message(Open(TinyLlama().F32("llama.logit_scale", 2.0f)).status()),
      HasSubstr("'llama.logit_scale' changes what a model computes"));
  EXPECT_THAT(Message(Open(TinyLlama().Key("llama.attention.causal", 7,
                                           BytesOf<uint8_t>(0)))
                          .status()),
              HasSubstr("llama.attention.causal"));
  EXPECT_TRUE(
      Open(TinyLlama().Key("llama.attention.causal", 7, BytesOf<uint8_t>(1)))
          .ok());
}

// A folder with the tensors of `Llama()`, and further ones.
class IdentityTest : public ::testing::Test {
 protected:
  std::string DigestOf(const Json& config, bool more = false) {
    testing::SafetensorsBuilder tensors;
    const auto add = [&](const char* name, std::vector<int64_t> shape) {
      int64_t size = 4;
      for (const int64_t n : shape) size *= n;
      tensors.Tensor(name, "F32", shape, std::string(size, '\1'));
    };
    add("model.embed_tokens.weight", {8, 4});
    add("model.norm.weight", {4});
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      add(Cat("model.layers.0.", norm, ".weight").c_str(), {4});
    }
    for (const char* matrix :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
          "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
          "mlp.down_proj"}) {
      add(Cat("model.layers.0.", matrix, ".weight").c_str(), {4, 4});
    }
    if (more) add("model.layers.0.self_attn.rotary_emb.inv_freq", {1});
    dir_.Write("model.safetensors", tensors.Build());
    dir_.Write("config.json", config.dump());
    const auto model = OpenModel(dir_.path());
    EXPECT_TRUE(model.ok()) << model.status();
    config_ = (*model)->computed()->config;
    return weights::ComputeIdentity(**model)->Hex();
  }
  const TempDir dir_;
  std::string config_;  // of the last digest
};

TEST_F(IdentityTest, CoversTheKeysAndTensorsThatAreComputed) {
  const std::string plain = DigestOf(Llama());
  Json config = Llama();
  config["eos_token_id"] = 5;
  config["torch_dtype"] = "bfloat16";
  config["new_key"] = 7;
  config["rope_theta"] = 10000;
  EXPECT_EQ(DigestOf(config, /*more=*/true), plain);
  config["rms_norm_eps"] = 2e-5;
  EXPECT_NE(DigestOf(config), plain);
}

TEST_F(IdentityTest, TheSpellingOfRopeDoesNotCount) {
  Json config = Llama();
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  const std::string old = DigestOf(config);
  const std::string old_config = config_;
  Json newer = Llama();
  newer.erase("rope_theta");
  newer["rope_parameters"] = {
      {"rope_theta", 10000.0}, {"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(DigestOf(newer), old);
  newer["rope_parameters"]["factor"] = 4.0;
  EXPECT_NE(DigestOf(newer), old);
  EXPECT_THAT(DifferenceOfObjects(old_config, config_),
              AllOf(HasSubstr("rope is {"), HasSubstr("\"factor\":2"),
                    HasSubstr(" here and {"), HasSubstr("\"factor\":4")));
  // Two values of one key: which counts is the reader's affair.
  Json both = config;
  both["rope_parameters"] = {{"rope_theta", 20000.0}};
  EXPECT_NE(DigestOf(both), old);
}

TEST(JsonDifferenceTest, NamesKeysAndBothValues) {
  EXPECT_EQ(
      DifferenceOfObjects(R"({"a": 1, "b": 2})", R"({"b": 3, "c": 0})"),
      "a is 1 here and absent there; b is 2 here and 3 there; c is absent "
      "here and 0 there");
  EXPECT_EQ(DifferenceOfObjects(R"({"a": 1})", R"({"a": 1})"), "");
  EXPECT_EQ(DifferenceOfObjects("", R"({"a": 1})"), "");
  EXPECT_EQ(DifferenceOfObjects("[]", "{"), "");
}

}  // namespace
}  // namespace sluice
