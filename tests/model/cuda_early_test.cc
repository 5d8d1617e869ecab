// Decode steps, whose kernels begin before those ahead have ended, of shapes
// that the other models have in prompts alone: heads of 64 elements in
// canonical numerics, and more sequences than fast/products_few_tokens.h takes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/device/cuda/device_backends.h"
#include "tests/model/expect_same.h"
#include "tests/model/pipeline.h"
#include "tests/model/random_llama.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

using kernels::BlockFormat;
using kernels::WeightType;

PipelineOptions EarlyOptions(const std::string& path, WeightsMode weights) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.threads = 1;
  options.stage.weights = weights;
  options.stage.kv_blocks = 64;
  options.stage.max_context = 512;
  options.stage.max_step_tokens = 64;
  options.stage.max_sequences = 32;
  return options;
}

// Short prompts, each of other tokens, whose answers are drawn.
std::vector<Ask> ShortAsks(int32_t count) {
  std::vector<Ask> asks(static_cast<size_t>(count));
  for (size_t i = 0; i < asks.size(); ++i) {
    for (size_t t = 0; t < 2 + i % 3; ++t) {
      asks[i].prompt.push_back(
          static_cast<TokenId>((i * 31 + t * t * 7 + t) % kRandomVocab));
    }
    asks[i].max_tokens = 3;
    asks[i].sampling.seed = 100 + i;
    asks[i].sampling.temperature = 0.8f;
    asks[i].sampling.logprobs = 3;
  }
  return asks;
}

std::vector<Answer> EarlyAnswersOf(const PipelineOptions& options,
                                   const std::vector<Ask>& asks,
                                   const Drive& drive = {}) {
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  return (*pipeline)->Generate(asks, drive);
}

// `count` sequences at once are what half of them at once are.
void ExpectManyAsFew(PipelineOptions options, int32_t count) {
  options.stage.make_backends =
      DeviceBackends(Turns::kForward, Numerics::kFast);
  const auto asks = ShortAsks(count);
  Drive few;
  few.max_running = count / 2;
  ExpectSame(EarlyAnswersOf(options, asks), EarlyAnswersOf(options, asks, few));
}

TEST(CudaEarlyTest, CanonicalHeadsOf64HaveTheCpusBits) {
  SLUICE_REQUIRE_DEVICE();
  const TempDir dir;
  const std::string path =
      dir.Write("model.gguf",
                RandomLlama({BlockFormat::kQ8_0}, -1, /*layers=*/2).Build());
  PipelineOptions options = EarlyOptions(path, WeightsMode::kAuto);
  for (const int32_t count : {1, 3}) {
    const auto asks = ShortAsks(count);
    options.stage.make_backends = PipelineOptions().stage.make_backends;
    const auto want = EarlyAnswersOf(options, asks);
    options.stage.make_backends = DeviceBackends();
    ExpectSame(EarlyAnswersOf(options, asks), want);
  }
}

TEST(CudaEarlyTest, ManySequencesAreWhatFewAre) {
  SLUICE_REQUIRE_DEVICE();
  const TempDir dir;
  ExpectManyAsFew(
      EarlyOptions(
          dir.Write("model.gguf",
                    RandomLlama({BlockFormat::kQ8_0, BlockFormat::kQ4K}, -1,
                                /*layers=*/2)
                        .Build()),
          WeightsMode::kAuto),
      10);
}

// Two sequences rotate and store their heads within attention's launch, for
// five a GPU of two multiprocessors has launches of their own.
TEST(CudaEarlyTest, HeadsRotateWithinAttentionAsTheyDoBefore) {
  SLUICE_REQUIRE_DEVICE();
  const TempDir dir;
  PipelineOptions options = EarlyOptions(
      dir.Write("model.gguf",
                RandomLlama({BlockFormat::kQ8_0}, -1, /*layers=*/2).Build()),
      WeightsMode::kAuto);
  options.stage.make_backends =
      DeviceBackends(Turns::kForward, Numerics::kFast);
  const auto asks = ShortAsks(5);
  Drive few;
  few.max_running = 2;
  for (const WeightType type : {WeightType::kBf16, WeightType::kQ8_0}) {
    options.stage.kv_type = type;
    ExpectSame(EarlyAnswersOf(options, asks),
               EarlyAnswersOf(options, asks, few));
  }
}

TEST(CudaEarlyTest, ManySequencesThatShareExpertsAreWhatFewAre) {
  SLUICE_REQUIRE_DEVICE();
  const std::string path = GoldenModel("gpt_oss");
  // More than eight rows for each of eight experts, on average.
  ExpectManyAsFew(EarlyOptions(path, WeightsMode::kBf16), 17);
}

}  // namespace
}  // namespace sluice::testing
