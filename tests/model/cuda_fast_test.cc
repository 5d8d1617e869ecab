// Whole models in fast numerics: device code on matrix units, on the machine
// that stands for a GPU or on one. Close to the reference, with its tokens, and
// one hash however requests, ranks and stages are cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "tests/device/cuda/device_backends.h"
#include "tests/model/expect_same.h"
#include "tests/model/golden_file.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

using kernels::WeightType;

// Weights in F32 have no tiles, so they are rounded to BF16.
struct FastModel {
  const char* name;
  int32_t ranks = 2;
  WeightType kv_type = WeightType::kF32;  // of OneHash
  WeightsMode weights = WeightsMode::kBf16;
  double most_error = 0.02;  // of logits: root of mean squares, as a share
  bool has_ties = false;     // of experts at a position of the prompt
};

std::ostream& operator<<(std::ostream& out, const FastModel& model) {
  return out << model.name;
}

PipelineOptions FastOptions(const FastModel& model, const std::string& path) {
  PipelineOptions options;
  options.stage.model_path = path;
  options.stage.threads = 1;
  options.stage.weights = model.weights;
  options.stage.kv_blocks = 64;
  options.stage.max_context = 512;
  options.stage.max_step_tokens = 64;
  options.stage.max_sequences = 4;
  options.stage.make_backends =
      DeviceBackends(Turns::kForward, Numerics::kFast);
  return options;
}

Ask Greedy(std::vector<TokenId> prompt, int32_t max_tokens) {
  Ask ask;
  ask.prompt = std::move(prompt);
  ask.max_tokens = max_tokens;
  ask.sampling.temperature = 0;
  ask.sampling.logprobs = 3;
  return ask;
}

std::vector<Answer> FastAnswersOf(const PipelineOptions& options,
                                  const std::vector<Ask>& asks,
                                  const Drive& drive) {
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  return (*pipeline)->Generate(asks, drive);
}

int64_t Largest(const float* logits, int64_t vocab) {
  return std::max_element(logits, logits + vocab) - logits;
}

// Between the two largest.
float MarginOf(std::vector<float> logits) {
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(),
                   std::greater<>());
  return logits[0] - logits[1];
}

class CudaFastModelTest : public ::testing::TestWithParam<FastModel> {};

TEST_P(CudaFastModelTest, LogitsAreCloseToTheReferenceAndTokensAreItsOwn) {
  SLUICE_REQUIRE_DEVICE();
  const std::string path = GoldenModel(GetParam().name);
  const GoldenPrompt golden = ReadGolden(path)[1];
  const auto positions = static_cast<int64_t>(golden.ids.size());
  const int64_t vocab = golden.vocab_size;
  const int64_t first = golden.first_position * vocab;
  Ask ask = Greedy(golden.ids, 8);
  ask.prompt_logits = true;
  ask.sampling.prompt_logprobs = 1;
  ask.sampling.return_logits = true;
  const auto answers =
      FastAnswersOf(FastOptions(GetParam(), path), {ask}, {16, 2});
  ASSERT_EQ(answers.size(), 1u);
  ASSERT_TRUE(answers[0].status.ok()) << answers[0].status;
  const std::vector<float>& logits = answers[0].logits;
  ASSERT_GE(std::ssize(logits), positions * vocab);
  double most = 0;
  std::vector<double> errors;  // of each position, relative
  for (int64_t t = golden.first_position; t < positions; ++t) {
    double error_squares = 0;
    double squares = 0;
    for (int64_t i = 0; i < vocab; ++i) {
      const double want = golden.last_logits[t * vocab - first + i];
      const double error = std::abs(double{logits[t * vocab + i]} - want);
      most = std::max(most, error);
      error_squares += error * error;
      squares += want * want;
    }
    EXPECT_GT(error_squares, 0);
    errors.push_back(std::sqrt(error_squares / squares));
  }
  // Half of it is the weights' rounding to BF16. Where a router's experts are
  // nearly tied, another expert may be taken: at a position in four.
  std::sort(errors.begin(), errors.end());
  const size_t may_flip = GetParam().has_ties ? 1 : 0;
  EXPECT_LT(errors[errors.size() - 1 - may_flip], GetParam().most_error);
  for (int64_t t = golden.first_position; t < positions; ++t) {
    const float* const row = golden.last_logits.data() + t * vocab - first;
    if (MarginOf({row, row + vocab}) < 2 * most) continue;
    EXPECT_EQ(Largest(logits.data() + t * vocab, vocab), Largest(row, vocab))
        << "position " << t;
  }
  // Its tokens, but where two logits are as near as the error is large.
  int agreed = 0;
  for (; agreed < 8; ++agreed) {
    const float* const row = logits.data() + (positions - 1 + agreed) * vocab;
    ASSERT_LE((positions + agreed) * vocab, std::ssize(logits));
    if (answers[0].ids()[agreed] == golden.greedy_ids[agreed]) continue;
    EXPECT_LT(MarginOf({row, row + vocab}), (may_flip > 0 ? 4 : 2) * most)
        << "token " << agreed;
    break;
  }
  RecordProperty("tokens", agreed);
  RecordProperty("rms_error", std::to_string(errors.back()));
  RecordProperty("largest_error", std::to_string(most));
}

// Batches, chunks, virtual ranks, stages, and a sequence that is computed again
// from its tokens.
TEST_P(CudaFastModelTest, OneHashHoweverItIsCut) {
  SLUICE_REQUIRE_DEVICE();
  const std::string path = GoldenModel(GetParam().name);
  const auto goldens = ReadGolden(path);
  std::vector<Ask> asks = {Greedy(goldens[1].ids, 3)};
  asks.push_back(
      Greedy({goldens[2].ids.begin(), goldens[2].ids.begin() + 18}, 3));
  asks[1].sampling.temperature = 0.9f;
  asks[1].sampling.seed = 77;
  PipelineOptions options = FastOptions(GetParam(), path);
  options.stage.kv_type = GetParam().kv_type;
  const auto want = FastAnswersOf(options, asks, {});
  ASSERT_EQ(want.size(), 2u);
  ExpectSame(FastAnswersOf(options, asks, {5, 2}), want);
  options.stage.ranks = options.stage.threads = GetParam().ranks;
  options.stages = 2;
  ExpectSame(FastAnswersOf(options, asks, {16, 1}), want);
  Ask again = asks[1];
  for (int i = 0; i < 2; ++i) again.prompt.push_back(want[1].ids()[i]);
  again.max_tokens = 1;
  options.stage.make_backends =
      DeviceBackends(Turns::kBackward, Numerics::kFast);
  const auto replayed = FastAnswersOf(options, {again}, {11, 1});
  ASSERT_EQ(replayed.size(), 1u);
  EXPECT_EQ(replayed[0].tokens,
            std::vector<TokenResult>(want[1].tokens.begin() + 2,
                                     want[1].tokens.end()));
}

TEST(CudaFastNumericsTest, StagesOfOtherNumericsHaveOtherIds) {
  SLUICE_REQUIRE_DEVICE();
  const std::string path = GoldenModel("gpt_oss-mxfp4");
  FastModel model = {"gpt_oss-mxfp4"};
  model.weights = WeightsMode::kAuto;
  PipelineOptions options = FastOptions(model, path);
  const auto numerics = [&] {
    auto pipeline = Pipeline::Load(options);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    return pipeline.ok() ? (*pipeline)->stage(0).info().numerics : "";
  };
  EXPECT_THAT(numerics(), ::testing::MatchesRegex("cuda-fast-[a-z0-9_]+-5"));
  options.stage.make_backends = DeviceBackends();
  EXPECT_EQ(numerics(), "f32-canonical-3+q8-canonical-1");
}

INSTANTIATE_TEST_SUITE_P(
    , CudaFastModelTest,
    ::testing::Values(FastModel{"llama3-tied"},
                      FastModel{"llama2-bf16-sharded", 4}, FastModel{"glm4"},
                      FastModel{"qwen3", 2, WeightType::kBf16},
                      FastModel{"qwen3_moe"},
                      FastModel{"glm4_moe-air", 2, WeightType::kBf16},
                      FastModel{"glm4_moe-46", 4, WeightType::kQ8_0},
                      FastModel{"gpt_oss", 2, WeightType::kF32,
                                WeightsMode::kBf16, 0.15, true},
                      FastModel{"gpt_oss-mxfp4", 2, WeightType::kBf16,
                                WeightsMode::kAuto, 0.05, true}),
    [](const auto& tested) {
      std::string name = tested.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace sluice::testing
