// Stages with remote experts: the same bits, none of the bytes, and a row that
// gets no answer ends its sequence alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "common/model/expert_transport.h"
#include "common/model/hosted_experts.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/model_config/tensor_table.h"
#include "common/weights/model_file.h"
#include "tests/device/apart_backend.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

ModelConfig ConfigOf(const weights::ModelFile& file) {
  auto config = ParseModelConfig(file.config());
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

// Every host of a placement at once, in this process: what is elsewhere,
// without the wire. Rows of tokens that `fails` picks get no answer.
class AllHosts : public ExpertTransport {
 public:
  AllHosts(const std::string& path, const ExpertPlacement& placement,
           Device device = Device::kCpu) {
    HostedExpertsOptions options;
    options.model_path = path;
    options.threads = 1;
    options.make_backends = FactoryOf(device);
    nodes_.resize(placement.layers.size());
    for (size_t i = 0; i < placement.layers.size(); ++i) {
      std::vector<ExpertRange> ranges;
      for (const PlacedExperts& run : placement.layers[i]) {
        if (run.hosts.empty()) continue;
        if (!ranges.empty() && ranges.back().end == run.experts.begin) {
          ranges.back().end = run.experts.end;
        } else {
          ranges.push_back(run.experts);
        }
      }
      if (ranges.empty()) continue;
      options.held.push_back({static_cast<int32_t>(i), ranges});
    }
    auto loaded = HostedExperts::Load(options);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    experts_ = *std::move(loaded);
    for (const LayerRanges& layer : options.held) {
      for (const ExpertRange& range : layer.ranges) {
        for (const kernels::TreeNode& node : kernels::AlignedNodes(
                 range.begin, range.end, experts_->info().num_experts)) {
          nodes_[static_cast<size_t>(layer.layer)].push_back(node);
        }
      }
    }
  }

  std::span<const kernels::TreeNode> nodes(int32_t layer) const override {
    return nodes_[static_cast<size_t>(layer)];
  }
  void Dispatch(const RoutedRows& routed) override { ++asks; }
  std::vector<RowFailure> Combine(
      const RoutedRows& routed,
      std::span<const kernels::Matrix> parts) override {
    if (!parts.empty()) experts_->Run(routed, nodes(routed.layer), parts);
    std::vector<RowFailure> failures;
    for (int32_t row = 0; row < routed.x.rows && fails; ++row) {
      if (!fails(routed, row)) continue;
      failures.push_back(
          {row, Unavailable("no host for layer ", routed.layer)});
      for (const kernels::Matrix& part : parts) {
        std::fill(part.row(row), part.row(row) + part.cols, 0.25f);
      }
    }
    return failures;
  }

  std::function<bool(const RoutedRows& routed, int32_t row)> fails;
  int asks = 0;

 private:
  std::vector<std::vector<kernels::TreeNode>> nodes_;  // by layer
  std::unique_ptr<HostedExperts> experts_;
};

// What is where in every sparse layer: from and to which eighth of the experts
// (both included), on which hosts.
using Entries = std::vector<std::tuple<int32_t, int32_t, std::string>>;

ExpertPlacement Place(const std::string& path, const Entries& entries) {
  const auto file = OpenModel(path);
  const ModelConfig config = ConfigOf(**file);
  const int32_t eighth = config.moe().num_experts / 8;
  std::string text = R"({"hosts": [{"name": "a"}, {"name": "b"}],
                         "experts": [)";
  for (const auto& [first, last, hosts] : entries) {
    text += Cat(text.back() == '[' ? "" : ",", R"({"layers": ")",
                SparseSpan(config).first, "-", SparseSpan(config).last,
                R"(", "experts": ")", first * eighth, "-",
                (last + 1) * eighth - 1, R"(", "hosts": [)", hosts, "]}");
  }
  auto placement = ParseExpertPlacement(text + "]}", config);
  EXPECT_TRUE(placement.ok()) << placement.status() << text;
  return *std::move(placement);
}

PipelineOptions Options(const std::string& path, int32_t stages,
                        int32_t ranks) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.ranks = ranks;
  options.stage.threads = 1;
  options.stage.kv_blocks = 256;
  options.stages = stages;
  return options;
}

std::vector<Ask> Asks(const std::string& path) {
  std::vector<Ask> asks;
  for (const GoldenPrompt& golden : ReadGolden(path)) {
    Ask ask{golden.ids, {}, 8, /*prompt_logits=*/true};
    ask.sampling.seed = 5;
    ask.sampling.logprobs = 3;
    ask.sampling.prompt_logprobs = 0;
    asks.push_back(ask);
  }
  return asks;
}

std::vector<Answer> AllLocal(const std::string& path) {
  static std::map<std::string, std::vector<Answer>> known;
  if (!known.contains(path)) {
    known[path] = (*Pipeline::Load(Options(path, 1, 1)))->Generate(Asks(path));
  }
  return known[path];
}

void ExpectSame(const Answer& a, const Answer& b) {
  ASSERT_TRUE(a.status.ok()) << a.status;
  ASSERT_TRUE(b.status.ok()) << b.status;
  EXPECT_TRUE(a.tokens == b.tokens);
  EXPECT_TRUE(a.prompt == b.prompt);
}

struct Cut {
  const char* name;
  int32_t stages;
  int32_t ranks;
  Entries entries;
  Device device = Device::kCpu;  // of the stages and of the hosts
};

class ExpertsElsewhereTest
    : public ::testing::TestWithParam<std::tuple<const char*, Cut>> {};

TEST_P(ExpertsElsewhereTest, TokensAndLogprobsAreThoseOfAllOnTheStage) {
  const auto& [name, cut] = GetParam();
  const std::string path = GoldenModel(name);
  PipelineOptions options = Options(path, cut.stages, cut.ranks);
  options.stage.placement = Place(path, cut.entries);
  options.stage.make_backends = FactoryOf(cut.device);
  AllHosts hosts(path, options.stage.placement, cut.device);
  options.stage.expert_transport = &hosts;
  auto pipeline = Pipeline::Load(options);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  const auto answers = (*pipeline)->Generate(Asks(path));
  const auto expected = AllLocal(path);
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    ExpectSame(answers[i], expected[i]);
  }
  EXPECT_GT(hosts.asks, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Placements, ExpertsElsewhereTest,
    ::testing::Combine(
        ::testing::Values("glm4_moe-air", "glm4_moe-46", "gpt_oss-mxfp4"),
        ::testing::Values(Cut{"All", 1, 1, {{0, 7, R"("a")"}}},
                          Cut{"HalfTwoStages",
                              2,
                              1,
                              {{0, 3, R"("local")"}, {4, 7, R"("a")"}}},
                          Cut{"UnevenTwoRanks",
                              1,
                              2,
                              {{0, 0, R"("a")"},
                               {1, 3, R"("local")"},
                               {4, 4, R"("b")"},
                               {5, 6, R"("local")"},
                               {7, 7, R"("a", "b")"}}},
                          Cut{"ApartTwoRanksTwoStages",
                              2,
                              2,
                              {{0, 1, R"("local")"}, {2, 7, R"("a", "b")"}},
                              Device::kApart},
                          Cut{"AllTwoRanksThreeStages",
                              3,
                              2,
                              {{0, 2, R"("a")"}, {3, 7, R"("b")"}}})),
    [](const auto& tested) {
      std::string name = std::get<0>(tested.param);
      std::replace(name.begin(), name.end(), '-', '_');
      return name + std::get<1>(tested.param).name;
    });

TEST(StageWithoutExpertsTest, ReadsAndHoldsNoneOfTheirBytes) {
  for (const char* name : {"glm4_moe-air", "gpt_oss-mxfp4"}) {
    const std::string path = GoldenModel(name);
    const auto file = OpenModel(path);
    const ModelConfig config = ConfigOf(**file);
    const ModelBytes bytes = StoredBytes(config, **file);
    uint64_t experts = 0;
    for (const uint64_t layer : bytes.experts) experts += layer;
    const auto local = Stage::Load(Options(path, 1, 1).stage);
    ASSERT_TRUE(local.ok()) << local.status();
    StageOptions options = Options(path, 1, 1).stage;
    options.placement = Place(path, {{0, 7, R"("a")"}});
    AllHosts hosts(path, options.placement);
    options.expert_transport = &hosts;
    const auto remote = Stage::Load(options);
    ASSERT_TRUE(remote.ok()) << remote.status();
    EXPECT_EQ((*local)->info().bytes_read - (*remote)->info().bytes_read,
              experts);
    EXPECT_EQ((*remote)->info().weights_dtype, (*local)->info().weights_dtype);
    // Biases are not counted among the weights.
    if (std::string(name) == "gpt_oss-mxfp4") continue;
    EXPECT_EQ((*local)->info().weights_bytes - (*remote)->info().weights_bytes,
              experts);
  }
}

TEST(FailedRowsTest, EndTheirSequenceAndNoOther) {
  const std::string path = GoldenModel("glm4_moe-air");
  const auto expected = AllLocal(path);
  for (const int32_t stages : {1, 3}) {
    PipelineOptions options = Options(path, stages, 2);
    options.stage.placement = Place(path, {{0, 7, R"("a", "b")"}});
    AllHosts hosts(path, options.stage.placement);
    options.stage.expert_transport = &hosts;
    auto pipeline = Pipeline::Load(options);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    // Prompts go together in the first step; of each step after, one row per
    // sequence: the second one's is row 1.
    hosts.fails = [](const RoutedRows& routed, int32_t row) {
      return routed.step.step_id.value() == 3 && routed.layer == 2 && row == 1;
    };
    const auto answers = (*pipeline)->Generate(Asks(path));
    for (size_t i = 0; i < answers.size(); ++i) {
      if (i != 1) {
        ExpectSame(answers[i], expected[i]);
        continue;
      }
      EXPECT_EQ(answers[i].status.code(), StatusCode::kUnavailable);
      EXPECT_EQ(Message(answers[i].status), "no host for layer 2");
      EXPECT_EQ(answers[i].tokens.size(), 3u);
    }
  }
}

TEST(FailedRowsTest, EndASequenceWhosePromptGoesOn) {
  const std::string path = GoldenModel("glm4_moe-air");
  PipelineOptions options = Options(path, 2, 1);
  options.stage.placement = Place(path, {{0, 7, R"("a")"}});
  AllHosts hosts(path, options.stage.placement);
  options.stage.expert_transport = &hosts;
  auto pipeline = Pipeline::Load(options);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  hosts.fails = [](const RoutedRows& routed, int32_t row) {
    return routed.step.step_id.value() == 0 && row == 2;
  };
  std::vector<Ask> asks = Asks(path);
  std::sort(asks.begin(), asks.end(), [](const Ask& a, const Ask& b) {
    return a.prompt.size() > b.prompt.size();
  });
  asks.resize(1);
  asks[0].prompt_logits = false;  // the first chunk wants no logits at all
  ASSERT_GT(asks[0].prompt.size(), 4u);
  const auto answers = (*pipeline)->Generate(asks, {4, 1});
  EXPECT_EQ(answers[0].status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(answers[0].tokens.empty());
}

}  // namespace
}  // namespace sluice::testing
