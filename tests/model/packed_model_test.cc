// Whole pipelines that start from packed weights on disk: the same bits over
// every cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
              int32_t stages, int32_t ranks) {
  CapturedStderr log;
  PipelineOptions options;
  options.stage.model_path = model;
  options.stage.packed = packed;
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
    Start(path, {dir.path()}, stages, ranks);
    for (const auto memory :
         {weights::PackedMemory::kCopy, weights::PackedMemory::kMap}) {
      SCOPED_TRACE(Cat(stages, " stages, ", ranks, " ranks"));
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
