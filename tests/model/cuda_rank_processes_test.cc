// Whole models whose tensor-parallel ranks are of several processes, here
// threads with an emulated GPU for each of their ranks: the CPU's bits, and the
// lead's steps in every follower.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/stage/rank_follower.h"
#include "tests/device/cuda/emulated_gpus.h"
#include "tests/model/ahead_steps.h"
#include "tests/model/expect_same.h"
#include "tests/model/local_rank_link.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

// Stages of a pipeline, each of `processes` with `each` ranks, whose GPUs have
// `follower_memory` bytes where the process is a follower; 0: enough.
class RankProcesses {
 public:
  RankProcesses(PipelineOptions options, int32_t processes, int32_t each,
                const CommunicatorOptions& links,
                Numerics numerics = Numerics::kCanonical,
                uint64_t follower_memory = 0)
      : options_(std::move(options)) {
    options_.stage.ranks = options_.stage.threads = each;
    options_.stage.make_backends = RankedBackends(links, {}, numerics);
    followers_backends_ =
        follower_memory == 0
            ? options_.stage.make_backends
            : RankedBackends(links, {follower_memory}, numerics);
    options_.all_ranks = processes * each;
    for (int32_t s = 0; s < options_.stages; ++s) {
      auto& own = links_.emplace_back(
          std::make_unique<LocalRankLinks>(static_cast<size_t>(processes)));
      options_.rank_links.push_back(own->end(0));
    }
  }
  ~RankProcesses() {
    pipeline_.reset();
    for (std::thread& follower : followers_) follower.join();
  }

  Pipeline& Load(int32_t num_layers) {
    for (int32_t s = 0; s < options_.stages; ++s) {
      for (int32_t p = 1; p * options_.stage.ranks < options_.all_ranks; ++p) {
        StageOptions stage = options_.stage;
        stage.first_layer = num_layers * s / options_.stages;
        stage.last_layer = num_layers * (s + 1) / options_.stages;
        stage.first_rank = p * stage.ranks;
        stage.all_ranks = options_.all_ranks;
        stage.make_backends = followers_backends_;
        LocalRankLinks& links = *links_[static_cast<size_t>(s)];
        stage.rank_link = links.end(static_cast<size_t>(p));
        followers_.emplace_back([this, stage, &links, p] {
          auto follower = RankFollower::Load(stage);
          ASSERT_TRUE(follower.ok()) << follower.status();
          links.Follow(static_cast<size_t>(p), follower->get());
          links.AwaitDrop();
          const RankFollower* const own = follower->get();
          while (own->steps() != links.steps()) std::this_thread::yield();
          EXPECT_EQ(own->info().limits.num_blocks, kv_blocks_);
        });
      }
    }
    auto pipeline = Pipeline::Load(options_);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    pipeline_ = *std::move(pipeline);
    kv_blocks_ = pipeline_->stage(0).info().limits.num_blocks;
    return *pipeline_;
  }

 private:
  PipelineOptions options_;
  BackendFactory followers_backends_;
  std::vector<std::unique_ptr<LocalRankLinks>> links_;
  std::vector<std::thread> followers_;
  std::unique_ptr<Pipeline> pipeline_;
  int32_t kv_blocks_ = 0;
};

// A golden model, cut into stages of processes of ranks.
struct Cut {
  const char* name;
  int32_t stages;
  int32_t processes;
  int32_t each;
};

class RankProcessesTest : public ::testing::TestWithParam<Cut> {};

TEST_P(RankProcessesTest, AnswersAreTheCpusBits) {
  const Cut& cut = GetParam();
  const std::string path = GoldenModel(cut.name);
  std::vector<Ask> asks = AsksOf(path);
  for (Ask& ask : asks) ask.prompt.resize(5);
  PipelineOptions options = AheadOptions(path);
  options.stages = cut.stages;
  auto cpu = Pipeline::Load(options);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  const auto want = (*cpu)->Generate(asks, {3, 2});
  FakeNccl plan;
  CommunicatorOptions links;
  links.nccl = UseFakeNccl(&plan);
  {
    RankProcesses processes(options, cut.processes, cut.each, links);
    Pipeline& pipeline = processes.Load((*cpu)->stage(0).info().num_layers);
    const StageInfo& info = pipeline.stage(0).info();
    EXPECT_EQ(info.ranks, cut.processes * cut.each);
    EXPECT_GE(info.weights_bytes, (*cpu)->stage(0).info().weights_bytes);
    EXPECT_EQ(info.numerics, (*cpu)->stage(0).info().numerics);
    ExpectSame(pipeline.Generate(asks, {3, 2}), want);
    pipeline.Restart(Epoch(1));
    ExpectSame(cut.stages == 1
                   ? pipeline.GenerateAhead(asks)
                   : pipeline.GenerateInGroups(asks, {.in_rounds = true}),
               want);
    EXPECT_GE(pipeline.loop(0).Stats().steps_ahead, 3u);
    EXPECT_EQ(pipeline.stage(0).collective_times().size(),
              static_cast<size_t>(cut.each));
  }
  EXPECT_GT(plan.gathers, 0);
  EXPECT_EQ(plan.held, 0);
  EXPECT_EQ(plan.alive, 0);
}

INSTANTIATE_TEST_SUITE_P(, RankProcessesTest,
                         ::testing::Values(Cut{"llama3-tied", 1, 2, 1},
                                           Cut{"qwen3_moe", 1, 3, 1},
                                           Cut{"gpt_oss-mxfp4", 1, 2, 2},
                                           Cut{"glm4_moe-46", 2, 2, 1}),
                         [](const auto& cut) {
                           std::string name = cut.param.name;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

class RankNumericsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = GoldenModel("llama3-tied");
    options_ = AheadOptions(path);
    asks_ = AsksOf(path);
    for (Ask& ask : asks_) ask.prompt.resize(5);
    links_.nccl = UseFakeNccl(&plan_);
  }
  PipelineOptions options_;
  std::vector<Ask> asks_;
  FakeNccl plan_;
  CommunicatorOptions links_;
};

TEST_F(RankNumericsTest, FastNumericsAreThoseOfOneProcess) {
  links_.nccl_in_graphs = true;
  PipelineOptions alone = options_;
  alone.stage.make_backends = RankedBackends({}, {}, Numerics::kFast);
  auto one = Pipeline::Load(alone);
  ASSERT_TRUE(one.ok()) << one.status();
  const auto want = (*one)->Generate(asks_);
  RankProcesses processes(options_, 2, 1, links_, Numerics::kFast);
  Pipeline& pipeline = processes.Load((*one)->stage(0).info().num_layers);
  EXPECT_EQ(pipeline.stage(0).info().numerics,
            (*one)->stage(0).info().numerics);
  ExpectSame(pipeline.GenerateAhead(asks_), want);
}

TEST_F(RankNumericsTest, AllProcessesHaveTheLeastKvCache) {
  options_.stage.kv_blocks = options_.stage.max_context = 0;
  const uint64_t small = uint64_t{6} << 20;
  RankProcesses processes(options_, 2, 1, links_, Numerics::kCanonical, small);
  const int32_t blocks =
      processes.Load(/*num_layers=*/4).stage(0).info().limits.num_blocks;
  EXPECT_GE(blocks, 128);  // one whole sequence
  EXPECT_LT(blocks, 512);  // four, which the lead has room for
}

TEST(RankProcessOptionsTest, RanksThatOthersCannotHaveAreRefused) {
  const std::string path = GoldenModel("llama3-tied");
  LocalRankLinks links(2);
  StageOptions options = AheadOptions(path).stage;
  options.rank_link = links.end(0);
  const auto refusal = [&options] {
    return std::string(Stage::Load(options).status().message());
  };
  options.all_ranks = 17;
  EXPECT_THAT(refusal(), HasSubstr("all_ranks must be between 2 and 16"));
  options.all_ranks = 2;
  options.first_rank = 2;
  EXPECT_THAT(refusal(), HasSubstr("first_rank must be between 0 and 1"));
  options.first_rank = 0;
  EXPECT_THAT(refusal(), HasSubstr("need GPUs"));
  options.placement.hosts.emplace_back();
  EXPECT_THAT(refusal(), HasSubstr("a placement of experts goes with ranks of "
                                   "one process"));
}

}  // namespace
}  // namespace sluice::testing
