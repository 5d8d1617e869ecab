// Whole pipelines that start from packed weights on disk: the same bits over
// every cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/model/hosted_experts.h"
#include "common/model/packed_weights.h"
#include "tests/model/expect_same.h"
#include "tests/model/packed_files.h"
#include "tests/model/pipeline.h"
#include "tests/testing/captured_stderr.h"
#include "tests/testing/golden_model.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Starts of whole pipelines.
struct Started {
  std::vector<Answer> answers;
  std::string log;
};

Started Start(const std::string& model, const PackedOptions& packed,
              int32_t stages, int32_t ranks,
              WeightsMode weights = WeightsMode::kAuto) {
  CapturedStderr log;
  PipelineOptions options;
  options.stage.model_path = model;
  options.stage.packed = packed;
  options.stage.weights = weights;
  options.stage.progress = [](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
  };
  options.stage.packed.bounds.free_share = 0;
  options.stage.ranks = ranks;
  options.stage.threads = 1;
  options.stage.kv_blocks = 32;
  options.stages = stages;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  std::vector<Ask> asks;
  for (TokenId i = 0; i < 3; ++i) {
    Ask ask{{1 + i, 7, 3 * i, 11}, {}, 6};
    ask.sampling.seed = 5 + i;
    ask.sampling.temperature = i == 0 ? 0.0f : 0.9f;
    ask.sampling.logprobs = 3;
    ask.sampling.prompt_logprobs = 2;
    asks.push_back(ask);
  }
  auto answers = (*pipeline)->Generate(asks);
  return {std::move(answers), log.Text()};
}

class PackedModelTest : public ::testing::TestWithParam<const char*> {};

TEST_P(PackedModelTest, KeptWeightsGiveTheBitsOfThoseJustPackedOverEveryCut) {
  const std::string path = GoldenModel(GetParam());
  const TempDir dir;
  const auto uncut = Start(path, {}, 1, 1).answers;
  for (const auto& [stages, ranks] : {std::pair{1, 1}, {2, 2}}) {
    for (const auto memory :
         {weights::PackedMemory::kCopy, weights::PackedMemory::kMap}) {
      SCOPED_TRACE(Cat(stages, " stages, ", ranks, " ranks"));
      Start(path, {dir.path(), memory}, stages, ranks);
      const Started started = Start(path, {dir.path(), memory}, stages, ranks);
      ExpectSame(started.answers, uncut);
      EXPECT_THAT(started.log, HasSubstr("this start wrote 0"));
      EXPECT_THAT(started.log, Not(ContainsRegex("wrote [1-9]")));
    }
  }
}

TEST_P(PackedModelTest, StagesOfOtherCutsReadTheSameFiles) {
  const std::string path = GoldenModel(GetParam());
  const TempDir dir;
  const auto whole = Start(path, {dir.path()}, 1, 1).answers;
  const auto files = FilesIn(dir.path());
  // A tied head is the embedding's file.
  ExpectSame(Start(path, {dir.path()}, 2, 1).answers, whole);
  EXPECT_EQ(FilesIn(dir.path()), files);
}

// A model, what its weights become, and how many ranks share them.
struct CutCase {
  const char* model;
  WeightsMode weights = WeightsMode::kAuto;
  int32_t ranks = 2;
};

class PackedCutsTest : public ::testing::TestWithParam<CutCase> {};

TEST_P(PackedCutsTest, RanksCopyTheirPartsOutOfTheFilesOfWholeLayers) {
  const auto& [model, weights, ranks] = GetParam();
  const std::string path = GoldenModel(model);
  const TempDir dir;
  const auto whole = Start(path, {dir.path()}, 1, 1, weights).answers;
  const auto files = FilesIn(dir.path());
  const Started cut = Start(path, {dir.path()}, 2, ranks, weights);
  ExpectSame(cut.answers, whole);
  EXPECT_THAT(cut.log, Not(ContainsRegex("wrote [1-9]")));
  EXPECT_EQ(FilesIn(dir.path()), files);
  // Ranks that come first write what a rank alone then reads.
  const TempDir other;
  ExpectSame(Start(path, {other.path()}, 1, ranks, weights).answers, whole);
  const Started alone = Start(path, {other.path()}, 1, 1, weights);
  ExpectSame(alone.answers, whole);
  EXPECT_THAT(alone.log, Not(ContainsRegex("wrote [1-9]")));
  EXPECT_EQ(FilesIn(other.path()).size(), files.size());
}

TEST(PackedRanksTest, MakeDamagedFilesOfWholeLayersAnew) {
  const std::string path = GoldenModel("glm4_moe-air");
  const TempDir dir;
  const auto whole = Start(path, {dir.path()}, 1, 2).answers;
  const auto files = FilesIn(dir.path());
  for (const auto& file : files) {
    std::filesystem::permissions(file, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-1, std::ios::end);
    bytes.put('\x5a');
  }
  const Started again = Start(path, {dir.path()}, 1, 2);
  ExpectSame(again.answers, whole);
  EXPECT_THAT(again.log, HasSubstr("it is made anew"));
  EXPECT_EQ(FilesIn(dir.path()), files);
  const Started last = Start(path, {dir.path()}, 1, 2);
  ExpectSame(last.answers, whole);
  EXPECT_THAT(last.log, Not(ContainsRegex("wrote [1-9]")));
}

// Heads, halves of an MLP, latent rows of heads, transposed keys, groups of
// states, gates, runs of experts, tied and fused tensors.
INSTANTIATE_TEST_SUITE_P(
    Goldens, PackedCutsTest,
    ::testing::Values(
        CutCase{"llama3-tied"}, CutCase{"llama3-tied", WeightsMode::kQ8_0},
        CutCase{"stories", WeightsMode::kQ8_0},
        CutCase{"stories", WeightsMode::kAuto, 3}, CutCase{"gpt_oss-mxfp4"},
        CutCase{"glm4_moe-air"}, CutCase{"glm4_moe-air", WeightsMode::kQ8_0},
        CutCase{"deepseek_v3"}, CutCase{"deepseek_v3", WeightsMode::kQ8_0},
        CutCase{"qwen3_next"}, CutCase{"qwen3_next", WeightsMode::kQ8_0},
        CutCase{"phi3"}, CutCase{"falcon_h1"}),
    [](const auto& tested) {
      std::string name =
          Cat(tested.param.model, "_", ToString(tested.param.weights), "_",
              tested.param.ranks);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

INSTANTIATE_TEST_SUITE_P(Goldens, PackedModelTest,
                         ::testing::Values("llama2-bf16-sharded", "llama3-tied",
                                           "glm4_moe-air", "gpt_oss-mxfp4"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(PackedExpertsTest, AHostReadsTheExpertsThatItPackedBefore) {
  const std::string path = GoldenModel("gpt_oss-mxfp4");
  const TempDir dir;
  HostedExpertsOptions options;
  options.model_path = path;
  options.threads = 1;
  options.held = {{1, {{0, 2}, {3, 4}}}, {2, {{1, 2}}}};
  std::vector<float> sums[3];
  uint64_t read[3] = {};
  for (int start = 0; start < 3; ++start) {
    options.packed.where = start == 0 ? "off" : dir.path();
    options.packed.bounds.free_share = 0;
    const auto hosted = HostedExperts::Load(options);
    ASSERT_TRUE(hosted.ok()) << hosted.status();
    read[start] = (*hosted)->info().bytes_read;
    const int64_t cols = (*hosted)->info().hidden_size;
    std::vector<float> x(static_cast<size_t>(cols), 0.25f);
    int32_t ids[] = {0, 3};
    float shares[] = {0.75f, 0.25f};
    const kernels::TreeNode nodes[] = {{0, 2}, {3, 4}};
    sums[start].resize(static_cast<size_t>(2 * cols));
    const kernels::Matrix parts[] = {
        {sums[start].data(), 1, cols, cols},
        {sums[start].data() + cols, 1, cols, cols}};
    (*hosted)->Run({1, {x.data(), 1, cols, cols}, {ids, shares, 2}}, nodes,
                   parts);
  }
  EXPECT_EQ(sums[1], sums[0]);
  EXPECT_EQ(sums[2], sums[0]);
  EXPECT_EQ(read[1], read[0]);
  EXPECT_LT(read[2], read[0]);
  EXPECT_EQ(FilesIn(dir.path()).size(), 3u);
}

}  // namespace
}  // namespace sluice::testing
