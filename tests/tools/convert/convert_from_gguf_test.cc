// GGUFs as folders: the goldens give their ids again, blocks stay what they
// are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/stop_ids.h"
#include "common/model_config/tensor_table.h"
#include "common/text/text_source.h"
#include "common/text/tokenizer.h"
#include "common/tools/convert/convert_model.h"
#include "common/weights/block_tensor.h"
#include "common/weights/gguf_file.h"
#include "common/weights/gguf_writer.h"
#include "common/weights/weight_sums.h"
#include "tests/model/golden_file.h"
#include "tests/testing/golden_model.h"
#include "tests/tools/convert/golden_folder.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using weights::DType;
using weights::Slice;
using weights::TensorInfo;

// The bytes of a matrix, its rows in the model's order.
std::string Rows(const weights::ModelFile& model, const std::string& name,
                 int64_t begin = 0, int64_t end = -1) {
  const TensorInfo& info = *model.Find(name);
  const Slice slice = Slice::Rows(info, begin, end < 0 ? info.rows() : end);
  const auto size = weights::BlockSizeOf(info.dtype);
  std::string bytes(
      static_cast<size_t>(slice.elements() / size.elements * size.bytes), '\0');
  const Status status = model.ReadStoredRows(
      name, slice, reinterpret_cast<std::byte*>(bytes.data()));
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

// What config.json says of quantised weights; empty: nothing.
std::string MethodOf(const weights::ModelFile& model) {
  const auto found = model.config().find("quantization_config");
  if (found == model.config().end()) return "";
  return (*found)["quant_method"].get<std::string>();
}

// Checks that the folder is the GGUF's model: config, sums, tokenizer,
// template, answers of the goldens bit for bit.
void ExpectSameModel(const std::string& gguf, const std::string& folder,
                     const std::vector<GoldenPrompt>& goldens,
                     WeightsMode weights) {
  EXPECT_FALSE(fs::exists(folder + ".partial"));
  const auto from = *OpenModel(gguf);
  const auto to = OpenModel(folder);
  ASSERT_TRUE(to.ok()) << to.status();
  ModelConfig wanted = *ParseModelConfig(from->config());
  wanted.num_nextn_predict_layers = 0;
  const auto config = ParseModelConfig((*to)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config, wanted);
  EXPECT_EQ(Message(CheckTensors(*config, **to)), "");
  const auto digest = weights::ComputeIdentity(**to);
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(Message(weights::UseWeightSums(**to, *digest)), "");
  const int vocab = wanted.vocab_size;
  EXPECT_EQ(StopIds(Json::object(), (*to)->generation_config(), vocab),
            StopIds(from->config(), Json::object(), vocab));
  const auto old_text = *Tokenizer::Load(gguf);
  const auto text = Tokenizer::Load(folder);
  ASSERT_TRUE(text.ok()) << text.status();
  for (const char* example : {"hello there", "<s>he 12 he's</s>", "~ {}  a"}) {
    EXPECT_EQ(*(*text)->Encode(example, {}), *old_text->Encode(example, {}));
  }
  EXPECT_EQ((*text)->bos_token(), old_text->bos_token());
  EXPECT_EQ((*text)->eos_token(), old_text->eos_token());
  const auto templates = *ReadChatTemplates(folder);
  ASSERT_EQ(templates.size(), 1u);
  EXPECT_EQ(templates[0].source, (*ReadChatTemplates(gguf))[0].source);
  const auto answers = Answers(folder, goldens, weights);
  const auto old_answers = Answers(gguf, goldens, weights);
  ASSERT_EQ(answers.size(), goldens.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].ids(), old_answers[i].ids());
    EXPECT_EQ(answers[i].logits, old_answers[i].logits);
  }
}

class ConvertFromGgufTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string gguf() const { return dir_.path() + "/model.gguf"; }
  std::string out() const { return dir_.path() + "/out"; }
  // Whether rows are whole blocks of 32.
  static bool HasBlocks() {
    return std::string(GetParam()) != "llama2-bf16-sharded";
  }

 private:
  const TempDir dir_;
};

TEST_P(ConvertFromGgufTest, AnExactGgufIsTheGoldenAgain) {
  const std::string path = GoldenModel(GetParam());
  const GoldenFolder folder(path);
  ASSERT_EQ(
      Message(Convert(folder.path(), gguf(), DType::kF32, {{"", DType::kF32}})
                  .status()),
      "");
  const auto report = Convert(gguf(), out(), std::nullopt);
  ASSERT_TRUE(report.ok()) << report.status();
  for (const ConvertedMatrix& matrix : report->matrices) {
    EXPECT_EQ(matrix.relative_error, 0) << matrix.name;
    EXPECT_EQ(matrix.type, DType::kF32) << matrix.name;
  }
  const auto goldens = ReadGolden(path);
  ExpectSameModel(gguf(), out(), goldens, WeightsMode::kF32);
  const auto to = *OpenModel(out());
  EXPECT_FALSE(to->config().contains("quantization_config"));
  const auto answers = Answers(out(), goldens);
  const auto wanted = Answers(folder.path(), goldens);
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].ids(), goldens[i].greedy_ids);
    // Rounded divisors move the angles.
    if (std::string(GetParam()) == "llama3-tied") continue;
    EXPECT_EQ(answers[i].logits, wanted[i].logits);
  }
  // Every tensor is where the golden has it.
  const auto from = *OpenModel(folder.path());
  for (const TensorInfo& info : to->tensors()) {
    const TensorInfo* found = from->Find(info.name);
    ASSERT_NE(found, nullptr) << info.name;
    if (std::string(GetParam()) == "gpt_oss-mxfp4") continue;
    EXPECT_EQ(info.shape, found->shape) << info.name;
  }
}

TEST_P(ConvertFromGgufTest, BlocksStayAsTheyAre) {
  const std::string path = GoldenModel(GetParam());
  const GoldenFolder folder(path);
  ASSERT_EQ(Message(Convert(folder.path(), gguf(), DType::kQ8_0,
                            {{"embed_tokens", DType::kQ8_0},
                             {"v_proj", DType::kQ5_1},
                             {"o_proj", DType::kQ4_0},
                             {"down_proj|lm_head", DType::kQ4_1}})
                        .status()),
            "");
  const auto report = Convert(gguf(), out(), std::nullopt);
  ASSERT_TRUE(report.ok()) << report.status();
  const auto from = *OpenModel(gguf());
  const auto to = *OpenModel(out());
  int blocks = 0;
  for (const ConvertedMatrix& matrix : report->matrices) {
    EXPECT_EQ(matrix.relative_error, 0) << matrix.name;
    const TensorInfo* source = from->Find(matrix.name);
    if (source == nullptr) continue;  // experts one by one
    EXPECT_EQ(to->Find(matrix.name)->dtype, source->dtype) << matrix.name;
    EXPECT_TRUE(Rows(*to, matrix.name) == Rows(*from, matrix.name))
        << matrix.name;
    if (weights::BlocksOf(source->dtype).has_value()) ++blocks;
  }
  EXPECT_EQ(blocks > 4, HasBlocks());
  EXPECT_EQ(MethodOf(*to), HasBlocks() ? "sluice" : "");
  ExpectSameModel(gguf(), out(), {ReadGolden(path)[2]}, WeightsMode::kAuto);
}

TEST_P(ConvertFromGgufTest, NewTypesAreThoseOfAFolder) {
  const std::string path = GoldenModel(GetParam());
  const GoldenFolder folder(path);
  ASSERT_EQ(
      Message(Convert(folder.path(), gguf(), DType::kF32, {{"", DType::kF32}})
                  .status()),
      "");
  const std::vector<ConvertRule> rules = {{"v_proj", DType::kQ8_0},
                                          {"1.*q_proj", DType::kBF16}};
  const auto report = Convert(gguf(), out(), DType::kQ4_0, rules);
  ASSERT_TRUE(report.ok()) << report.status();
  const auto from = *OpenModel(folder.path());
  const auto to = *OpenModel(out());
  const std::string direct = out() + "-direct";
  ASSERT_EQ(
      Message(Convert(folder.path(), direct, DType::kQ4_0, rules).status()),
      "");
  const auto wanted = *OpenModel(direct);
  for (const ConvertedMatrix& matrix : report->matrices) {
    const bool is_linear = matrix.name.ends_with(".weight");
    const bool is_outer = matrix.name.find("layers") == std::string::npos;
    if (!is_linear || is_outer) continue;
    EXPECT_EQ(to->Find(matrix.name)->dtype, wanted->Find(matrix.name)->dtype);
    EXPECT_TRUE(Rows(*to, matrix.name) == Rows(*wanted, matrix.name))
        << matrix.name;
  }
  const bool is_oss = std::string(GetParam()).starts_with("gpt_oss");
  EXPECT_EQ(MethodOf(*to), !HasBlocks() ? ""
                           : is_oss     ? "sluice"
                                        : "compressed-tensors");
  const auto answers =
      Answers(out(), {ReadGolden(path)[2]}, WeightsMode::kAuto);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].status.ok()) << answers[0].status;
}

INSTANTIATE_TEST_SUITE_P(Goldens, ConvertFromGgufTest,
                         ::testing::Values("llama3-tied", "llama2-bf16-sharded",
                                           "qwen3", "qwen3_moe", "glm4",
                                           "glm4_moe-air", "glm4_moe-46",
                                           "gpt_oss", "gpt_oss-mxfp4"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ConvertFromGgufLayoutsTest, ExpertsOfFourBitsAreThoseOfTheCheckpoint) {
  const std::string path = GoldenModel("gpt_oss-mxfp4");
  const GoldenFolder folder(path);
  const TempDir dir;
  const std::string gguf = dir.path() + "/model.gguf";
  const std::string out = dir.path() + "/out";
  ASSERT_EQ(Message(Convert(folder.path(), gguf, DType::kBF16).status()), "");
  ASSERT_EQ(Message(Convert(gguf, out, std::nullopt).status()), "");
  const auto from = *OpenModel(folder.path());
  const auto to = *OpenModel(out);
  EXPECT_EQ(MethodOf(*to), "mxfp4");
  int compared = 0;
  for (const TensorInfo& info : from->tensors()) {
    if (info.name.find("experts") == std::string::npos) continue;
    ASSERT_NE(to->FindStored(info.name), nullptr) << info.name;
    EXPECT_EQ(to->FindStored(info.name)->shape, info.shape) << info.name;
    if (info.dtype != DType::kU8) continue;
    std::string bytes[2];
    for (const auto* model : {&from, &to}) {
      std::string& read = bytes[model == &to];
      read.resize(static_cast<size_t>(info.stored_bytes()));
      ASSERT_TRUE((*model)
                      ->ReadStoredBytes(info.name, 0, read.size(),
                                        reinterpret_cast<uint8_t*>(read.data()))
                      .ok());
    }
    EXPECT_TRUE(bytes[0] == bytes[1]) << info.name;
    ++compared;
  }
  EXPECT_EQ(compared, 4 * 2 * 2);
  ExpectSameModel(gguf, out, {ReadGolden(path)[2]}, WeightsMode::kAuto);
  // A folder of a folder keeps them, too.
  const std::string again = dir.path() + "/again";
  ASSERT_EQ(Message(Convert(out, again, DType::kBF16).status()), "");
  EXPECT_EQ(Answers(again, {ReadGolden(path)[2]})[0].logits,
            Answers(out, {ReadGolden(path)[2]})[0].logits);
}

// A llama of one layer whose matrices have rows of whole long blocks.
GgufBuilder LongRows() {
  GgufBuilder gguf;
  gguf.Text("general.architecture", "llama")
      .U32("llama.embedding_length", 256)
      .U32("llama.block_count", 1)
      .U32("llama.attention.head_count", 4)
      .U32("llama.attention.head_count_kv", 2)
      .U32("llama.feed_forward_length", 512)
      .U32("llama.context_length", 64)
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .U32("tokenizer.ggml.eos_token_id", 2);
  uint32_t seed = 1;
  const auto add = [&](const std::string& name, std::vector<uint64_t> dims,
                       uint32_t type, DType dtype) {
    const auto size = weights::BlockSizeOf(dtype);
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    std::string bytes(count / static_cast<uint64_t>(size.elements) *
                          static_cast<uint64_t>(size.bytes),
                      '\0');
    for (char& byte : bytes) {
      seed = seed * 1664525u + 1013904223u;
      byte = static_cast<char>(seed >> 24);
    }
    gguf.Tensor(name, std::move(dims), type, bytes);
  };
  add("token_embd.weight", {256, 8}, 14, DType::kQ6K);
  add("blk.0.attn_norm.weight", {256}, 0, DType::kF32);
  add("blk.0.attn_q.weight", {256, 256}, 12, DType::kQ4K);
  add("blk.0.attn_k.weight", {256, 128}, 11, DType::kQ3K);
  add("blk.0.attn_v.weight", {256, 128}, 10, DType::kQ2K);
  add("blk.0.attn_output.weight", {256, 256}, 23, DType::kIq4Xs);
  add("blk.0.ffn_norm.weight", {256}, 0, DType::kF32);
  add("blk.0.ffn_gate.weight", {256, 512}, 13, DType::kQ5K);
  add("blk.0.ffn_up.weight", {256, 512}, 20, DType::kIq4Nl);
  add("blk.0.ffn_down.weight", {512, 256}, 39, DType::kMxfp4);
  add("output_norm.weight", {256}, 0, DType::kF32);
  add("output.weight", {256, 8}, 1, DType::kF16);
  return gguf;
}

TEST(ConvertFromGgufLayoutsTest, EveryTypeOfBlocksStays) {
  const TempDir dir;
  const std::string gguf = dir.Write("m.gguf", LongRows().Build());
  const std::string out = dir.path() + "/out";
  const auto report = Convert(gguf, out, std::nullopt);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->matrices.size(), 9u);
  const auto from = *OpenModel(gguf);
  const auto to = *OpenModel(out);
  ASSERT_EQ(to->tensors().size(), from->tensors().size());
  for (const TensorInfo& info : from->tensors()) {
    EXPECT_EQ(*to->Find(info.name), info);
    EXPECT_TRUE(Rows(*to, info.name) == Rows(*from, info.name)) << info.name;
  }
  const Json& modules = to->config()["quantization_config"]["modules"];
  EXPECT_EQ(modules["Q4_K"], Json::array({"model.layers.0.self_attn.q_proj"}));
  // Without keys of a tokenizer there is none.
  EXPECT_FALSE(fs::exists(out + "/tokenizer.json"));
  // A folder of blocks becomes BF16, whose head stays.
  const std::string wide = dir.path() + "/wide";
  ASSERT_EQ(Message(Convert(out, wide, DType::kBF16).status()), "");
  const auto bf16 = *OpenModel(wide);
  EXPECT_EQ(bf16->Find("model.layers.0.mlp.up_proj.weight")->dtype,
            DType::kBF16);
  EXPECT_EQ(bf16->Find("model.embed_tokens.weight")->dtype, DType::kQ6K);
  EXPECT_TRUE(Rows(*bf16, "model.embed_tokens.weight") ==
              Rows(*from, "model.embed_tokens.weight"));
}

TEST(ConvertFromGgufLayoutsTest, ASplitGgufIsOneFolder) {
  const std::string path = GoldenModel("qwen3_moe");
  const GoldenFolder folder(path);
  const TempDir dir;
  const std::string gguf = dir.path() + "/whole.gguf";
  ASSERT_EQ(Message(Convert(folder.path(), gguf, DType::kQ4_0).status()), "");
  const auto raw = *weights::OpenModel(gguf);
  const size_t half = raw->tensors().size() / 2;
  std::string first;
  for (int64_t part = 0; part < 2; ++part) {
    using weights::GgufType;
    weights::GgufMetadata metadata = *raw->gguf();
    metadata.Insert("split.no", {GgufType::kUint16, GgufType::kUint8, part});
    metadata.Insert("split.count",
                    {GgufType::kUint16, GgufType::kUint8, int64_t{2}});
    const std::vector<TensorInfo> tensors(
        raw->tensors().begin() + (part == 0 ? 0 : half),
        part == 0 ? raw->tensors().begin() + half : raw->tensors().end());
    const std::string name =
        Cat(dir.path(), "/m-0000", part + 1, "-of-00002.gguf");
    if (part == 0) first = name;
    auto writer = weights::GgufWriter::Create(name, metadata, tensors);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const TensorInfo& info : tensors) {
      const std::string bytes = Rows(*raw, info.name);
      ASSERT_TRUE((*writer)->Append(bytes.data(), bytes.size()).ok());
    }
    ASSERT_TRUE((*writer)->Close().ok());
  }
  const std::string out = dir.path() + "/out";
  ASSERT_EQ(Message(Convert(first, out, std::nullopt).status()), "");
  ExpectSameModel(gguf, out, {ReadGolden(path)[2]}, WeightsMode::kAuto);
}

TEST(ConvertFromGgufErrorsTest, WhatCannotBeWrittenLeavesNothing) {
  const TempDir dir;
  const std::string gguf = dir.Write("m.gguf", LongRows().Build());
  const std::string out = dir.path() + "/out";
  EXPECT_THAT(Message(Convert(gguf, out, DType::kF32).status()),
              HasSubstr("cannot have F32, a folder has BF16 or blocks"));
  const std::string strange =
      dir.Write("strange.gguf", LongRows()
                                    .Text("tokenizer.ggml.model", "bert")
                                    .Array("tokenizer.ggml.tokens", 8, 0, "")
                                    .Build());
  EXPECT_THAT(
      Message(Convert(strange, out, std::nullopt).status()),
      HasSubstr("tokenizer.ggml.model \"bert\"; known are gpt2, gemma4, "
                "llama"));
  EXPECT_FALSE(fs::exists(out));
  const std::string path = GoldenModel("qwen3");
  EXPECT_THAT(Message(Convert(path, out, std::nullopt).status()),
              HasSubstr("is a folder with its weights as stored already"));
  EXPECT_FALSE(fs::exists(out));
}

TEST(BlockTensorTest, RowsThatAreNoWholeBlocksAreRefused) {
  const TensorInfo q4 = {"a.weight", DType::kQ4K, {3, 512}};
  const TensorInfo bytes = weights::BytesOfBlocks(q4);
  EXPECT_EQ(bytes.name, "a.weight_q4_k");
  EXPECT_EQ(bytes.shape, (std::vector<int64_t>{3, 288}));
  EXPECT_EQ(*weights::BlocksOfBytes(bytes), q4);
  TensorInfo other = bytes;
  other.shape[1] = 287;
  EXPECT_THAT(Message(weights::BlocksOfBytes(other).status()),
              HasSubstr("'a.weight_q4_k' has rows of 287 bytes, expected a "
                        "multiple of the 144 of a block of Q4_K"));
  other.dtype = DType::kI8;
  EXPECT_EQ(*weights::BlocksOfBytes(other), other);
  other = {"a.weight_q4_0",
           DType::kU8,
           {3, std::numeric_limits<int64_t>::max() / 18 * 18}};
  EXPECT_FALSE(weights::BlocksOfBytes(other).ok());
}

}  // namespace
}  // namespace sluice::testing
