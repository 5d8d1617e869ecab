// Folders of FP8, GPTQ and AWQ: what their config says, which tensors stay, and
// the answers of their elements.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/tools/convert/convert_model.h"
#include "common/tools/convert/weight_names.h"
#include "common/weights/encode_matrix.h"
#include "common/weights/model_file.h"
#include "common/weights/weight_sums.h"
#include "tests/model/golden_file.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"
#include "tests/tools/convert/golden_folder.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using weights::Coding;
using weights::DType;
using weights::Slice;
using weights::TensorInfo;

ConvertOptions Coded(const std::string& model, const std::string& out,
                     Coding coding) {
  ConvertOptions options;
  options.model = model;
  options.out = out;
  options.coding = coding;
  return options;
}

std::vector<float> Values(const weights::ModelFile& model,
                          const std::string& name) {
  const TensorInfo* info = model.Find(name);
  if (info == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(info->elements()));
  EXPECT_TRUE(model.ReadF32(name, Slice::All(*info), values.data()).ok());
  return values;
}

std::string StoredBytes(const weights::ModelFile& model,
                        const std::string& name) {
  const TensorInfo* info = model.FindStored(name);
  if (info == nullptr) return "";
  std::string bytes(static_cast<size_t>(info->stored_bytes()), '\0');
  EXPECT_TRUE(model
                  .ReadStoredBytes(name, 0, bytes.size(),
                                   reinterpret_cast<uint8_t*>(bytes.data()))
                  .ok());
  return bytes;
}

// Checks that each coded matrix has the bytes of the source's elements, and
// that all others are as they were. Returns the number of coded ones.
int ExpectCoded(const ConvertReport& report, const std::string& path,
                const std::string& out, weights::MatrixCoding coding) {
  const auto from = *OpenModel(path);
  const auto to = OpenModel(out);
  EXPECT_TRUE(to.ok()) << to.status();
  if (!to.ok()) return 0;
  const auto config = ParseModelConfig((*to)->config());
  EXPECT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(Message(CheckTensors(*config, **to)), "");
  int coded = 0;
  for (const ConvertedMatrix& matrix : report.matrices) {
    const TensorInfo& info = *from->Find(matrix.name);
    const std::vector<float> wide = Values(*from, matrix.name);
    if (matrix.coding == Coding::kNone) {
      EXPECT_EQ((*to)->Find(matrix.name)->dtype, DType::kBF16);
      continue;
    }
    ++coded;
    EXPECT_EQ(matrix.coding, coding.coding);
    EXPECT_GT(matrix.relative_error, 0);
    EXPECT_LT(matrix.relative_error,
              coding.coding == Coding::kFp8 ? 0.03 : 0.14);
    const auto made =
        weights::EncodeMatrix(coding, info.rows(), info.cols(), wide.data());
    EXPECT_TRUE(made.ok()) << made.status();
    std::string stored;
    for (const TensorInfo& part : weights::TensorsOf(info, coding)) {
      EXPECT_NE((*to)->FindStored(part.name), nullptr) << part.name;
      stored += StoredBytes(**to, part.name);
    }
    EXPECT_TRUE(stored ==
                std::string(made->bytes.as<char>(), made->bytes.size()))
        << matrix.name;
  }
  for (const TensorInfo& info : from->tensors()) {
    const bool is_layers_matrix =
        std::any_of(report.matrices.begin(), report.matrices.end(),
                    [&](const auto& m) { return m.name == info.name; });
    if (is_layers_matrix) continue;
    EXPECT_EQ((*to)->Find(info.name)->dtype, info.dtype) << info.name;
    EXPECT_EQ(StoredBytes(**to, info.name), StoredBytes(*from, info.name));
  }
  const auto digest = weights::ComputeIdentity(**to);
  EXPECT_TRUE(digest.ok());
  EXPECT_EQ(Message(weights::UseWeightSums(**to, *digest)), "");
  return coded;
}

// The answers of the coded folder, and of its elements in a GGUF of F32.
void ExpectAnswersOfItsElements(const std::string& golden,
                                const std::string& out) {
  const TempDir dir;
  const std::string wide = dir.path() + "/wide.gguf";
  ASSERT_EQ(
      Message(Convert(out, wide, DType::kF32, {{"", DType::kF32}}).status()),
      "");
  auto goldens = ReadGolden(golden);
  goldens.resize(3);
  const auto answers = Answers(out, goldens, WeightsMode::kF32);
  const auto wanted = Answers(wide, goldens, WeightsMode::kF32);
  ASSERT_EQ(answers.size(), goldens.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_TRUE(answers[i].status.ok()) << answers[i].status;
    EXPECT_EQ(answers[i].ids(), wanted[i].ids());
    EXPECT_EQ(answers[i].logits, wanted[i].logits);
  }
  // As the blocks that the codes are in memory.
  const auto kept = Answers(out, goldens, WeightsMode::kAuto);
  for (const Answer& answer : kept) {
    EXPECT_TRUE(answer.status.ok()) << answer.status;
  }
}

class ConvertCodedTest : public ::testing::TestWithParam<Coding> {};

TEST_P(ConvertCodedTest, MatricesAreCodedAndTheRestIsAsItWas) {
  const std::string path = GoldenModel("qwen3_moe");
  const GoldenFolder folder(path);
  const TempDir dir;
  const std::string out = dir.path() + "/out";
  ConvertOptions options = Coded(folder.path(), out, GetParam());
  options.shard_bytes = 100'000;
  options.rules = {{"layers\\.1\\..*q_proj", DType::kBF16}};
  const auto report = ConvertModel(options, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->num_files, 1);
  // Columns are 64 and 128; down projections' 40 are no groups.
  const bool is_fp8 = GetParam() == Coding::kFp8;
  const int coded =
      ExpectCoded(*report, folder.path(), out, {GetParam(), is_fp8 ? 128 : 64});
  EXPECT_EQ(coded, 3 * 4 - 1 + 3 * 8 * (is_fp8 ? 3 : 2));
  EXPECT_TRUE(fs::exists(out + "/tokenizer.json"));
  EXPECT_TRUE(fs::exists(out + "/generation_config.json"));
  EXPECT_FALSE(fs::exists(out + ".partial"));
  const auto said = *ParseJson(ReadFileOrDie(out + "/convert_report.json"));
  const auto q_proj = std::find_if(said.begin(), said.end(), [](auto& each) {
    return each["name"] == "model.layers.0.self_attn.q_proj.weight";
  });
  ASSERT_NE(q_proj, said.end());
  EXPECT_EQ((*q_proj)["type"], ToString(GetParam()));
  ExpectAnswersOfItsElements(path, out);
}

TEST_P(ConvertCodedTest, TheConfigSaysItAsReleasedFoldersDo) {
  const std::string path = GoldenModel("qwen3_moe");
  const TempDir dir;
  const std::string out = dir.path() + "/out";
  ConvertOptions options = Coded(path, out, GetParam());
  options.rules = {{"layers\\.1\\..*q_proj", DType::kBF16}};
  ASSERT_EQ(Message(ConvertModel(options, {}).status()), "");
  const Json config = *ParseJson(ReadFileOrDie(out + "/config.json"));
  const Json& said = config["quantization_config"];
  const std::vector<std::string> plain = {"lm_head", "model.layers.0.mlp.gate",
                                          "model.layers.1.self_attn.q_proj"};
  if (GetParam() == Coding::kGptq) {
    EXPECT_EQ(said["quant_method"], "gptq");
    EXPECT_EQ(said["checkpoint_format"], "gptq");
    EXPECT_EQ(said["bits"], 4);
    EXPECT_EQ(said["group_size"], 64);
    EXPECT_EQ(said["sym"], true);
    EXPECT_EQ(said["desc_act"], false);
    EXPECT_EQ(said["lm_head"], false);
    for (const char* pattern :
         {"-:^model\\.layers\\.0\\.mlp\\.gate$",
          "-:^model\\.layers\\.1\\.self_attn\\.q_proj$"}) {
      EXPECT_TRUE(said["dynamic"].contains(pattern)) << said;
    }
    return;
  }
  const Json& listed = said["modules_to_not_convert"];
  for (const std::string& module : plain) EXPECT_THAT(listed, Contains(module));
  EXPECT_THAT(listed, Not(Contains("model.embed_tokens")));
  EXPECT_THAT(listed, Not(Contains("model.layers.0.self_attn.q_proj")));
  if (GetParam() == Coding::kFp8) {
    EXPECT_EQ(said["quant_method"], "fp8");
    EXPECT_EQ(said["fmt"], "e4m3");
    EXPECT_EQ(said["activation_scheme"], "dynamic");
    EXPECT_EQ(said["weight_block_size"], Json::array({128, 128}));
  } else {
    EXPECT_EQ(said["quant_method"], "awq");
    EXPECT_EQ(said["version"], "gemm");
    EXPECT_EQ(said["bits"], 4);
    EXPECT_EQ(said["group_size"], 64);
    EXPECT_EQ(said["zero_point"], true);
  }
}

TEST_P(ConvertCodedTest, AGgufsFolderIsThatOfItsElements) {
  const std::string path = GoldenModel("qwen3_moe");
  const GoldenFolder folder(path);
  const TempDir dir;
  const std::string gguf = dir.path() + "/model.gguf";
  const std::string out = dir.path() + "/out";
  ASSERT_EQ(
      Message(Convert(folder.path(), gguf, DType::kF32, {{"", DType::kF32}})
                  .status()),
      "");
  const auto report = ConvertModel(Coded(gguf, out, GetParam()), {});
  ASSERT_TRUE(report.ok()) << report.status();
  const bool is_fp8 = GetParam() == Coding::kFp8;
  const std::string direct = dir.path() + "/direct";
  const auto wanted =
      ConvertModel(Coded(folder.path(), direct, GetParam()), {});
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_EQ(ExpectCoded(*wanted, folder.path(), direct,
                        {GetParam(), is_fp8 ? 128 : 64}),
            3 * 4 + 3 * 8 * (is_fp8 ? 3 : 2));
  const auto a = *OpenModel(out);
  const auto b = *OpenModel(direct);
  for (const TensorInfo& info : b->tensors()) {
    if (info.name.ends_with("g_idx")) continue;
    EXPECT_EQ(StoredBytes(*a, info.name), StoredBytes(*b, info.name))
        << info.name;
  }
  EXPECT_EQ(a->config()["quantization_config"],
            b->config()["quantization_config"]);
  int coded = 0;
  for (size_t i = 0; i < report->matrices.size(); ++i) {
    const ConvertedMatrix& matrix = report->matrices[i];
    if (matrix.coding == Coding::kNone) continue;
    ++coded;
    const auto same = std::find_if(
        wanted->matrices.begin(), wanted->matrices.end(),
        [&](const ConvertedMatrix& each) { return each.name == matrix.name; });
    ASSERT_NE(same, wanted->matrices.end()) << matrix.name;
    EXPECT_NEAR(matrix.relative_error, same->relative_error, 1e-9);
  }
  EXPECT_EQ(coded, 3 * 4 + 3 * 8 * (is_fp8 ? 3 : 2));
}

INSTANTIATE_TEST_SUITE_P(Codings, ConvertCodedTest,
                         ::testing::Values(Coding::kFp8, Coding::kGptq,
                                           Coding::kAwq),
                         [](const auto& tested) {
                           return std::string(ToString(tested.param));
                         });

// Of a family with latent attention: its projections are coded, the router and
// the head are not.
TEST(ConvertCodedFamiliesTest, DeepseekIsCodedAsItIsReleased) {
  const std::string path = GoldenModel("deepseek_v3");
  const TempDir dir;
  const std::string out = dir.path() + "/out";
  const auto report = ConvertModel(Coded(path, out, Coding::kFp8), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(ExpectCoded(*report, path, out, {Coding::kFp8}), 10);
  const auto to = *OpenModel(out);
  const auto has_scales = [&](const std::string& module) {
    return to->FindStored(module + ".weight_scale_inv") != nullptr;
  };
  const std::string attention = "model.layers.0.self_attn.";
  EXPECT_TRUE(has_scales(attention + "kv_a_proj_with_mqa"));
  EXPECT_TRUE(has_scales(attention + "kv_b_proj"));
  EXPECT_TRUE(has_scales(attention + "o_proj"));
  for (const TensorInfo& info : to->tensors()) {
    const bool stays = info.name.ends_with("mlp.gate.weight") ||
                       info.name.ends_with("norm.weight") ||
                       info.name == "lm_head.weight" ||
                       info.name == "model.embed_tokens.weight";
    EXPECT_FALSE(stays && info.dtype == DType::kF8E4M3) << info.name;
  }
  const auto goldens = ReadGolden(path);
  const auto answers = Answers(out, {goldens[1]}, WeightsMode::kAuto);
  EXPECT_TRUE(answers[0].status.ok()) << answers[0].status;
}

// A coded folder is a source as any: what it says of its weights is not copied.
TEST(ConvertCodedFamiliesTest, ACodedFolderBecomesAnother) {
  const std::string path = GoldenModel("qwen3");
  const TempDir dir;
  const std::string fp8 = dir.path() + "/fp8";
  const std::string awq = dir.path() + "/awq";
  ASSERT_EQ(Message(ConvertModel(Coded(path, fp8, Coding::kFp8), {}).status()),
            "");
  std::ofstream(fp8 + "/quantize_config.json") << R"({"bits": 8})";
  const auto report = ConvertModel(Coded(fp8, awq, Coding::kAwq), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(fs::exists(awq + "/quantize_config.json"));
  const auto from = *OpenModel(fp8);
  const auto to = *OpenModel(awq);
  for (const ConvertedMatrix& matrix : report->matrices) {
    if (matrix.coding == Coding::kNone) continue;
    const TensorInfo& info = *from->Find(matrix.name);
    const auto wide = Values(*from, matrix.name);
    const int64_t group =
        to->config()["quantization_config"]["group_size"].get<int64_t>();
    const auto made = weights::EncodeMatrix({Coding::kAwq, group}, info.rows(),
                                            info.cols(), wide.data());
    std::string stored;
    for (const TensorInfo& part :
         weights::TensorsOf(info, {Coding::kAwq, group})) {
      stored += StoredBytes(*to, part.name);
    }
    EXPECT_TRUE(stored ==
                std::string(made->bytes.as<char>(), made->bytes.size()))
        << matrix.name;
  }
  EXPECT_EQ(to->FindStored("model.layers.0.self_attn.q_proj.weight_scale_inv"),
            nullptr);
}

TEST(ConvertCodedErrorsTest, WhatAFolderCannotHaveIsRefusedByName) {
  const std::string path = GoldenModel("qwen3_moe");
  const TempDir dir;
  const std::string out = dir.path() + "/out";
  const auto error = [&](const ConvertOptions& options) {
    return Message(ConvertModel(options, {}).status());
  };
  EXPECT_THAT(error(Coded(path, out + ".gguf", Coding::kFp8)),
              HasSubstr("cannot have FP8, which a folder has"));
  ConvertOptions options = Coded(path, out, Coding::kGptq);
  options.group = 128;
  EXPECT_THAT(error(options),
              HasSubstr("mlp.experts.0.gate_proj.weight' has 64 columns, no "
                        "multiple of the group's 128"));
  options.group = 48;
  EXPECT_THAT(
      error(options),
      HasSubstr("the group is of 48 columns, known are 32, 64 and 128"));
  options.coding = Coding::kFp8;
  EXPECT_THAT(error(options), HasSubstr("FP8 has scales per 128 x 128"));
  options.coding = Coding::kNone;
  EXPECT_THAT(error(options), HasSubstr("is of GPTQ and AWQ"));
  options = Coded(path, out, Coding::kAwq);
  options.rules = {{"q_proj", DType::kQ8_0}};
  EXPECT_THAT(error(options), HasSubstr("q_proj: a folder of AWQ has BF16 "
                                        "beside it, Q8_0 is asked for"));
  options.rules.clear();
  options.importance = {{"x", {1.0f}}};
  EXPECT_THAT(error(options), HasSubstr("AWQ rounds to the nearest"));
  const std::string oss = GoldenModel("gpt_oss");
  EXPECT_THAT(error(Coded(oss, out, Coding::kFp8)),
              HasSubstr("is no matrix of its own, as FP8 needs them"));
  EXPECT_FALSE(fs::exists(out));
  EXPECT_FALSE(fs::exists(out + ".partial"));
}

TEST(WeightNamesTest, EachNameMeansATypeOrACoding) {
  EXPECT_EQ(*WeightTypeByName("q4_0"), DType::kQ4_0);
  EXPECT_EQ(*WeightTypeByName("q40"), DType::kQ4_0);
  EXPECT_EQ(*WeightTypeByName("q80"), DType::kQ8_0);
  EXPECT_EQ(WeightsByName("q40")->type, DType::kQ4_0);
  EXPECT_EQ(WeightsByName("fp8")->coding, Coding::kFp8);
  EXPECT_EQ(WeightsByName("gptq")->coding, Coding::kGptq);
  EXPECT_EQ(WeightsByName("awq")->coding, Coding::kAwq);
  EXPECT_EQ(WeightsByName("awq")->type, std::nullopt);
  EXPECT_EQ(WeightsByName("stored")->type, std::nullopt);
  EXPECT_EQ(WeightsByName("stored")->coding, Coding::kNone);
  EXPECT_THAT(Message(WeightTypeByName("q5").status()),
              HasSubstr("type 'q5' is not known; known are f32, bf16, q8_0, "));
  EXPECT_THAT(Message(WeightTypeByName("fp8").status()), HasSubstr("q40, q80"));
  EXPECT_THAT(Message(WeightsByName("int4").status()),
              HasSubstr("q40, q80, fp8, gptq, awq"));
}

}  // namespace
}  // namespace sluice::testing
