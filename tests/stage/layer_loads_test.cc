#include "common/placement/layer_loads.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/model_config/expert_placement.h"
#include "common/model_config/kv_layout.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/stage/stage.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"

namespace sluice {
namespace {

using testing::BytesOf;
using testing::GgufBuilder;
using testing::TempDir;

// What StageInfo does not count: norms and biases, which the loads take to be
// on every rank, and biases of experts.
uint64_t VectorBytes(const ModelConfig& config, const weights::ModelFile& model,
                     const LayerRange& range, int32_t ranks) {
  uint64_t bytes = 0;
  for (const auto& wanted :
       ExpectedTensors(config, ExpertStorageOf(config, model))) {
    std::string_view name;
    const int32_t layer = LayerOfTensor(wanted.name, name);
    const bool here = layer < 0 ? range.last == config.num_layers()
                                : range.first <= layer && layer < range.last;
    if (!here) continue;
    const weights::TensorInfo& tensor = *model.Find(wanted.name);
    const auto f32 = 4 * static_cast<uint64_t>(tensor.elements());
    if (tensor.shape.size() == 1) bytes += f32 * static_cast<uint64_t>(ranks);
    if (tensor.name.ends_with("_proj_bias")) bytes += f32;  // of experts
  }
  return bytes;
}

void ExpectWhatStagesHold(const std::string& path, WeightsMode mode,
                          int32_t ranks) {
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  const int32_t layers = config->num_layers();
  const LayerLoads loads =
      LoadsOf(*config, **model, {mode, nullptr, 7, 0, 512, ranks});
  for (const LayerRange range :
       {LayerRange{0, layers}, LayerRange{0, 1}, LayerRange{1, layers},
        LayerRange{layers - 1, layers}}) {
    SCOPED_TRACE(Cat(path, ", weights ", ToString(mode), ", ranks ", ranks,
                     ", layers ", range.first, "-", range.last - 1));
    StageOptions options;
    options.model_path = path;
    options.first_layer = range.first;
    options.last_layer = range.last;
    options.weights = mode;
    options.ranks = ranks;
    options.threads = 1;
    options.kv_blocks = 7;
    const auto stage = Stage::Load(options);
    ASSERT_TRUE(stage.ok()) << stage.status();
    const StageBytes told = loads.Of(range);
    EXPECT_EQ(told.weights - VectorBytes(*config, **model, range, ranks),
              (*stage)->info().weights_bytes);
    EXPECT_EQ(told.kv, (*stage)->info().kv_bytes);
  }
}

TEST(LayerLoadsTest, AreWhatAStageWithTheseLayersHasInMemory) {
  for (const char* name : {"llama3-tied", "llama2-bf16-sharded", "glm4_moe-air",
                           "gpt_oss-mxfp4", "gpt_oss"}) {
    const std::string path = testing::GoldenModel(name);
    for (const WeightsMode mode :
         {WeightsMode::kAuto, WeightsMode::kBf16, WeightsMode::kF32}) {
      ExpectWhatStagesHold(path, mode, 1);
    }
    ExpectWhatStagesHold(path, WeightsMode::kAuto, 4);
  }
}

// Zeros: a llama of two layers with one kv head, F16 and Q8_0, tied.
GgufBuilder QuantisedLlama() {
  constexpr uint64_t kBlock = 32;
  constexpr uint64_t kHidden = 64;
  constexpr size_t kBlockBytes = 34;
  GgufBuilder gguf;
  gguf.Text("general.architecture", "llama")
      .U32("llama.embedding_length", kHidden)
      .U32("llama.block_count", 2)
      .U32("llama.attention.head_count", 2)
      .U32("llama.attention.head_count_kv", 1)
      .U32("llama.feed_forward_length", 2 * kBlock)
      .U32("llama.context_length", 64)
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .U32("tokenizer.ggml.eos_token_id", 2);
  const auto norm = [&](const std::string& name) {
    gguf.Tensor(name, {kHidden}, 0, std::string(4 * kHidden, '\0'));
  };
  const auto half = [&](const std::string& name, uint64_t cols, uint64_t rows) {
    gguf.Tensor(name, {cols, rows}, 1, std::string(2 * cols * rows, '\0'));
  };
  const auto q8 = [&](const std::string& name, uint64_t cols, uint64_t rows) {
    gguf.Tensor(name, {cols, rows}, 8,
                std::string(kBlockBytes * (cols / kBlock) * rows, '\0'));
  };
  q8("token_embd.weight", kHidden, 7);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = Cat("blk.", layer, ".");
    norm(prefix + "attn_norm.weight");
    half(prefix + "attn_q.weight", kHidden, kHidden);
    half(prefix + "attn_k.weight", kHidden, kHidden / 2);
    q8(prefix + "attn_v.weight", kHidden, kHidden / 2);
    q8(prefix + "attn_output.weight", kHidden, kHidden);
    norm(prefix + "ffn_norm.weight");
    q8(prefix + "ffn_gate.weight", kHidden, 2 * kBlock);
    q8(prefix + "ffn_up.weight", kHidden, 2 * kBlock);
    q8(prefix + "ffn_down.weight", 2 * kBlock, kHidden);
  }
  norm("output_norm.weight");
  return gguf;
}

TEST(LayerLoadsTest, OfAQuantisedGgufAreItsBlocks) {
  const TempDir dir;
  const std::string path = dir.Write("q.gguf", QuantisedLlama().Build());
  for (const int32_t ranks : {1, 2}) {  // both read the one kv head
    for (const WeightsMode mode : {WeightsMode::kAuto, WeightsMode::kBf16}) {
      ExpectWhatStagesHold(path, mode, ranks);
    }
  }
}

TEST(LayerLoadsTest, NumbersBeyondTheirLimitsCountAsTheLimit) {
  const TempDir dir;
  const auto model = OpenModel(dir.Write("q.gguf", QuantisedLlama().Build()));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  const auto kv = [&](const LayerLoadOptions& options) {
    return LoadsOf(*config, **model, options).Of({0, 2}).kv;
  };
  constexpr auto kAuto = WeightsMode::kAuto;
  const uint64_t block = uint64_t{2 * 2 * 4 * 16} * 32;
  EXPECT_EQ(kv({kAuto, nullptr, 0, INT32_MAX, INT32_MAX}), 4 * block);
  EXPECT_EQ(kv({kAuto, nullptr, INT32_MAX}), (uint64_t{1} << 24) * block);
  EXPECT_EQ(kv({kAuto, nullptr, 1, 0, 512, 99}), 2 * block);
  EXPECT_EQ(kv({kAuto, nullptr, 1, 0, 512, 0}), block);
  EXPECT_EQ(kv({kAuto, nullptr, 1, 0, 512, 1, kernels::WeightType::kBf16}),
            block / 2);
  EXPECT_EQ(kv({kAuto, nullptr, 1, 0, 512, 1, kernels::WeightType::kQ8_0}),
            block / (32 * 4) * 34);
}

TEST(LayerLoadsTest, AStepsTokensCountWhereThereAreWindows) {
  const std::string path = testing::GoldenModel("gpt_oss");
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  const auto kv = [&](int32_t step) {
    return LoadsOf(*config, **model,
                   {WeightsMode::kAuto, nullptr, 0, 2048, step})
        .Of({0, 4})
        .kv;
  };
  const uint64_t block =
      uint64_t{2 * 2 * 4 * 16} *
      static_cast<uint64_t>(config->layers[0].attention.kv_size());
  EXPECT_EQ(kv(1024) - kv(512), 512 / 16 * block);
}

TEST(LayerLoadsTest, RowsOfAWeightHaveTheTypesOfTheirTensors) {
  GgufBuilder gguf = QuantisedLlama();
  const TempDir dir;
  std::string bytes = gguf.Build();
  // The type stands behind its tensor's name and two dimensions: 30 is BF16.
  const auto make_bf16 = [&](const std::string& name) {
    const size_t at = bytes.find(name);
    ASSERT_NE(at, std::string::npos) << name;
    bytes.replace(at + name.size() + 4 + 2 * 8, 4, BytesOf<uint32_t>(30));
  };
  make_bf16("blk.0.attn_q.weight");
  make_bf16("blk.0.attn_k.weight");
  ExpectWhatStagesHold(dir.Write("mixed.gguf", bytes), WeightsMode::kAuto, 1);
}

TEST(LayerLoadsTest, LayersWithAWindowShareTheMemoryOfThoseWithout) {
  const std::string path = testing::GoldenModel("gpt_oss");
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  for (int i = 0; i < 4; ++i) {
    config->layers[i].attention.window = i == 1 ? 16 : 0;
  }
  const LayerLoads loads =
      LoadsOf(*config, **model, {WeightsMode::kAuto, nullptr, 12, 128});
  const uint64_t one =
      uint64_t{2 * 4 * 12 * 16} *
      static_cast<uint64_t>(config->layers[0].attention.kv_size());
  EXPECT_EQ(loads.Of({0, 4}).kv, 3 * one);
  EXPECT_EQ(loads.Of({0, 2}).kv, one);
  EXPECT_EQ(loads.Of({1, 3}).kv, one);
  EXPECT_EQ(loads.Of({2, 4}).kv, 2 * one);
}

TEST(LayerLoadsTest, OneSequenceHasItsWindowBesideItsLength) {
  const std::string path = testing::GoldenModel("gpt_oss");
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  const LayerLoads loads =
      LoadsOf(*config, **model, {WeightsMode::kAuto, nullptr, 0, 2048});
  // 2 layers of 128 blocks, and 34 for windows of 16 and steps of 512.
  EXPECT_EQ(loads.Of({0, 4}).kv,
            uint64_t{2 * 2 * 4 * (128 + 34) * 16} *
                static_cast<uint64_t>(config->layers[0].attention.kv_size()));
}

TEST(LayerLoadsTest, ExpertsElsewhereAreNotCounted) {
  const std::string path = testing::GoldenModel("glm4_moe-air");
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto config = ParseModelConfig((*model)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  const int32_t experts = config->moe().num_experts;
  const int32_t last = config->num_layers() - 1;
  const auto place = [&](const std::string& half) {
    const auto placement = ParseExpertPlacement(
        Cat(R"({"hosts": [{"name": "a"}], "experts": [{"layers": ")",
            SparseSpan(*config).first, "-", last, R"(", "experts": "0-)",
            experts / 2 - 1, R"(", "hosts": ["a"]}, {"layers": ")",
            SparseSpan(*config).first, "-", last, R"(", "experts": ")",
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

TEST(KvLayoutTest, PositionsInSoManyBlocksAreTheMostThatFit) {
  ModelConfig config;
  config.layers.resize(4);
  const std::vector<std::vector<int32_t>> all = {
      {0, 0, 0, 0}, {0, 40, 0, 40}, {16, 16, 100, 0}};
  for (const std::vector<int32_t>& windows : all) {
    for (int i = 0; i < 4; ++i) config.layers[i].attention.window = windows[i];
    for (const int32_t step : {1, 64}) {
      for (int32_t blocks = 0; blocks < 60; ++blocks) {
        const int32_t most = 500;
        const int32_t fit = KvPositionsIn(config, blocks, step, most);
        EXPECT_TRUE(fit == most || fit % kBlockTokens == 0);
        EXPECT_LE(KvBlocksOfOne(config, fit, step), blocks);
        if (fit == most) continue;
        EXPECT_GT(KvBlocksOfOne(config, fit + 1, step), blocks);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
