// Steps that begin before the one before is done: on a device that overlaps
// them, the same answers.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/tools/measure/stage_steps.h"
#include "tests/device/cuda/device_backends.h"
#include "tests/model/ahead_steps.h"
#include "tests/model/expect_same.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

PipelineOptions OptionsOf(const std::string& path, Numerics numerics) {
  PipelineOptions options = AheadOptions(path);
  options.stage.make_backends = DeviceBackends(Turns::kForward, numerics);
  return options;
}

class CudaAheadTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    SLUICE_REQUIRE_DEVICE();
    const std::string path = GoldenModel(GetParam());
    path_ = path;
  }
  std::unique_ptr<Pipeline> Load(Numerics numerics) {
    auto pipeline = Pipeline::Load(OptionsOf(path_, numerics));
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    return *std::move(pipeline);
  }

  std::string path_;
};

TEST_P(CudaAheadTest, TokensThatAreStillDrawnAreThoseOfOneStepAtATime) {
  for (const Numerics numerics : {Numerics::kCanonical, Numerics::kFast}) {
    const auto asks = AsksOf(path_);
    const auto pipeline = Load(numerics);
    const auto want = pipeline->Generate(asks);
    EXPECT_EQ(pipeline->loop(0).Stats().steps_ahead, 0u);
    const auto got = pipeline->GenerateAhead(asks);
    ExpectSame(got, want);
    EXPECT_EQ(got[2].tokens.size(), 3u);
    EXPECT_GE(pipeline->loop(0).Stats().steps_ahead, 4u);
  }
}

TEST_P(CudaAheadTest, LogitsOfTheHostWaitForTheirStep) {
  auto asks = AsksOf(path_);
  asks[0].sampling.return_logits = true;
  const auto pipeline = Load(Numerics::kCanonical);
  const auto want = pipeline->Generate(asks);
  const auto got = pipeline->GenerateAhead(asks);
  ExpectSame(got, want);
  EXPECT_EQ(got[0].logits, want[0].logits);
  EXPECT_EQ(pipeline->loop(0).Stats().steps_ahead, 0u);
}

TEST_P(CudaAheadTest, PenaltiesCountTheTokenThatTheStepBeforeDraws) {
  auto asks = AsksOf(path_);
  asks[1].sampling.repetition_penalty = 1.3f;
  asks[1].sampling.presence_penalty = 0.4f;
  const auto pipeline = Load(Numerics::kCanonical);
  const auto want = pipeline->Generate(asks);
  ExpectSame(pipeline->GenerateAhead(asks), want);
  EXPECT_EQ(pipeline->loop(0).Stats().steps_ahead, 0u);
}

TEST_P(CudaAheadTest, AStepWhoseTokenWasNotDrawnFailsAsTheOneBefore) {
  const auto asks = AsksOf(path_);
  PipelineOptions options = OptionsOf(path_, Numerics::kCanonical);
  options.stage.make_backends = Failing(DeviceBackends());
  const auto pipeline = Pipeline::Load(options);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  ExpectFirstFails(**pipeline, asks);
}

TEST_P(CudaAheadTest, AnEpochEndsWithStepsInFlight) {
  const auto asks = AsksOf(path_);
  const auto pipeline = Load(Numerics::kCanonical);
  const auto want = pipeline->GenerateAhead(asks);
  pipeline->Restart(Epoch(1));
  pipeline->GenerateAhead(asks, 2);
  pipeline->Restart(Epoch(2));
  ExpectSame(pipeline->GenerateAhead(asks), want);
}

// A step that goes ahead computes before its turn: its trace tells its turn.
TEST_P(CudaAheadTest, TracedStepsThatGoAheadFollowEachOther) {
  const auto stage = Stage::Load(OptionsOf(path_, Numerics::kCanonical).stage);
  ASSERT_TRUE(stage.ok()) << stage.status();
  ExpectTurns(**stage, AsksOf(path_)[1].sampling);
}

// What tests/gpu/run measures.
TEST_P(CudaAheadTest, MeasuredStepsGoAhead) {
  StageOptions options = OptionsOf(path_, Numerics::kCanonical).stage;
  const auto stage = Stage::Load(options);
  ASSERT_TRUE(stage.ok()) << stage.status();
  measure::StageSteps steps(stage->get(), 2, 16);
  steps.Step(4);
  EXPECT_EQ(steps.StepsAhead(3).size(), 3u);
  steps.Rewind(4);
  EXPECT_GT(steps.Step(1), 0);
}

INSTANTIATE_TEST_SUITE_P(, CudaAheadTest,
                         ::testing::Values("llama3-tied", "gpt_oss-mxfp4"),
                         [](const auto& tested) {
                           return std::string(tested.param, 5);
                         });

}  // namespace
}  // namespace sluice::testing
