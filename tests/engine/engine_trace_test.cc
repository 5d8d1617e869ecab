#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/engine/engine_loop.h"
#include "tests/engine/fake_pipeline.h"

namespace sluice {
namespace {

PlanLimits TraceLimits() { return {64, 8, 128, 32, 1, 100}; }

// Answers each plan at once, from the engine's thread.
class InlinePipeline : public StepExecutor {
 public:
  explicit InlinePipeline(const PlanLimits& limits)
      : pipeline_(Epoch(1), limits) {}
  void Submit(StepPlan plan) override {
    StatusOr<StepResult> result = pipeline_.Run(plan);
    ASSERT_TRUE(result.ok()) << result.status();
    plans_ += 1;
    traced_plans_ += plan.trace.has_value() ? 1 : 0;
    result->trace = std::move(plan.trace);
    loop_->OnStepResult(*std::move(result));
  }
  void OnPipelineBroken(Status why) override { ADD_FAILURE() << why; }

  EngineLoop* loop_ = nullptr;
  int plans_ = 0;
  int traced_plans_ = 0;

 private:
  FakePipeline pipeline_;
};

class TracingSink : public TokenSink {
 public:
  void OnTokens(TokenEvent event) override {
    tokens_ += event.tokens.size();
    EXPECT_TRUE(steps_.empty() || tokens_ <= steps_.size())
        << "a step is told before its tokens";
  }
  void OnEnd(FinalEvent) override {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  void OnInbox(const TraceSpan& inbox) override { inboxes_.push_back(inbox); }
  void OnStep(std::shared_ptr<const StepTrace> step,
              const TracedChunk& chunk) override {
    steps_.emplace_back(std::move(step), chunk);
  }
  void AwaitEnd() {
    MutexLock lock(mutex_);
    const TimePoint deadline = Clock::now() + std::chrono::seconds(60);
    while (!ended_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    EXPECT_TRUE(ended_);
  }

  // The engine thread's until the end.
  std::vector<TraceSpan> inboxes_;
  std::vector<std::pair<std::shared_ptr<const StepTrace>, TracedChunk>> steps_;
  size_t tokens_ = 0;

 private:
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

class EngineTraceTest : public ::testing::Test {
 protected:
  EngineTraceTest()
      : executor_(TraceLimits()), loop_(EngineOptions(), &executor_) {
    executor_.loop_ = &loop_;
    EXPECT_TRUE(loop_.Start().ok());
    loop_.OnPipelineUp(Epoch(1), TraceLimits(), 1);
  }
  std::shared_ptr<TracingSink> Run(bool trace) {
    auto sink = std::make_shared<TracingSink>();
    GenerateRequest request;
    request.prompt_tokens = {1, 2, 3};
    request.max_tokens = 5;
    request.trace = trace;
    EXPECT_TRUE(loop_.Submit(std::move(request), sink).ok());
    sink->AwaitEnd();
    return sink;
  }

  InlinePipeline executor_;
  EngineLoop loop_;
};

TEST_F(EngineTraceTest, ATracedRequestHearsOfItsInboxAndEveryStep) {
  const int64_t before = MonotonicNanos();
  const auto sink = Run(true);
  ASSERT_EQ(sink->inboxes_.size(), 1u);
  ASSERT_EQ(sink->steps_.size(), 5u);
  EXPECT_EQ(sink->steps_[0].second.count, 3);
  EXPECT_EQ(sink->steps_[1].second.start, 3);
  EXPECT_TRUE(sink->steps_[4].second.samples);
  int64_t last = before;
  const auto follows = [&](const TraceSpan& span, const char* what) {
    EXPECT_GE(span.start_ns, last) << what;
    EXPECT_GE(span.stop_ns, span.start_ns) << what;
    last = span.stop_ns;
  };
  follows(sink->inboxes_[0], "inbox of the request");
  for (const auto& [step, chunk] : sink->steps_) {
    EXPECT_EQ(step->num_sequences, 1);
    EXPECT_EQ(step->num_tokens, chunk.count);
    follows(step->plan, "plan");
    follows(step->inbox, "inbox of the result");
    follows(step->commit, "commit");
  }
}

TEST_F(EngineTraceTest, NobodyElseIsTraced) {
  const auto sink = Run(false);
  EXPECT_TRUE(sink->steps_.empty());
  EXPECT_TRUE(sink->inboxes_.empty());
  loop_.Stop();
  EXPECT_GE(executor_.plans_, 5);
  EXPECT_EQ(executor_.traced_plans_, 0);
}

}  // namespace
}  // namespace sluice
