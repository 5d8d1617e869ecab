// The golden models as GGUFs: the same config and the same bits as from
// safetensors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/weights/model_file.h"
#include "tests/model/family_gguf.h"
#include "tests/model/gguf_cases.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using ::testing::IsEmpty;

std::vector<TokenId> Prompt() {
  std::vector<TokenId> prompt;
  for (int i = 0; i < 20; ++i) prompt.push_back(1 + i * 7 % 60);
  return prompt;
}

std::vector<float> Logits(const std::string& path, int32_t stages,
                          int32_t ranks,
                          WeightsMode weights = WeightsMode::kF32) {
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
  Ask ask{Prompt(), {}, 0, /*prompt_logits=*/true};
  ask.sampling.return_logits = true;
  const auto answers = (*pipeline)->Generate({ask});
  EXPECT_TRUE(answers[0].status.ok()) << answers[0].status;
  return answers[0].logits;
}

// The greedy ids behind every prompt of the golden.
std::vector<std::vector<TokenId>> GreedyIds(
    const std::string& path, int32_t cuts,
    const std::vector<GoldenPrompt>& prompts) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.threads = 1;
  options.stage.kv_blocks = 64;
  options.stage.ranks = cuts;
  options.stages = cuts;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  std::vector<Ask> asks;
  for (const GoldenPrompt& prompt : prompts) {
    Ask ask{prompt.ids, {}, static_cast<int32_t>(prompt.greedy_ids.size())};
    ask.sampling.temperature = 0;
    asks.push_back(std::move(ask));
  }
  std::vector<std::vector<TokenId>> ids;
  for (const Answer& answer : (*pipeline)->Generate(asks)) {
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    ids.push_back(answer.ids());
  }
  return ids;
}

// F32 holds what divides RoPE's frequencies: all but the last bits.
void ExpectNear(const RopeConfig& rope, const RopeConfig& wanted) {
  ASSERT_EQ(rope.inv_freq.size(), wanted.inv_freq.size());
  for (size_t i = 0; i < wanted.inv_freq.size(); ++i) {
    EXPECT_NEAR(rope.inv_freq[i] / wanted.inv_freq[i], 1.0, 1e-7);
  }
}

class GgufFamiliesTest : public ::testing::TestWithParam<GgufCase> {};

TEST_P(GgufFamiliesTest, AGgufIsTheModelThatItWasMadeFrom) {
  const std::string path = GoldenModel(GetParam().golden);
  const auto from = OpenModel(path);
  ASSERT_TRUE(from.ok()) << from.status();
  const TempDir dir;
  const std::string gguf = dir.Write("m.gguf", FamilyGguf(**from, GetParam()));
  const auto to = OpenModel(gguf);
  ASSERT_TRUE(to.ok()) << to.status();
  const auto wanted = ParseModelConfig((*from)->config());
  auto config = ParseModelConfig((*to)->config());
  ASSERT_TRUE(config.ok()) << config.status();
  // Ids of the tokenizer, which these files have none of.
  config->model_type = wanted->model_type;  // of an architecture of several
  config->bos_token_id = wanted->bos_token_id;
  config->eos_token_ids = wanted->eos_token_ids;
  if (GetParam().layout == kNormsPlusOne) {
    EXPECT_FALSE(config->norms_add_one);
    config->norms_add_one = true;
  }
  // A config without the key may have a layer behind the last.
  if (config->num_nextn_predict_layers == 0) {
    config->num_nextn_predict_layers = wanted->num_nextn_predict_layers;
  }
  EXPECT_THAT((*to)->computed()->unread_keys, IsEmpty());
  if (GetParam().layout == kDivisors) {
    ExpectNear(config->ropes[0], wanted->ropes[0]);
    config->ropes = wanted->ropes;
    EXPECT_EQ(*config, *wanted);
    const auto prompts = ReadGolden(path);
    std::vector<std::vector<TokenId>> ids;
    for (const GoldenPrompt& prompt : prompts) ids.push_back(prompt.greedy_ids);
    EXPECT_EQ(GreedyIds(gguf, 1, prompts), ids);
    EXPECT_EQ(GreedyIds(gguf, 2, prompts), ids);
    return;
  }
  EXPECT_EQ(*config, *wanted);
  const std::vector<float> logits = Logits(path, 1, 1);
  EXPECT_FALSE(logits.empty());
  EXPECT_EQ(Logits(gguf, 1, 1), logits);
  EXPECT_EQ(Logits(gguf, GetParam().stages, 2), logits);
  EXPECT_EQ(Logits(gguf, GetParam().stages, 2, WeightsMode::kAuto),
            Logits(path, 1, 1, WeightsMode::kAuto));
}

INSTANTIATE_TEST_SUITE_P(Goldens, GgufFamiliesTest,
                         ::testing::ValuesIn(GgufCases()),
                         [](const auto& tested) {
                           std::string name = tested.param.golden;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sluice::testing
