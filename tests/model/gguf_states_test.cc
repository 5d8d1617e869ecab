// Models with states as GGUFs: names, keys, orders and elements as llama.cpp's
// converter gives them, the same config and the same bits as from safetensors.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/model/state_gguf.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

// Of logits whose standard deviation is about 3.
constexpr double kOtherRounding = 1e-4;

std::vector<Answer> AnswersTo(const std::vector<GoldenPrompt>& prompts,
                              const std::string& path, int32_t stages,
                              int32_t ranks, WeightsMode weights) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.threads = 1;
  options.stage.kv_blocks = 64;
  options.stage.ranks = ranks;
  options.stage.weights = weights;
  options.stages = stages;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  std::vector<Ask> asks;
  for (const GoldenPrompt& prompt : prompts) {
    Ask ask{prompt.ids, {}, 8, /*prompt_logits=*/true};
    ask.sampling.temperature = 0;
    ask.sampling.return_logits = true;
    asks.push_back(std::move(ask));
  }
  auto answers = (*pipeline)->Generate(asks);
  for (const Answer& answer : answers) {
    EXPECT_TRUE(answer.status.ok()) << answer.status;
  }
  return answers;
}

std::vector<float> StateLogits(const std::string& golden,
                               const std::string& path, int32_t cuts,
                               WeightsMode weights = WeightsMode::kF32) {
  std::vector<float> all;
  for (const Answer& answer :
       AnswersTo(ReadGolden(GoldenModel(golden)), path, cuts, cuts, weights)) {
    all.insert(all.end(), answer.logits.begin(), answer.logits.end());
  }
  return all;
}

double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return most;
}

// Falcon-H1's are in a GGUF's weights.
void SetUnitMultipliers(LayerConfig& layer) {
  AttentionConfig& attention = layer.attention;
  attention.scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
  attention.out_scale = 1.0;
  layer.state.out_scale = 1.0;
  layer.state.mixer.scales = {1, 1, 1, 1, 1};
  layer.mlp.gate_scale = layer.mlp.out_scale = 1.0;
}

class GgufStatesTest : public ::testing::TestWithParam<StateCase> {
 protected:
  // Writes the golden as a GGUF.
  std::string Gguf(StateTypes types) const {
    const auto from = OpenModel(GoldenModel(GetParam().golden));
    EXPECT_TRUE(from.ok()) << from.status();
    return dir_.Write(Cat("m", static_cast<int>(types), ".gguf"),
                      StateConverter(**from, GetParam(), types).Convert());
  }
  // Its multipliers are in the weights: other roundings.
  static bool IsFalcon() {
    return std::string_view(GetParam().architecture) == "falcon-h1";
  }

 private:
  const TempDir dir_;
};

TEST_P(GgufStatesTest, AGgufHasTheConfigOfTheModelThatItWasMadeFrom) {
  const auto from = OpenModel(GoldenModel(GetParam().golden));
  const auto to = OpenModel(Gguf(StateTypes::kF32));
  ASSERT_TRUE(to.ok()) << to.status();
  EXPECT_TRUE((*to)->computed()->unread_keys.empty())
      << (*to)->computed()->unread_keys.front();
  auto wanted = ParseModelConfig((*from)->config());
  auto config = ParseModelConfig((*to)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  // What differs in the files, and ids of the tokenizer, which this one lacks.
  config->model_type = wanted->model_type;
  config->norms_add_one = wanted->norms_add_one;
  config->bos_token_id = wanted->bos_token_id;
  config->eos_token_ids = wanted->eos_token_ids;
  if (IsFalcon()) wanted->embedding_scale = wanted->logit_scale = 1.0;
  for (size_t i = 0; i < config->layers.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    if (IsFalcon()) SetUnitMultipliers(wanted->layers[i]);
    layer.of_gguf = false;
    layer.state.qkvz_apart = false;
    // A mixture's dense layers, of which it may have none.
    const MlpConfig& mlp = wanted->layers[i].mlp;
    if (layer.is_sparse()) layer.mlp.intermediate_size = mlp.intermediate_size;
  }
  EXPECT_EQ(*config, *wanted);
}

TEST_P(GgufStatesTest, AGgufHasTheBitsOfTheModelThatItWasMadeFrom) {
  const char* const golden = GetParam().golden;
  const std::string path = GoldenModel(golden);
  const std::string gguf = Gguf(StateTypes::kF32);
  const auto wanted = StateLogits(golden, path, 1);
  const auto logits = StateLogits(golden, gguf, 1);
  ASSERT_FALSE(logits.empty());
  EXPECT_EQ(StateLogits(golden, gguf, 2), logits);
  if (IsFalcon()) {
    EXPECT_LE(Difference(logits, wanted), kOtherRounding);
  } else {
    EXPECT_EQ(logits, wanted);
  }
  const auto prompts = ReadGolden(path);
  const auto answers = AnswersTo(prompts, gguf, 1, 1, WeightsMode::kF32);
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto& greedy = prompts[i].greedy_ids;
    const std::vector<TokenId> first(greedy.begin(), greedy.begin() + 8);
    EXPECT_EQ(answers[i].ids(), first) << "prompt " << i;
  }
}

// Blocks move whole where they can, and become elements where two heads share
// them.
TEST_P(GgufStatesTest, BlocksOfAGgufHaveTheirElements) {
  const char* const golden = GetParam().golden;
  const std::string gguf = Gguf(StateTypes::kQ8);
  const auto wide = StateLogits(golden, Gguf(StateTypes::kWidened), 1);
  ASSERT_FALSE(wide.empty());
  EXPECT_EQ(StateLogits(golden, gguf, 1), wide);
  EXPECT_EQ(StateLogits(golden, gguf, 2), wide);
  const auto blocks = StateLogits(golden, gguf, 1, WeightsMode::kAuto);
  EXPECT_EQ(StateLogits(golden, gguf, 2, WeightsMode::kAuto), blocks);
  // The model's matrices become the same blocks at a load, but for stacked
  // experts whose gate and up have no rows of whole blocks together.
  const bool is_stacked = std::string_view(golden) == "qwen3_5_moe";
  if (IsFalcon() || is_stacked) return;
  EXPECT_EQ(StateLogits(golden, GoldenModel(golden), 1, WeightsMode::kQ8_0),
            blocks);
}

INSTANTIATE_TEST_SUITE_P(Goldens, GgufStatesTest,
                         ::testing::ValuesIn(StateCases()),
                         [](const auto& tested) {
                           return tested.param.Name();
                         });

}  // namespace
}  // namespace sluice::testing
