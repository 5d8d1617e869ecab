// Models as distributed-llama's files: the bytes of its converter, the goldens'
// ids, tokenizers that give the same ids.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/text/text_source.h"
#include "common/text/tokenizer.h"
#include "common/text/vocabulary_spec.h"
#include "common/tools/convert/convert_model.h"
#include "common/weights/dequantize.h"
#include "common/weights/quantize.h"
#include "common/weights/weight_sums.h"
#include "tests/model/golden_file.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"
#include "tests/tools/convert/golden_folder.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using weights::DType;
using weights::Slice;
using weights::TensorInfo;

// Printable ASCII, one merge, and behind them the special tokens: bos 96.
std::string AddedLastJson() {
  VocabularySpec spec;
  for (int byte = 32; byte < 127; ++byte) {
    spec.tokens.push_back(
        ByteLevelText(std::string(1, static_cast<char>(byte))));
  }
  spec.tokens.push_back("he");
  spec.merges.emplace_back("h", "e");
  spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
  for (const char* added : {"<s>", "</s>", "<|end|>"}) {
    spec.tokens.emplace_back(added);
    spec.kinds.push_back(TokenKind::kControl);
  }
  spec.byte_level = true;
  return *ToTokenizerJson(spec);
}

// Gives a golden that tokenizer, its ids and a template.
void UseAddedLast(GoldenFolder& folder) {
  folder.Replace("tokenizer.json", AddedLastJson());
  folder.Replace("tokenizer_config.json",
                 R"({"bos_token": "<s>", "eos_token": "</s>",
                     "chat_template": "{{ messages[0].content }}"})");
  folder.Replace("generation_config.json", R"({"eos_token_id": [97, 98]})");
  folder.config()["bos_token_id"] = 96;
  folder.config()["eos_token_id"] = Json::array({97, 98});
  folder.WriteConfig();
}

std::vector<float> Values(const weights::ModelFile& model,
                          const std::string& name) {
  const TensorInfo& info = *model.Find(name);
  std::vector<float> values(static_cast<size_t>(info.elements()));
  const Status status = model.ReadF32(name, Slice::All(info), values.data());
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

// The bytes behind the header of a .m.
std::string Tensors(const std::string& path) {
  const std::string bytes = ReadFileOrDie(path);
  int32_t header = 0;
  bytes.copy(reinterpret_cast<char*>(&header), sizeof(header), 4);
  return bytes.substr(static_cast<size_t>(header));
}

void ExpectSameTexts(const std::string& model, const std::string& folder) {
  const auto to = Tokenizer::Load(model);
  ASSERT_TRUE(to.ok()) << to.status();
  const auto from = *Tokenizer::Load(folder);
  for (const bool adds : {false, true}) {
    for (const char* example :
         {"hello there", "<s>he 12 he's</s>", "~ {}  a", "<|end|>x", ""}) {
      const EncodeOptions options = {.add_special_tokens = adds};
      EXPECT_EQ(*(*to)->Encode(example, options),
                *from->Encode(example, options))
          << example;
    }
  }
  EXPECT_EQ((*to)->bos_token(), from->bos_token());
  EXPECT_EQ((*to)->eos_token(), from->eos_token());
}

class ConvertToDllamaTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ConvertToDllamaTest, F32HasTheBytesOfItsConverterAndTheGoldensIds) {
  const std::string path = GoldenModel(GetParam());
  GoldenFolder folder(path);
  UseAddedLast(folder);
  const TempDir dir;
  const std::string out = dir.path() + "/out.m";
  const auto report = Convert(folder.path(), out, DType::kF32);
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string command =
      Cat("python3 -B '", SLUICE_SOURCE_DIR,
          "/tests/testing/folder_to_dllama.py' '", folder.path(), "' '",
          dir.path(), "/python' --type f32");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  EXPECT_TRUE(Tensors(out) == Tensors(dir.path() + "/python.m"));
  const auto to = OpenModel(out);
  ASSERT_TRUE(to.ok()) << to.status();
  EXPECT_EQ((*to)->config(), (*OpenModel(dir.path() + "/python.m"))->config());
  uint64_t bytes = 0;
  for (const TensorInfo& info : (*to)->tensors()) {
    bytes += static_cast<uint64_t>(info.stored_bytes());
  }
  EXPECT_EQ(report->bytes_after, bytes);
  EXPECT_TRUE(fs::exists(out + ".convert_report.json"));
  EXPECT_FALSE(fs::exists(out + ".partial"));
  EXPECT_FALSE(fs::exists(dir.path() + "/out.t.partial"));
  const auto digest = weights::ComputeIdentity(**to);
  ASSERT_TRUE(digest.ok());
  EXPECT_EQ(Message(weights::UseWeightSums(**to, *digest)), "");
  const auto goldens = ReadGolden(path);
  const auto answers = Answers(out, goldens);
  const auto wanted = Answers(folder.path(), goldens);
  ASSERT_EQ(answers.size(), goldens.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].ids(), goldens[i].greedy_ids);
    EXPECT_EQ(answers[i].logits, wanted[i].logits);
  }
}

TEST_P(ConvertToDllamaTest, ItsTokenizerIsTheFolders) {
  GoldenFolder folder(GoldenModel(GetParam()));
  UseAddedLast(folder);
  const TempDir dir;
  const std::string out = dir.path() + "/out.m";
  ASSERT_EQ(Message(Convert(folder.path(), out, DType::kF32).status()), "");
  ExpectSameTexts(out, folder.path());
  EXPECT_THAT((*Tokenizer::Load(out))->eos_ids(), ElementsAre(97, 98));
  EXPECT_EQ((*ReadChatTemplates(out))[0].source, "{{ messages[0].content }}");
}

INSTANTIATE_TEST_SUITE_P(Goldens, ConvertToDllamaTest,
                         ::testing::Values("llama3-tied", "llama2-bf16-sharded",
                                           "qwen3", "qwen3_moe"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Sentencepiece's vocabulary, of a folder and of its GGUF.
TEST(ConvertToDllamaTypesTest, AGgufsFileIsThatOfItsFolder) {
  const std::string path = GoldenModel("stories");
  const TempDir dir;
  const std::string gguf = dir.path() + "/model.gguf";
  ASSERT_EQ(
      Message(Convert(path, gguf, DType::kF32, {{"", DType::kF32}}).status()),
      "");
  const std::string direct = dir.path() + "/direct.m";
  const std::string out = dir.path() + "/out.m";
  const std::string again = dir.path() + "/again.m";
  ASSERT_EQ(Message(Convert(path, direct, DType::kF32).status()), "");
  ASSERT_EQ(Message(Convert(gguf, out, DType::kF32).status()), "");
  ASSERT_EQ(Message(Convert(direct, again, DType::kF32).status()), "");
  EXPECT_TRUE(ReadFileOrDie(out) == ReadFileOrDie(direct));
  EXPECT_TRUE(ReadFileOrDie(again) == ReadFileOrDie(direct));
  for (const std::string& model : {direct, out, again}) {
    ExpectSameTexts(model, path);
  }
  const auto goldens = ReadGolden(path);
  const auto answers = Answers(direct, goldens);
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].ids(), goldens[i].greedy_ids);
  }
}

class ConvertToDllamaBlocksTest : public ::testing::TestWithParam<DType> {
 protected:
  // A llama of whole blocks with a tokenizer.
  std::string Folder() {
    const std::string folder = dir_.path() + "/folder";
    EXPECT_EQ(Message(Convert(WideLlama(dir_), folder, std::nullopt).status()),
              "");
    std::ofstream(folder + "/tokenizer.json") << AddedLastJson();
    std::ofstream(folder + "/tokenizer_config.json")
        << R"({"bos_token": "<s>", "eos_token": "</s>"})";
    return folder;
  }

  const TempDir dir_;
};

TEST_P(ConvertToDllamaBlocksTest, MatricesAreTheBlocksOfTheSource) {
  const std::string folder = Folder();
  const std::string out = dir_.path() + "/out.m";
  const auto report = Convert(folder, out, GetParam());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->matrices.size(), 2u * 7u + 1u);
  const auto from = *OpenModel(folder);
  const auto to = OpenModel(out);
  ASSERT_TRUE(to.ok()) << to.status();
  for (const ConvertedMatrix& matrix : report->matrices) {
    const bool is_tied = matrix.name == "lm_head.weight";
    const auto wide =
        Values(*from, is_tied ? "model.embed_tokens.weight" : matrix.name);
    const auto made = weights::Quantize(GetParam(), wide.data(),
                                        static_cast<int64_t>(wide.size()));
    ASSERT_TRUE(made.ok()) << made.status();
    std::vector<float> back(wide.size());
    weights::DequantizeToF32(GetParam(), made->bytes.as<uint8_t>(),
                             static_cast<int64_t>(wide.size()) / 32,
                             back.data());
    EXPECT_EQ((*to)->Find(matrix.name)->dtype, GetParam());
    EXPECT_EQ(Values(**to, matrix.name), back) << matrix.name;
    EXPECT_NEAR(matrix.relative_error, made->relative_error, 1e-12);
  }
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight"}) {
    EXPECT_EQ((*to)->Find(name)->dtype, DType::kF32);
    EXPECT_EQ(Values(**to, name), Values(*from, name));
  }
  // The same blocks in a GGUF, which is the file of a .m again.
  const std::vector<GoldenPrompt> prompts = {
      {.ids = {1, 20, 30, 40}, .greedy_ids = std::vector<TokenId>(8)}};
  const auto answers = Answers(out, prompts, WeightsMode::kAuto);
  ASSERT_TRUE(answers[0].status.ok()) << answers[0].status;
  const std::string gguf = dir_.path() + "/kept.gguf";
  ConvertOptions kept = {out, gguf, std::nullopt};
  kept.pre_tokenizer = "qwen2";
  ASSERT_EQ(Message(ConvertModel(kept, {}).status()), "");
  const auto wanted = Answers(gguf, prompts, WeightsMode::kAuto);
  EXPECT_EQ(answers[0].ids(), wanted[0].ids());
  EXPECT_EQ(answers[0].logits, wanted[0].logits);
  const std::string again = dir_.path() + "/again.m";
  ASSERT_EQ(Message(Convert(out, again, GetParam()).status()), "");
  EXPECT_TRUE(ReadFileOrDie(again) == ReadFileOrDie(out));
}

INSTANTIATE_TEST_SUITE_P(Types, ConvertToDllamaBlocksTest,
                         ::testing::Values(DType::kQ4_0, DType::kQ8_0));

std::string ErrorOf(const GoldenFolder& folder, DType type = DType::kF32) {
  folder.WriteConfig();
  const TempDir dir;
  const std::string out = dir.path() + "/out.m";
  const std::string error = Message(Convert(folder.path(), out, type).status());
  EXPECT_EQ(fs::exists(out), error.empty());
  EXPECT_EQ(fs::exists(dir.path() + "/out.t"), error.empty());
  return error;
}

TEST(ConvertToDllamaErrorsTest, WhatNoKeyTellsIsRefusedByName) {
  const std::string mistral = GoldenModel("mistral");
  EXPECT_THAT(ErrorOf(GoldenFolder(mistral)),
              HasSubstr("model_type 'mistral' has no .m; known are llama, "
                        "qwen3, qwen3_moe"));
  const std::string path = GoldenModel("qwen3");
  GoldenFolder qwen3(path);
  UseAddedLast(qwen3);
  EXPECT_EQ(ErrorOf(qwen3), "");
  qwen3.config()["rope_theta"] = 10000.5;
  EXPECT_THAT(ErrorOf(qwen3), HasSubstr("cannot tell rope_theta"));
  qwen3.config()["rope_theta"] = 3e9;
  EXPECT_THAT(ErrorOf(qwen3), HasSubstr("cannot tell rope_theta"));
  qwen3.config()["rope_theta"] = 10000;
  qwen3.config()["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  EXPECT_THAT(ErrorOf(qwen3), HasSubstr("cannot tell rope_scaling"));
  qwen3.config()["rope_scaling"] = nullptr;
  qwen3.config()["rms_norm_eps"] = 1e-4;
  EXPECT_THAT(ErrorOf(qwen3), HasSubstr("cannot tell layer 0's norms or MLP"));
  qwen3.config()["rms_norm_eps"] = 1e-6;
  EXPECT_THAT(ErrorOf(qwen3, DType::kQ4_0),
              HasSubstr("mlp.down_proj.weight' has 144 columns, blocks of Q4_0 "
                        "have 32: a .m of this model has F32"));
  EXPECT_THAT(ErrorOf(qwen3, DType::kQ5_0),
              HasSubstr("all matrices of a .m have one type, F32, Q4_0 or Q8_0 "
                        "(f32, q40, q80), Q5_0 is asked for"));
  const std::string moe = GoldenModel("qwen3_moe");
  GoldenFolder plain(moe);
  UseAddedLast(plain);
  plain.config()["norm_topk_prob"] = false;
  EXPECT_THAT(ErrorOf(plain), HasSubstr("cannot tell layer 0's experts"));
}

TEST(ConvertToDllamaErrorsTest, WhatIsAskedForBesideTheTypeIsRefused) {
  GoldenFolder folder(GoldenModel("qwen3"));
  UseAddedLast(folder);
  const TempDir dir;
  ConvertOptions options = {folder.path(), dir.path() + "/out.m", DType::kF32};
  const auto error = [&] {
    return Message(ConvertModel(options, {}).status());
  };
  options.type = std::nullopt;
  EXPECT_THAT(error(), HasSubstr("stored is asked for"));
  options.type = DType::kF32;
  options.rules = {{"lm_head", DType::kQ8_0}};
  EXPECT_THAT(error(), HasSubstr("a rule for 'lm_head' is given"));
  options.rules.clear();
  options.pre_tokenizer = "qwen2";
  EXPECT_THAT(error(), HasSubstr("a .m has no tokenizer.ggml.pre"));
  options.pre_tokenizer.clear();
  options.coding = weights::Coding::kFp8;
  EXPECT_THAT(error(), HasSubstr("cannot have FP8, which a folder has"));
  options.coding = weights::Coding::kNone;
  dir.Write("out.t", "x");
  EXPECT_THAT(error(), HasSubstr("out.t, OUT's tokenizer, is there already"));
  EXPECT_EQ(ReadFileOrDie(dir.path() + "/out.t"), "x");
  EXPECT_FALSE(fs::exists(dir.path() + "/out.m"));
}

TEST(ConvertToDllamaErrorsTest, TokenizersThatAFileCannotTellAreRefused) {
  GoldenFolder folder(GoldenModel("qwen3"));
  // Added tokens stand before those of texts.
  EXPECT_THAT(ErrorOf(folder),
              HasSubstr("token 0, '<pad>', is added and stands before bos, "
                        "token 1, by which a .t parts them"));
  UseAddedLast(folder);
  VocabularySpec spec;
  spec.byte_level = true;
  spec.tokens = {"a", "b", "<s>", "</s>"};
  spec.kinds = {TokenKind::kNormal, TokenKind::kNormal, TokenKind::kControl,
                TokenKind::kControl};
  folder.config()["eos_token_id"] = 3;
  folder.config()["bos_token_id"] = 2;
  folder.Replace("generation_config.json", "{}");
  folder.Replace("tokenizer.json", *ToTokenizerJson(spec));
  EXPECT_EQ(ErrorOf(folder), "");
  spec.patterns = PreTokenizerByName("qwen2")->patterns;
  folder.Replace("tokenizer.json", *ToTokenizerJson(spec));
  EXPECT_THAT(ErrorOf(folder),
              HasSubstr("texts are split as qwen2, which a .t of 2 tokens "
                        "before bos does not tell"));
  spec.patterns.clear();
  spec.nfc = true;
  folder.Replace("tokenizer.json", *ToTokenizerJson(spec));
  EXPECT_THAT(ErrorOf(folder),
              HasSubstr("not split and composed (NFC), which a .t"));
  spec.nfc = false;
  spec.eos = 3;
  spec.add_eos = true;
  folder.Replace("tokenizer.json", *ToTokenizerJson(spec));
  EXPECT_THAT(ErrorOf(folder), HasSubstr("puts eos behind a text, a .t does "
                                         "not"));
  spec.add_eos = false;
  folder.Replace("tokenizer.json", *ToTokenizerJson(spec));
  folder.Replace("tokenizer_config.json", "{}");
  folder.config()["bos_token_id"] = nullptr;
  EXPECT_THAT(ErrorOf(folder), HasSubstr("has no bos token, by which a .t"));
  fs::remove(folder.path() + "/tokenizer.json");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("no tokenizer.json"));
}

}  // namespace
}  // namespace sluice::testing
