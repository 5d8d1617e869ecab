#include "common/model/layer_loads.h"

#include <gtest/gtest.h>

#include <string>

#include "common/model/expert_placement.h"
#include "common/model/model_config.h"
#include "common/model/stage.h"
#include "tests/testing/shared_data.h"

namespace sluice {
namespace {

// Vectors are no part of what a stage counts, and rows are padded.
constexpr double kSlack = 0.06;

TEST(LayerLoadsTest, AreWhatAStageWithTheseLayersHasInMemory) {
  for (const char* name :
       {"golden/llama3-tied", "golden/llama2-bf16-sharded",
        "golden/glm4_moe-air", "golden/gpt_oss-mxfp4", "golden/gpt_oss"}) {
    SLUICE_REQUIRE_SHARED(path, name);
    const auto model = weights::OpenModel(path);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto config = ParseModelConfig((*model)->config());
    ASSERT_TRUE(config.ok()) << config.status();
    const int32_t layers = config->num_layers;
    for (const WeightsMode mode :
         {WeightsMode::kAuto, WeightsMode::kBf16, WeightsMode::kF32}) {
      const LayerLoads loads = LoadsOf(*config, **model, {mode, nullptr, 7});
      for (const LayerRange range :
           {LayerRange{0, layers}, LayerRange{0, 1}, LayerRange{1, layers},
            LayerRange{layers - 1, layers}}) {
        SCOPED_TRACE(Cat(name, ", weights ", ToString(mode), ", layers ",
                         range.first, "-", range.last - 1));
        StageOptions options;
        options.model_path = path;
        options.first_layer = range.first;
        options.last_layer = range.last;
        options.weights = mode;
        options.threads = 1;
        options.kv_blocks = 7;
        const auto stage = Stage::Load(options);
        ASSERT_TRUE(stage.ok()) << stage.status();
        const auto held = static_cast<double>((*stage)->info().weights_bytes);
        const StageBytes told = loads.Of(range);
        EXPECT_NEAR(static_cast<double>(told.weights), held, kSlack * held);
        EXPECT_EQ(told.kv, (*stage)->info().kv_bytes);
      }
    }
  }
}

TEST(LayerLoadsTest, LayersWithAWindowShareTheMemoryOfThoseWithout) {
  SLUICE_REQUIRE_SHARED(path, "golden/gpt_oss");
  const auto model = weights::OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  config->windows = {0, 16, 0, 0};
  const LayerLoads loads =
      LoadsOf(*config, **model, {WeightsMode::kAuto, nullptr, 12, 128});
  const uint64_t one =
      uint64_t{2 * 4 * 12 * 16} * static_cast<uint64_t>(config->kv_size());
  EXPECT_EQ(loads.Of({0, 4}).kv, 3 * one);
  EXPECT_EQ(loads.Of({0, 2}).kv, one);
  EXPECT_EQ(loads.Of({1, 3}).kv, one);
  EXPECT_EQ(loads.Of({2, 4}).kv, 2 * one);
}

TEST(LayerLoadsTest, OneSequenceHasItsWindowBesideItsLength) {
  SLUICE_REQUIRE_SHARED(path, "golden/gpt_oss");
  const auto model = weights::OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  const LayerLoads loads =
      LoadsOf(*config, **model, {WeightsMode::kAuto, nullptr, 0, 2048});
  // 2 layers of 128 blocks, and 34 for windows of 16 and steps of 512.
  EXPECT_EQ(loads.Of({0, 4}).kv, uint64_t{2 * 2 * 4 * (128 + 34) * 16} *
                                     static_cast<uint64_t>(config->kv_size()));
}

TEST(LayerLoadsTest, ExpertsElsewhereAreNotCounted) {
  SLUICE_REQUIRE_SHARED(path, "golden/glm4_moe-air");
  const auto model = weights::OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  const int32_t experts = config->moe.num_experts;
  const int32_t last = config->num_layers - 1;
  const auto place = [&](const std::string& half) {
    const auto placement = ParseExpertPlacement(
        Cat(R"({"hosts": [{"name": "a"}], "experts": [{"layers": ")",
            config->moe.first_dense_layers, "-", last, R"(", "experts": "0-)",
            experts / 2 - 1, R"(", "hosts": ["a"]}, {"layers": ")",
            config->moe.first_dense_layers, "-", last, R"(", "experts": ")",
            experts / 2, "-", experts - 1, R"(", "hosts": [")", half, "\"]}]}"),
        *config);
    EXPECT_TRUE(placement.ok()) << placement.status();
    return *placement;
  };
  const ModelBytes stored = StoredBytes(*config, **model);
  const auto layer = static_cast<size_t>(last);
  const uint64_t here = LoadsOf(*config, **model, {}).layers[layer];
  const auto with = [&](const ExpertPlacement& placement) {
    return LoadsOf(*config, **model, {WeightsMode::kAuto, &placement});
  };
  // Stored F32 or BF16, they are held as stored.
  EXPECT_EQ(here - with(place("local")).layers[layer],
            stored.experts[layer] / 2);
  EXPECT_EQ(here - with(place("a")).layers[layer], stored.experts[layer]);
  EXPECT_EQ(with(place("a")).layers[0],
            LoadsOf(*config, **model, {}).layers[0]);
}

}  // namespace
}  // namespace sluice
