#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/host_weight.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/weight_sums.h"
#include "kernels/block_store.h"
#include "services/cli/convert/convert_model.h"
#include "tests/testing/shared_data.h"
#include "tests/weights/model_files.h"

namespace sluice::cli {
namespace {

using kernels::BlockFormat;
using ::testing::HasSubstr;
using testing::TempDir;
using weights::DType;
using weights::Slice;
using weights::TensorInfo;

StatusOr<ConvertReport> Convert(const std::string& model,
                                const std::string& out,
                                std::optional<BlockFormat> format,
                                const std::string& keep = "") {
  ConvertOptions options = {model, out, format, keep};
  options.shard_bytes = 100'000;
  return ConvertModel(options, {});
}

std::vector<float> Values(const weights::ModelFile& model,
                          const std::string& name) {
  const TensorInfo& info = *model.Find(name);
  std::vector<float> values(static_cast<size_t>(info.elements()));
  const Status status = model.ReadF32(name, Slice::All(info), values.data());
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

// The stored blocks of a matrix.
std::string Blocks(const weights::ModelFile& model, const std::string& name) {
  const TensorInfo& info = *model.Find(name);
  HostWeight weight(TypeOfBlocks(*weights::BlocksOf(info.dtype)), info.rows(),
                    info.cols());
  const Status status = model.ReadMatrix(name, Slice::All(info), 0, weight);
  EXPECT_TRUE(status.ok()) << status;
  return {weight.data.as<char>(), weight.data.size()};
}

class ConvertTest : public ::testing::TestWithParam<BlockFormat> {};

TEST_P(ConvertTest, MatricesAreTheBlocksOfTheSourceAndTheRestIsAsItWas) {
  SLUICE_REQUIRE_SHARED(path, "golden/qwen3_moe");
  const BlockFormat format = GetParam();
  const TempDir dir;
  const std::string out = dir.path() + "/out";
  const auto report = Convert(path, out, format, "layers\\.1\\..*q_proj");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->num_files, 1);
  EXPECT_LT(report->bytes_after, report->bytes_before);
  const auto from = *OpenModel(path);
  auto to = OpenModel(out);
  ASSERT_TRUE(to.ok()) << to.status();
  const auto config = ParseModelConfig((*to)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(Message(CheckTensors(*config, **to)), "");
  int quantised = 0;
  for (const ConvertedMatrix& matrix : report->matrices) {
    const std::vector<float> wide = Values(*from, matrix.name);
    if (!matrix.is_quantised) {
      const bool kept =
          matrix.name.find("1.self_attn.q_proj") != std::string::npos;
      EXPECT_TRUE(kept || (*to)->Find(matrix.name)->cols() % 32 != 0);
      EXPECT_EQ((*to)->Find(matrix.name)->dtype, DType::kBF16);
      continue;
    }
    ++quantised;
    EXPECT_GT(matrix.relative_error, 0);
    EXPECT_LT(matrix.relative_error, 0.15);
    EXPECT_EQ(weights::BlocksOf((*to)->Find(matrix.name)->dtype), format);
    std::string blocks(
        FormatOf(TypeOfBlocks(format)).bytes(static_cast<int64_t>(wide.size())),
        '\0');
    kernels::StoreBlocks(format, wide.data(),
                         static_cast<int64_t>(wide.size()) / 32,
                         reinterpret_cast<uint8_t*>(blocks.data()));
    EXPECT_TRUE(Blocks(**to, matrix.name) == blocks) << matrix.name;
  }
  EXPECT_GT(quantised, 3 * 8 * 2);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight",
                           "model.layers.0.mlp.gate.weight"}) {
    EXPECT_EQ(Values(**to, name), Values(*from, name)) << name;
  }
  EXPECT_TRUE(std::filesystem::exists(out + "/tokenizer.json"));
  EXPECT_TRUE(std::filesystem::exists(out + "/convert_report.json"));
  EXPECT_FALSE(std::filesystem::exists(out + ".partial"));
  EXPECT_TRUE(std::filesystem::exists((*to)->sums_path()));
  const auto digest = weights::ComputeIdentity(**to);
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(Message(weights::UseWeightSums(**to, *digest)), "");
}

INSTANTIATE_TEST_SUITE_P(Formats, ConvertTest,
                         ::testing::Values(BlockFormat::kQ4_0,
                                           BlockFormat::kQ8_0));

TEST(ConvertModelTest, AQuantisedModelBecomesBf16AgainWithItsElements) {
  SLUICE_REQUIRE_SHARED(path, "golden/qwen3");
  const TempDir dir;
  const std::string small = dir.path() + "/small";
  const std::string wide = dir.path() + "/wide";
  ASSERT_EQ(Message(Convert(path, small, BlockFormat::kQ4_0).status()), "");
  const auto report = Convert(small, wide, std::nullopt);
  ASSERT_TRUE(report.ok()) << report.status();
  const auto from = *OpenModel(small);
  const auto to = *OpenModel(wide);
  EXPECT_TRUE(to->composed().empty());
  EXPECT_FALSE(to->config().contains("quantization_config"));
  for (const ConvertedMatrix& matrix : report->matrices) {
    const auto values = Values(*from, matrix.name);
    const auto rounded = Values(*to, matrix.name);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(rounded[i], weights::Bf16ToF32(weights::F32ToBf16(values[i])));
    }
  }
}

TEST(ConvertModelTest, WhatCannotBeWrittenIsRefusedAndLeavesNothing) {
  SLUICE_REQUIRE_SHARED(path, "golden/qwen3");
  const TempDir dir;
  const std::string out = dir.path() + "/out";
  EXPECT_THAT(Message(Convert(path, dir.path(), BlockFormat::kQ4_0).status()),
              HasSubstr("is there already"));
  EXPECT_THAT(Message(Convert(path, out, BlockFormat::kQ4_0, "(").status()),
              HasSubstr("no regular expression"));
  EXPECT_THAT(
      Message(Convert(dir.Write("tiny.gguf", testing::TinyLlama().Build()), out,
                      BlockFormat::kQ4_0)
                  .status()),
      HasSubstr("no folder of safetensors"));
  EXPECT_THAT(
      Message(
          Convert(path, dir.path() + "/no/out", BlockFormat::kQ4_0).status()),
      HasSubstr("cannot be read"));
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_FALSE(std::filesystem::exists(out + ".partial"));
}

}  // namespace
}  // namespace sluice::cli
