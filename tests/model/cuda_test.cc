// Whole models over device code, on the machine that stands for a GPU or on
// one: the CPU's answers bit for bit, and the reference's tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "common/model/expert_transport.h"
#include "common/model/hosted_experts.h"
#include "tests/device/cuda/device_backends.h"
#include "tests/kernels/kernel_tester.h"
#include "tests/model/expect_same.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

using kernels::WeightType;

// A golden model, and how it is cut.
struct Golden {
  const char* name;
  int32_t ranks = 1;
  WeightsMode weights = WeightsMode::kAuto;
  WeightType kv_type = WeightType::kF32;

  // Whether the answers are those of the reference in F32.
  bool exact() const {
    return weights == WeightsMode::kAuto && kv_type == WeightType::kF32 &&
           std::string(name) != "gpt_oss-mxfp4";
  }
};

std::ostream& operator<<(std::ostream& out, const Golden& golden) {
  return out << golden.name << " over " << golden.ranks << " ranks";
}

PipelineOptions OptionsOf(const Golden& golden, const std::string& path) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.ranks = golden.ranks;
  options.stage.threads = golden.ranks;
  options.stage.weights = golden.weights;
  options.stage.kv_type = golden.kv_type;
  options.stage.kv_blocks = 64;
  options.stage.max_context = 512;
  options.stage.max_step_tokens = 64;
  options.stage.max_sequences = 4;
  return options;
}

// Greedy with all prompt logits, and drawn with every filter.
std::vector<Ask> AsksOf(const std::vector<GoldenPrompt>& goldens) {
  Ask greedy;
  greedy.prompt = goldens[1].ids;
  greedy.max_tokens = 3;
  greedy.prompt_logits = true;
  greedy.sampling.temperature = 0;
  greedy.sampling.logprobs = 3;
  greedy.sampling.prompt_logprobs = 1;
  greedy.sampling.return_logits = true;
  Ask drawn;
  drawn.prompt.assign(goldens[2].ids.begin(), goldens[2].ids.begin() + 21);
  drawn.max_tokens = 3;
  drawn.sampling.temperature = 0.9f;
  drawn.sampling.top_k = 40;
  drawn.sampling.top_p = 0.95f;
  drawn.sampling.min_p = 0.01f;
  drawn.sampling.seed = 77;
  drawn.sampling.repetition_penalty = 1.1f;
  drawn.sampling.logprobs = 0;
  return {greedy, drawn};
}

std::vector<Answer> AnswersOf(const PipelineOptions& options,
                              const std::vector<Ask>& asks) {
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  // Chunks of a prompt beside another sequence's tokens.
  return (*pipeline)->Generate(asks, {16, 2});
}

class CudaModelTest : public ::testing::TestWithParam<Golden> {};

TEST_P(CudaModelTest, AnswersAreTheCpusBitsAndTheReferencesTokens) {
  SLUICE_REQUIRE_DEVICE();
  const Golden& tested = GetParam();
  const std::string path = GoldenModel(tested.name);
  const auto goldens = ReadGolden(path);
  const auto asks = AsksOf(goldens);
  PipelineOptions options = OptionsOf(tested, path);
  const auto cpu = AnswersOf(options, asks);
  options.stage.make_backends = DeviceBackends();
  const auto device = AnswersOf(options, asks);
  ExpectSame(device, cpu);
  ASSERT_EQ(device.size(), 2u);
  EXPECT_EQ(device[0].logits, cpu[0].logits);
  EXPECT_FALSE(device[0].logits.empty());
  if (!tested.exact()) return;
  const std::vector<TokenId>& greedy = goldens[1].greedy_ids;
  EXPECT_EQ(device[0].ids(),
            std::vector<TokenId>(greedy.begin(), greedy.begin() + 3));
}

INSTANTIATE_TEST_SUITE_P(
    , CudaModelTest,
    ::testing::Values(Golden{"llama3-tied", 1}, Golden{"llama3-tied", 2},
                      Golden{"llama2-bf16-sharded", 1},
                      Golden{"llama2-bf16-sharded", 2}, Golden{"glm4", 1},
                      Golden{"glm4", 2}, Golden{"qwen3", 1}, Golden{"qwen3", 2},
                      Golden{"qwen3_moe", 1}, Golden{"qwen3_moe", 2},
                      Golden{"glm4_moe-air", 1}, Golden{"glm4_moe-air", 2},
                      Golden{"glm4_moe-46", 1}, Golden{"glm4_moe-46", 2},
                      Golden{"glm4_moe-46", 4}, Golden{"gpt_oss", 1},
                      Golden{"gpt_oss", 2}, Golden{"gpt_oss-mxfp4", 1},
                      Golden{"gpt_oss-mxfp4", 2},
                      Golden{"qwen3", 1, WeightsMode::kQ8_0, WeightType::kQ8_0},
                      Golden{"glm4", 2, WeightsMode::kQ4_0, WeightType::kBf16}),
    [](const auto& tested) {
      const Golden& golden = tested.param;
      std::string name = golden.name;
      std::replace(name.begin(), name.end(), '-', '_');
      name += "Ranks" + std::to_string(golden.ranks);
      if (golden.weights != WeightsMode::kAuto) name += "Blocks";
      return name;
    });

// Places of one replica may be on either kind of device.
TEST(CudaMixedPipelineTest, ACpuStageAndADeviceStageServeOneModel) {
  SLUICE_REQUIRE_DEVICE();
  const std::string path = GoldenModel("qwen3_moe");
  const auto asks = AsksOf(ReadGolden(path));
  PipelineOptions options = OptionsOf({"qwen3_moe"}, path);
  const auto cpu = AnswersOf(options, asks);
  options.stages = 2;
  for (const bool device_first : {false, true}) {
    options.make_backends = {MakeBackends, DeviceBackends()};
    if (device_first) {
      std::swap(options.make_backends[0], options.make_backends[1]);
    }
    const auto mixed = AnswersOf(options, asks);
    ExpectSame(mixed, cpu);
    EXPECT_EQ(mixed[0].logits, cpu[0].logits);
  }
}

// A stage is lost in an answer, and one on the other kind of device comes in
// its place: the rest of the answer is that of no lost stage.
TEST(CudaMixedPipelineTest, AStageOfTheOtherKindGoesOnWithAnAnswer) {
  SLUICE_REQUIRE_DEVICE();
  const std::string path = GoldenModel("qwen3_moe");
  auto asks = AsksOf(ReadGolden(path));
  for (Ask& ask : asks) {
    ask.max_tokens = 5;
    ask.prompt_logits = false;
    ask.sampling.prompt_logprobs = -1;
  }
  PipelineOptions options = OptionsOf({"qwen3_moe"}, path);
  const auto whole = AnswersOf(options, asks);
  options.stages = 2;
  // Of each the second stage is replaced.
  const std::vector<BackendFactory> kinds = {MakeBackends, DeviceBackends()};
  for (const size_t lost : {0, 1}) {
    options.make_backends = {kinds[0], kinds[lost]};
    for (Ask& ask : asks) ask.max_tokens = 2;
    const auto before = AnswersOf(options, asks);
    auto rest = asks;
    for (size_t i = 0; i < rest.size(); ++i) {
      rest[i].sampled = before[i].ids();
      rest[i].max_tokens = 3;
    }
    options.make_backends[1] = kinds[1 - lost];
    const auto behind = AnswersOf(options, rest);
    ASSERT_EQ(behind.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      std::vector<TokenResult> joined = before[i].tokens;
      joined.insert(joined.end(), behind[i].tokens.begin(),
                    behind[i].tokens.end());
      EXPECT_EQ(joined, whole[i].tokens) << "answer " << i;
    }
  }
}

// What hosts of experts compute, for rows of two ranges and for one range.
TEST(CudaHostedExpertsTest, NodesAreTheCpusBits) {
  SLUICE_REQUIRE_DEVICE();
  const std::string path = GoldenModel("gpt_oss-mxfp4");
  constexpr int64_t kRows = 5;
  constexpr int32_t kHidden = 64;
  const auto x = kernels::RandomFloats(1, kRows * kHidden);
  std::vector<int32_t> ids = {0, 2, 1, 6, 3, 4, 6, 7, 0, 7};
  std::vector<float> weights = kernels::RandomFloats(2, 2 * kRows);
  RoutedRows routed;
  routed.layer = 1;
  routed.x = {x.data(), kRows, kHidden, kHidden};
  routed.routing = {ids.data(), weights.data(), 2};
  const std::vector<kernels::TreeNode> nodes = {{0, 2}, {2, 3}, {4, 8}};
  const auto run = [&](const BackendFactory& factory) {
    HostedExpertsOptions options;
    options.model_path = path;
    options.threads = 1;
    options.held = {{1, {{0, 3}, {4, 8}}}};
    options.make_backends = factory;
    auto experts = HostedExperts::Load(options);
    EXPECT_TRUE(experts.ok()) << experts.status();
    std::vector<std::vector<float>> sums(nodes.size(),
                                         std::vector<float>(kRows * kHidden));
    std::vector<kernels::Matrix> parts;
    for (auto& sum : sums) {
      parts.push_back({sum.data(), kRows, kHidden, kHidden});
    }
    for (int i = 0; i < 2; ++i) (*experts)->Run(routed, nodes, parts);
    return sums;
  };
  const auto want = run(MakeBackends);
  EXPECT_NE(want[0], std::vector<float>(kRows * kHidden));
  EXPECT_EQ(run(DeviceBackends()), want);
}

}  // namespace
}  // namespace sluice::testing
