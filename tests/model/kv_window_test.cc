// Layers with a window keep it and no more: contexts of many times the
// window, the memory that they take, and plans that get it wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/core/kv_groups.h"
#include "tests/device/apart_backend.h"
#include "tests/model/expect_same.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

// Windows of 16 in layers 0 and 2 of 4.
constexpr const char* kModel = "gpt_oss-mxfp4";
constexpr int32_t kWindow = 16;

StageOptions StageOf(const std::string& path) {
  StageOptions options;
  options.model_path = path;
  options.threads = 1;
  options.kv_blocks = 128;
  options.max_context = 1024;
  return options;
}

std::unique_ptr<Pipeline> LoadOrDie(const std::string& path, int32_t stages,
                                    int32_t ranks,
                                    Device device = Device::kCpu) {
  PipelineOptions options;
  options.stage = StageOf(path);
  options.stage.make_backends = FactoryOf(device);
  options.stage.ranks = ranks;
  options.stages = stages;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  return pipeline.ok() ? *std::move(pipeline) : nullptr;
}

Ask AskOf(int length, int max_tokens, uint64_t seed) {
  Ask ask;
  for (int i = 0; i < length; ++i) {
    ask.prompt.push_back(static_cast<TokenId>(4 + (i * i + 3 * i) % 250));
  }
  ask.max_tokens = max_tokens;
  ask.sampling.seed = seed;
  ask.sampling.temperature = seed % 2 == 0 ? 0.0f : 0.9f;
  ask.sampling.logprobs = 3;
  return ask;
}

TEST(KvWindowTest, GivingBackWhatIsBehindTheWindowChangesNoBit) {
  const std::string path = GoldenModel(kModel);
  const std::vector<Ask> asks = {AskOf(500, 40, 1), AskOf(333, 50, 2),
                                 AskOf(17, 90, 3)};
  auto one = LoadOrDie(path, 1, 1);
  ASSERT_NE(one, nullptr);
  // Alone, in one chunk as far as it goes, everything kept.
  const auto kept = one->Generate(asks, {512, 1, /*gives_back=*/false});
  ASSERT_EQ(kept[0].tokens.size(), 40u);
  for (const Drive& drive :
       {Drive{512, 1}, Drive{64, 3}, Drive{16, 3}, Drive{7, 2}}) {
    if (OnlyRepresentative()) continue;  // of one thread
    ExpectSame(one->Generate(asks, drive), kept);
  }
  for (const auto& [stages, ranks, device] : {std::tuple{2, 2, Device::kCpu},
                                              {3, 1, Device::kCpu},
                                              {4, 1, Device::kCpu},
                                              {2, 2, Device::kApart}}) {
    if (OnlyRepresentative() && ranks == 1) continue;  // a thread a stage
    auto cut = LoadOrDie(path, stages, ranks, device);
    ASSERT_NE(cut, nullptr);
    ExpectSame(cut->Generate(asks, {48, 3}), kept);
  }
}

// The memory bound, as a stage sees it.
TEST(KvWindowTest, AWindowAndAStepOfBlocksIsAllThatWindowedLayersHold) {
  if (OnlyRepresentative()) GTEST_SKIP() << "nothing here has a second thread";
  const std::string path = GoldenModel(kModel);
  constexpr int32_t kChunk = 32;
  for (const int length : {100, 400, 900}) {
    auto pipeline = LoadOrDie(path, 1, 1);
    ASSERT_NE(pipeline, nullptr);
    const auto answers =
        pipeline->Generate({AskOf(length, 60, 2)}, {kChunk, 1});
    ASSERT_TRUE(answers[0].status.ok()) << answers[0].status;
    const int32_t positions = length + 60 - 1;
    const int32_t used = pipeline->loop(0).Stats().kv_blocks_peak;
    EXPECT_LE(used,
              BlocksFor(positions) + MostBlocks(kWindow, positions, kChunk));
    EXPECT_GE(used, BlocksFor(positions) + BlocksFor(kWindow));
  }
}

TEST(KvWindowTest, OneBlockTakesTheMemoryOfTheGroupWithTheMostLayers) {
  const std::string path = GoldenModel(kModel);
  // 128 blocks of 16 tokens, 2 kv heads of 16, keys and values, F32.
  constexpr uint64_t kLayer = 128u * 16 * 2 * 16 * 2 * 4;
  const std::pair<std::pair<int, int>, uint64_t> cases[] = {
      {{0, 4}, 2}, {{0, 1}, 1}, {{1, 3}, 1}, {{0, 3}, 2}, {{1, 2}, 1}};
  for (const auto& [layers, slabs] : cases) {
    StageOptions options = StageOf(path);
    options.first_layer = layers.first;
    options.last_layer = layers.second;
    const auto stage = Stage::Load(options);
    ASSERT_TRUE(stage.ok()) << stage.status();
    EXPECT_EQ((*stage)->info().kv_bytes, slabs * kLayer);
    EXPECT_EQ((*stage)->info().limits.num_kv_groups, 2);
    EXPECT_EQ((*stage)->info().limits.kv_windows,
              (std::vector<int32_t>{0, kWindow}));
  }
}

TEST(KvWindowTest, ChosenBlocksHoldEverySequenceWithItsWindow) {
  const std::string path = GoldenModel(kModel);
  StageOptions options = StageOf(path);
  options.kv_blocks = 0;
  options.max_sequences = 3;
  options.max_step_tokens = 64;
  const auto stage = Stage::Load(options);
  ASSERT_TRUE(stage.ok()) << stage.status();
  // 64 for the full layers; the windowed ones' step and window: 79 positions.
  EXPECT_EQ((*stage)->info().limits.num_blocks, 3 * (64 + 6));
}

std::vector<BlockId> Blocks(int first, int count) {
  std::vector<BlockId> blocks;
  for (int i = 0; i < count; ++i) blocks.emplace_back(first + i);
  return blocks;
}

// Starts sequence 1 on hits of its first 64 positions, and goes on.
StepPlan StartOnHits(std::vector<std::vector<BlockId>> hits,
                     std::vector<std::vector<BlockId>> more) {
  const Ask ask = AskOf(70, 1, 2);
  StepPlan plan;
  plan.started.push_back(
      {SequenceId(1), ask.sampling, 70, ask.prompt, std::move(hits)});
  Chunk chunk;
  chunk.sequence = SequenceId(1);
  chunk.start = 64;
  chunk.tokens.assign(ask.prompt.begin() + 64, ask.prompt.end());
  chunk.logits = LogitsWanted::kLast;
  chunk.samples = true;
  chunk.new_blocks = std::move(more);
  plan.chunks.push_back(std::move(chunk));
  return plan;
}

Status RunOn(const std::string& path, StepPlan plan) {
  auto pipeline = LoadOrDie(path, 1, 1);
  return pipeline->Run(std::move(plan)).status();
}

TEST(KvWindowTest, AHitBringsTheLastBlocksOfAWindowedGroup) {
  const std::string path = GoldenModel(kModel);
  // The next query, at 64, sees 49 and what follows.
  const Status one = RunOn(path, StartOnHits({Blocks(0, 4), Blocks(10, 1)},
                                             {Blocks(4, 1), Blocks(20, 1)}));
  EXPECT_TRUE(one.ok()) << one;
  const Status all = RunOn(path, StartOnHits({Blocks(0, 4), Blocks(10, 4)},
                                             {Blocks(4, 1), Blocks(20, 1)}));
  EXPECT_TRUE(all.ok()) << all;
  const Status none = RunOn(
      path, StartOnHits({Blocks(0, 4), {}}, {Blocks(4, 1), Blocks(20, 1)}));
  EXPECT_THAT(Message(none), HasSubstr("sequence 1 starts with 0 blocks in KV "
                                       "group 1, 4 are covered, of which 3 may "
                                       "be missing"));
  const Status more =
      RunOn(path, StartOnHits({Blocks(0, 4), Blocks(10, 5)}, {Blocks(4, 1)}));
  EXPECT_THAT(Message(more), HasSubstr("starts with 5 blocks in KV group 1"));
}

TEST(KvWindowTest, ABlockInTwoGroupsIsRefused) {
  const std::string path = GoldenModel(kModel);
  const Status status = RunOn(path, StartOnHits({Blocks(0, 4), Blocks(10, 1)},
                                                {Blocks(4, 1), Blocks(2, 1)}));
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status),
              HasSubstr("sequence 1 names block 2 in KV group 1, which a "
                        "sequence has in KV group 0"));
}

}  // namespace
}  // namespace sluice::testing
