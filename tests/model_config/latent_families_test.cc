// config.json of the families with latent attention: what is read, what is
// refused, how heads and rows of the cache are cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/kv_layout.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/rank_plan.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/layer_loads.h"
#include "tests/testing/golden_model.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// DeepSeek-V3's config.
Json V3() {
  return *ParseJson(R"({
    "model_type": "deepseek_v3", "hidden_act": "silu", "vocab_size": 129280,
    "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "attention_bias": false,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "n_group": 8,
    "topk_group": 4, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1,
    "max_position_embeddings": 163840, "rms_norm_eps": 1e-06,
    "rope_theta": 10000, "num_nextn_predict_layers": 1,
    "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32,
      "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096},
    "tie_word_embeddings": false})");
}

// DeepSeek-V2-Lite's config.
Json Lite() {
  return *ParseJson(R"({
    "model_type": "deepseek_v2", "hidden_act": "silu", "vocab_size": 102400,
    "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27,
    "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": null,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
    "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": false, "routed_scaling_factor": 1.0,
    "scoring_func": "softmax", "topk_method": "greedy", "moe_layer_freq": 1,
    "max_position_embeddings": 163840, "rms_norm_eps": 1e-06,
    "rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40,
      "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
      "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096},
    "tie_word_embeddings": false})");
}

// GLM-4.7-Flash's config.
Json Flash() {
  return *ParseJson(R"({
    "model_type": "glm4_moe_lite", "hidden_act": "silu", "vocab_size": 154880,
    "hidden_size": 2048, "intermediate_size": 10240, "num_hidden_layers": 47,
    "num_attention_heads": 20, "num_key_value_heads": 20, "q_lora_rank": 768,
    "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
    "v_head_dim": 256, "n_routed_experts": 64, "n_shared_experts": 1,
    "num_experts_per_tok": 4, "moe_intermediate_size": 1536, "n_group": 1,
    "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.8,
    "topk_method": "noaux_tc", "max_position_embeddings": 202752,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000, "rope_scaling": null,
    "partial_rotary_factor": 1.0, "first_k_dense_replace": 7,
    "num_nextn_predict_layers": 1, "tie_word_embeddings": false})");
}

Json Dsa(int32_t freq) {
  Json config = Flash();
  config.update({{"model_type", "glm_moe_dsa"},
                 {"num_hidden_layers", 6},
                 {"first_k_dense_replace", 3},
                 {"index_topk", 2048},
                 {"index_n_heads", 32},
                 {"index_head_dim", 128},
                 {"index_topk_freq", freq}});
  return config;
}

ModelConfig LatentOf(const Json& config) {
  const auto parsed = ParseModelConfig(config);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : ModelConfig{};
}
std::string LatentRefusal(Json config, const char* key, const Json& value) {
  config[key] = value;
  const auto parsed = ParseModelConfig(config);
  return parsed.ok() ? "" : Message(parsed.status());
}
double Billions(const ModelConfig& config) {
  return static_cast<double>(ParameterCount(config)) * 1e-9;
}

TEST(LatentFamiliesTest, CountsTheParametersOfReleasedModels) {
  EXPECT_NEAR(Billions(LatentOf(V3())), 671.03, 0.005);
  EXPECT_NEAR(static_cast<double>(ActiveParameterCount(LatentOf(V3()))) * 1e-9,
              37.5, 0.2);
  EXPECT_NEAR(Billions(LatentOf(Lite())), 15.706, 0.001);
}

TEST(LatentFamiliesTest, OneHeadOfTheCacheIsTheLatentRow) {
  const ModelConfig config = LatentOf(V3());
  const AttentionConfig& attention = config.layers[0].attention;
  EXPECT_EQ(attention.num_kv_heads, 1);
  EXPECT_EQ(attention.head_dim, 576);
  EXPECT_EQ(attention.cached_size(), 576);
  EXPECT_EQ(attention.o_size(), 128 * 128);
  EXPECT_EQ(config.ropes[0].rotary_dim, 64);
  EXPECT_TRUE(config.ropes[0].interleaved);
  // (0.1 ln 40 + 1)^2 / sqrt(192)
  const double mscale = 0.1 * std::log(40.0) + 1;
  EXPECT_NEAR(attention.scale, mscale * mscale / std::sqrt(192.0), 1e-12);
  EXPECT_EQ(config.ropes[0].scaling.attention_factor, 1.0);
  EXPECT_EQ(config.moe().num_groups, 8);
  EXPECT_EQ(config.moe().group_best, 2);
  EXPECT_FALSE(config.is_sparse(2));
  EXPECT_TRUE(config.is_sparse(3));
  EXPECT_FALSE(CheckKvType(config, kernels::WeightType::kQ8_0).ok());
  EXPECT_TRUE(CheckKvType(config, kernels::WeightType::kBf16).ok());
}

TEST(LatentFamiliesTest, KimiIsDeepseekV3) {
  Json config = V3();
  config.update({{"model_type", "kimi_k2"},
                 {"n_routed_experts", 384},
                 {"num_attention_heads", 64},
                 {"num_key_value_heads", 64},
                 {"n_group", 1},
                 {"topk_group", 1},
                 {"first_k_dense_replace", 1},
                 {"routed_scaling_factor", 2.827},
                 {"vocab_size", 163840}});
  EXPECT_NEAR(Billions(LatentOf(config)), 1026.4, 0.5);
}

TEST(LatentFamiliesTest, ReadsDeepseekV2sRouters) {
  const ModelConfig lite = LatentOf(Lite());
  EXPECT_EQ(lite.layers[0].attention.latent.q_rank, 0);
  EXPECT_EQ(lite.moe().num_groups, 1);
  EXPECT_FALSE(lite.moe().correction);
  EXPECT_FALSE(lite.moe().normalise);
  Json grouped = Lite();
  grouped.update({{"topk_method", "group_limited_greedy"},
                  {"n_group", 8},
                  {"topk_group", 3}});
  EXPECT_EQ(LatentOf(grouped).moe().num_groups, 8);
  EXPECT_EQ(LatentOf(grouped).moe().group_best, 1);
  EXPECT_THAT(LatentRefusal(Lite(), "topk_method", "noaux_tc"),
              HasSubstr("topk_method \"noaux_tc\""));
}

TEST(LatentFamiliesTest, LayersOfGlmLiteAreDenseByTheirTypesAlone) {
  EXPECT_FALSE(LatentOf(Flash()).is_sparse(0));
  EXPECT_TRUE(LatentOf(Flash()).is_sparse(1));
  Json typed = Flash();
  typed["num_hidden_layers"] = 3;
  typed["mlp_layer_types"] = {"sparse", "dense", "sparse"};
  EXPECT_TRUE(LatentOf(typed).is_sparse(0));
  EXPECT_FALSE(LatentOf(typed).is_sparse(1));
  EXPECT_THAT(
      LatentRefusal(typed, "mlp_layer_types", Json({"sparse", "dense"})),
      HasSubstr("at least 3"));
  EXPECT_THAT(LatentRefusal(typed, "mlp_layer_types",
                            Json({"sparse", "moe", "sparse"})),
              HasSubstr("\"moe\" for layer 1"));
}

TEST(LatentFamiliesTest, RefusesByNameWhatIsNotBuilt) {
  EXPECT_THAT(LatentRefusal(V3(), "attention_bias", true),
              HasSubstr("attention_bias true"));
  EXPECT_THAT(LatentRefusal(V3(), "qk_rope_head_dim", 63),
              HasSubstr("qk_rope_head_dim 63 is odd"));
  EXPECT_THAT(LatentRefusal(V3(), "kv_lora_rank", 0),
              HasSubstr("kv_lora_rank is 0"));
  EXPECT_THAT(LatentRefusal(V3(), "scoring_func", "softmax"),
              HasSubstr("scoring_func \"softmax\""));
  EXPECT_THAT(LatentRefusal(V3(), "partial_rotary_factor", 0.5),
              HasSubstr("partial_rotary_factor"));
}

TEST(LatentFamiliesTest, EveryRankHoldsTheLatentRowAndItsHeads) {
  const ModelConfig config = LatentOf(V3());
  int64_t heads = 0;
  for (int32_t rank = 0; rank < 3; ++rank) {
    const auto plan = PlanRank(config, 3, rank);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const LayerShare& share = plan->layers[5];
    EXPECT_EQ(share.num_kv_heads(), 1);
    EXPECT_EQ(share.attention.cols(), share.num_heads() * 128);
    const OwnRange q = OwnRangeOf(*plan, config, 5, 'a');
    EXPECT_EQ(q.end - q.begin, share.num_heads() * 192);
    heads += share.num_heads();
  }
  EXPECT_EQ(heads, 128);
}

TEST(LatentFamiliesTest, AnIndexerMayChooseForTheLayersBehindIt) {
  const ModelConfig all = LatentOf(Dsa(1));
  EXPECT_EQ(all.layers[5].attention.cached_size(), 576 + 128);
  EXPECT_TRUE(all.ropes.size() == 1);
  const ModelConfig some = LatentOf(Dsa(2));
  std::string own;
  for (const LayerConfig& layer : some.layers) {
    own += layer.attention.latent.indexer.own ? 'F' : 'S';
  }
  EXPECT_EQ(own, "FFSFSF");
  EXPECT_EQ(some.layers[2].attention.cached_size(), 576);
  EXPECT_TRUE(CheckSharedKv(some, 3).ok());
  EXPECT_THAT(Message(CheckSharedKv(some, 4)),
              HasSubstr("may begin at layer 4: it sees the positions"));
  EXPECT_EQ(UncutLayers(some),
            (std::vector<bool>{false, false, true, false, true, false}));
  Json pattern = Dsa(1);
  pattern["index_topk_pattern"] = "FSSFSS";
  EXPECT_FALSE(LatentOf(pattern).layers[2].attention.latent.indexer.own);
  EXPECT_THAT(LatentRefusal(pattern, "index_topk_pattern", "SFFFFF"),
              HasSubstr("layer 0 has no indexer"));
  EXPECT_THAT(LatentRefusal(pattern, "index_topk_pattern", "FFX"),
              HasSubstr("index_topk_pattern"));
}

TEST(LatentFamiliesTest, DeepseekV32sIndexerHasAnotherRope) {
  Json config = V3();
  config.update({{"model_type", "deepseek_v32"},
                 {"index_topk", 2048},
                 {"index_n_heads", 64},
                 {"index_head_dim", 128}});
  const ModelConfig parsed = LatentOf(config);
  const IndexerConfig& indexer = parsed.layers[0].attention.latent.indexer;
  ASSERT_EQ(indexer.rope, 1);
  EXPECT_FALSE(parsed.ropes[1].interleaved);
  EXPECT_TRUE(parsed.ropes[0].interleaved);
  EXPECT_EQ(parsed.ropes[1].inv_freq, parsed.ropes[0].inv_freq);
}

// Released files have indexers in all layers.
TEST(LatentFamiliesTest, IndexersOfLayersThatShareAChoiceAreLeftAside) {
  const auto model = OpenModel(testing::GoldenModel("glm_moe_dsa"));
  ASSERT_TRUE(model.ok()) << model.status();
  Json config = (*model)->config();
  config["index_topk_pattern"] = "FFSFS";
  const Status status = CheckTensors(LatentOf(config), **model);
  EXPECT_TRUE(status.ok()) << status;
  // A model without indexers has none to leave aside.
  const auto v32 = OpenModel(testing::GoldenModel("deepseek_v32"));
  ASSERT_TRUE(v32.ok()) << v32.status();
  config = (*v32)->config();
  config["model_type"] = "deepseek_v3";
  EXPECT_THAT(Message(CheckTensors(LatentOf(config), **v32)),
              HasSubstr("is not part of a deepseek_v3 model"));
}

// A tensor with keys and values of all heads is two weights and counts once.
TEST(LatentFamiliesTest, GoldenLayoutsPassAndTheirBytesAreAllCounted) {
  for (const char* name : {"deepseek_v2", "deepseek_v3", "kimi_k2",
                           "glm4_moe_lite", "glm_moe_dsa", "deepseek_v32"}) {
    const auto model = OpenModel(testing::GoldenModel(name));
    ASSERT_TRUE(model.ok()) << model.status();
    const ModelConfig config = LatentOf((*model)->config());
    const Status status = CheckTensors(config, **model);
    EXPECT_TRUE(status.ok()) << status;
    uint64_t all = 0;
    uint64_t elements = 0;
    for (const auto& tensor : (*model)->tensors()) {
      all += static_cast<uint64_t>(tensor.stored_bytes());
      elements += static_cast<uint64_t>(tensor.elements());
    }
    const ModelBytes bytes = StoredBytes(config, **model);
    EXPECT_EQ(bytes.total() + bytes.left_aside, all) << name;
    EXPECT_EQ(ParameterCount(config) + bytes.left_aside / 4, elements) << name;
    // All F32: what one rank loads is what is stored.
    const LayerLoads loads = LoadsOf(config, **model, {});
    EXPECT_EQ(loads.Of({0, config.num_layers()}).weights, bytes.total())
        << name;
  }
}

}  // namespace
}  // namespace sluice
