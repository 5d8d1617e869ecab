#include "common/model_config/described_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/model_config/model_config.h"
#include "common/model_config/tensor_table.h"
#include "common/placement/layer_loads.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using weights::DType;

// Of Llama-3.3-70B.
constexpr char kLlama[] = R"("model_type": "llama", "hidden_size": 8192,
  "num_hidden_layers": 80, "num_attention_heads": 64,
  "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 28672,
  "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
  "max_position_embeddings": 131072, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16")";
// Of GLM-4.5-Air.
constexpr char kAir[] = R"("model_type": "glm4_moe", "hidden_size": 4096,
  "num_hidden_layers": 46, "num_attention_heads": 96,
  "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10944,
  "moe_intermediate_size": 1408, "n_routed_experts": 128,
  "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 1,
  "routed_scaling_factor": 1.0, "norm_topk_prob": true, "n_group": 1,
  "topk_group": 1, "use_qk_norm": false, "attention_bias": true,
  "partial_rotary_factor": 0.5, "rope_theta": 1000000.0,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
  "vocab_size": 151552, "tie_word_embeddings": false)";

class DescribedModelTest : public ::testing::Test {
 protected:
  DescribedModelTest() {
    folder_ =
        (fs::temp_directory_path() /
         Cat("described-", ::getpid(), "-",
             ::testing::UnitTest::GetInstance()->current_test_info()->name()))
            .string();
    fs::create_directories(folder_);
  }
  ~DescribedModelTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }
  // Returns the bytes in memory of the model of the folder.
  uint64_t WeightsIn(WeightsMode mode, std::optional<DType> stored = {}) const {
    const auto model = DescribeModel(folder_, stored);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return 0;
    const auto config = ParseModelConfig((*model)->config());
    EXPECT_TRUE(CheckTensors(*config, **model).ok());
    LayerLoadOptions options;
    options.weights = mode;
    const LayerLoads loads = LoadsOf(*config, **model, options);
    return loads.Of({0, loads.num_layers()}).weights;
  }

  std::string folder_;
};

TEST_F(DescribedModelTest, AConfigAloneCountsLikeThePublishedModel) {
  Write("config.json", Cat("{", kLlama, "}"));
  // 70.55 B parameters, the norms of which take two bytes more.
  EXPECT_NEAR(double(WeightsIn(WeightsMode::kAuto)), 2 * 70.5537e9, 1e7);
  EXPECT_NEAR(double(WeightsIn(WeightsMode::kF32)), 4 * 70.5537e9, 1e7);
  // 4.5 bits each, embedding and head 8.5.
  const double outer = 2.0 * 128256 * 8192;
  EXPECT_NEAR(double(WeightsIn(WeightsMode::kQ4_0)),
              (70.5537e9 - outer) * 4.5 / 8 + outer * 8.5 / 8, 1e7);
}

TEST_F(DescribedModelTest, AStoredTypeTakesThePlaceOfTheConfigs) {
  Write("config.json", Cat("{", kAir, "}"));
  EXPECT_NEAR(double(WeightsIn(WeightsMode::kAuto)), 2 * 106.85e9, 1e9);
  const double outer = 2.0 * 151552 * 4096;
  // FP8 leaves out embedding, head and router.
  EXPECT_NEAR(double(WeightsIn(WeightsMode::kAuto, DType::kScaledE4M3)),
              (106.85e9 - outer) * 33 / 32 + 2 * outer, 2e8);
  // The experts' down has 1,408 columns: Q5_0 where long blocks do not fit.
  const double down = 45.0 * 129 * 4096 * 1408;
  EXPECT_NEAR(double(WeightsIn(WeightsMode::kAuto, DType::kQ4K)),
              (106.85e9 - down) * 4.5 / 8 + down * 5.5 / 8, 1e9);
}

TEST_F(DescribedModelTest, AQuantisedConfigHasItsType) {
  Write(
      "config.json",
      Cat("{", kLlama, R"(, "quantization_config": {"quant_method": "fp8"}})"));
  const double outer = 2.0 * 128256 * 8192;
  EXPECT_NEAR(double(WeightsIn(WeightsMode::kAuto)),
              (70.5537e9 - outer) * 33 / 32 + 2 * outer, 2e7);
  // Scales of 64 columns are not those of a run of 128.
  const std::pair<const char*, double> blocks[] = {
      {R"("fp8", "weight_block_size": [128, 128])", 33.0 / 32},
      {R"("fp8", "weight_block_size": [64, 64])", 9.0 / 8},
      {R"("compressed-tensors", "config_groups": {"group_0": {"weights":
          {"type": "float", "num_bits": 8, "group_size": null}}})",
       33.0 / 32},
      {R"("compressed-tensors", "config_groups": {"group_0": {"weights":
          {"type": "float", "num_bits": 8, "group_size": 64}}})",
       9.0 / 8},
  };
  for (const auto& [config, bytes] : blocks) {
    Write("config.json",
          Cat("{", kLlama, R"(, "quantization_config": {"quant_method": )",
              config, "}}"));
    EXPECT_NEAR(double(WeightsIn(WeightsMode::kAuto)),
                (70.5537e9 - outer) * bytes + 2 * outer, 2e7)
        << config;
  }
  Write("config.json",
        Cat("{", kLlama,
            R"(, "quantization_config": {"quant_method": "sluice"}})"));
  EXPECT_THAT(Message(DescribeModel(folder_).status()),
              HasSubstr("'sluice' does not tell the type of weights"));
}

// The types of a layer's o_proj, gate and down_proj, of a model of FP8.
TEST_F(DescribedModelTest, Fp8IsInWideRunsWhereShardsEndAtThose) {
  struct Shape {
    int heads, head_dim, intermediate;
    bool o_is_wide, down_is_wide;
  };
  for (const Shape& shape :
       {Shape{32, 128, 14336, true, true}, Shape{64, 128, 25600, true, false},
        Shape{40, 64, 8192, false, true}, Shape{14, 64, 4864, false, false},
        Shape{96, 128, 10944, true, false}}) {
    Write("config.json",
          Cat(R"({"model_type": "llama", "hidden_size": 4096,
  "num_hidden_layers": 1, "num_key_value_heads": 2, "vocab_size": 1000,
  "rms_norm_eps": 1e-5, "rope_theta": 5e5, "max_position_embeddings": 4096,
  "tie_word_embeddings": false, "quantization_config": {"quant_method": "fp8"},
  "num_attention_heads": )",
              shape.heads, ", \"head_dim\": ", shape.head_dim,
              ", \"intermediate_size\": ", shape.intermediate, "}"));
    const auto model = DescribeModel(folder_);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto config = ParseModelConfig((*model)->config());
    ASSERT_TRUE(config.ok()) << config.status();
    for (const WeightRows& weight :
         WeightsOf(*config, 0, ExpertStorage::kSeparate)) {
      if (weight.first().is_f32()) continue;
      const bool is_wide = weight.place == WeightPlace::kO ? shape.o_is_wide
                           : weight.place == WeightPlace::kDown
                               ? shape.down_is_wide
                               : true;
      for (const auto type : TypesOf(weight, 0, **model, WeightsMode::kAuto)) {
        EXPECT_EQ(type, is_wide ? kernels::WeightType::kE4m3Wide
                                : kernels::WeightType::kE4m3)
            << weight.first().name << " of " << shape.intermediate;
      }
    }
  }
}

TEST_F(DescribedModelTest, AnIndexWithoutItsShardsIsAModelToDescribe) {
  Write("config.json", Cat("{", kLlama, "}"));
  Write("model.safetensors.index.json",
        R"({"weight_map": {"lm_head.weight": "model-1.safetensors"}})");
  EXPECT_GT(WeightsIn(WeightsMode::kAuto), 0u);
  // What is there is opened, and bad.
  Write("model-1.safetensors", "x");
  EXPECT_FALSE(DescribeModel(folder_).ok());
}

TEST_F(DescribedModelTest, AConfigIsNeeded) {
  EXPECT_THAT(Message(DescribeModel(folder_).status()),
              HasSubstr("has 0 models"));
  EXPECT_THAT(Message(DescribeModel(folder_, DType::kQ4K).status()),
              HasSubstr("need a folder with config.json"));
  Write("config.json", "{\"model_type\": \"other\"}");
  EXPECT_THAT(Message(DescribeModel(folder_).status()), HasSubstr("other"));
  EXPECT_FALSE(DescribeModel(folder_ + "/config.json").ok());
}

TEST(ParseStoredTypeTest, NamesAreThoseOfTheFormats) {
  EXPECT_EQ(*ParseStoredType("fp8"), DType::kScaledE4M3);
  EXPECT_EQ(*ParseStoredType("q4_k"), DType::kQ4K);
  EXPECT_EQ(*ParseStoredType("mxfp4"), DType::kMxfp4);
  EXPECT_THAT(Message(ParseStoredType("int3").status()),
              HasSubstr("fp8, q8_0, q4_0"));
}

}  // namespace
}  // namespace sluice
