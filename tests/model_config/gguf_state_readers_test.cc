// What GGUFs of models with states say by lists of layers and by the order of
// their heads; Gemma 4's lists and divisors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/model_config/model_config.h"
#include "common/weights/model_file.h"
#include "tests/model_config/gguf_header.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string KindsOf(const ModelConfig& config) {
  std::string kinds;
  for (const LayerConfig& layer : config.layers) {
    kinds += layer.attention.present ? '*'
             : layer.state.present() ? 'M'
             : layer.is_sparse()     ? 'E'
                                     : '-';
  }
  return kinds;
}

GgufHeader Lfm2() {
  GgufHeader header("lfm2");
  header.Layers(3).U32("shortconv.l_cache", 3);
  return header;
}

TEST(GgufStateReadersTest, LayersWithoutHeadsOfKeysHaveAState) {
  const ModelConfig config =
      Lfm2().Ints("attention.head_count_kv", {0, 2, 0}).Parsed();
  EXPECT_EQ(KindsOf(config), "M*M");
  EXPECT_EQ(config.layers[1].attention.num_kv_heads, 2);
  EXPECT_EQ(config.layers[0].mlp.intermediate_size, 24);
  EXPECT_EQ(KindsOf(Lfm2().U32("attention.head_count_kv", 1).Parsed()), "***");
  EXPECT_THAT(Lfm2().Ints("attention.head_count_kv", {1, 2, 0}).Refusal(),
              HasSubstr("lfm2.attention.head_count_kv is 2 for layer 1, "
                        "supported are 0 and one number above, here 1"));
  EXPECT_THAT(Lfm2().Ints("attention.head_count_kv", {1, 0}).Refusal(),
              HasSubstr("head_count_kv has 2 layers of 3"));
  EXPECT_THAT(Lfm2()
                  .U32("attention.head_count_kv", 1)
                  .U32("attention.sliding_window", 16)
                  .Refusal(),
              HasSubstr("lfm2.attention.sliding_window is 16"));
}

GgufHeader Mamba(const char* architecture) {
  GgufHeader header(architecture);
  header.Layers(3)
      .U32("ssm.conv_kernel", 4)
      .U32("ssm.state_size", 8)
      .U32("ssm.group_count", 1)
      .U32("ssm.time_step_rank", 4)
      .U32("ssm.inner_size", 64);
  return header;
}

TEST(GgufStateReadersTest, GraniteTurnsNothingWhereTheFileSaysSo) {
  const std::vector<int32_t> heads = {0, 2, 0};
  ModelConfig config = Mamba("granitehybrid")
                           .Ints("attention.head_count_kv", heads)
                           .Bool("rope.scaling.finetuned", false)
                           .Parsed();
  EXPECT_EQ(KindsOf(config), "M*M");
  EXPECT_THAT(config.ropes[0].inv_freq, ElementsAre(0));
  EXPECT_TRUE(config.layers[0].of_gguf);
  EXPECT_EQ(config.layers[0].state.mixer.shape.value_dim, 16);
  config =
      Mamba("granitehybrid").Ints("attention.head_count_kv", heads).Parsed();
  EXPECT_EQ(config.ropes[0].rotary_dim, 8);
  EXPECT_THAT(Mamba("granitehybrid")
                  .Ints("attention.head_count_kv", heads)
                  .U32("expert_group_count", 4)
                  .Refusal(),
              HasSubstr("granitehybrid.expert_group_count is 4"));
}

TEST(GgufStateReadersTest, NemotronsLayersAreToldByHeadsAndWidths) {
  const auto header = [] {
    GgufHeader made = Mamba("nemotron_h_moe");
    made.Ints("attention.head_count_kv", {0, 2, 0})
        .U32("expert_count", 4)
        .U32("expert_used_count", 2)
        .U32("expert_feed_forward_length", 8);
    return made;
  };
  // The header's feed_forward_length is of all layers.
  EXPECT_EQ(KindsOf(header().Parsed()), "E*E");
  EXPECT_THAT(header().U32("moe_latent_size", 16).Refusal(),
              HasSubstr("nemotron_h_moe.moe_latent_size is 16"));
  EXPECT_THAT(header().U32("nextn_predict_layers", 4).Refusal(),
              HasSubstr("nextn_predict_layers is 4 of a block_count of 3"));
}

// Two heads of keys with three of values each, of `dim` columns: the file has
// values 0, 3, 1, 4, 2, 5 of the model.
GgufHeader Tiled(uint32_t dim) {
  GgufHeader header("qwen35");
  header.Layers(1)
      .U32("attention.head_count_kv", 1)
      .U32("ssm.conv_kernel", 4)
      .U32("ssm.state_size", 4)
      .U32("ssm.group_count", 2)
      .U32("ssm.time_step_rank", 6)
      .U32("ssm.inner_size", 6 * dim);
  return header;
}

std::vector<float> Counted(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

std::vector<float> ReadAll(const weights::ModelFile& model,
                           const std::string& name) {
  const weights::TensorInfo* info = model.Find(name);
  EXPECT_NE(info, nullptr) << name;
  if (info == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(info->elements()));
  EXPECT_TRUE(
      model.ReadF32(name, weights::Slice::All(*info), values.data()).ok());
  return values;
}

TEST(GgufStateReadersTest, TiledHeadsComeInTheModelsOrder) {
  const TempDir dir;
  GgufHeader header = Tiled(2);
  header.Vector("blk.0.ssm_a", Counted(6))
      .Tensor("blk.0.attn_gate.weight", {1, 12}, 0, BytesOf(Counted(12)))
      .Tensor("blk.0.attn_qkv.weight", {1, 28}, 0, BytesOf(Counted(28)))
      .Tensor("blk.0.ssm_out.weight", {12, 2}, 0, BytesOf(Counted(24)));
  const auto model = header.OpenFile(dir);
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string layer = "model.layers.0.linear_attn.";
  EXPECT_THAT(ReadAll(**model, layer + "A"), ElementsAre(0, 2, 4, 1, 3, 5));
  EXPECT_THAT(ReadAll(**model, layer + "in_proj_z.weight"),
              ElementsAre(0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11));
  // 16 rows of queries and keys stand as they are.
  EXPECT_THAT(ReadAll(**model, layer + "in_proj_qkv.weight"),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                          16, 17, 20, 21, 24, 25, 18, 19, 22, 23, 26, 27));
  EXPECT_THAT(ReadAll(**model, layer + "out_proj.weight"),
              ElementsAre(0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11, 12, 13, 16, 17,
                          20, 21, 14, 15, 18, 19, 22, 23));
  // A part of the columns, across heads.
  std::vector<float> part(3);
  ASSERT_TRUE(
      (*model)
          ->ReadF32(layer + "out_proj.weight", {1, 2, 3, 6}, part.data())
          .ok());
  EXPECT_THAT(part, ElementsAre(17, 20, 21));
}

TEST(GgufStateReadersTest, BlocksOfTiledHeadsAreKeptWhereTheyAreOfOneHead) {
  for (const uint32_t dim : {32u, 16u}) {
    const TempDir dir;
    // Each block has a scale of 1 and the codes of its number.
    std::string blocks;
    const uint32_t count = 6 * dim / 32;
    for (uint32_t block = 0; block < count; ++block) {
      blocks += std::string("\x00\x3c", 2);
      blocks += std::string(32, static_cast<char>(block));
    }
    GgufHeader header = Tiled(dim);
    header.Tensor("blk.0.ssm_out.weight", {6 * dim, 1}, 8, blocks);
    const auto model = header.OpenFile(dir);
    ASSERT_TRUE(model.ok()) << model.status();
    const std::string name = "model.layers.0.linear_attn.out_proj.weight";
    EXPECT_EQ((*model)->Find(name)->dtype,
              dim == 32 ? weights::DType::kQ8_0 : weights::DType::kF32);
    const std::vector<float> row = ReadAll(**model, name);
    ASSERT_EQ(row.size(), 6 * dim);
    std::vector<float> heads;
    for (size_t head = 0; head < 6; ++head) heads.push_back(row[head * dim]);
    if (dim == 32) {
      EXPECT_THAT(heads, ElementsAre(0, 2, 4, 1, 3, 5));
      std::vector<std::byte> stored(34 * 6);
      ASSERT_TRUE((*model)
                      ->ReadStoredRows(name, {0, 1, 0, 6 * dim}, stored.data())
                      .ok());
      EXPECT_EQ(stored[34 + 2], std::byte{2});
    } else {
      EXPECT_THAT(heads, ElementsAre(0, 1, 2, 0, 1, 2));
    }
  }
}

TEST(GgufStateReadersTest, TensorsOfOtherHeadsAreNamed) {
  const TempDir dir;
  GgufHeader header = Tiled(2);
  header.Vector("blk.0.ssm_a", Counted(5));
  EXPECT_THAT(Message(header.OpenFile(dir).status()),
              HasSubstr("tensor 'model.layers.0.linear_attn.A' of shape [5] "
                        "has not 6 value heads of 1 behind 0"));
  EXPECT_THAT(GgufHeader("qwen35")
                  .U32("attention.head_count_kv", 1)
                  .U32("ssm.conv_kernel", 4)
                  .U32("ssm.state_size", 4)
                  .U32("ssm.group_count", 2)
                  .U32("ssm.time_step_rank", 6)
                  .U32("ssm.inner_size", 13)
                  .Refusal(),
              HasSubstr("qwen35.ssm.inner_size 13 is no multiple of "
                        "qwen35.ssm.time_step_rank 6"));
}

GgufHeader Gemma4() {
  GgufHeader header("gemma4");
  header.Layers(4)
      .U32("attention.key_length_swa", 4)
      .U32("attention.sliding_window", 16)
      .Bools("attention.sliding_window_pattern", {true, false, true, false});
  return header;
}

TEST(GgufStateReadersTest, Gemma4TellsStandingPairsByDivisors) {
  const ModelConfig config =
      Gemma4()
          .U32("attention.head_count_kv", 1)
          .Vector("rope_freqs.weight", {1, 1e30f, 1e30f, 1e30f})
          .Parsed();
  ASSERT_EQ(config.ropes.size(), 2u);
  const RopeConfig& full = config.ropes[config.layers[1].attention.rope];
  EXPECT_EQ(full.rotary_dim, 8);
  EXPECT_THAT(full.inv_freq, ElementsAre(1, 0, 0, 0));
  EXPECT_EQ(config.layers[0].attention.head_dim, 4);
  EXPECT_EQ(config.layers[1].attention.head_dim, 8);
  EXPECT_THAT(Gemma4()
                  .U32("attention.head_count_kv", 1)
                  .Vector("rope_freqs.weight", {1, 2, 1e30f, 1e30f})
                  .Refusal(),
              HasSubstr("tensor 'rope_freqs.weight' has 2 for pair 1"));
  EXPECT_THAT(Gemma4().Ints("attention.head_count_kv", {1, 2, 2, 2}).Refusal(),
              HasSubstr("head_count_kv is 2 for layer 2 and 1 for others"));
  EXPECT_THAT(Gemma4().Ints("attention.head_count_kv", {2, 1, 2, 1}).Refusal(),
              HasSubstr("both have values of their own"));
}

}  // namespace
}  // namespace sluice::testing
