// The engine's loop while a lost pipeline is built anew.
#include <gtest/gtest.h>

#include <thread>

#include "common/engine/engine_loop.h"
#include "tests/engine/engine_fixture.h"

namespace sluice {
namespace {

using EngineRecoveryTest = EngineLoopTest;

EngineOptions Recovering(Duration timeout = std::chrono::seconds(60)) {
  EngineOptions options;
  options.recovery_timeout = timeout;
  return options;
}

TEST_F(EngineRecoveryTest, ALostPipelineIsAPause) {
  Run(Recovering());
  const GenerateRequest running = TestRequest(10, 300);
  const GenerateRequest queued = TestRequest(20, 30, 2);
  const auto one = Submit(running);
  one->WaitForTokens(2);
  pipeline_->Pause();
  loop_->OnPipelineLost(Unavailable("stage 1 is gone"));
  const auto two = Submit(queued);  // taken while no pipeline is up
  EXPECT_FALSE(loop_->Progress().pipeline_up);
  EXPECT_TRUE(loop_->Progress().recovering);
  loop_->OnPipelineLost(Unavailable("stage 0 is gone too"));
  EXPECT_TRUE(loop_->Progress().recovering);
  loop_->OnPipelineUp(Epoch(2), limits_, 2);
  pipeline_->Resume();  // the old epoch's results come now
  EXPECT_EQ(one->WaitForEnd().reason, FinishReason::kLength);
  EXPECT_EQ(one->tokens(), Undisturbed(running, 50).tokens);
  EXPECT_EQ(one->suspensions(), 1);
  EXPECT_EQ(two->WaitForEnd().reason, FinishReason::kLength);
  EXPECT_EQ(two->tokens(), Undisturbed(queued, 50).tokens);
  EXPECT_TRUE(loop_->WaitIdle(Never()));
  EXPECT_EQ(loop_->Stats().recoveries, 1u);
}

TEST_F(EngineRecoveryTest, WhatIsNotRecoveredInTimeEnds) {
  Run(Recovering(std::chrono::milliseconds(20)));
  const auto sink = Submit(TestRequest(10, 900));
  sink->WaitForTokens(1);
  pipeline_->Pause();
  loop_->OnPipelineLost(Unavailable("stage 1 is gone"));
  const FinalEvent end = sink->WaitForEnd();
  EXPECT_EQ(end.status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(Message(end.status),
            "not recovered within 0.02 s: the pipeline is lost: stage 1 is "
            "gone");
  EXPECT_EQ(Message(SubmitError(TestRequest(5, 5))), "no pipeline is up");
  loop_->OnPipelineUp(Epoch(2), limits_, 2);
  pipeline_->Resume();
  EXPECT_EQ(Submit(TestRequest(5, 5))->WaitForEnd().reason,
            FinishReason::kLength);
}

TEST_F(EngineRecoveryTest, WhatAnotherGatewayTakesOverEndsAtOnce) {
  Run(Recovering());
  const auto running = Submit(TestRequest(10, 900));
  running->WaitForTokens(1);
  pipeline_->Pause();
  loop_->OnPipelineLost(Unavailable("stage 0 is held"));
  const auto waiting = Submit(TestRequest(5, 5));
  loop_->OnSuperseded(Unavailable("another gateway leads"));
  for (const auto& sink : {running, waiting}) {
    EXPECT_EQ(Message(sink->WaitForEnd().status), "another gateway leads");
  }
  EXPECT_FALSE(loop_->Progress().recovering);
  EXPECT_EQ(Message(SubmitError(TestRequest(5, 5))), "no pipeline is up");
  loop_->OnPipelineUp(Epoch(2), limits_, 2);
  pipeline_->Resume();
  EXPECT_EQ(Submit(TestRequest(5, 5))->WaitForEnd().reason,
            FinishReason::kLength);
}

TEST_F(EngineRecoveryTest, AResultThatAnswersNoPlanIsALostPipeline) {
  Run(Recovering());
  pipeline_->set_tamper([](StepResult& r) { r.step_id = StepId(1000); });
  const GenerateRequest request = TestRequest(10, 20);
  const auto sink = Submit(request);
  EXPECT_EQ(pipeline_->WaitForBroken().code(), StatusCode::kInternal);
  pipeline_->set_tamper(nullptr);
  loop_->OnPipelineUp(Epoch(2), limits_, 2);
  EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kLength);
  EXPECT_EQ(sink->tokens(), Undisturbed(request, 50).tokens);
}

TEST_F(EngineRecoveryTest, APipelineThatWillGoHoldsNewRequests) {
  Run(Recovering());
  const auto running = Submit(TestRequest(10, 200));
  running->WaitForTokens(1);
  EXPECT_FALSE(loop_->rests());
  loop_->OnPipelineLeaving(Unavailable("stage 1 is draining"));
  const GenerateRequest request = TestRequest(5, 5, 2);
  const auto held = Submit(request);
  EXPECT_EQ(running->WaitForEnd().reason, FinishReason::kLength);
  const TimePoint deadline = Never();
  while (!loop_->rests() && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(loop_->rests());
  EXPECT_FALSE(held->ended());
  loop_->OnPipelineLost(Unavailable("stage 1 is gone"));
  loop_->OnPipelineUp(Epoch(2), limits_, 2);
  EXPECT_EQ(held->WaitForEnd().reason, FinishReason::kLength);
  EXPECT_EQ(held->tokens(), Undisturbed(request, 50).tokens);
}

}  // namespace
}  // namespace sluice
