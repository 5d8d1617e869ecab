// Loops that look for the next step before they sleep.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tests/stage/stage_loop_fixture.h"
#include "tests/testing/golden_model.h"

namespace sluice {
namespace {

using StageSpinTest = StageLoopTest;

TEST(UsualSpinTest, IsOfGpusWithTwoCpusForEachRank) {
  const Duration some = std::chrono::milliseconds(5);
  EXPECT_EQ(UsualSpin(/*on_gpus=*/true, /*ranks=*/1, /*cpus=*/2), some);
  EXPECT_EQ(UsualSpin(true, 4, 8), some);
  EXPECT_EQ(UsualSpin(true, 1, 1), Duration::zero());
  EXPECT_EQ(UsualSpin(true, 4, 7), Duration::zero());
  EXPECT_EQ(UsualSpin(false, 1, 64), Duration::zero());
}

TEST_F(StageSpinTest, AStageOnACpuSleepsAtOnce) {
  EXPECT_EQ(stage_->spin(), Duration::zero());
}

// The spin would outlast the test.
TEST_F(StageSpinTest, ALoopThatLooksForStepsTakesThemAndStops) {
  const std::string path = testing::GoldenModel("stories");
  const TokenId token = RunFirst();
  spin_ = std::chrono::hours(1);
  Load(path, 0);
  EXPECT_EQ(RunFirst(), token);
  // The second step waits for the first, out of order.
  ASSERT_TRUE(Push(AheadPlan(4, 1), 2).ok());
  ASSERT_TRUE(Push(NextPlan(3, token), 1).ok());
  EXPECT_EQ(sink_.AwaitStep().plan.step_id, StepId(1));
  EXPECT_EQ(sink_.AwaitStep().plan.step_id, StepId(2));
  loop_->Reset(Epoch(1));
  ASSERT_TRUE(Push(FirstPlan(), 0, 1).ok());
  EXPECT_EQ(sink_.AwaitStep().plan.epoch, Epoch(1));
  loop_->Stop();
}

TEST_F(StageSpinTest, AFirstStageThatLooksForStepsTakesTheLastOnesTokens) {
  const std::string path = testing::GoldenModel("stories");
  spin_ = std::chrono::hours(1);
  Load(path, 0, /*ranks=*/1, /*last_layer=*/2);
  RunFirstOfSeveral();
  ASSERT_TRUE(Push(AheadPlan(3, 0), 1).ok());
  StepResult sampled;
  sampled.sequences.emplace_back().sequence = SequenceId(1);
  sampled.sequences[0].sampled.emplace_back().token = 9;
  loop_->OnSampled(sampled);
  EXPECT_EQ(sink_.AwaitStep().plan.chunks[0].tokens, std::vector<TokenId>{9});
}

}  // namespace
}  // namespace sluice
