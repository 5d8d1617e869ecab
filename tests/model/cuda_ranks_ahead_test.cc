// Steps that begin before the one before is done, on several emulated GPUs that
// NCCL connects: the same answers.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/end_process.h"
#include "tests/device/cuda/emulated_gpus.h"
#include "tests/model/ahead_steps.h"
#include "tests/model/expect_same.h"
#include "tests/model/pipeline.h"
#include "tests/testing/golden_model.h"

namespace sluice::testing {
namespace {

class RanksAheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = GoldenModel("llama3-tied");
    path_ = path;
    links_.link = "nccl";
    links_.nccl_in_graphs = true;
    links_.nccl = UseFakeNccl(&plan_);
  }
  PipelineOptions OptionsOf(Numerics numerics = Numerics::kCanonical) {
    PipelineOptions options = AheadOptions(path_);
    options.stage.ranks = options.stage.threads = ranks_;
    options.stage.make_backends = RankedBackends(links_, {}, numerics);
    return options;
  }
  std::unique_ptr<Pipeline> Load(const PipelineOptions& options) {
    auto pipeline = Pipeline::Load(options);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    return *std::move(pipeline);
  }

  // With short prompts: an emulated device takes its time.
  std::vector<Ask> Asks() const {
    std::vector<Ask> asks = AsksOf(path_);
    for (Ask& ask : asks) ask.prompt.resize(3);
    return asks;
  }

  std::string path_;
  int32_t ranks_ = 2;
  FakeNccl plan_;
  CommunicatorOptions links_;
};

TEST_F(RanksAheadTest, TokensThatAreStillDrawnAreThoseOfOneStepAtATime) {
  const std::string three = GoldenModel("gpt_oss-mxfp4");
  for (const Numerics numerics : {Numerics::kCanonical, Numerics::kFast}) {
    const auto asks = Asks();
    const auto pipeline = Load(OptionsOf(numerics));
    const auto want = pipeline->Generate(asks);
    EXPECT_EQ(pipeline->loop(0).Stats().steps_ahead, 0u);
    ExpectSame(pipeline->GenerateAhead(asks), want);
    EXPECT_GE(pipeline->loop(0).Stats().steps_ahead, 4u);
    EXPECT_EQ(pipeline->stage(0).collective_times().size(),
              static_cast<size_t>(ranks_));
    PipelineOptions alone = OptionsOf(numerics);
    alone.stage.ranks = 1;
    ExpectSame(Load(alone)->GenerateAhead(asks), want);
    path_ = three;
    ranks_ = 3;
  }
  EXPECT_EQ(plan_.held, 0);
}

TEST_F(RanksAheadTest, StagesOfSeveralRanksGoAhead) {
  const auto asks = Asks();
  PipelineOptions options = OptionsOf();
  const auto want = Load(options)->Generate(asks);
  options.stages = 2;
  const auto pipeline = Load(options);
  ExpectSame(
      pipeline->GenerateInGroups(asks, {.prefill_chunk = 2, .in_rounds = true}),
      want);
  for (int i = 0; i < options.stages; ++i) {
    EXPECT_GE(pipeline->loop(i).Stats().steps_ahead, 8u) << i;
    EXPECT_EQ(pipeline->stage(i).collective_times().size(), 2u);
  }
  pipeline->Restart(Epoch(1));
  pipeline->GenerateInGroups(asks, {.results = 3});
  pipeline->Restart(Epoch(2));
  ExpectSame(pipeline->GenerateInGroups(asks, {}), want);
}

// Shapes come first while a step is in flight, and ranks meet meanwhile.
TEST_F(RanksAheadTest, AStepOfANewShapeGoesAhead) {
  const auto asks = Asks();
  const auto pipeline = Load(OptionsOf());
  const auto got = pipeline->GenerateAhead(asks);
  EXPECT_GE(pipeline->loop(0).Stats().steps_ahead, 4u);
  pipeline->Restart(Epoch(1));
  ExpectSame(got, pipeline->Generate(asks));
}

TEST_F(RanksAheadTest, PenaltiesCountTheTokenThatTheStepBeforeDraws) {
  auto asks = Asks();
  asks[0].sampling.return_logits = true;
  asks[1].sampling.repetition_penalty = 1.3f;
  const auto pipeline = Load(OptionsOf());
  const auto want = pipeline->Generate(asks);
  const auto got = pipeline->GenerateAhead(asks);
  ExpectSame(got, want);
  EXPECT_EQ(got[0].logits, want[0].logits);
  EXPECT_EQ(pipeline->loop(0).Stats().steps_ahead, 0u);
}

TEST_F(RanksAheadTest, AStepWhoseTokenWasNotDrawnFailsAsTheOneBefore) {
  PipelineOptions options = OptionsOf();
  options.stage.make_backends = Failing(options.stage.make_backends);
  ExpectFirstFails(*Load(options), Asks());
}

TEST_F(RanksAheadTest, AnEpochEndsWithStepsInFlight) {
  const auto asks = Asks();
  const auto pipeline = Load(OptionsOf());
  const auto want = pipeline->GenerateAhead(asks);
  pipeline->Restart(Epoch(1));
  pipeline->GenerateAhead(asks, 2);
  pipeline->Restart(Epoch(2));
  ExpectSame(pipeline->GenerateAhead(asks), want);
  pipeline->Restart(Epoch(3));
  pipeline->GenerateAhead(asks, 3);  // the stage ends what is in flight
}

TEST_F(RanksAheadTest, TracedStepsThatGoAheadFollowEachOther) {
  const auto stage = Stage::Load(OptionsOf().stage);
  ASSERT_TRUE(stage.ok()) << stage.status();
  ExpectTurns(**stage, Asks()[1].sampling);
}

TEST_F(RanksAheadTest, RanksThatWaitForDevicesTakeOneStepAtATime) {
  const auto asks = Asks();
  for (const std::string link : {"staged", "peer"}) {
    links_.link = link;
    const auto pipeline = Load(OptionsOf());
    ExpectSame(pipeline->GenerateAhead(asks), pipeline->Generate(asks));
    EXPECT_EQ(pipeline->loop(0).Stats().steps_ahead, 0u) << link;
  }
}

TEST_F(RanksAheadTest, ARankThatStandsStillInAStepAheadEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  links_.limits.deadline = std::chrono::seconds(4);
  links_.limits.look_every = std::chrono::milliseconds(20);
  EXPECT_EXIT(
      {
        const auto pipeline = Load(OptionsOf());
        pipeline->GenerateAhead(Asks());
        pipeline->Restart(Epoch(1));
        std::fputs("answers\n", stderr);
        plan_.late_rank = 1;
        pipeline->GenerateAhead(Asks());
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(kToBeReplaced),
      "answers(.|\n)*rank [01] of 2 has waited(.|\n)*rank [01] is aborted");
}

}  // namespace
}  // namespace sluice::testing
