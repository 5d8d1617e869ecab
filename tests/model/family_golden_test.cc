// Every family's golden model, cut in several ways: the reference's greedy ids,
// and its logits of each prompt's last positions.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "tests/device/apart_backend.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/model/reference_model.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"

namespace sluice::testing {
namespace {

// The larger of 1e-4 and three times the reference's own difference between
// float and double.
constexpr double kTolerance = 1e-4;

struct Family {
  const char* name;
  // A long-context RoPE's choice depends on the context: prompts [first, last)
  // in a stage of `context` positions.
  int32_t context = 0;
  size_t first = 0;
  size_t last = 4;
  // Layers that read another layer's keys and values stay on its stage: a
  // second stage begins here, and there is no third.
  int32_t second_stage = 0;
};

std::ostream& operator<<(std::ostream& out, const Family& family) {
  out << family.name;
  if (family.context > 0) out << "_in_" << family.context;
  return out;
}

std::vector<Answer> AnswersOf(const Family& family, int32_t stages,
                              int32_t ranks, Device device) {
  const std::string path = GoldenModel(family.name);
  const auto goldens = ReadGolden(path);
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.weights = WeightsMode::kF32;
  options.stage.ranks = ranks;
  options.stage.threads = 1;
  options.stage.kv_blocks = 256;
  options.stage.max_context = family.context;
  options.stage.make_backends = FactoryOf(device);
  options.stages = stages;
  if (family.second_stage > 0) options.first_layers = {0, family.second_stage};
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  std::vector<Ask> asks;
  for (size_t i = family.first; i < family.last; ++i) {
    SamplingParams greedy;
    greedy.temperature = 0;
    greedy.return_logits = true;
    asks.push_back({goldens[i].ids, greedy,
                    static_cast<int32_t>(goldens[i].greedy_ids.size()),
                    /*prompt_logits=*/true});
  }
  return (*pipeline)->Generate(asks, {.prefill_chunk = 37});
}

class FamilyTest : public ::testing::TestWithParam<Family> {};

TEST_P(FamilyTest, GreedyIdsAndLogitsAreTheReferencesInEveryCut) {
  const Family& family = GetParam();
  const auto goldens = ReadGolden(GoldenModel(family.name));
  struct Cut {
    int32_t stages;
    int32_t ranks;
    Device device = Device::kCpu;
  };
  std::vector<std::vector<float>> first;  // a cut's logits
  for (const Cut& cut :
       {Cut{2, 2}, Cut{1, 1}, Cut{3, 2}, Cut{1, 3, Device::kApart}}) {
    if (OnlyQuick() && !first.empty()) break;
    SCOPED_TRACE(::testing::Message() << cut.stages << "x" << cut.ranks);
    const auto answers = AnswersOf(
        family, family.second_stage > 0 ? std::min(cut.stages, 2) : cut.stages,
        cut.ranks, cut.device);
    ASSERT_EQ(answers.size(), family.last - family.first);
    double worst = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      const GoldenPrompt& golden = goldens[family.first + i];
      ASSERT_TRUE(answers[i].status.ok()) << answers[i].status;
      EXPECT_EQ(answers[i].ids(), golden.greedy_ids) << "prompt " << i;
      const auto begin =
          static_cast<size_t>(golden.first_position * golden.vocab_size);
      ASSERT_GE(answers[i].logits.size(), begin + golden.last_logits.size());
      worst = std::max<double>(
          worst,
          LargestDifference(&answers[i].logits[begin], golden.last_logits));
      if (first.size() <= i) first.push_back(answers[i].logits);
      EXPECT_EQ(answers[i].logits, first[i]) << "prompt " << i;
    }
    EXPECT_LE(worst, kTolerance);
    std::cout << family << " " << cut.stages << "x" << cut.ranks
              << ": logits differ from the reference's by at most " << worst
              << "\n";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Goldens, FamilyTest,
    ::testing::Values(
        Family{"mistral"}, Family{"mistral-window"}, Family{"ministral3"},
        Family{"qwen2"}, Family{"seed_oss"}, Family{"granite"},
        Family{"ernie4_5"}, Family{"hunyuan_v1_dense"}, Family{"glm"},
        Family{"phi3", 112, 0, 3}, Family{"phi3", 0, 3, 4},
        Family{"phi3-partial", 112, 0, 3}, Family{"phi3-partial", 0, 3, 4},
        Family{"phi3-window"}, Family{"cohere2"}, Family{"olmo2"},
        Family{"olmo3"}, Family{"exaone4"}, Family{"gemma2"},
        Family{"gemma3_text"}, Family{"gemma4_text-moe"},
        Family{.name = "gemma4_text-e", .second_stage = 1},
        Family{"starcoder2"}, Family{"smollm3"}, Family{"apertus"},
        Family{"gemma"}, Family{"cohere"}, Family{"stablelm"},
        Family{"nemotron"}, Family{"helium"}, Family{"arcee"},
        Family{"mistral3"}, Family{"gemma3"},
        Family{.name = "gemma4", .second_stage = 1}, Family{"mixtral"},
        Family{"qwen2_moe"}, Family{"olmoe"}, Family{"granitemoe"},
        Family{"ernie4_5_moe"}, Family{"hunyuan_v1_moe"}, Family{"minimax_m2"},
        Family{"dots1"}, Family{"lfm2"}, Family{"lfm2_moe"},
        Family{"qwen3_5_text"}, Family{"qwen3_5"}, Family{"qwen3_5_moe"},
        Family{"qwen3_next"}, Family{"granitemoehybrid"}, Family{"nemotron_h"},
        Family{"nemotron_h-moe"}, Family{"falcon_h1"}, Family{"deepseek_v2"},
        Family{"deepseek_v3"}, Family{"glm4_moe_lite"}, Family{"glm_moe_dsa"}),
    [](const auto& tested) {
      std::string name = tested.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      if (tested.param.context > 0) name += "ShortContext";
      if (tested.param.first > 0) name += "LongContext";
      return name;
    });

}  // namespace
}  // namespace sluice::testing
