// Whole models over several emulated GPUs, a tensor-parallel rank on each: the
// CPU's bits however they are connected, and keys and values by the smallest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/end_process.h"
#include "common/device/cuda/make_cuda_ranks.h"
#include "common/model/hosted_experts.h"
#include "kernels/cuda/runtime/runtime.h"
#include "tests/cuda_machine/open_machine.h"
#include "tests/device/cuda/emulated_gpus.h"
#include "tests/model/expect_same.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

// A golden model over GPUs that are connected by a link.
struct Ranked {
  const char* name;
  const char* link;
  int32_t ranks;
  int32_t processes = 1;
};

PipelineOptions OptionsOf(const std::string& path, int32_t ranks) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.ranks = ranks;
  options.stage.threads = ranks;
  options.stage.kv_blocks = 64;
  options.stage.max_context = 512;
  options.stage.max_step_tokens = 64;
  options.stage.max_sequences = 4;
  return options;
}

// Greedy with all prompt logits, a drawn one beside it.
std::vector<Answer> AnswersOf(const PipelineOptions& options,
                              const std::vector<GoldenPrompt>& goldens) {
  Ask greedy;
  greedy.prompt = goldens[1].ids;
  greedy.max_tokens = 2;
  greedy.prompt_logits = true;
  greedy.sampling.temperature = 0;
  greedy.sampling.return_logits = true;
  Ask drawn;
  drawn.prompt.assign(goldens[2].ids.begin(), goldens[2].ids.begin() + 9);
  drawn.max_tokens = 2;
  drawn.sampling.temperature = 0.9f;
  drawn.sampling.seed = 5;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  return (*pipeline)->Generate({greedy, drawn}, {16, 2});
}

class RankedModelTest : public ::testing::TestWithParam<Ranked> {};

TEST_P(RankedModelTest, AnswersAreTheCpusBits) {
  const Ranked& tested = GetParam();
  const std::string path = GoldenModel(tested.name);
  const auto goldens = ReadGolden(path);
  PipelineOptions options = OptionsOf(path, tested.ranks);
  const auto cpu = AnswersOf(options, goldens);
  FakeNccl plan;
  CommunicatorOptions links;
  links.link = tested.link;
  links.nccl = UseFakeNccl(&plan);
  options.stage.make_backends =
      BackendsOfProcesses(RankedBackends(links), tested.processes);
  const auto gpus = AnswersOf(options, goldens);
  ExpectSame(gpus, cpu);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].logits, cpu[0].logits);
  EXPECT_FALSE(gpus[0].logits.empty());
  EXPECT_EQ(plan.gathers > 0, std::string(tested.link) == "nccl");
  EXPECT_EQ(plan.held, 0);
}

INSTANTIATE_TEST_SUITE_P(
    , RankedModelTest,
    ::testing::Values(
        Ranked{"llama3-tied", "nccl", 2}, Ranked{"qwen3_moe", "nccl", 3},
        Ranked{"glm4_moe-46", "nccl", 4}, Ranked{"gpt_oss-mxfp4", "nccl", 2},
        Ranked{"llama3-tied", "nccl", 2, 2}, Ranked{"qwen3_moe", "nccl", 3, 3},
        Ranked{"glm4_moe-46", "nccl", 4, 2}, Ranked{"qwen3_moe", "staged", 2},
        Ranked{"llama3-tied", "peer", 2}),
    [](const auto& tested) {
      std::string name = std::string(tested.param.name) + "_" +
                         tested.param.link + std::to_string(tested.param.ranks);
      if (tested.param.processes > 1) {
        name += "_of" + std::to_string(tested.param.processes);
      }
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

TEST(DecodeGraphTest, StepsOfABatchSizeReplayWhatIsInFixedBuffers) {
  const std::string path = GoldenModel("qwen3_moe");
  const auto goldens = ReadGolden(path);
  for (const bool fast : {false, true}) {
    PipelineOptions options = OptionsOf(path, 1);
    kernels::cuda::Runtime* device = nullptr;
    options.stage.make_backends = [&](const BackendOptions& backends) {
      auto gpus = EmulatedGpus(1);
      device = gpus[0].get();
      return MakeCudaRanks(std::move(gpus), backends.kv_type, fast);
    };
    Ask greedy;
    greedy.prompt = goldens[1].ids;
    greedy.max_tokens = 12;
    greedy.sampling.temperature = 0;
    auto pipeline = Pipeline::Load(options);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    // Prompts at once, then steps of two sequences.
    const auto answers = (*pipeline)->Generate({greedy, greedy});
    const kernels::cuda::GraphCounts first = device->graph_counts();
    EXPECT_GT(first.captured, 0u);
    // Of eleven steps the first is launched and the second captured.
    EXPECT_EQ(first.replayed, 9 * first.captured) << fast;
    const auto again = (*pipeline)->Generate({greedy, greedy});
    EXPECT_EQ(device->graph_counts().captured, first.captured);
    ExpectSame(again, answers);
    if (fast) continue;
    options.stage.make_backends = MakeBackends;
    auto cpu = Pipeline::Load(options);
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    ExpectSame(answers, (*cpu)->Generate({greedy, greedy}));
  }
}

// Decodes over GPUs that NCCL connects.
class RankedDecodeTest : public ::testing::Test {
 protected:
  // Backends of so many ranks over `devices_`.
  void SetUp() override {
    const std::string path = GoldenModel("qwen3_moe");
    options_ = OptionsOf(path, 2);
    greedy_.prompt = ReadGolden(path)[1].ids;
    greedy_.max_tokens = 12;
    greedy_.sampling.temperature = 0;
    links_.link = "nccl";
    links_.nccl = UseFakeNccl(&plan_);
    links_.nccl_in_graphs = true;
    devices_.resize(2);
    options_.stage.make_backends = [this](const BackendOptions& backends) {
      CommunicatorOptions links = links_;
      links.first_rank = backends.first_rank;
      links.all_ranks = backends.all_ranks;
      links.share_id = backends.share_id;
      auto gpus = EmulatedGpus(backends.ranks);
      auto to = devices_.begin() + links.first_rank;
      for (const auto& gpu : gpus) *to++ = gpu.get();
      return MakeCudaRanks(std::move(gpus), backends.kv_type, fast_, links);
    };
  }

  FakeNccl plan_;
  CommunicatorOptions links_;
  PipelineOptions options_;
  Ask greedy_;
  bool fast_ = false;
  std::vector<kernels::cuda::Runtime*> devices_;
};

TEST_F(RankedDecodeTest, StepsReplayTheirGathersAndNoRankMeetsAnother) {
  for (const bool fast : {false, true}) {
    fast_ = fast;
    auto pipeline = Pipeline::Load(options_);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    const auto answers = (*pipeline)->Generate({greedy_, greedy_});
    // Of eleven steps ranks meet in the first; the second is launched, the
    // third captured.
    for (auto* device : devices_) {
      const kernels::cuda::GraphCounts& counts = device->graph_counts();
      EXPECT_GT(counts.captured, 0u);
      EXPECT_EQ(counts.replayed, 8 * counts.captured);
    }
    for (const CollectiveTimes& times :
         (*pipeline)->stage(0).collective_times()) {
      EXPECT_FALSE(times.measured);
      EXPECT_EQ(times.wait_ns, 0);
    }
    // Prompts of known lengths, and graphs: NCCL is called for prompts alone.
    const int gathers = plan_.gathers;
    ExpectSame((*pipeline)->Generate({greedy_, greedy_}), answers);
    const int prompt_gathers = plan_.gathers - gathers;
    greedy_.max_tokens = 1;
    (*pipeline)->Generate({greedy_, greedy_});
    EXPECT_EQ(plan_.gathers, gathers + 2 * prompt_gathers);
    greedy_.max_tokens = 12;
    pipeline->reset();
    EXPECT_EQ(plan_.held, 0);
    if (fast) continue;
    PipelineOptions cpu = options_;
    cpu.stage.make_backends = MakeBackends;
    auto want = Pipeline::Load(cpu);
    ASSERT_TRUE(want.ok()) << want.status();
    ExpectSame(answers, (*want)->Generate({greedy_, greedy_}));
  }
}

// What processes tell each other of a step is in none of its graphs.
TEST_F(RankedDecodeTest, StepsOfProcessesReplayTheirGathers) {
  auto in_one = Pipeline::Load(options_);
  ASSERT_TRUE(in_one.ok()) << in_one.status();
  const auto want = (*in_one)->Generate({greedy_, greedy_});
  std::vector<kernels::cuda::GraphCounts> counts;
  for (auto* device : devices_) counts.push_back(device->graph_counts());
  const int first = plan_.gathers;
  ExpectSame((*in_one)->Generate({greedy_, greedy_}), want);
  const int second = plan_.gathers - first;
  in_one->reset();
  plan_.gathers = 0;
  options_.stage.make_backends =
      BackendsOfProcesses(options_.stage.make_backends, 2);
  auto pipeline = Pipeline::Load(options_);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  ExpectSame((*pipeline)->Generate({greedy_, greedy_}), want);
  for (size_t r = 0; r < 2; ++r) {
    const kernels::cuda::GraphCounts& own = devices_[r]->graph_counts();
    EXPECT_GT(own.replayed, 0u);
    EXPECT_EQ(own.started, counts[r].started);
    EXPECT_EQ(own.captured, counts[r].captured);
    EXPECT_EQ(own.replayed, counts[r].replayed);
  }
  EXPECT_GT(plan_.gathers, first);  // and tellings
  const int told = plan_.gathers;
  ExpectSame((*pipeline)->Generate({greedy_, greedy_}), want);
  EXPECT_EQ(plan_.gathers, told + second);  // without any
  for (const CollectiveTimes& times :
       (*pipeline)->stage(0).collective_times()) {
    EXPECT_EQ(times.wait_ns, 0);
  }
  pipeline->reset();
  EXPECT_EQ(plan_.held, 0);
}

TEST_F(RankedDecodeTest, GathersStandBetweenGraphsUnlessTheyAreAskedFor) {
  links_.nccl_in_graphs = false;
  auto pipeline = Pipeline::Load(options_);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  const auto answers = (*pipeline)->Generate({greedy_, greedy_});
  for (auto* device : devices_) {
    EXPECT_GT(device->graph_counts().captured, 4u);
  }
  for (const CollectiveTimes& times :
       (*pipeline)->stage(0).collective_times()) {
    EXPECT_TRUE(times.measured);
    EXPECT_GT(times.reduce_ns, 0);
    EXPECT_GT(times.gather_ns, 0);
    EXPECT_EQ(times.wait_ns, 0);
  }
  const int gathers = plan_.gathers;
  ExpectSame((*pipeline)->Generate({greedy_, greedy_}), answers);
  EXPECT_EQ(plan_.gathers, 2 * gathers);
}

// Of steps that overlap, too.
TEST_F(RankedDecodeTest, TimesInCollectivesAreThoseOfTheLink) {
  constexpr int64_t kLink = 2'000'000;
  links_.nccl_in_graphs = false;
  auto pipeline = Pipeline::Load(options_);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  (*pipeline)->GenerateAhead({greedy_});
  plan_.link_ms = kLink / 1'000'000;
  const int before = plan_.gathers;
  greedy_.max_tokens = 4;
  (*pipeline)->GenerateAhead({greedy_});
  // Of a prompt, and of three tokens, by two ranks.
  const int64_t each = (plan_.gathers - before) / (4 * 2);
  EXPECT_GT(each, 1);
  const auto& ranks = (*pipeline)->stage(0).collective_times();
  const int64_t least = std::min(ranks[0].all_ns(), ranks[1].all_ns());
  for (const CollectiveTimes& times : ranks) {
    EXPECT_EQ(times.device_wait_ns, times.all_ns() - least);
    EXPECT_TRUE(times.measured);
    EXPECT_GE(times.reduce_ns, (each - 1) * kLink);
    EXPECT_GE(times.gather_ns, kLink);
    EXPECT_EQ(times.wait_ns, 0);
  }
}

TEST_F(RankedDecodeTest, StepsThatGoAheadAreReplayedToo) {
  auto pipeline = Pipeline::Load(options_);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  (*pipeline)->GenerateAhead({greedy_, greedy_});
  EXPECT_GE((*pipeline)->loop(0).Stats().steps_ahead, 8u);
  for (auto* device : devices_) {
    const kernels::cuda::GraphCounts& counts = device->graph_counts();
    EXPECT_GT(counts.captured, 0u);
    EXPECT_EQ(counts.replayed, 8 * counts.captured);
  }
}

// The longest sequence goes beyond 256 positions: attention needs more memory.
TEST_F(RankedDecodeTest, RanksMeetWhereMoreChunksNeedMemory) {
  Ask longer = greedy_;
  longer.prompt.resize(250, longer.prompt[0]);
  options_.stage.max_step_tokens = 512;
  auto pipeline = Pipeline::Load(options_);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  const auto answers = (*pipeline)->Generate({greedy_, longer});
  // Of eleven steps the first six have one chunk, and the others two: one in
  // which ranks meet, one that is launched, one that is captured.
  for (auto* device : devices_) {
    const kernels::cuda::GraphCounts& counts = device->graph_counts();
    EXPECT_GT(counts.captured, 0u);
    EXPECT_EQ(2 * counts.replayed, (3 + 2) * counts.captured);
  }
  PipelineOptions cpu = options_;
  cpu.stage.make_backends = MakeBackends;
  auto want = Pipeline::Load(cpu);
  ASSERT_TRUE(want.ok()) << want.status();
  ExpectSame(answers, (*want)->Generate({greedy_, longer}));
}

TEST_F(RankedDecodeTest, ARankThatDoesNotComeToAGraphsGatherEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  links_.limits.deadline = std::chrono::seconds(4);
  links_.limits.look_every = std::chrono::milliseconds(20);
  EXPECT_EXIT(
      {
        auto pipeline = *Pipeline::Load(options_);
        pipeline->Generate({greedy_});
        std::fputs("answers\n", stderr);
        plan_.late_rank = 1;
        pipeline->Generate({greedy_});
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(kToBeReplaced),
      "answers(.|\n)*rank [01] of 2 has waited(.|\n)*rank [01] is aborted");
}

StatusOr<StageInfo> InfoOn(const StageOptions& options,
                           const std::vector<uint64_t>& memory) {
  StageOptions tested = options;
  tested.make_backends = RankedBackends({.link = "staged"}, memory);
  SLUICE_ASSIGN_OR_RETURN(const auto stage, Stage::Load(tested));
  return stage->info();
}

TEST(UnequalGpusTest, TheSmallestSaysHowManyKeysAndValuesThereAre) {
  const std::string path = GoldenModel("qwen3_moe");
  StageOptions options = OptionsOf(path, 2).stage;
  options.kv_blocks = 0;
  options.max_sequences = 256;
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const auto equal = InfoOn(options, {8 * kMiB, 8 * kMiB});
  ASSERT_TRUE(equal.ok()) << equal.status();
  for (const std::vector<uint64_t>& memory :
       {std::vector<uint64_t>{8 * kMiB, 64 * kMiB}, {64 * kMiB, 8 * kMiB}}) {
    const auto info = InfoOn(options, memory);
    ASSERT_TRUE(info.ok()) << info.status();
    // Rank 0 has the embedding beside its share.
    EXPECT_GE(info->limits.num_blocks, equal->limits.num_blocks);
    EXPECT_LE(info->kv_bytes, 2 * 8 * kMiB);
    EXPECT_LE(info->room.memory, 2 * 8 * kMiB);
  }
  const auto large = InfoOn(options, {64 * kMiB, 64 * kMiB});
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_GT(large->limits.num_blocks, 2 * equal->limits.num_blocks);
}

// Another stage loads to the same GPU at the same time.
TEST(SharedGpuTest, KeysAndValuesTakeWhatIsLeftWhenTheWeightsAreThere) {
  const std::string path = GoldenModel("qwen3_moe");
  constexpr uint64_t kMemory = uint64_t{16} << 20;
  std::atomic<uint64_t> others{0};
  StageOptions options = OptionsOf(path, 1).stage;
  options.kv_blocks = 0;
  options.max_sequences = 256;
  options.make_backends = [&](const BackendOptions& backends) {
    std::vector<std::unique_ptr<kernels::cuda::Runtime>> gpus;
    gpus.push_back(
        kernels::cuda::OpenMachine({.memory = kMemory, .others = &others}));
    return MakeCudaRanks(std::move(gpus), backends.kv_type, false);
  };
  const auto alone = Stage::Load(options);
  ASSERT_TRUE(alone.ok()) << alone.status();
  const StageInfo& all = (*alone)->info();
  EXPECT_GT(all.kv_bytes, kMemory / 2);
  others = 0;
  options.progress = [&](uint64_t, uint64_t) { others = kMemory / 2; };
  {
    const auto beside = Stage::Load(options);
    ASSERT_TRUE(beside.ok()) << beside.status();
    const StageInfo& info = (*beside)->info();
    EXPECT_LT(info.limits.num_blocks, all.limits.num_blocks);
    EXPECT_LE(info.kv_bytes + info.weights_bytes, kMemory / 2);
    EXPECT_GT(info.kv_bytes, 0u);
  }
  others = 0;
  options.kv_blocks = all.limits.num_blocks;
  const Status keys = Stage::Load(options).status();
  EXPECT_EQ(keys.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(keys), HasSubstr("a KV cache of "));
}

TEST(UnequalGpusTest, AGpuThatIsTooSmallIsNamed) {
  const std::string path = GoldenModel("qwen3_moe");
  StageOptions options = OptionsOf(path, 2).stage;
  constexpr uint64_t kLarge = uint64_t{64} << 20;
  const Status weights = InfoOn(options, {kLarge, 20000}).status();
  EXPECT_EQ(weights.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(weights),
              HasSubstr("GPU 1 (a block as fibres, GPU-1): its weights take"));
  options.kv_blocks = 1 << 20;
  const Status keys = InfoOn(options, {kLarge, kLarge / 2}).status();
  EXPECT_EQ(keys.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(keys), HasSubstr("GPU 1 (a block as fibres, GPU-1): a KV "
                                       "cache of 1048576 blocks"));
}

TEST(UnequalGpusTest, AGpuThatIsTooSmallForExpertsIsNamed) {
  const std::string path = GoldenModel("gpt_oss-mxfp4");
  HostedExpertsOptions options;
  options.model_path = path;
  options.threads = 1;
  options.held = {{1, {{0, 8}}}};
  options.make_backends = RankedBackends({}, {20000});
  const Status status = HostedExperts::Load(options).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status),
              HasSubstr("GPU 0 (a block as fibres, GPU-0): the experts take"));
  options.make_backends = RankedBackends({});
  const auto loaded = HostedExperts::Load(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->info().gpu, "GPU-0");
}

}  // namespace
}  // namespace sluice::testing
