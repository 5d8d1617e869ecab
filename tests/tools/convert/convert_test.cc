#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/tensor/host_weight.h"
#include "common/tools/convert/convert_model.h"
#include "common/weights/composed_tensor.h"
#include "common/weights/dequantize.h"
#include "common/weights/gguf_file.h"
#include "common/weights/quantize.h"
#include "common/weights/weight_sums.h"
#include "kernels/block_fit.h"
#include "kernels/block_store.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"

namespace sluice {
namespace {

using kernels::BlockFormat;
using testing::BytesOf;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::TempDir;
using weights::DType;
using weights::Slice;
using weights::TensorInfo;

StatusOr<ConvertReport> Convert(const std::string& model,
                                const std::string& out, DType type,
                                std::vector<ConvertRule> rules = {}) {
  ConvertOptions options = {model, out, type, std::move(rules)};
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

class ConvertTest : public ::testing::TestWithParam<DType> {};

TEST_P(ConvertTest, MatricesAreTheBlocksOfTheSourceAndTheRestIsAsItWas) {
  const std::string path = testing::GoldenModel("qwen3_moe");
  const BlockFormat format = *weights::BlocksOf(GetParam());
  const TempDir dir;
  const std::string out = dir.path() + "/out";
  const auto report =
      Convert(path, out, GetParam(), {{"layers\\.1\\..*q_proj", DType::kBF16}});
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
    if (matrix.type == DType::kBF16) {
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
    auto* to_blocks = reinterpret_cast<uint8_t*>(blocks.data());
    const auto count = static_cast<int64_t>(wide.size()) / 32;
    if (kernels::CanStore(format)) {
      kernels::StoreBlocks(format, wide.data(), count, to_blocks);
    } else {
      kernels::FitBlocks(format, wide.data(), nullptr, count, to_blocks);
    }
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
                         ::testing::Values(DType::kQ4_0, DType::kQ8_0,
                                           DType::kQ5_1, DType::kIq4Nl,
                                           DType::kMxfp4));

TEST(ConvertModelTest, AQuantisedModelBecomesBf16AgainWithItsElements) {
  const std::string path = testing::GoldenModel("qwen3");
  const TempDir dir;
  const std::string small = dir.path() + "/small";
  const std::string wide = dir.path() + "/wide";
  ASSERT_EQ(Message(Convert(path, small, DType::kQ4_0).status()), "");
  const auto report = Convert(small, wide, DType::kBF16);
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

TEST(ConvertModelTest, RulesChooseTheTypeOfAMatrixTheHeadToo) {
  const std::string path = testing::GoldenModel("qwen3_moe");
  const TempDir dir;
  const std::string out = dir.path() + "/out";
  const auto report =
      Convert(path, out, DType::kQ4_0,
              {{"down_proj", DType::kBF16}, {"mlp|lm_head", DType::kQ8_0}});
  ASSERT_TRUE(report.ok()) << report.status();
  const auto to = OpenModel(out);
  ASSERT_TRUE(to.ok()) << to.status();
  const auto type = [&](const std::string& name) {
    const TensorInfo* found = (*to)->Find(name + ".weight");
    return found != nullptr ? found->dtype : DType::kBool;
  };
  EXPECT_EQ(type("model.layers.0.mlp.experts.0.down_proj"), DType::kBF16);
  EXPECT_EQ(type("model.layers.0.mlp.experts.0.up_proj"), DType::kQ8_0);
  EXPECT_EQ(type("model.layers.1.self_attn.q_proj"), DType::kQ4_0);
  EXPECT_EQ(type("lm_head"), DType::kQ8_0);
  EXPECT_TRUE((*to)->FindStored("model.embed_tokens.weight") != nullptr);
  const Json& said = (*to)->config()["quantization_config"];
  EXPECT_EQ(said["config_groups"].size(), 2u);
  EXPECT_EQ(Message(CheckTensors(*ParseModelConfig((*to)->config()), **to)),
            "");
}

// A llama of two layers with rows of `hidden` columns, whole blocks, and a
// value of every type; those of its down projections are half as long again.
GgufBuilder WideLlama(uint32_t hidden) {
  GgufBuilder gguf;
  gguf.Text("general.architecture", "llama")
      .U32("general.alignment", 64)
      .U32("llama.embedding_length", hidden)
      .U32("llama.block_count", 2)
      .U32("llama.attention.head_count", 2)
      .U32("llama.attention.head_count_kv", 1)
      .U32("llama.feed_forward_length", hidden * 3 / 2)
      .U32("llama.context_length", 64)
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .U32("tokenizer.ggml.eos_token_id", 2)
      .Key("test.u8", 0, BytesOf<uint8_t>(200))
      .Key("test.i16", 3, BytesOf<int16_t>(-300))
      .Key("test.yes", 7, BytesOf(true))
      .Key("test.i64", 11, BytesOf<int64_t>(-5'000'000'000))
      .Key("test.f64", 12, BytesOf(0.1))
      .Array("test.bools", 7, 2, std::string("\1\0", 2))
      .Array("test.floats", 6, 2, BytesOf(std::vector<float>{0.1f, -2}))
      .Array("test.texts", 8, 2,
             testing::GgufString("a") + testing::GgufString(""));
  uint32_t seed = 1;
  const auto add = [&](const std::string& name, std::vector<uint64_t> dims) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    std::vector<float> values(count);
    for (float& value : values) {
      seed = seed * 1664525u + 1013904223u;
      value = static_cast<float>(seed >> 8) * 0x1p-24f - 0.5f;
    }
    gguf.Tensor(name, std::move(dims), 0, BytesOf(values));
  };
  add("token_embd.weight", {hidden, 6});
  for (const char* prefix : {"blk.0.", "blk.1."}) {
    add(Cat(prefix, "attn_norm.weight"), {hidden});
    add(Cat(prefix, "attn_q.weight"), {hidden, hidden});
    add(Cat(prefix, "attn_k.weight"), {hidden, hidden / 2});
    add(Cat(prefix, "attn_v.weight"), {hidden, hidden / 2});
    add(Cat(prefix, "attn_output.weight"), {hidden, hidden});
    add(Cat(prefix, "ffn_norm.weight"), {hidden});
    add(Cat(prefix, "ffn_gate.weight"), {hidden, hidden * 3 / 2});
    add(Cat(prefix, "ffn_up.weight"), {hidden, hidden * 3 / 2});
    add(Cat(prefix, "ffn_down.weight"), {hidden * 3 / 2, hidden});
  }
  add("output_norm.weight", {hidden});
  return gguf;
}

class ConvertGgufTest : public ::testing::TestWithParam<DType> {};

TEST_P(ConvertGgufTest, AGgufBecomesOneOfThisTypeWithItsMetadata) {
  const DType type = GetParam();
  const TempDir dir;
  const auto block = weights::BlockSizeOf(type).elements;
  const std::string path =
      dir.Write("m.gguf", WideLlama(block == 256 ? 256 : 64).Build());
  const std::string out = dir.path() + "/out.gguf";
  const auto report =
      Convert(path, out, type, {{"layers.1.*q_proj", DType::kF32}});
  ASSERT_TRUE(report.ok()) << report.status();
  const auto from = *OpenModel(path);
  const auto to = OpenModel(out);
  ASSERT_TRUE(to.ok()) << to.status();
  EXPECT_EQ((*to)->config(), from->config());
  for (const auto& [key, value] : from->gguf()->entries()) {
    const weights::GgufValue* kept = (*to)->gguf()->Find(key);
    ASSERT_NE(kept, nullptr) << key;
    EXPECT_EQ(kept->type, value.type) << key;
    EXPECT_EQ(kept->element_type, value.element_type) << key;
    EXPECT_TRUE(kept->value == value.value) << key;
  }
  EXPECT_EQ(report->matrices.size(), 2u * 7u);
  for (const ConvertedMatrix& matrix : report->matrices) {
    const bool is_kept =
        matrix.name == "model.layers.1.self_attn.q_proj.weight";
    const bool is_whole = (*to)->Find(matrix.name)->cols() % block == 0;
    EXPECT_TRUE(is_whole || matrix.name.ends_with("down_proj.weight"));
    EXPECT_EQ(matrix.type, is_kept    ? DType::kF32
                           : is_whole ? type
                                      : DType::kBF16)
        << matrix.name;
    EXPECT_EQ((*to)->Find(matrix.name)->dtype, matrix.type);
    // Rows may be permuted: each is quantised alone.
    const std::vector<float> wide = Values(*from, matrix.name);
    const auto quantised = weights::Quantize(matrix.type, wide.data(),
                                             static_cast<int64_t>(wide.size()));
    ASSERT_TRUE(quantised.ok()) << quantised.status();
    const weights::QuantizedElements& made = *quantised;
    std::vector<float> back(wide.size());
    weights::DequantizeToF32(matrix.type, made.bytes.as<uint8_t>(),
                             static_cast<int64_t>(wide.size()) /
                                 weights::BlockSizeOf(matrix.type).elements,
                             back.data());
    EXPECT_EQ(Values(**to, matrix.name), back) << matrix.name;
    EXPECT_NEAR(matrix.relative_error, made.relative_error, 1e-12);
  }
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight"}) {
    EXPECT_EQ(Values(**to, name), Values(*from, name)) << name;
  }
  EXPECT_TRUE(std::filesystem::exists(out + ".convert_report.json"));
  EXPECT_FALSE(std::filesystem::exists(out + ".partial"));
  const auto digest = weights::ComputeIdentity(**to);
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(Message(weights::UseWeightSums(**to, *digest)), "");
}

INSTANTIATE_TEST_SUITE_P(
    Types, ConvertGgufTest,
    ::testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                      DType::kQ8_0, DType::kIq4Nl, DType::kMxfp4, DType::kQ3K,
                      DType::kQ4K, DType::kBF16, DType::kF32));

TEST(ConvertModelTest, WhatCannotBeWrittenIsRefusedAndLeavesNothing) {
  const std::string path = testing::GoldenModel("qwen3");
  const TempDir dir;
  const std::string out = dir.path() + "/out";
  EXPECT_THAT(Message(Convert(path, dir.path(), DType::kQ4_0).status()),
              HasSubstr("is there already"));
  EXPECT_THAT(
      Message(Convert(path, out, DType::kQ4_0, {{"(", DType::kBF16}}).status()),
      HasSubstr("no regular expression"));
  EXPECT_THAT(Message(Convert(path, out, DType::kF32).status()),
              HasSubstr("cannot have F32, a folder has BF16 or blocks"));
  EXPECT_THAT(Message(Convert(path, out, DType::kF16).status()),
              HasSubstr("cannot have F16, a folder has BF16 or blocks"));
  EXPECT_THAT(
      Message(Convert(path, dir.path() + "/no/out", DType::kQ4_0).status()),
      HasSubstr("cannot be read"));
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_FALSE(std::filesystem::exists(out + ".partial"));
}

}  // namespace
}  // namespace sluice
