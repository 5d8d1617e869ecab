// What GGUFs of many architectures say by other means than a key that stands
// for one of config.json: windows, biases, scalings, sizes that no key tells.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/model_config/gguf_header.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GgufReadersTest, TheNumberOfLayersIsBounded) {
  EXPECT_THAT(GgufHeader("gemma3").Layers(4294967295u).Refusal(),
              HasSubstr("gemma3.block_count is 4294967295"));
}

std::vector<int> WindowsOf(const ModelConfig& config) {
  std::vector<int> windows;
  for (const LayerConfig& layer : config.layers) {
    windows.push_back(layer.attention.window);
  }
  return windows;
}

TEST(GgufReadersTest, GemmasHaveNormsWithTheOneAndTheLargestAnotherScale) {
  ModelConfig config = GgufHeader("gemma2").Layers(4).Parsed();
  EXPECT_FALSE(config.norms_add_one);
  EXPECT_EQ(config.embedding_scale, std::sqrt(32.0));
  EXPECT_EQ(config.layers[0].attention.scale, 1.0 / std::sqrt(8.0));
  // Older files lack the caps.
  EXPECT_EQ(config.layers[0].attention.soft_cap, 50.0);
  EXPECT_EQ(config.logit_soft_cap, 30.0);
  EXPECT_EQ(config.layers[0].mlp.activation.kind,
            kernels::Activation::Kind::kGeluTanh);
  for (const auto& [name, layers] :
       {std::pair("gemma2", 46), std::pair("gemma3", 62)}) {
    config = GgufHeader(name).Layers(static_cast<uint32_t>(layers)).Parsed();
    EXPECT_EQ(config.layers[0].attention.scale, 1.0 / std::sqrt(16.0)) << name;
  }
}

TEST(GgufReadersTest, WindowsAreOfTheLayersThatTheFileOrItsKindSays) {
  EXPECT_THAT(WindowsOf(GgufHeader("gemma2")
                            .Layers(4)
                            .U32("attention.sliding_window", 64)
                            .Parsed()),
              ElementsAre(64, 0, 64, 0));
  const ModelConfig gemma3 = GgufHeader("gemma3")
                                 .Layers(7)
                                 .U32("attention.sliding_window", 64)
                                 .F32("rope.freq_base", 1e6f)
                                 .Parsed();
  EXPECT_THAT(WindowsOf(gemma3), ElementsAre(64, 64, 64, 64, 64, 0, 64));
  EXPECT_EQ(gemma3.ropes[gemma3.layers[0].attention.rope].theta, 10000.0);
  EXPECT_EQ(gemma3.ropes[gemma3.layers[5].attention.rope].theta, 1e6);
  EXPECT_THAT(WindowsOf(GgufHeader("gemma3")
                            .Layers(3)
                            .U32("attention.sliding_window", 64)
                            .U32("attention.sliding_window_pattern", 2)
                            .Parsed()),
              ElementsAre(64, 0, 64));
  GgufHeader olmo3("olmo2");
  olmo3.Layers(3).U32("attention.sliding_window", 64);
  olmo3.Bools("attention.sliding_window_pattern", {false, true, true});
  EXPECT_THAT(WindowsOf(olmo3.Parsed()), ElementsAre(0, 64, 64));
  EXPECT_THAT(WindowsOf(GgufHeader("phi3")
                            .Layers(2)
                            .U32("attention.sliding_window", 64)
                            .Parsed()),
              ElementsAre(64, 64));
  EXPECT_THAT(WindowsOf(GgufHeader("phi3")
                            .Layers(2)
                            .U32("attention.sliding_window", 0)
                            .Parsed()),
              ElementsAre(0, 0));
  EXPECT_THAT(GgufHeader("olmo2")
                  .U32("attention.sliding_window", 64)
                  .Bools("attention.sliding_window_pattern", {true})
                  .Refusal(),
              HasSubstr("sliding_window_pattern has 1 layers of 12"));
  EXPECT_THAT(GgufHeader("olmo2")
                  .U32("attention.sliding_window", 64)
                  .F32("rope.freq_base_swa", 5.0f)
                  .Refusal(),
              HasSubstr("olmo2.rope.freq_base_swa is 5, supported for this "
                        "architecture is freq_base 10000"));
}

TEST(GgufReadersTest, OnlyExaonesWithWindowsHaveLayersWithoutRope) {
  EXPECT_EQ(GgufHeader("exaone4").Parsed().ropes.size(), 1u);
  const ModelConfig config =
      GgufHeader("exaone4").U32("attention.sliding_window", 64).Parsed();
  ASSERT_EQ(config.ropes.size(), 2u);
  EXPECT_EQ(config.layers[0].attention.rope, 0);
  EXPECT_EQ(config.layers[3].attention.rope, 1);
}

TEST(GgufReadersTest, GraniteMultipliesAsItsKeysSay) {
  ModelConfig config = GgufHeader("granite").Parsed();
  EXPECT_EQ(config.logit_scale, 1.0 / 8.0);
  // Without the key as elsewhere.
  EXPECT_EQ(config.layers[0].attention.scale, 1.0 / std::sqrt(8.0));
  config = GgufHeader("granite")
               .F32("attention.scale", 0.015625f)
               .F32("residual_scale", 0.22f)
               .F32("embedding_scale", 12.0f)
               .Parsed();
  EXPECT_EQ(config.layers[0].attention.scale, 0.015625);
  EXPECT_EQ(config.layers[0].residual_scale, 0.22);
  EXPECT_EQ(config.embedding_scale, 12.0);
  EXPECT_THAT(
      GgufHeader("granite").Bool("rope.scaling.finetuned", false).Refusal(),
      HasSubstr("granite.rope.scaling.finetuned is false (no RoPE)"));
  EXPECT_THAT(GgufHeader("granitemoe")
                  .U32("expert_count", 4)
                  .U32("expert_used_count", 2)
                  .U32("expert_shared_feed_forward_length", 16)
                  .Refusal(),
              HasSubstr("expert_shared_feed_forward_length is 16"));
}

TEST(GgufReadersTest, QueriesOfMistral3GrowWithThePosition) {
  EXPECT_EQ(GgufHeader("mistral3").Parsed().layers[0].attention.growth.beta,
            0.0);
  const ModelConfig config =
      GgufHeader("mistral3").F32("attention.temperature_scale", 0.1f).Parsed();
  EXPECT_EQ(config.layers[0].attention.growth.beta, 0.1);
  EXPECT_EQ(config.layers[0].attention.growth.original, 4096.0);
}

TEST(GgufReadersTest, Phi3HasDivisorsOfShortAndOfLongContexts) {
  EXPECT_THAT(GgufHeader("phi3")
                  .Vector("rope_factors_long.weight", {1, 2, 3, 4})
                  .Refusal(),
              HasSubstr("tensor 'rope_factors_short.weight' is missing"));
  GgufHeader phi3("phi3");
  phi3.Vector("rope_factors_long.weight", {1, 2, 3, 4})
      .Vector("rope_factors_short.weight", {1, 1.1f, 1.2f, 1.3f})
      .U32("rope.scaling.original_context_length", 1024)
      .F32("rope.scaling.attn_factor", 1.25f);
  const RopeConfig rope = phi3.Parsed().ropes[0];
  EXPECT_EQ(rope.scaling.kind, RopeScaling::Kind::kLongRope);
  EXPECT_THAT(rope.scaling.divisors, ElementsAre(1, 1.1, 1.2, 1.3));
  EXPECT_THAT(rope.scaling.long_divisors, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(rope.scaling.attention_factor, 1.25);
  EXPECT_THAT(GgufHeader("phi3").U32("rope.dimension_count", 10).Refusal(),
              HasSubstr("rope.dimension_count is 10, limits 2 and head_dim 8"));
  EXPECT_EQ(GgufHeader("phi3")
                .U32("rope.dimension_count", 6)
                .Parsed()
                .ropes[0]
                .rotary_dim,
            6);
  EXPECT_THAT(GgufHeader("qwen2").U32("rope.dimension_count", 6).Refusal(),
              HasSubstr("a part of a head is not supported"));
}

// The converter copies config.json's attention_factor.
TEST(GgufReadersTest, YarnMayHaveAnAttentionFactorOfItsOwn) {
  const auto factor = [](float stored) {
    return GgufHeader("olmo2")
        .Text("rope.scaling.type", "yarn")
        .F32("rope.scaling.factor", 8.0f)
        .U32("rope.scaling.original_context_length", 512)
        .F32("rope.scaling.yarn_attn_factor", stored)
        .Parsed()
        .ropes[0]
        .scaling.attention_factor;
  };
  EXPECT_EQ(factor(1.5f), 1.5);
  // 0.1 ln 8 + 1, which F32 rounds.
  EXPECT_NEAR(factor(1.2079442f), 1.2079441541679836, 1e-15);
  EXPECT_NEAR(factor(1.0f), 1.2079441541679836, 1e-15);
}

// Of each head, the converter has rows of both halves in turn, in biases, too.
TEST(GgufReadersTest, BiasesOfQAndKArePermutedAsTheirRows) {
  const std::vector<float> stored = {0, 1, 2, 3, 4, 5, 6, 7};
  const TempDir dir;
  const auto model = OpenModel(dir.Write(
      "m.gguf",
      TinyLlama()
          .Tensor("blk.0.attn_q.bias", {8}, 0, BytesOf(stored))
          .Tensor("blk.0.attn_k.bias", {4}, 0, BytesOf(std::vector<float>(4)))
          .Tensor(
              "blk.0.attn_v.bias", {4}, 0,
              BytesOf(std::vector<float>(stored.begin(), stored.begin() + 4)))
          .Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config()["attention_bias"], true);
  const auto read = [&](const std::string& name, int64_t begin, int64_t end) {
    std::vector<float> bias(static_cast<size_t>(end - begin));
    const Status status =
        (*model)->ReadF32(name, {0, 1, begin, end}, bias.data());
    EXPECT_TRUE(status.ok()) << status;
    return bias;
  };
  const std::string layer = "model.layers.0.self_attn.";
  EXPECT_THAT(read(layer + "q_proj.bias", 0, 8),
              ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(read(layer + "q_proj.bias", 2, 6), ElementsAre(1, 3, 4, 6));
  EXPECT_THAT(read(layer + "v_proj.bias", 0, 4), ElementsAre(0, 1, 2, 3));
}

// q, k and v may be one tensor: 8, 4 and 4 rows.
TEST(GgufReadersTest, AFusedQkvIsCutByItsRows) {
  const auto open = [](int64_t rows) {
    const TempDir dir;
    std::vector<float> bias(static_cast<size_t>(rows));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
    return OpenModel(dir.Write(
        "m.gguf",
        TinyLlama()
            .Tensor("blk.0.attn_qkv.bias", {bias.size()}, 0, BytesOf(bias))
            .Build()));
  };
  EXPECT_THAT(Message(open(15).status()),
              HasSubstr("tensor 'blk.0.attn_qkv.bias' of shape [15] has not "
                        "the rows of q, k and v, 8 and twice 4"));
  const auto model = open(16);
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<float> bias(4);
  for (const auto& [letter, first] :
       {std::pair('k', 8.0f), std::pair('v', 12.0f)}) {
    const std::string name =
        Cat("model.layers.0.self_attn.", letter, "_proj.bias");
    ASSERT_NE((*model)->Find(name), nullptr) << name;
    ASSERT_TRUE((*model)->ReadF32(name, {0, 1, 0, 4}, bias.data()).ok());
    EXPECT_EQ(bias[0], first);
    EXPECT_EQ(bias[3], first + 3);
  }
}

// 2^61 heads of 8 below 0 have no rows in 64 bits.
TEST(GgufReadersTest, AFusedQkvIsNotCutForHeadsBeyondAllLimits) {
  const TempDir dir;
  const auto model = GgufHeader("qwen2")
                         .I64("attention.head_count_kv", -(int64_t{1} << 61))
                         .Vector("blk.0.attn_qkv.bias", std::vector<float>(16))
                         .OpenFile(dir);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->Find("model.layers.0.self_attn.k_proj.bias"), nullptr);
  EXPECT_THAT(Message(ParseModelConfig((*model)->config()).status()),
              HasSubstr("num_key_value_heads is -2305843009213693952"));
}

TEST(GgufReadersTest, AMixturesSizesMayBeItsTensors) {
  const TempDir dir;
  GgufBuilder gguf;
  gguf.Text("general.architecture", "qwen2moe");
  for (const char* key :
       {"embedding_length", "block_count", "attention.head_count",
        "feed_forward_length", "context_length", "expert_count",
        "expert_used_count"}) {
    gguf.U32(Cat("qwen2moe.", key), 4);
  }
  gguf.F32("qwen2moe.attention.layer_norm_rms_epsilon", 1e-6f);
  gguf.Tensor("token_embd.weight", {4, 4}, 0, BytesOf(std::vector<float>(16)));
  gguf.Tensor("blk.0.ffn_gate_exps.weight", {4, 3, 4}, 0,
              BytesOf(std::vector<float>(48)));
  gguf.Tensor("blk.0.ffn_gate_shexp.weight", {4, 5}, 0,
              BytesOf(std::vector<float>(20)));
  const auto model = OpenModel(dir.Write("m.gguf", gguf.Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  const Json& config = (*model)->config();
  EXPECT_EQ(config["moe_intermediate_size"], 3);
  EXPECT_EQ(config["shared_expert_intermediate_size"], 5);
  EXPECT_EQ(config["norm_topk_prob"], false);
}

// A header of latent attention with an indexer.
GgufHeader IndexedHeader(const std::string& architecture,
                         uint32_t context = 4096, int64_t turned = 4) {
  GgufHeader header(architecture, context);
  header.I64("rope.dimension_count", turned);
  for (const auto& [key, value] :
       {std::pair("attention.key_length_mla", 12),
        std::pair("attention.value_length_mla", 8),
        std::pair("attention.kv_lora_rank", 16),
        std::pair("attention.q_lora_rank", 24), std::pair("expert_count", 4),
        std::pair("expert_used_count", 2),
        std::pair("expert_feed_forward_length", 8),
        std::pair("leading_dense_block_count", 1),
        std::pair("attention.indexer.head_count", 4),
        std::pair("attention.indexer.key_length", 8),
        std::pair("attention.indexer.top_k", 24)}) {
    header.U32(key, static_cast<uint32_t>(value));
  }
  return header;
}

std::vector<bool> IndexedLayers(const ModelConfig& config) {
  std::vector<bool> own;
  for (const LayerConfig& layer : config.layers) {
    own.push_back(layer.attention.latent.indexer.own);
  }
  return own;
}

TEST(GgufReadersTest, LayersHaveIndexersByTheFilesListOrByItsContext) {
  const ModelConfig usual = IndexedHeader("deepseek32").Layers(4).Parsed();
  EXPECT_EQ(usual.layers[3].attention.latent.indexer.top_k, 24);
  EXPECT_THAT(IndexedLayers(usual), Each(true));
  // Half-split beside the attention's, or as it is.
  EXPECT_EQ(usual.ropes.size(), 2u);
  EXPECT_EQ(IndexedHeader("glm-dsa").Layers(4).Parsed().ropes.size(), 1u);
  EXPECT_THAT(IndexedLayers(IndexedHeader("glm-dsa")
                                .Layers(4)
                                .Bools("attention.indexer.types",
                                       {true, false, true, false})
                                .Parsed()),
              ElementsAre(true, false, true, false));
  // GLM-5.2's first files have no list.
  EXPECT_THAT(
      IndexedLayers(IndexedHeader("glm-dsa", 1 << 20).Layers(8).Parsed()),
      ElementsAre(true, true, true, false, false, false, true, false));
}

TEST(GgufReadersTest, NoMoreThanALatentHeadTurns) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  for (const int64_t turned : {kLeast, int64_t{-1}, int64_t{13}, ~kLeast}) {
    EXPECT_THAT(IndexedHeader("deepseek32", 4096, turned).Refusal(),
                HasSubstr(Cat("deepseek32.rope.dimension_count is ", turned,
                              ", limits 0 and the key length 12")));
  }
}

TEST(GgufReadersTest, AnIndexerThatIsNotReadIsRefused) {
  EXPECT_THAT(
      GgufHeader("qwen3").U32("attention.indexer.top_k", 24).Refusal(),
      HasSubstr("'qwen3.attention.indexer.top_k' changes what a model"));
}

// Numbers of xIELU are keys: floats of all layers, or one for all.
TEST(GgufReadersTest, NumbersOfLayersAreTensors) {
  const auto open = [](uint32_t type, const std::vector<float>& eps,
                       std::string_view last = "xielu.eps") {
    const TempDir dir;
    GgufBuilder gguf;
    gguf.Text("general.architecture", "apertus");
    for (const auto& [key, value] :
         {std::pair("embedding_length", 8), std::pair("context_length", 64),
          std::pair("attention.head_count", 2), std::pair("block_count", 2),
          std::pair("feed_forward_length", 8)}) {
      gguf.U32(Cat("apertus.", key), static_cast<uint32_t>(value));
    }
    gguf.F32("apertus.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf.F32("xielu.alpha_p", 0.5f);
    gguf.F32("xielu.alpha_n", 0.25f);
    gguf.Array("xielu.beta", 6, 2, BytesOf(std::vector<float>{1.5f, 2.5f}));
    gguf.Array(last, type, eps.size(), BytesOf(eps));
    gguf.Tensor("token_embd.weight", {8, 2}, 0,
                BytesOf(std::vector<float>(16)));
    return OpenModel(dir.Write("m.gguf", gguf.Build()));
  };
  const auto model = open(6, {-1e-6f, -2e-6f});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto read = [&](std::string_view number, int layer) {
    float value = 0.0f;
    const Status status =
        (*model)->ReadF32(Cat("model.layers.", layer, ".mlp.act_fn.", number),
                          {0, 1, 0, 1}, &value);
    EXPECT_TRUE(status.ok()) << status;
    return value;
  };
  EXPECT_EQ(read("alpha_p", 0), 0.5f);
  EXPECT_EQ(read("alpha_p", 1), 0.5f);
  EXPECT_EQ(read("alpha_n", 1), 0.25f);
  EXPECT_EQ(read("beta", 0), 1.5f);
  EXPECT_EQ(read("beta", 1), 2.5f);
  EXPECT_EQ(read("eps", 1), -2e-6f);
  EXPECT_THAT((*model)->computed()->unread_keys, ElementsAre());
  const auto refusal = [](const auto& opened) {
    return Message(opened.status());
  };
  EXPECT_THAT(refusal(open(6, {-1e-6f})),
              HasSubstr("'xielu.eps' has 1 layers of 2"));
  EXPECT_THAT(refusal(open(4, {-1e-6f, -2e-6f})),
              HasSubstr("'xielu.eps' is of type uint32, expected float32"));
  EXPECT_THAT(refusal(open(6, {-1e-6f, -2e-6f}, "xielu.other")),
              HasSubstr("GGUF key 'xielu.eps' is missing"));
}

// Of a GLM-4 that reads images the converter parts the rows that turn.
TEST(GgufReadersTest, HalvesOfRowsComeInTheModelsOrder) {
  std::vector<float> stored;
  for (int i = 0; i < 16; ++i) stored.push_back(static_cast<float>(i));
  const TempDir dir;
  const auto open = [&](int rotary) {
    return GgufHeader("glm4")
        .Layers(1)
        .U32("rope.dimension_count", static_cast<uint32_t>(rotary))
        .Ints("rope.dimension_sections", {1, 1, 0, 0})
        .Vector("blk.0.attn_q.bias", stored)
        .OpenFile(dir);
  };
  const auto model = open(4);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config()["model_type"], "glm4v");
  std::vector<float> bias(16);
  const Status status = (*model)->ReadF32(
      "model.layers.0.self_attn.q_proj.bias", {0, 1, 0, 16}, bias.data());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(
      bias, ElementsAre(0, 2, 1, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12, 13, 14, 15));
}

// Text has three numbers of a position, and no fourth one.
TEST(GgufReadersTest, AFourthSectionOfPositionsIsRefused) {
  const auto refusal = [](const std::vector<int32_t>& sections) {
    return GgufHeader("qwen2vl")
        .Ints("rope.dimension_sections", sections)
        .Refusal();
  };
  EXPECT_EQ(refusal({1, 1, 2, 0}), "");
  EXPECT_EQ(refusal({1, 1, 2}), "");
  EXPECT_THAT(refusal({1, 1, 1, 1}),
              HasSubstr("qwen2vl.rope.dimension_sections has a fourth section "
                        "of 1, supported is 0"));
  EXPECT_THAT(GgufHeader("qwen2vl").U32("rope.dimension_sections", 2).Refusal(),
              HasSubstr("has a fourth section of 2"));
  EXPECT_THAT(
      GgufHeader("qwen2vl").Text("rope.dimension_sections", "1").Refusal(),
      HasSubstr("rope.dimension_sections"));
}

// Without two sections above 0 a file's rows stand as GLM-4's.
TEST(GgufReadersTest, SectionsOfZerosAreNone) {
  const auto type_with = [](const std::vector<int32_t>& sections) {
    const auto config = GgufHeader("glm4")
                            .Layers(1)
                            .U32("rope.dimension_count", 4)
                            .Ints("rope.dimension_sections", sections)
                            .Open();
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->value("model_type", "") : "";
  };
  EXPECT_EQ(type_with({0, 0, 0, 0}), "glm4");
  EXPECT_EQ(type_with({2, 0, 0, 0}), "glm4");
  EXPECT_EQ(type_with({1}), "glm4");
  EXPECT_EQ(type_with({1, 1, 0, 0}), "glm4v");
}

}  // namespace
}  // namespace sluice::testing
