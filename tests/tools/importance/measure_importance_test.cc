#include "common/tools/importance/measure_importance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/model_config/open_model.h"
#include "common/stage/stage.h"
#include "common/tools/convert/convert_model.h"
#include "common/tools/importance/column_squares.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"

namespace sluice {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;

constexpr char kDemoModel[] = SLUICE_SOURCE_DIR "/deploy/demo_model/weights";

std::vector<TokenId> SomeTokens(int count, int vocab) {
  std::vector<TokenId> ids;
  uint32_t state = 9;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    ids.push_back(static_cast<TokenId>((state >> 8) % uint32_t(vocab)));
  }
  return ids;
}

// The raw logits of all positions of `ids`.
std::vector<std::vector<float>> LogitsOf(const std::string& model,
                                         const std::vector<TokenId>& ids,
                                         SquaresByWeight* squares = nullptr) {
  StageOptions options;
  options.model_path = model;
  options.threads = 2;
  options.max_context = 64;
  options.max_step_tokens = 64;
  options.kv_blocks = 8;
  if (squares != nullptr) options.make_backends = RecordingBackends(squares);
  auto stage = Stage::Load(options);
  EXPECT_TRUE(stage.ok()) << stage.status();
  if (!stage.ok()) return {};
  Stage::SequenceState state;
  state.sampling.temperature = 0;
  state.sampling.return_logits = true;
  state.num_prompt_tokens = static_cast<int32_t>(ids.size());
  std::vector<BlockId> blocks;
  for (int b = 0; b < 4; ++b) blocks.push_back(BlockId(b));
  state.blocks.assign(
      static_cast<size_t>((*stage)->info().limits.num_kv_groups), blocks);
  std::vector<std::vector<float>> logits;
  for (const TokenId id : ids) {
    Chunk chunk;
    chunk.sequence = SequenceId(1);
    chunk.start = static_cast<int32_t>(state.tokens.size());
    chunk.tokens = {id};
    chunk.logits = LogitsWanted::kLast;
    chunk.samples = true;
    state.tokens.push_back(id);
    HiddenStates out;
    std::vector<SequenceResult> results;
    (*stage)->Run({{&chunk, &state}}, {}, out, results);
    logits.push_back(results.at(0).logits);
  }
  return logits;
}

class ImportanceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ImportanceTest, EveryMatrixOfALayerHasOneAndNoBitChanges) {
  const std::string path = testing::GoldenModel(GetParam());
  const auto file = *OpenModel(path);
  const ModelConfig config = *ParseModelConfig(file->config());
  const auto ids = SomeTokens(40, config.vocab_size);
  SquaresByWeight squares;
  EXPECT_EQ(LogitsOf(path, ids, &squares), LogitsOf(path, ids));

  const auto importance = MeasureImportance(path, ids, {.threads = 2});
  ASSERT_TRUE(importance.ok()) << importance.status();
  const ExpertStorage storage = ExpertStorageOf(config, *file);
  size_t matrices = 0;
  for (int32_t layer = 0; layer < config.num_layers(); ++layer) {
    for (const WeightRows& weight : WeightsOf(config, layer, storage)) {
      if (weight.first().is_f32()) continue;
      const bool is_expert = weight.place == WeightPlace::kExpertGateUp ||
                             weight.place == WeightPlace::kExpertDown;
      const int32_t experts =
          is_expert ? config.layers[size_t(layer)].moe.num_experts : 1;
      for (const TensorRow* row : weight.rows) {
        for (int32_t expert = 0; expert < experts; ++expert) {
          std::string name = NameOf(*row, layer, expert);
          if (is_expert && !row->per_expert()) {
            name = weights::StackedName(name, expert);
          }
          const auto found = importance->find(name);
          // A text does not reach every expert.
          if (found == importance->end()) {
            EXPECT_TRUE(is_expert) << name;
            EXPECT_FALSE(squares.contains({layer, weight.place, expert}));
            continue;
          }
          ++matrices;
          EXPECT_THAT(found->second, Each(Ge(0.0f))) << name;
        }
      }
    }
  }
  EXPECT_GT(matrices, 0u);
  // Each token's row goes to as many experts as the config says.
  for (int32_t layer = 0; layer < config.num_layers(); ++layer) {
    const MoeConfig& moe = config.layers[size_t(layer)].moe;
    const auto router = squares.find({layer, WeightPlace::kRouter});
    EXPECT_EQ(router != squares.end(), moe.num_experts > 0);
    if (router == squares.end()) continue;
    std::vector<double> sums(router->second.sums.size());
    int64_t rows = 0;
    for (int32_t expert = 0; expert < moe.num_experts; ++expert) {
      const auto at = squares.find({layer, WeightPlace::kExpertGateUp, expert});
      if (at == squares.end()) continue;
      rows += at->second.rows;
      for (size_t k = 0; k < sums.size(); ++k) sums[k] += at->second.sums[k];
    }
    EXPECT_EQ(rows, 40 * moe.experts_per_token);
    for (size_t k = 0; k < sums.size(); ++k) {
      EXPECT_NEAR(sums[k], moe.experts_per_token * router->second.sums[k],
                  1e-9 * (1 + sums[k]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ImportanceTest,
                         ::testing::Values("llama3-tied", "qwen3_moe",
                                           "glm4_moe-air", "gpt_oss-mxfp4"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The first layer's first product reads normed embeddings, which are easily
// computed apart.
TEST(MeasureImportanceTest, IsTheMeanSquareOfWhatAMatrixReads) {
  const std::string path = testing::GoldenModel("llama3-tied");
  const auto file = *OpenModel(path);
  const ModelConfig config = *ParseModelConfig(file->config());
  const auto ids = SomeTokens(50, config.vocab_size);
  // Chunks do not see each other, and need not be full.
  const auto importance =
      MeasureImportance(path, ids, {.threads = 1, .context = 16});
  ASSERT_TRUE(importance.ok()) << importance.status();
  const auto hidden = static_cast<size_t>(config.hidden_size);
  const auto read = [&](const std::string& name) {
    const auto& info = *file->Find(name);
    std::vector<float> values(static_cast<size_t>(info.elements()));
    EXPECT_TRUE(
        file->ReadF32(name, weights::Slice::All(info), values.data()).ok());
    return values;
  };
  const auto table = read("model.embed_tokens.weight");
  const auto norm = read("model.layers.0.input_layernorm.weight");
  std::vector<double> wanted(hidden);
  for (const TokenId id : ids) {
    const float* row = table.data() + static_cast<size_t>(id) * hidden;
    double squares = 0;
    for (size_t k = 0; k < hidden; ++k) squares += double{row[k]} * row[k];
    const double eps = config.rms_norm_eps;
    const double scale = 1 / std::sqrt(squares / double(hidden) + eps);
    for (size_t k = 0; k < hidden; ++k) {
      wanted[k] += std::pow(row[k] * scale * norm[k], 2) / double(ids.size());
    }
  }
  for (const char* matrix : {"q_proj", "k_proj", "v_proj"}) {
    const auto& got =
        importance->at(Cat("model.layers.0.self_attn.", matrix, ".weight"));
    ASSERT_EQ(got.size(), hidden);
    for (size_t k = 0; k < hidden; ++k) {
      EXPECT_NEAR(got[k], wanted[k], 1e-5 * (1e-3 + wanted[k])) << k;
    }
  }
}

TEST(MeasureImportanceTest, TextsThatAModelCannotReadAreRefused) {
  EXPECT_THAT(Message(MeasureImportance(kDemoModel, {}, {}).status()),
              HasSubstr("the text is empty"));
  const std::vector<TokenId> ids = {1, 100'000'000};
  EXPECT_THAT(Message(MeasureImportance(kDemoModel, ids, {}).status()),
              HasSubstr("token 100000000 is not in the vocabulary of"));
}

// What importance is for: a smaller error of the products with what was read.
TEST(MeasureImportanceTest, BlocksWithImportanceHaveTheSmallerErrorOfProducts) {
  const auto file = *OpenModel(kDemoModel);
  const ModelConfig config = *ParseModelConfig(file->config());
  const auto importance = *MeasureImportance(
      kDemoModel, SomeTokens(100, config.vocab_size), {.threads = 2});
  const testing::TempDir dir;
  std::map<std::string, double> errors[2];
  for (const bool with : {false, true}) {
    ConvertOptions options;
    options.model = kDemoModel;
    options.out = Cat(dir.path(), "/", with);
    options.type = weights::DType::kBF16;
    options.rules = {{"layers\\.1\\.", weights::DType::kIq4Nl}};
    if (with) options.importance = importance;
    const auto report = ConvertModel(options, {});
    ASSERT_TRUE(report.ok()) << report.status();
    const auto made = *OpenModel(options.out);
    for (const auto& [name, columns] : importance) {
      const auto& info = *file->Find(name);
      const auto all = weights::Slice::All(info);
      std::vector<float> from(static_cast<size_t>(info.elements()));
      std::vector<float> to(from.size());
      ASSERT_TRUE(file->ReadF32(name, all, from.data()).ok());
      ASSERT_TRUE(made->ReadF32(name, all, to.data()).ok());
      for (size_t i = 0; i < from.size(); ++i) {
        errors[with][name] += double{columns[i % columns.size()]} *
                              std::pow(double{from[i]} - double{to[i]}, 2);
      }
    }
  }
  int matrices = 0;
  for (const auto& [name, error] : errors[1]) {
    if (errors[0][name] == 0) continue;  // another layer's, or a router
    ++matrices;
    EXPECT_LT(error, errors[0][name]) << name;
  }
  EXPECT_GT(matrices, 20);
}

}  // namespace
}  // namespace sluice
