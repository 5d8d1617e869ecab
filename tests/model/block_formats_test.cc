// Models of quantised weights: every format has one hash over every cut, and
// answers close to those of the same weights as F32.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/device/cpu/cpu_options.h"
#include "tests/device/apart_backend.h"
#include "tests/kernels/block_reference.h"
#include "tests/kernels/kernel_tester.h"
#include "tests/model/expect_same.h"
#include "tests/model/pipeline.h"
#include "tests/model/random_llama.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"
#include "tests/weights/model_files.h"

namespace sluice::testing {
namespace {

using kernels::BlockActivations;
using kernels::BlockFormat;

constexpr uint64_t kVocab = kRandomVocab;

struct BlockCut {
  int32_t stages = 1;
  int32_t ranks = 1;
  int32_t threads = 1;
  std::string isa = "auto";
  WeightsMode weights = WeightsMode::kAuto;
  Drive drive = {1 << 20, 1};
  Device device = Device::kCpu;
  std::string packed = "off";
  BlockActivations activations = BlockActivations::kEightBits;
};

std::vector<Ask> BlockAsks() {
  std::vector<Ask> asks;
  for (size_t i = 0; i < 5; ++i) {
    Ask ask;
    for (size_t t = 0; t < 1 + 11 * i; ++t) {
      ask.prompt.push_back(
          static_cast<TokenId>((i * 31 + t * t * 7 + t) % kVocab));
    }
    ask.max_tokens = static_cast<int32_t>(4 + i);
    ask.sampling.seed = 100 + i;
    ask.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    ask.sampling.logprobs = 3;
    ask.sampling.prompt_logprobs = 2;
    ask.prompt_logits = true;
    asks.push_back(ask);
  }
  return asks;
}

std::vector<Answer> AnswersOf(const std::string& path, const BlockCut& cut,
                              const std::vector<Ask>& asks) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.ranks = cut.ranks;
  options.stage.threads = cut.threads;
  options.stage.isa = cut.isa;
  options.stage.weights = cut.weights;
  options.stage.packed.where = cut.packed;
  options.stage.activations = cut.activations;
  options.stage.kv_blocks = 64;
  options.stage.max_step_tokens = 256;
  options.stage.make_backends = FactoryOf(cut.device);
  options.stages = cut.stages;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  return (*pipeline)->Generate(asks, cut.drive);
}

// Of the prompts' logits: the difference's length over that of `wide`.
double RelativeDifference(const std::vector<Answer>& blocks,
                          const std::vector<Answer>& wide) {
  double difference = 0;
  double length = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    // Tokens that are drawn may differ; the prompt's logits come first.
    const size_t count =
        std::min(blocks[i].logits.size(), wide[i].logits.size());
    EXPECT_GE(count, wide[i].prompt.size());
    for (size_t j = 0; j < count; ++j) {
      const double a = blocks[i].logits[j];
      const double b = wide[i].logits[j];
      difference += (a - b) * (a - b);
      length += b * b;
    }
  }
  return std::sqrt(difference / length);
}

// Every way to cut, with every instruction set of this CPU.
std::vector<BlockCut> Cuts() {
  const WeightsMode kAuto = WeightsMode::kAuto;
  std::vector<BlockCut> cuts = {
      {1, 1, 2, "auto", kAuto, {1 << 20, 5}},
      {2, 2, 1, "auto", kAuto, {7, 5}},
      {3, 1, 1, "auto", kAuto, {16, 2}},
      {1, 2, 1, "auto", kAuto, {33, 3}, Device::kApart},
  };
  if (OnlyQuick()) return {cuts[1]};
  for (const char* isa : {"avx512vnni", "avx512", "avxvnni", "avx2", "neoni8mm",
                          "neondot", "neon"}) {
    if (ParseIsa(isa).ok()) cuts.push_back({1, 1, 1, isa, kAuto, {20, 5}});
  }
  return cuts;
}

class BlockFormatsTest : public ::testing::TestWithParam<
                             std::pair<std::string, std::vector<BlockFormat>>> {
};

TEST_P(BlockFormatsTest, EveryCutHasTheBitsOfOneUncutRun) {
  const TempDir dir;
  const std::string path =
      dir.Write("model.gguf", RandomLlama(GetParam().second).Build());
  const auto asks = BlockAsks();
  const auto uncut =
      AnswersOf(path, {1, 1, 1, OnlyQuick() ? "auto" : "portable"}, asks);
  for (const BlockCut& cut : Cuts()) {
    SCOPED_TRACE(Cat(cut.stages, " stages, ", cut.ranks, " ranks, ",
                     cut.threads, " threads, ", cut.isa));
    ExpectSame(AnswersOf(path, cut, asks), uncut);
  }
  // Packed weights that one start writes and the next one reads.
  BlockCut kept = {1, 2, 1, "auto", WeightsMode::kAuto, {33, 3}};
  kept.packed = dir.path();
  ExpectSame(AnswersOf(path, kept, asks), uncut);
  ExpectSame(AnswersOf(path, kept, asks), uncut);
}

// Logits of the prompts: the difference's length over the length.
TEST_P(BlockFormatsTest, LogitsAreCloseToThoseOfTheSameWeightsInF32) {
  const TempDir dir;
  const std::string path =
      dir.Write("model.gguf", RandomLlama(GetParam().second).Build());
  auto asks = BlockAsks();
  for (Ask& ask : asks) {
    ask.sampling.return_logits = true;
    ask.max_tokens = 1;
  }
  const auto blocks = AnswersOf(path, {}, asks);
  const auto wide = AnswersOf(path, {1, 1, 1, "auto", WeightsMode::kF32}, asks);
  const double relative = RelativeDifference(blocks, wide);
  std::cout << GetParam().first << ": logits differ from F32's by " << relative
            << " of their length\n";
  EXPECT_GT(relative, 0.0);
  EXPECT_LT(relative, 0.1);
}

// Blocks that are widened as they are multiplied. The same weights widened at
// load may be cut into other shards, so their sums are joined in another tree.
TEST_P(BlockFormatsTest, WithF32ActivationsEveryCutIsAsCloseAsF32Weights) {
  const TempDir dir;
  const std::string path =
      dir.Write("model.gguf", RandomLlama(GetParam().second).Build());
  auto asks = BlockAsks();
  BlockCut whole = {1, 1, 1, OnlyQuick() ? "auto" : "portable"};
  whole.activations = BlockActivations::kF32;
  const auto uncut = AnswersOf(path, whole, asks);
  for (BlockCut cut : Cuts()) {
    SCOPED_TRACE(Cat(cut.stages, " stages, ", cut.ranks, " ranks, ",
                     cut.threads, " threads, ", cut.isa));
    cut.activations = BlockActivations::kF32;
    ExpectSame(AnswersOf(path, cut, asks), uncut);
  }
  for (Ask& ask : asks) {
    ask.sampling.return_logits = true;
    ask.max_tokens = 1;
  }
  const double relative = RelativeDifference(
      AnswersOf(path, whole, asks),
      AnswersOf(path, {1, 1, 1, "auto", WeightsMode::kF32}, asks));
  std::cout << GetParam().first << ": logits differ from F32's by " << relative
            << " of their length\n";
  EXPECT_LT(relative, 1e-5);
}

TEST(NotFiniteTest, ASequenceWithARowThatIsNoNumberFailsAlone) {
  const TempDir dir;
  const int damaged = 7;
  const std::vector<BlockFormat> formats = {BlockFormat::kQ8_0};
  const std::string whole =
      dir.Write("whole.gguf", RandomLlama(formats).Build());
  const std::string path =
      dir.Write("damaged.gguf", RandomLlama(formats, damaged).Build());
  std::vector<Ask> asks;
  for (TokenId i = 0; i < 4; ++i) {
    Ask ask;
    ask.prompt = {20, i == 2 ? damaged : 21 + i, 40};
    ask.sampling.temperature = 0;
    ask.sampling.logprobs = 2;
    ask.max_tokens = 1;
    asks.push_back(ask);
  }
  for (const BlockCut& cut :
       {BlockCut{1, 1, 1, "auto", WeightsMode::kAuto, {1 << 20, 4}},
        BlockCut{2, 2, 1, "auto", WeightsMode::kAuto, {2, 4}}}) {
    const auto expected = AnswersOf(whole, cut, asks);
    const auto answers = AnswersOf(path, cut, asks);
    for (size_t i = 0; i < asks.size(); ++i) {
      ASSERT_TRUE(expected[i].status.ok()) << expected[i].status;
      EXPECT_EQ(answers[i].status.ok(), i != 2) << answers[i].status;
      if (i == 2) continue;
      EXPECT_TRUE(answers[i].tokens == expected[i].tokens);
    }
  }
}

// A checkpoint without blocks, and what --weights makes of it.
using AtLoad = std::tuple<const char*, WeightsMode, double>;
class BlocksMadeAtLoadTest : public ::testing::TestWithParam<AtLoad> {};

TEST_P(BlocksMadeAtLoadTest, EveryCutHasTheSameBitsCloseToF32) {
  const auto& [name, mode, bound] = GetParam();
  const std::string path = GoldenModel(name);
  auto asks = BlockAsks();
  for (Ask& ask : asks) {
    ask.sampling.return_logits = true;
    ask.max_tokens = 1;
  }
  const auto uncut = AnswersOf(path, {1, 1, 1, "portable", mode}, asks);
  ExpectSame(AnswersOf(path, {2, 2, 1, "auto", mode, {7, 5}}, asks), uncut);
  ExpectSame(AnswersOf(path, {1, 1, 2, "auto", mode, {33, 3}}, asks), uncut);
  const auto wide = AnswersOf(path, {1, 1, 1, "auto", WeightsMode::kF32}, asks);
  const double relative = RelativeDifference(uncut, wide);
  std::cout << name << ", " << ToString(mode)
            << ": logits differ from F32's by " << relative
            << " of their length\n";
  EXPECT_GT(relative, 0.0);
  EXPECT_LT(relative, bound);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, BlocksMadeAtLoadTest,
    ::testing::Values(AtLoad{"llama3-tied", WeightsMode::kQ8_0, 0.1},
                      AtLoad{"qwen3_moe", WeightsMode::kQ4_0, 0.7},
                      AtLoad{"qwen3", WeightsMode::kQ5_1, 0.3},
                      AtLoad{"glm4", WeightsMode::kQ5_0, 0.3},
                      AtLoad{"glm4_moe-46", WeightsMode::kQ4_1, 0.7},
                      // Its experts are stored transposed.
                      AtLoad{"gpt_oss", WeightsMode::kQ8_0, 0.2}),
    [](const auto& tested) {
      std::string name = std::get<0>(tested.param);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

std::vector<std::pair<std::string, std::vector<BlockFormat>>> Models() {
  std::vector<std::pair<std::string, std::vector<BlockFormat>>> models;
  for (const BlockFormat format : kernels::AllBlockFormats()) {
    if (OnlyRepresentative() && format != BlockFormat::kQ8_0) continue;
    models.push_back({kernels::NameOf(format), {format}});
  }
  // Files mix formats, also within q, k and v, and gate and up.
  models.push_back({"Mixed",
                    {BlockFormat::kQ4K, BlockFormat::kQ6K, BlockFormat::kQ8_0,
                     BlockFormat::kQ5_0, BlockFormat::kIq4Xs}});
  return models;
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockFormatsTest,
                         ::testing::ValuesIn(Models()),
                         [](const auto& tested) { return tested.param.first; });

}  // namespace
}  // namespace sluice::testing
