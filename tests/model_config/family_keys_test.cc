// Keys of config.json that some classes of the reference read and others
// ignore.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

Json SmallConfig() {
  return *ParseJson(R"({
    "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 128, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": false, "sliding_window": 8, "max_window_layers": 2,
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "norm_topk_prob": true})");
}

ModelConfig ParsedOf(const Json& config) {
  const auto parsed = ParseModelConfig(config);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : ModelConfig{};
}

std::string RefusalOf(Json config, const char* key, const Json& value) {
  config[key] = value;
  const auto parsed = ParseModelConfig(config);
  return parsed.ok() ? "" : Message(parsed.status());
}

std::vector<int32_t> WindowsOf(const Json& config) {
  std::vector<int32_t> windows;
  for (const LayerConfig& layer : ParsedOf(config).layers) {
    windows.push_back(layer.attention.window);
  }
  return windows;
}

// As the reference's classes: Qwen's windows need use_sliding_window, and
// classes without layer_types ignore them.
TEST(FamilyKeysTest, WindowsAreWhereTheReferenceHasThem) {
  Json config = SmallConfig();
  const auto windows = [&](const char* type, bool is_used, bool has_types) {
    config["model_type"] = type;
    config["use_sliding_window"] = is_used;
    config.erase("layer_types");
    if (has_types) {
      config["layer_types"] = {"sliding_attention", "full_attention",
                               "full_attention", "sliding_attention"};
    }
    return WindowsOf(config);
  };
  const std::vector<int32_t> none = {0, 0, 0, 0};
  const std::vector<int32_t> all = {8, 8, 8, 8};
  const std::vector<int32_t> listed = {8, 0, 0, 8};
  for (const char* type : {"qwen2", "qwen3", "qwen2_moe", "qwen3_moe"}) {
    SCOPED_TRACE(type);
    EXPECT_EQ(windows(type, false, false), none);
    EXPECT_EQ(windows(type, false, true), none);
    const bool is_listed = std::string_view(type) != "qwen3_moe";
    EXPECT_EQ(windows(type, true, true), is_listed ? listed : all);
  }
  const std::vector<int32_t> last = {0, 0, 8, 8};
  EXPECT_EQ(windows("qwen2", true, false), last);
  EXPECT_EQ(windows("qwen3", true, false), last);
  EXPECT_EQ(windows("qwen2_moe", true, false),
            (std::vector<int32_t>{8, 0, 0, 0}));
  EXPECT_EQ(windows("qwen3_moe", true, false), all);
  EXPECT_EQ(windows("smollm3", false, true), none);
  EXPECT_EQ(windows("smollm3", true, false),
            (std::vector<int32_t>{0, 0, 0, 8}));
  EXPECT_EQ(windows("mistral", false, true), all);
  EXPECT_EQ(windows("llama", true, true), none);
}

TEST(FamilyKeysTest, AnActivationHasSeveralNames) {
  Json config = SmallConfig();
  config["model_type"] = "qwen3";
  EXPECT_EQ(RefusalOf(config, "hidden_act", "swish"), "");
  EXPECT_THAT(RefusalOf(config, "hidden_act", "relu"), HasSubstr("hidden_act"));
  // Gemma's key, which no other class reads.
  EXPECT_EQ(RefusalOf(config, "hidden_activation", "relu"), "");
}

}  // namespace
}  // namespace sluice
