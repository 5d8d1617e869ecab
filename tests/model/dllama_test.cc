// Models of distributed-llama: the goldens, as its converter writes them, give
// their ids again.

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
#include "common/model_config/tensor_table.h"
#include "common/text/text_source.h"
#include "common/text/tokenizer.h"
#include "common/tools/convert/convert_model.h"
#include "common/weights/weight_sums.h"
#include "tests/model/golden_file.h"
#include "tests/testing/golden_model.h"
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

// Writes OUT.m and OUT.t of a folder.
void WriteDllama(const std::string& folder, const std::string& out,
                 const std::string& type) {
  const std::string command = Cat("python3 -B '", SLUICE_SOURCE_DIR,
                                  "/tests/testing/folder_to_dllama.py' '",
                                  folder, "' '", out, "' --type ", type);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

// Converts with weights as they are stored. A .t does not name its splits.
std::string ConvertError(const std::string& model, const std::string& out) {
  ConvertOptions options = {model, out, std::nullopt, {}};
  options.pre_tokenizer = "qwen2";
  return Message(ConvertModel(options, {}).status());
}

std::vector<float> Values(const weights::ModelFile& model,
                          const std::string& name) {
  const TensorInfo& info = *model.Find(name);
  std::vector<float> values(static_cast<size_t>(info.elements()));
  const Status status = model.ReadF32(name, Slice::All(info), values.data());
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

class DllamaTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DllamaTest, AGoldenInF32GivesItsIdsAndItsBits) {
  const std::string path = GoldenModel(GetParam());
  const GoldenFolder folder(path);
  const TempDir dir;
  WriteDllama(folder.path(), dir.path() + "/x", "f32");
  const std::string model = dir.path() + "/x.m";
  const auto from = *OpenModel(folder.path());
  const auto opened = OpenModel(model);
  ASSERT_TRUE(opened.ok()) << opened.status();
  ModelConfig wanted = *ParseModelConfig(from->config());
  // The file has the head, its tokenizer the ids.
  wanted.tie_word_embeddings = false;
  wanted.bos_token_id = -1;
  wanted.eos_token_ids.clear();
  EXPECT_EQ(*ParseModelConfig((*opened)->config()), wanted);
  EXPECT_EQ(Message(CheckTensors(wanted, **opened)), "");
  EXPECT_EQ((*opened)->gguf(), nullptr);
  for (const TensorInfo& info : (*opened)->tensors()) {
    const bool is_tied =
        info.name == "lm_head.weight" && from->Find(info.name) == nullptr;
    EXPECT_EQ(Values(**opened, info.name),
              Values(*from, is_tied ? "model.embed_tokens.weight" : info.name))
        << info.name;
  }
  const auto goldens = ReadGolden(path);
  const auto answers = Answers(model, goldens);
  const auto old_answers = Answers(folder.path(), goldens);
  ASSERT_EQ(answers.size(), goldens.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].ids(), goldens[i].greedy_ids);
    EXPECT_EQ(answers[i].logits, old_answers[i].logits);
  }
}

TEST_P(DllamaTest, ItsTokenizerGivesTheIdsOfTheFolder) {
  const std::string path = GoldenModel(GetParam());
  const GoldenFolder folder(path);
  const TempDir dir;
  WriteDllama(folder.path(), dir.path() + "/x", "f32");
  const auto text = *Tokenizer::Load(folder.path());
  // Beside a model of this name, of another name, and in its folder.
  for (const char* name : {"/x.m", "/y.m", ""}) {
    if (name[0] == '\0') fs::remove(dir.path() + "/x.m");
    if (std::string(name) == "/y.m") {
      fs::rename(dir.path() + "/x.m", dir.path() + "/y.m");
      fs::copy_file(dir.path() + "/y.m", dir.path() + "/x.m");
      fs::rename(dir.path() + "/x.t", dir.path() + "/z.t");
    }
    const auto kept = Tokenizer::Load(dir.path() + name);
    ASSERT_TRUE(kept.ok()) << kept.status();
    const EncodeOptions plain = {.add_special_tokens = false};
    for (const char* example :
         {"hello there", "<s>he 12 he's</s>", "~ {}  a"}) {
      EXPECT_EQ(*(*kept)->Encode(example, plain), *text->Encode(example, plain))
          << example;
    }
    EXPECT_EQ((*kept)->bos_token(), "<s>");
    EXPECT_THAT((*kept)->eos_ids(), ElementsAre(2, 3));
    EXPECT_EQ((*ReadChatTemplates(dir.path() + name))[0].source,
              (*ReadChatTemplates(folder.path()))[0].source);
  }
}

TEST_P(DllamaTest, ItBecomesAFolderAndAGguf) {
  const std::string path = GoldenModel(GetParam());
  const GoldenFolder folder(path);
  const TempDir dir;
  WriteDllama(folder.path(), dir.path() + "/x", "f32");
  const std::string model = dir.path() + "/x.m";
  const auto goldens = ReadGolden(path);
  const auto wanted = Answers(model, goldens);
  for (const char* name : {"/folder", "/y.gguf"}) {
    const std::string out = dir.path() + name;
    ASSERT_EQ(ConvertError(model, out), "");
    const auto to = OpenModel(out);
    ASSERT_TRUE(to.ok()) << to.status();
    const auto answers = Answers(out, goldens);
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].ids(), goldens[i].greedy_ids);
      // A GGUF has rounded divisors.
      if (std::string(GetParam()) == "llama3-tied" && name[1] == 'y') continue;
      EXPECT_EQ(answers[i].logits, wanted[i].logits);
    }
    const auto text = Tokenizer::Load(out);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*(*text)->Encode("he 12", {}),
              *(*Tokenizer::Load(model))->Encode("he 12", {}));
  }
  EXPECT_EQ(
      (*OpenModel(dir.path() + "/folder"))->generation_config()["eos_token_id"],
      Json::array({2, 3}));
}

INSTANTIATE_TEST_SUITE_P(Goldens, DllamaTest,
                         ::testing::Values("llama3-tied", "llama2-bf16-sharded",
                                           "qwen3", "qwen3_moe"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A folder with a tokenizer.
std::string WideFolder(const TempDir& dir) {
  const std::string out = dir.path() + "/wide";
  EXPECT_EQ(Message(Convert(WideLlama(dir), out, std::nullopt).status()), "");
  std::ofstream(out + "/tokenizer.json") << ByteTokenizerJson();
  std::ofstream(out + "/tokenizer_config.json") << "{}";
  return out;
}

class DllamaTypesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DllamaTypesTest, BlocksAreReadAsTheyAreStored) {
  const TempDir dir;
  const std::string folder = WideFolder(dir);
  WriteDllama(folder, dir.path() + "/x", GetParam());
  const std::string type = GetParam();
  const DType dtype = type == "f16"   ? DType::kF16
                      : type == "q40" ? DType::kQ4_0
                                      : DType::kQ8_0;
  // A code's step is at most this share of the greatest element, 0.5.
  const double step = type == "f16"   ? 0x1p-11
                      : type == "q40" ? 1.0 / 8
                                      : 1.0 / 127;
  const auto from = *OpenModel(folder);
  const auto model = OpenModel(dir.path() + "/x.m");
  ASSERT_TRUE(model.ok()) << model.status();
  int matrices = 0;
  for (const TensorInfo& info : (*model)->tensors()) {
    const bool is_plain =
        info.shape.size() == 1 || info.name == "model.embed_tokens.weight";
    EXPECT_EQ(info.dtype, is_plain ? DType::kF32 : dtype) << info.name;
    if (is_plain || info.name == "lm_head.weight") continue;
    ++matrices;
    const auto values = Values(**model, info.name);
    const auto wanted = Values(*from, info.name);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], wanted[i], 0.5 * step * 1.01) << info.name;
    }
  }
  EXPECT_EQ(matrices, 2 * 7);
  // The same blocks in a folder, and in a GGUF, give the same bits.
  const std::vector<GoldenPrompt> prompts = {
      {.ids = {1, 20, 30, 40}, .greedy_ids = std::vector<TokenId>(8)}};
  const auto wanted = Answers(dir.path() + "/x.m", prompts, WeightsMode::kAuto);
  ASSERT_TRUE(wanted[0].status.ok()) << wanted[0].status;
  for (const char* name : {"/kept", "/kept.gguf"}) {
    const std::string out = dir.path() + name;
    ASSERT_EQ(ConvertError(dir.path() + "/x.m", out), "");
    const auto answers = Answers(out, prompts, WeightsMode::kAuto);
    EXPECT_EQ(answers[0].ids(), wanted[0].ids());
    EXPECT_EQ(answers[0].logits, wanted[0].logits);
  }
  // Sums lie beside the file and are checked.
  const auto digest = *weights::ComputeIdentity(**model);
  ASSERT_EQ(Message(weights::WriteWeightSums(
                **model, *weights::ComputeWeightSums(**model, digest, {}))),
            "");
  EXPECT_EQ((*model)->sums_path(), dir.path() + "/x.m.sluice.sums");
  EXPECT_EQ(Message(weights::UseWeightSums(**model, digest)), "");
}

INSTANTIATE_TEST_SUITE_P(Types, DllamaTypesTest,
                         ::testing::Values("f16", "q40", "q80"));

// A file of this header and so many bytes of tensors.
std::string ErrorOf(std::vector<std::pair<int32_t, int32_t>> pairs,
                    size_t bytes = 0, uint32_t magic = 0xA00ABCD) {
  std::string header = BytesOf(magic);
  header += BytesOf(static_cast<int32_t>(8 + pairs.size() * 8));
  for (const auto& [key, value] : pairs) {
    header += BytesOf(key) + BytesOf(value);
  }
  const TempDir dir;
  const auto model =
      OpenModel(dir.Write("x.m", header + std::string(bytes, '\0')));
  return Message(model.status());
}

TEST(DllamaErrorsTest, BadHeadersAreRefusedByName) {
  using Pairs = std::vector<std::pair<int32_t, int32_t>>;
  // dim 8, hidden 12, 1 layer, 2 heads, 1 kv head, 6 tokens, F32.
  const Pairs good = {{1, 0xABCD00}, {2, 8}, {3, 12},  {4, 1}, {5, 2},
                      {6, 1},        {9, 6}, {10, 64}, {13, 0}};
  const size_t bytes =
      4 * (6 * 8 + 64 + 32 + 32 + 64 + 3 * 96 + 8 + 8 + 8 + 6 * 8);
  EXPECT_EQ(ErrorOf(good, bytes), "");
  EXPECT_THAT(ErrorOf(good, bytes - 1),
              HasSubstr("tensor 'lm_head.weight': 192 bytes at 2288 are beyond "
                        "the file's end at 2479"));
  EXPECT_THAT(ErrorOf(good, bytes + 3),
              HasSubstr("the header's tensors end at 2480, the file has 2483 "
                        "bytes"));
  EXPECT_THAT(ErrorOf(good, bytes, 0xABCD00),
              HasSubstr("magic 11259136 is of distributed-llama's old format"));
  EXPECT_THAT(ErrorOf(good, bytes, 7),
              HasSubstr("magic 7 is no model of distributed-llama"));
  const auto with = [&](int32_t key, int32_t value) {
    Pairs pairs = good;
    const auto found =
        std::find_if(pairs.begin(), pairs.end(),
                     [&](auto& pair) { return pair.first == key; });
    if (found == pairs.end()) {
      pairs.emplace_back(key, value);
    } else {
      found->second = value;
    }
    return ErrorOf(pairs, bytes);
  };
  EXPECT_THAT(with(22, 0),
              HasSubstr("header key 22 is unknown, limits 0 and 21"));
  EXPECT_THAT(with(4, 0), HasSubstr("n_layers is 0, limits 1 and 65536"));
  EXPECT_THAT(with(2, -8), HasSubstr("dim is -8, limits 1 and 16777216"));
  EXPECT_THAT(with(1, 0xABCD07), HasSubstr("arch_type is 11259143"));
  EXPECT_THAT(with(13, 4),
              HasSubstr("weights_float_type is 4, limits 0 and 3"));
  EXPECT_THAT(with(11, 0), HasSubstr("hidden_act is 0 (GELU)"));
  EXPECT_THAT(with(18, 1), HasSubstr("rope_type is 1, supported for llama"));
  EXPECT_THAT(with(20, 7), HasSubstr("norm_epsilon is 7, limits 5 and 6"));
  EXPECT_THAT(with(14, 8), HasSubstr("rope_scaling_factor is 8 with "
                                     "rope_scaling_low_freq_factor 0"));
  EXPECT_THAT(with(7, 4), HasSubstr("n_experts is 4 in a model of a family "
                                    "without experts"));
  EXPECT_THAT(with(1, 0xABCD02),
              HasSubstr("n_experts is 0 in a model of qwen3_moe"));
  EXPECT_THAT(with(5, 3), HasSubstr("dim 8 is no multiple of n_heads 3"));
  EXPECT_THAT(with(13, 2),
              HasSubstr("tensor 'model.layers.0.self_attn.q_proj.weight'"));
  EXPECT_THAT(
      with(9, 4'000'000),
      HasSubstr("tensor 'model.embed_tokens.weight': 128000000 bytes at "
                "80 are beyond the file's end"));
  Pairs twice = good;
  twice.emplace_back(2, 8);
  EXPECT_THAT(ErrorOf(twice, bytes), HasSubstr("dim is there twice"));
  Pairs none(good.begin(), good.end() - 1);
  EXPECT_THAT(ErrorOf(none, bytes),
              HasSubstr("header key weights_float_type is missing"));
  const TempDir dir;
  EXPECT_THAT(Message(OpenModel(dir.Write("a.m", "abc")).status()),
              HasSubstr("has 3 bytes"));
  EXPECT_THAT(
      Message(OpenModel(dir.Write("b.m", BytesOf<uint32_t>(0xA00ABCD) +
                                             BytesOf<int32_t>(16)))
                  .status()),
      HasSubstr("header of 16 bytes, limits 8 and 184 in steps of 8, the file "
                "has 8"));
}

}  // namespace
}  // namespace sluice::testing
