// Folders as GGUFs: the goldens give their ids again, names and shapes are
// those of the gguf package.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/gguf_keys.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/stop_ids.h"
#include "common/text/tokenizer.h"
#include "common/tools/convert/convert_model.h"
#include "common/weights/gguf_file.h"
#include "tests/model/golden_file.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"
#include "tests/tools/convert/golden_folder.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using weights::DType;
using weights::TensorInfo;

std::string ErrorOf(const GoldenFolder& folder) {
  const TempDir dir;
  folder.WriteConfig();
  const std::string out = dir.path() + "/out.gguf";
  const Status status = Convert(folder.path(), out, DType::kF32).status();
  EXPECT_EQ(fs::exists(out), status.ok());
  return Message(status);
}

// A GGUF's scaling of RoPE in numbers of 24 bits: angles move.
bool HasRoundedAngles(const RopeConfig& rope) {
  using Kind = RopeScaling::Kind;
  return rope.scaling.kind == Kind::kLlama3 ||
         rope.scaling.kind == Kind::kDynamic;
}

// What a reader finds equal whether a model is a folder or its GGUF.
void ExpectSameConfig(const weights::ModelFile& from,
                      const weights::ModelFile& to) {
  ModelConfig wanted = *ParseModelConfig(from.config());
  auto config = ParseModelConfig(to.config());
  ASSERT_TRUE(config.ok()) << config.status();
  // Families with Llama's tensors are one architecture.
  EXPECT_EQ(config->tensors, wanted.tensors);
  config->model_type = wanted.model_type;
  config->norms_add_one = wanted.norms_add_one;
  EXPECT_EQ(config->bos_token_id, wanted.bos_token_id);
  EXPECT_EQ(
      StopIds(to.config(), to.generation_config(), wanted.vocab_size),
      StopIds(from.config(), from.generation_config(), wanted.vocab_size));
  config->eos_token_ids = wanted.eos_token_ids;
  wanted.num_nextn_predict_layers = 0;
  ASSERT_EQ(config->ropes.size(), wanted.ropes.size());
  if (HasRoundedAngles(wanted.ropes[0])) {
    ASSERT_EQ(config->ropes[0].inv_freq.size(),
              wanted.ropes[0].inv_freq.size());
    for (size_t i = 0; i < wanted.ropes[0].inv_freq.size(); ++i) {
      const double frequency = wanted.ropes[0].inv_freq[i];
      EXPECT_NEAR(config->ropes[0].inv_freq[i], frequency, frequency * 0x1p-23);
    }
    config->ropes[0] = wanted.ropes[0];
  }
  EXPECT_EQ(*config, wanted);
}

class ConvertToGgufTest : public ::testing::TestWithParam<const char*> {};

// Long factors serve long contexts, which these engines have.
bool IsLongRope(std::string_view golden) {
  return golden == "phi3" || golden == "phi3-partial";
}

void ExpectSameModel(const GoldenFolder& folder, const std::string& golden) {
  const TempDir dir;
  const std::string out = dir.path() + "/out.gguf";
  const auto report =
      Convert(folder.path(), out, DType::kF32,
              {{"embed_tokens|lm_head", DType::kF32}, {"", DType::kF32}});
  ASSERT_TRUE(report.ok()) << report.status();
  for (const ConvertedMatrix& matrix : report->matrices) {
    EXPECT_EQ(matrix.relative_error, 0) << matrix.name;
  }
  EXPECT_FALSE(fs::exists(out + ".partial"));
  const auto from = *OpenModel(folder.path());
  const auto to = OpenModel(out);
  ASSERT_TRUE(to.ok()) << to.status();
  ExpectSameConfig(*from, **to);
  EXPECT_EQ(*(*to)->gguf()->Int("general.file_type"), 0);
  const auto goldens = ReadGolden(golden);
  const auto answers = Answers(out, goldens);
  const auto wanted = Answers(folder.path(), goldens);
  ASSERT_EQ(answers.size(), goldens.size());
  const bool is_rounded =
      HasRoundedAngles(ParseModelConfig(from->config())->ropes[0]);
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].ids(), wanted[i].ids());
    if (is_rounded) continue;
    EXPECT_EQ(answers[i].logits, wanted[i].logits);
  }
  const auto text = *Tokenizer::Load(folder.path());
  const auto kept = Tokenizer::Load(out);
  ASSERT_TRUE(kept.ok()) << kept.status();
  for (const char* example : {"hello there", "<s>he 12 he's</s>", "~ {}  a"}) {
    EXPECT_EQ(*(*kept)->Encode(example, {}), *text->Encode(example, {}));
  }
  EXPECT_THAT(*(*to)->gguf()->String("tokenizer.chat_template"),
              HasSubstr("m.content"));
}

TEST_P(ConvertToGgufTest, AFolderInF32AsAGgufIsTheSameModel) {
  const std::string path = GoldenModel(GetParam());
  const GoldenFolder folder(path);
  ExpectSameModel(folder, path);
  const auto goldens = ReadGolden(path);
  const auto wanted = Answers(folder.path(), goldens);
  for (size_t i = IsLongRope(GetParam()) ? 3 : 0; i < goldens.size(); ++i) {
    EXPECT_EQ(wanted[i].ids(), goldens[i].greedy_ids);
  }
}

TEST_P(ConvertToGgufTest, AQuantisedOneAnswersAndKeepsWhatIsNoMatrix) {
  const std::string path = GoldenModel(GetParam());
  const GoldenFolder folder(path);
  const TempDir dir;
  const std::string out = dir.path() + "/out.gguf";
  const auto report = Convert(folder.path(), out, DType::kQ8_0,
                              {{"embed_tokens", DType::kQ8_0}});
  ASSERT_TRUE(report.ok()) << report.status();
  const auto from = *OpenModel(folder.path());
  const auto to = OpenModel(out);
  ASSERT_TRUE(to.ok()) << to.status();
  const std::string golden = GetParam();
  int kept = 0;
  for (const ConvertedMatrix& matrix : report->matrices) {
    const DType type = (*to)->Find(matrix.name)->dtype;
    EXPECT_EQ(matrix.type, type) << matrix.name;
    EXPECT_LT(matrix.relative_error, 0.01) << matrix.name;
    const bool is_block = (*to)->Find(matrix.name)->cols() % 32 == 0;
    if (type == DType::kMxfp4) {
      ++kept;
      EXPECT_EQ(matrix.relative_error, 0);
    } else {
      EXPECT_EQ(type, is_block ? DType::kQ8_0 : DType::kBF16) << matrix.name;
    }
  }
  EXPECT_EQ(kept, golden == "gpt_oss-mxfp4" ? 4 * 3 : 0);
  for (const TensorInfo& info : (*to)->tensors()) {
    if (info.shape.size() > 1) continue;
    EXPECT_EQ(info.dtype, DType::kF32) << info.name;
  }
  const auto goldens = ReadGolden(path);
  const auto answers = Answers(out, {goldens[2]}, WeightsMode::kAuto);
  ASSERT_EQ(answers.size(), 1u);
  ASSERT_TRUE(answers[0].status.ok()) << answers[0].status;
  EXPECT_EQ(answers[0].ids().size(), goldens[2].greedy_ids.size());
  EXPECT_TRUE(std::all_of(answers[0].logits.begin(), answers[0].logits.end(),
                          [](float logit) { return std::isfinite(logit); }));
}

// What the package prints, or nullopt where it is not installed.
std::optional<std::string> Reference(const std::string& gguf) {
  const char* named = std::getenv("SLUICE_PYTHON");
  const std::string command = Cat(
      "'", named != nullptr ? named : SLUICE_VENV_PYTHON, "' '",
      SLUICE_SOURCE_DIR, "/tests/tools/convert/gguf_names.py' '", gguf, "'");
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    text.append(buffer, got);
  }
  const int code = ::pclose(pipe);
  // The package is not there, or no such Python is.
  if (code == 3 << 8 || code == 127 << 8) return std::nullopt;
  EXPECT_EQ(code, 0) << text;
  return text;
}

TEST_P(ConvertToGgufTest, ThePackageReadsItAndKnowsEveryName) {
  const std::string path = GoldenModel(GetParam());
  const GoldenFolder folder(path);
  const TempDir dir;
  const std::string out = dir.path() + "/out.gguf";
  ASSERT_EQ(Message(Convert(folder.path(), out, DType::kQ4_0).status()), "");
  const auto said = Reference(out);
  if (!said.has_value()) {
    GTEST_SKIP() << "needs a Python with gguf and numpy (made by tests/run, "
                    "or named by SLUICE_PYTHON)";
  }
  EXPECT_THAT(*said, HasSubstr("all known"));
}

INSTANTIATE_TEST_SUITE_P(
    Goldens, ConvertToGgufTest,
    ::testing::Values("llama3-tied", "llama2-bf16-sharded", "qwen3",
                      "qwen3_moe", "glm4", "glm4_moe-air", "glm4_moe-46",
                      "gpt_oss", "gpt_oss-mxfp4", "mistral", "mistral-window",
                      "mixtral", "ministral3", "qwen2", "qwen2_moe", "seed_oss",
                      "granite", "granitemoe", "ernie4_5", "ernie4_5_moe",
                      "hunyuan_v1_dense", "hunyuan_v1_moe", "glm", "phi3",
                      "phi3-partial", "phi3-window", "cohere2", "olmo2",
                      "olmo3", "olmoe", "exaone4", "minimax_m2", "dots1",
                      "gemma", "arcee", "cohere", "stablelm", "nemotron"),
    [](const auto& tested) {
      std::string name = tested.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// No key tells the scale of Gemma's attention, which is the head's but in the
// largest model. Norms get the 1 that config.json's families add.
TEST(ConvertToGgufGemmaTest, NormsHaveTheOne) {
  for (const char* golden : {"gemma2", "gemma3_text"}) {
    SCOPED_TRACE(golden);
    const std::string path = GoldenModel(golden);
    GoldenFolder folder(path);
    EXPECT_THAT(ErrorOf(folder), HasSubstr("cannot tell layer 0's scale of "
                                           "attention"));
    folder.config()["query_pre_attn_scalar"] = 24;
    // The ids of these words in the tokenizer.
    folder.config()["bos_token_id"] = 1;
    folder.config()["eos_token_id"] = 2;
    folder.WriteConfig();
    ExpectSameModel(folder, path);
  }
}

// Layers without RoPE: every fourth. Llama's tensors.
TEST(ConvertToGgufTypesTest, SmolLm3HasLayersWithoutRope) {
  const std::string path = GoldenModel("granite");
  GoldenFolder folder(path);
  Json& config = folder.config();
  config["model_type"] = "smollm3";
  config["no_rope_layer_interval"] = 2;
  EXPECT_THAT(ErrorOf(folder), HasSubstr("cannot tell layer 1's RoPE"));
  config.erase("no_rope_layer_interval");
  folder.WriteConfig();
  ExpectSameModel(folder, path);
}

TEST(ConvertToGgufErrorsTest, WhatNoKeyTellsIsRefusedByName) {
  const std::string qwen3_moe = GoldenModel("qwen3_moe");
  GoldenFolder moe(qwen3_moe);
  moe.config()["norm_topk_prob"] = false;
  EXPECT_THAT(ErrorOf(moe), HasSubstr("norm_topk_prob is false"));
  const std::string gpt_oss = GoldenModel("gpt_oss");
  GoldenFolder oss(gpt_oss);
  oss.config()["swiglu_limit"] = 5.0;
  EXPECT_THAT(ErrorOf(oss), HasSubstr("a GGUF of architecture gpt-oss cannot "
                                      "tell layer 0's experts"));
  oss.config()["swiglu_limit"] = 7.0;
  oss.config()["layer_types"][1] = "sliding_attention";
  EXPECT_THAT(ErrorOf(oss), HasSubstr("layer 1's attention window"));
  const std::string qwen2 = GoldenModel("qwen2");
  GoldenFolder windows(qwen2);
  windows.config()["use_sliding_window"] = true;
  EXPECT_THAT(ErrorOf(windows), HasSubstr("layer 1's attention window"));
  const std::string qwen2_moe = GoldenModel("qwen2_moe");
  GoldenFolder normalised(qwen2_moe);
  normalised.config()["norm_topk_prob"] = true;
  EXPECT_THAT(ErrorOf(normalised), HasSubstr("layer 0's experts"));
  const std::string gemma4 = GoldenModel("gemma4_text-e");
  EXPECT_THAT(ErrorOf(GoldenFolder(gemma4)),
              HasSubstr("model_type 'gemma4_text': a GGUF of architecture "
                        "gemma4 is read, and not written yet"));
  const std::string helium = GoldenModel("helium");
  EXPECT_THAT(ErrorOf(GoldenFolder(helium)),
              HasSubstr("model_type 'helium' has no GGUF"));
  const std::string qwen3 = GoldenModel("qwen3");
  GoldenFolder yarn(qwen3);
  yarn.config()["rope_scaling"] = {{"rope_type", "yarn"},
                                   {"factor", 4.0},
                                   {"original_max_position_embeddings", 1024},
                                   {"attention_factor", 1.5}};
  EXPECT_THAT(ErrorOf(yarn), HasSubstr("cannot tell rope_scaling"));
  yarn.config()["rope_scaling"].erase("attention_factor");
  EXPECT_EQ(ErrorOf(yarn), "");
}

TEST(ConvertToGgufErrorsTest, DamagedFoldersAreRefused) {
  const std::string path = GoldenModel("qwen3");
  GoldenFolder folder(path);
  folder.config()["model_type"] = "mamba";
  EXPECT_THAT(ErrorOf(folder),
              HasSubstr("model_type 'mamba' is not supported"));
  folder.config()["model_type"] = "qwen3";
  folder.config()["num_hidden_layers"] = 4;
  EXPECT_THAT(ErrorOf(folder),
              HasSubstr("tensor 'model.layers.3.input_layernorm.weight' is "
                        "missing"));
  folder.config()["num_hidden_layers"] = 3;
  folder.Replace("tokenizer.json", ReadFileOrDie(path + "/tokenizer.json"));
  EXPECT_THAT(ErrorOf(folder),
              HasSubstr("tokenizer.json: model WordLevel: a GGUF has keys for "
                        "BPE"));
  fs::remove(folder.path() + "/tokenizer.json");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("no tokenizer.json"));
}

TEST(ConvertToGgufTypesTest, RulesReachExpertsOfFourBitsAndTheHead) {
  const std::string path = GoldenModel("gpt_oss-mxfp4");
  const GoldenFolder folder(path);
  const TempDir dir;
  const std::string out = dir.path() + "/out.gguf";
  ASSERT_EQ(Message(Convert(folder.path(), out, DType::kQ8_0,
                            {{"1.mlp.experts.*proj", DType::kQ5_1},
                             {"lm_head", DType::kQ8_0}})
                        .status()),
            "");
  const auto raw = weights::OpenModel(out);
  ASSERT_TRUE(raw.ok()) << raw.status();
  const auto type = [&](const char* name) { return (*raw)->Find(name)->dtype; };
  EXPECT_EQ(type("blk.0.ffn_gate_exps.weight"), DType::kMxfp4);
  EXPECT_EQ(type("blk.1.ffn_gate_exps.weight"), DType::kQ5_1);
  EXPECT_EQ(type("blk.1.ffn_up_exps.bias"), DType::kF32);
  EXPECT_EQ(type("output.weight"), DType::kQ8_0);
  EXPECT_EQ(type("token_embd.weight"), DType::kF32);  // as in the folder
  EXPECT_EQ((*raw)->Find("blk.1.ffn_up_exps.weight")->shape,
            (std::vector<int64_t>{8, 64, 64}));
}

// Our own folders keep their blocks.
TEST(ConvertToGgufTypesTest, AQuantisedFolderKeepsItsBlocks) {
  const std::string path = GoldenModel("qwen3_moe");
  const GoldenFolder folder(path);
  const TempDir dir;
  const std::string small = dir.path() + "/small";
  const std::string out = dir.path() + "/out.gguf";
  ASSERT_EQ(Message(Convert(folder.path(), small, DType::kQ4_0).status()), "");
  const auto report = Convert(small, out, DType::kQ4_0);
  ASSERT_TRUE(report.ok()) << report.status();
  for (const ConvertedMatrix& matrix : report->matrices) {
    EXPECT_EQ(matrix.relative_error, 0) << matrix.name;
  }
  const auto goldens = ReadGolden(path);
  EXPECT_EQ(Answers(out, {goldens[2]})[0].logits,
            Answers(small, {goldens[2]})[0].logits);
}

}  // namespace
}  // namespace sluice::testing
