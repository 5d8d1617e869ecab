// Files that are a little odd: ids of no token, tensors that nobody reads,
// GGUFs that leave things out.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/stop_ids.h"
#include "common/model_config/tensor_table.h"
#include "tests/weights/model_files.h"

namespace sluice {
namespace {

using sluice::testing::BytesOf;
using sluice::testing::GgufBuilder;
using sluice::testing::TempDir;
using sluice::testing::TinyLlama;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json SmallLlama() {
  return *ParseJson(R"({
    "model_type": "llama", "hidden_act": "silu", "vocab_size": 1000,
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "max_position_embeddings": 4096, "tie_word_embeddings": true})");
}

// The refusal of the config above with one key changed.
std::string RefusalWith(const char* key, const Json& value) {
  Json config = SmallLlama();
  config[key] = value;
  return Message(ParseModelConfig(config).status());
}

TEST(ModelConfigTest, ANumberWithoutAFractionIsAnInteger) {
  Json config = SmallLlama();
  config["max_position_embeddings"] = 2048.0;
  EXPECT_EQ(ParseModelConfig(config)->max_position_embeddings, 2048);
  EXPECT_THAT(RefusalWith("max_position_embeddings", 2048.5),
              HasSubstr("expected an integer"));
  EXPECT_THAT(RefusalWith("hidden_size", 1e300), HasSubstr("hidden_size"));
}

TEST(ModelConfigTest, TokenIdsOutsideTheVocabularyAreNone) {
  for (const Json& id : {Json(-1), Json(128256), Json(4294967295u),
                         Json(18446744073709551615u), Json(1e3), Json("1")}) {
    Json config = SmallLlama();
    config["bos_token_id"] = id;
    config["eos_token_id"] = Json::array({7, id});
    const auto parsed = ParseModelConfig(config);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->bos_token_id, -1) << id;
    EXPECT_THAT(parsed->eos_token_ids, ElementsAre(7)) << id;
  }
}

TEST(StopIdsTest, AreTheUnionOfBothFiles) {
  EXPECT_THAT(StopIds({{"eos_token_id", 5}},
                      {{"eos_token_id", Json::array({7, 5, 3})}}, 10),
              ElementsAre(3, 5, 7));
  EXPECT_THAT(StopIds({{"eos_token_id", nullptr}}, Json::object(), 10),
              ElementsAre());
  EXPECT_THAT(StopIds({{"eos_token_id", 2}},
                      {{"eos_token_id", Json::array({10, "3", -1})}}, 10),
              ElementsAre(2));
}

TEST(StopIdsTest, IdsOfNoTokenAreNamedUnlessTheyStandForNone) {
  EXPECT_THAT(IdsOfNoToken({{"bos_token_id", -1},
                            {"eos_token_id", Json::array({1, 4294967295u})}},
                           10),
              ElementsAre());
  EXPECT_THAT(IdsOfNoToken({{"bos_token_id", 12}, {"eos_token_id", "2"}}, 10),
              ElementsAre("bos_token_id 12 is not in the vocabulary of 10",
                          "eos_token_id \"2\" is not in the vocabulary of 10"));
}

TEST(CheckTensorsTest, ABiasThatTheModelWouldLeaveOutIsRefusedUnlessZero) {
  const TempDir dir;
  const auto status_of = [&](const char* name, std::vector<float> values) {
    const uint64_t size = values.size();
    const auto model = OpenModel(dir.Write(
        "tiny.gguf",
        TinyLlama().Tensor(name, {size}, 0, BytesOf(values)).Build()));
    EXPECT_TRUE(model.ok()) << model.status();
    const auto config = ParseModelConfig((*model)->config());
    return CheckTensors(*config, **model);
  };
  std::vector<float> bias(8, 0.0f);
  // Biases of q, k and v count where all three are there.
  EXPECT_TRUE(status_of("blk.0.attn_q.bias", bias).ok());
  EXPECT_TRUE(status_of("blk.1.ffn_gate.bias", std::vector<float>(12)).ok());
  bias[7] = 1e-30f;
  EXPECT_THAT(Message(status_of("blk.0.attn_q.bias", bias)),
              HasSubstr("self_attn.q_proj.bias"));
  // A bias of no matrix is none, whatever its values.
  EXPECT_THAT(Message(status_of("blk.0.other.bias", {0.0f})),
              HasSubstr("other.bias"));
}

TEST(CheckTensorsTest, ScalesOfCachesAndActivationsAndOldTablesAreLeftAside) {
  const TempDir dir;
  const auto status_of = [&](const char* name, float value) {
    const auto model = OpenModel(dir.Write(
        "tiny.gguf", TinyLlama().Tensor(name, {1}, 0, BytesOf(value)).Build()));
    EXPECT_TRUE(model.ok()) << model.status();
    const auto config = ParseModelConfig((*model)->config());
    return CheckTensors(*config, **model);
  };
  for (const char* name :
       {"blk.0.self_attn.kv_scale", "blk.0.self_attn.prob_scale",
        "blk.1.attn_k.output_scale", "blk.0.self_attn.masked_bias",
        "blk.1.rotary_emb.cos_cached"}) {
    EXPECT_TRUE(status_of(name, 3.0f).ok()) << name;
  }
  EXPECT_THAT(Message(status_of("blk.0.self_attn.scale", 3.0f)),
              HasSubstr("is not part of"));
}

TEST(CheckTensorsTest, ATensorThatOnlyTheIndexHasIsMissedIfItIsNeeded) {
  const TempDir dir;
  dir.Write("config.json", R"({"model_type": "llama"})");
  dir.Write("1.safetensors",
            testing::Safetensors(
                R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                std::string(4, '\0')));
  dir.Write("model.safetensors.index.json",
            R"({"weight_map": {"x": "1.safetensors",)"
            R"( "model.embed_tokens.weight": "2.safetensors",)"
            R"( "model.norm.weight": "1.safetensors"}})");
  const auto model = OpenModel(dir.path());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig(SmallLlama());
  EXPECT_THAT(Message(CheckTensors(*config, **model)),
              AllOf(HasSubstr("'model.embed_tokens.weight' is missing"),
                    HasSubstr("in '2.safetensors', which is not there")));
  EXPECT_THAT((*model)->WhyAbsent("model.norm.weight"),
              HasSubstr("'1.safetensors', which lacks it"));
  EXPECT_EQ((*model)->WhyAbsent("x"), "");
}

TEST(OpenModelTest, AGgufThatNamesAFactorAloneScalesLinearly) {
  const TempDir dir;
  const auto scaling = [&](GgufBuilder gguf) {
    const auto model = OpenModel(dir.Write("tiny.gguf", gguf.Build()));
    EXPECT_TRUE(model.ok()) << model.status();
    const auto config = ParseModelConfig((*model)->config());
    EXPECT_TRUE(config.ok()) << config.status();
    return config->ropes[0].scaling;
  };
  const RopeScaling linear =
      scaling(TinyLlama().F32("llama.rope.scaling.factor", 8));
  EXPECT_EQ(linear.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(linear.factor, 8.0);
  EXPECT_EQ(scaling(TinyLlama().F32("llama.rope.scaling.factor", 0)).kind,
            RopeScaling::Kind::kNone);
  EXPECT_EQ(scaling(TinyLlama()
                        .Text("llama.rope.scaling.type", "none")
                        .F32("llama.rope.scaling.factor", 8))
                .kind,
            RopeScaling::Kind::kNone);
}

TEST(OpenModelTest, AGgufsIntegersMayBeListedByLayer) {
  const TempDir dir;
  const auto open = [&](std::vector<int32_t> kv) {
    const uint64_t count = kv.size();
    return OpenModel(dir.Write(
        "tiny.gguf",
        TinyLlama()
            .Array("llama.attention.key_length", 5, count, BytesOf(kv))
            .Build()));
  };
  const auto model = open({4, 4});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config().at("head_dim"), 4);
  EXPECT_THAT(Message(open({4, 2}).status()),
              HasSubstr("is 4 for layer 0 and 2 for layer 1"));
}

TEST(OpenModelTest, AGgufsTurnsEndAtControlTokensOfKnownTexts) {
  const TempDir dir;
  const auto ends = [&](const std::vector<std::string>& texts,
                        const std::vector<int32_t>& types) {
    std::string tokens;
    for (const std::string& text : texts) tokens += testing::GgufString(text);
    const auto model = OpenModel(dir.Write(
        "tiny.gguf",
        TinyLlama()
            .Array("tokenizer.ggml.tokens", 8, texts.size(), tokens)
            .Array("tokenizer.ggml.token_type", 5, types.size(), BytesOf(types))
            .Build()));
    EXPECT_TRUE(model.ok()) << model.status();
    return ParseModelConfig((*model)->config())->eos_token_ids;
  };
  const std::vector<std::string> texts = {"a", "<|im_end|>", "<end_of_turn>",
                                          "<|end|>"};
  EXPECT_THAT(ends(texts, {1, 3, 4, 1}), ElementsAre(2, 1));
  // Harmony goes on behind <|end|>.
  EXPECT_THAT(ends({"a", "<|end|>", "<|return|>", "<|call|>"}, {1, 3, 3, 3}),
              ElementsAre(2, 3));
}

}  // namespace
}  // namespace sluice
