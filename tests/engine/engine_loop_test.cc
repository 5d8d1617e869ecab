// The engine's loop over a pipeline that answers from a thread of its own.
#include "common/engine/engine_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"
#include "tests/engine/engine_fixture.h"

namespace sluice {
namespace {

using std::chrono::seconds;

TEST_F(EngineLoopTest, ARequestGetsItsTokensAndOneEnd) {
  Run();
  const GenerateRequest request = TestRequest(30, 20);
  const auto sink = Submit(request);
  const FinalEvent end = sink->WaitForEnd();
  EXPECT_EQ(end.reason, FinishReason::kLength);
  EXPECT_EQ(sink->tokens(), Undisturbed(request, 50).tokens);
  EXPECT_EQ(end.stats.prompt_tokens, 30);
  EXPECT_EQ(end.stats.completion_tokens, 20);
  EXPECT_TRUE(loop_->WaitIdle(Never()));
  const EngineStats stats = loop_->Stats();
  EXPECT_EQ(stats.submitted, 1u);
  EXPECT_EQ(stats.finished_length, 1u);
  EXPECT_EQ(stats.generation_tokens, 20u);
  EXPECT_EQ(stats.blocks_used, 0);
  EXPECT_EQ(stats.blocks_total, 400);
}

TEST_F(EngineLoopTest, ManyThreadsSubmitAndCancelAndEverySinkEndsOnce) {
  EngineOptions options;
  options.max_running = 8;
  options.prefill_chunk = 16;
  Run(options, /*num_blocks=*/30);
  constexpr int kThreads = 3, kRequests = 60;
  std::atomic<int> accepted{0};
  {
    std::vector<NamedThread> clients;
    for (int c = 0; c < kThreads; ++c) {
      clients.emplace_back("client", [&, c] {
        for (int i = 0; i < kRequests; ++i) {
          const GenerateRequest request =
              TestRequest(1 + i, 1 + i % 30, uint64_t(c * kRequests + i));
          auto sink = std::make_shared<RecordingSink>();
          const auto id = loop_->Submit(request, sink);
          if (!id.ok()) {
            EXPECT_EQ(id.status().code(), StatusCode::kResourceExhausted);
            continue;
          }
          ++accepted;
          if (i % 4 == 0) loop_->Cancel(*id);
          if (i % 8 == 0) loop_->Cancel(*id);
          if (i % 2 == 1) continue;  // goes on while the next is submitted
          const FinalEvent end = sink->WaitForEnd();
          if (end.reason == FinishReason::kCancelled) continue;
          EXPECT_EQ(sink->tokens(), Undisturbed(request, 50).tokens);
        }
      });
    }
  }
  EXPECT_TRUE(loop_->WaitIdle(Never()));
  const EngineStats stats = loop_->Stats();
  EXPECT_EQ(stats.submitted, uint64_t(accepted));
  EXPECT_EQ(stats.finished_stop + stats.finished_length +
                stats.finished_cancelled + stats.finished_error,
            stats.submitted);
  EXPECT_EQ(stats.finished_error, 0u);
  EXPECT_EQ(stats.blocks_used, 0);
  EXPECT_GT(stats.split_prefills, 0u);
}

TEST_F(EngineLoopTest, ACancelEndsTheSequenceWhileAPlanIsInFlight) {
  Run();
  const auto sink = Submit(TestRequest(10, 900));
  sink->WaitForTokens(3);
  pipeline_->Pause();
  loop_->Cancel(last_id_);
  EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kCancelled);
  pipeline_->Resume();
  EXPECT_TRUE(loop_->WaitIdle(Never()));
  EXPECT_EQ(loop_->Stats().finished_cancelled, 1u);
}

TEST_F(EngineLoopTest, ASinkMayCancelAndSubmitFromWithin) {
  Run();
  const auto first = std::make_shared<RecordingSink>();
  const auto second = std::make_shared<RecordingSink>();
  std::atomic<uint64_t> id{0};
  Mutex mutex;
  CondVar known;
  first->set_on_first_token([&] {
    {
      MutexLock lock(mutex);
      while (id == 0) known.Wait(mutex);
    }
    EXPECT_TRUE(loop_->Submit(TestRequest(5, 5), second).ok());
    loop_->Cancel(SequenceId(id));
  });
  const auto submitted = loop_->Submit(TestRequest(10, 900), first);
  ASSERT_TRUE(submitted.ok());
  {
    MutexLock lock(mutex);
    id = submitted->value();
    known.NotifyAll();
  }
  EXPECT_EQ(first->WaitForEnd().reason, FinishReason::kCancelled);
  EXPECT_EQ(second->WaitForEnd().reason, FinishReason::kLength);
}

TEST_F(EngineLoopTest, CancellingWhatIsNotLiveDoesNothing) {
  Run();
  loop_->Cancel(SequenceId(12345));
  const auto sink = Submit(TestRequest(5, 5));
  EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kLength);
  loop_->Cancel(last_id_);
  EXPECT_TRUE(loop_->WaitIdle(Never()));
}

TEST_F(EngineLoopTest, AFullQueueRefusesAndTakesAgainWhenOneEnds) {
  EngineOptions options;
  options.max_running = 2;
  options.max_queue = 3;
  Run(options);
  pipeline_->Pause();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (uint64_t i = 0; i < 5; ++i)
    sinks.push_back(Submit(TestRequest(5, 5, i)));
  const Status status = SubmitError(TestRequest(5, 5));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(loop_->Stats().refused_queue_full, 1u);
  pipeline_->Resume();
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kLength);
  }
  EXPECT_EQ(Submit(TestRequest(5, 5))->WaitForEnd().reason,
            FinishReason::kLength);
}

TEST_F(EngineLoopTest, ALargeRequestIsNotRefusedForItsOwnMembers) {
  EngineOptions options;
  options.max_queue_wait = std::chrono::nanoseconds(1);
  Run(options);
  for (uint64_t i = 0; i < 2; ++i) {  // from here on rates are known
    EXPECT_EQ(Submit(TestRequest(20, 5, i))->WaitForEnd().reason,
              FinishReason::kLength);
  }
  ASSERT_TRUE(loop_->WaitIdle(Never()));
  ASSERT_GT(loop_->Stats().prompt_tokens_per_second, 0);
  pipeline_->Pause();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (uint64_t i = 0; i < 128; ++i) {
    GenerateRequest request = TestRequest(30, 3, i);
    request.request_id = "large";
    sinks.push_back(Submit(request));
  }
  EXPECT_EQ(SubmitError(TestRequest(5, 5)).code(),
            StatusCode::kResourceExhausted);
  pipeline_->Resume();
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kLength);
  }
}

TEST_F(EngineLoopTest, WhatCanNeverFitIsRefusedAtOnce) {
  Run({}, /*num_blocks=*/10);
  EXPECT_EQ(SubmitError(TestRequest(150, 20)).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(SubmitError(TestRequest(1000, 100)).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(SubmitError(TestRequest(0, 1)).code(),
            StatusCode::kInvalidArgument);
}

TEST_F(EngineLoopTest, WithoutAPipelineRequestsAreRefused) {
  ThreadedPipeline pipeline(limits_);
  EngineLoop loop({}, &pipeline);
  ASSERT_TRUE(loop.Start().ok());
  EXPECT_EQ(loop.Start().code(), StatusCode::kFailedPrecondition);
  const Status status =
      loop.Submit(TestRequest(5, 5), std::make_shared<RecordingSink>())
          .status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(Message(status), "no pipeline is up");
  EXPECT_FALSE(loop.Progress().pipeline_up);
  EXPECT_TRUE(loop.idle());
}

TEST_F(EngineLoopTest, OptionsOutOfRangeAreRefusedByName) {
  ThreadedPipeline pipeline(limits_);
  EngineOptions options;
  options.max_running = 0;
  EngineLoop loop(options, &pipeline);
  EXPECT_EQ(Message(loop.Start()), "max_running must be at least 1, got 0");
}

TEST_F(EngineLoopTest, ALostPipelineEndsAllAndTheNextOneServes) {
  Run();
  const auto one = Submit(TestRequest(10, 900));
  const auto two = Submit(TestRequest(100, 900));
  one->WaitForTokens(2);
  pipeline_->Pause();
  loop_->OnPipelineLost(Unavailable("stage 1 is gone"));
  for (const auto& sink : {one, two}) {
    const FinalEvent end = sink->WaitForEnd();
    EXPECT_EQ(end.reason, FinishReason::kError);
    EXPECT_EQ(end.status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(Message(end.status), "the pipeline is lost: stage 1 is gone");
  }
  EXPECT_EQ(SubmitError(TestRequest(5, 5)).code(), StatusCode::kUnavailable);
  EXPECT_FALSE(loop_->Progress().pipeline_up);
  loop_->OnPipelineUp(Epoch(2), limits_, 2);
  pipeline_->Resume();  // the old epoch's results come now
  const GenerateRequest request = TestRequest(10, 20);
  const auto after = Submit(request);
  EXPECT_EQ(after->WaitForEnd().reason, FinishReason::kLength);
  EXPECT_EQ(after->tokens(), Undisturbed(request, 50).tokens);
  EXPECT_TRUE(loop_->WaitIdle(Never()));
  EXPECT_EQ(loop_->Stats().finished_error, 2u);
}

TEST_F(EngineLoopTest, AResultThatAnswersNoPlanBreaksThePipeline) {
  Run();
  pipeline_->set_tamper([](StepResult& r) { r.step_id = StepId(1000); });
  const auto sink = Submit(TestRequest(10, 20));
  EXPECT_EQ(sink->WaitForEnd().status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(pipeline_->WaitForBroken().code(), StatusCode::kInternal);
  EXPECT_EQ(SubmitError(TestRequest(5, 5)).code(), StatusCode::kUnavailable);
  pipeline_->set_tamper(nullptr);
  loop_->OnPipelineUp(Epoch(2), limits_, 2);
  EXPECT_EQ(Submit(TestRequest(5, 5))->WaitForEnd().reason,
            FinishReason::kLength);
}

TEST_F(EngineLoopTest, AFloodOfResultsBreaksThePipelineNotTheProcess) {
  Run();
  pipeline_->Pause();
  const auto sink = Submit(TestRequest(10, 20));
  StepResult result;
  result.epoch = Epoch(1);
  result.step_id = StepId(77);
  for (int i = 0; i < 2000; ++i) loop_->OnStepResult(result);
  EXPECT_FALSE(pipeline_->WaitForBroken().ok());
  EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kError);
}

TEST_F(EngineLoopTest, ImpossibleLimitsAreReportedToTheExecutor) {
  Run();
  PlanLimits limits = limits_;
  limits.max_sequences = 0;
  loop_->OnPipelineUp(Epoch(2), limits, 1);
  EXPECT_EQ(Message(pipeline_->WaitForBroken()),
            "the pipeline's limits: max_sequences must be at least 1, got 0");
}

TEST_F(EngineLoopTest, ACacheThatHoldsNoSequenceIsReportedToTheExecutor) {
  Run();
  PlanLimits limits = limits_;
  limits.num_blocks = 1;
  limits.num_kv_groups = 2;
  limits.kv_windows = {0, 16};
  loop_->OnPipelineUp(Epoch(2), limits, 1);
  EXPECT_EQ(Message(pipeline_->WaitForBroken()),
            "the pipeline's limits: num_blocks must be at least one for each "
            "of 2 KV groups, got 1");
}

TEST_F(EngineLoopTest, ADeadlineEndsARequestThatWaits) {
  EngineOptions options;
  options.max_running = 1;
  Run(options);
  pipeline_->Pause();
  const auto running = Submit(TestRequest(10, 5));
  GenerateRequest request = TestRequest(10, 5, 2);
  request.deadline = Clock::now() + std::chrono::milliseconds(20);
  const auto waiting = Submit(request);
  EXPECT_EQ(waiting->WaitForEnd().status.code(), StatusCode::kDeadlineExceeded);
  pipeline_->Resume();
  EXPECT_EQ(running->WaitForEnd().reason, FinishReason::kLength);
}

TEST_F(EngineLoopTest, ADrainingEngineFinishesWhatItHasAndTakesNoMore) {
  Run();
  const auto sink = Submit(TestRequest(10, 200));
  loop_->BeginDrain();
  EXPECT_EQ(SubmitError(TestRequest(5, 5)).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(loop_->WaitIdle(Never()));
  EXPECT_TRUE(loop_->idle());
  EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kLength);
}

TEST_F(EngineLoopTest, APipelineThatWillGoTakesNoMoreUntilTheNextIsUp) {
  Run();
  const auto sink = Submit(TestRequest(10, 200));
  loop_->OnPipelineLeaving(Unavailable("stage 1 is draining"));
  EXPECT_EQ(Message(SubmitError(TestRequest(5, 5))), "stage 1 is draining");
  EXPECT_EQ(sink->WaitForEnd().reason, FinishReason::kLength);
  EXPECT_TRUE(loop_->WaitIdle(Never()));
  loop_->OnPipelineLost(Unavailable("stage 1 is gone"));
  loop_->OnPipelineUp(Epoch(2), limits_, 2);
  EXPECT_EQ(Submit(TestRequest(5, 5))->WaitForEnd().reason,
            FinishReason::kLength);
}

TEST_F(EngineLoopTest, StopEndsEverySequence) {
  EngineOptions options;
  options.max_running = 1;
  Run(options);
  pipeline_->Pause();
  const auto running = Submit(TestRequest(10, 5));
  const auto waiting = Submit(TestRequest(10, 5, 2));
  loop_->Stop();
  for (const auto& sink : {running, waiting}) {
    const FinalEvent end = sink->WaitForEnd();
    EXPECT_EQ(end.reason, FinishReason::kError);
    EXPECT_EQ(Message(end.status), "shutting down");
  }
  EXPECT_EQ(SubmitError(TestRequest(5, 5)).code(), StatusCode::kUnavailable);
}

TEST_F(EngineLoopTest, WaitIdleGivesUpAtItsDeadline) {
  Run();
  pipeline_->Pause();
  const auto sink = Submit(TestRequest(10, 5));
  EXPECT_FALSE(loop_->WaitIdle(Clock::now()));
  EXPECT_FALSE(loop_->idle());
}

TEST_F(EngineLoopTest, AnIdlePipelineIsProbedAndThatIsNoWork) {
  Run();
  EXPECT_EQ(Submit(TestRequest(10, 5))->WaitForEnd().reason,
            FinishReason::kLength);
  ASSERT_TRUE(loop_->WaitIdle(Never()));
  const EngineStats before = loop_->Stats();
  pipeline_->Pause();
  const TimePoint never = Never();
  const auto unanswered = [&] {
    return loop_->Progress().oldest_plan_age > Duration::zero();
  };
  while (!unanswered() && Clock::now() < never) std::this_thread::yield();
  ASSERT_TRUE(unanswered());
  EXPECT_TRUE(loop_->idle());
  EXPECT_TRUE(loop_->WaitIdle(Clock::now()));
  EXPECT_EQ(loop_->Progress().plans_in_flight, 0);
  EXPECT_GT(loop_->Progress().expected_step, Duration::zero());
  pipeline_->Resume();
  while (unanswered() && Clock::now() < never) std::this_thread::yield();
  EXPECT_FALSE(unanswered());
  EXPECT_EQ(Submit(TestRequest(10, 5, 2))->WaitForEnd().reason,
            FinishReason::kLength);
  ASSERT_TRUE(loop_->WaitIdle(Never()));
  EXPECT_EQ(loop_->Stats().submitted, before.submitted + 1);
  EXPECT_LE(loop_->Stats().steps, 2 * before.steps);
}

TEST_F(EngineLoopTest, ProgressTellsAStuckPipelineFromAnIdleOne) {
  Run();
  EXPECT_EQ(Submit(TestRequest(10, 5))->WaitForEnd().reason,
            FinishReason::kLength);
  ASSERT_TRUE(loop_->WaitIdle(Never()));
  EngineProgress progress = loop_->Progress();
  EXPECT_TRUE(progress.pipeline_up);
  EXPECT_EQ(progress.plans_in_flight, 0);
  EXPECT_EQ(progress.oldest_plan_age, Duration::zero());
  pipeline_->Pause();
  const auto sink = Submit(TestRequest(10, 5, 2));
  while (loop_->Progress().plans_in_flight == 0) std::this_thread::yield();
  const Duration before = loop_->Progress().since_last_result;
  progress = loop_->Progress();
  EXPECT_GE(progress.since_last_result, before);
  EXPECT_GT(progress.oldest_plan_age, Duration::zero());
}

}  // namespace
}  // namespace sluice
