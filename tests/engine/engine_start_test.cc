// When a sequence's sink is told that a plan begins it.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/concurrency/bounded_queue.h"
#include "common/engine/engine_loop.h"
#include "tests/engine/fake_pipeline.h"
#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

// Keeps plans until the test answers them.
class KeptPlans : public StepExecutor {
 public:
  void Submit(StepPlan plan) override {
    EXPECT_TRUE(plans_.Push(std::move(plan)).ok());
  }
  StepPlan Next() {
    return plans_.Pop(Clock::now() + std::chrono::minutes(1)).value();
  }

 private:
  BoundedQueue<StepPlan> plans_{64};
};

// Counts what the engine's thread says.
class StartSink : public TokenSink {
 public:
  void OnStart() override {
    MutexLock lock(mutex_);
    EXPECT_FALSE(end_.has_value()) << "a start after the end";
    if (starts_ == 0) {
      EXPECT_EQ(tokens_, 0u) << "tokens before the start";
    }
    ++starts_;
  }
  void OnTokens(TokenEvent event) override {
    MutexLock lock(mutex_);
    tokens_ += event.tokens.size();
  }
  void OnEnd(FinalEvent event) override {
    MutexLock lock(mutex_);
    end_ = std::move(event);
  }

  int starts() {
    MutexLock lock(mutex_);
    return starts_;
  }
  std::optional<FinalEvent> end() {
    MutexLock lock(mutex_);
    return end_;
  }

 private:
  Mutex mutex_;
  int starts_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<FinalEvent> end_ ABSL_GUARDED_BY(mutex_);
};

// One stage, whose plans this test answers.
class EngineStartTest : public ::testing::Test {
 protected:
  void Run(const EngineOptions& options, int num_blocks) {
    const PlanLimits limits = TestLimits(num_blocks);
    pipeline_ = std::make_unique<FakePipeline>(Epoch(1), limits);
    loop_ = std::make_unique<EngineLoop>(options, &plans_);
    ASSERT_TRUE(loop_->Start().ok());
    loop_->OnPipelineUp(Epoch(1), limits, /*num_stages=*/1);
  }
  void TearDown() override { loop_->Stop(); }

  std::shared_ptr<StartSink> Submit(int tokens, uint64_t seed) {
    auto sink = std::make_shared<StartSink>();
    const auto id = loop_->Submit(TestRequest(8, tokens, seed), sink);
    EXPECT_TRUE(id.ok()) << id.status();
    return sink;
  }
  void Answer(const StepPlan& plan) {
    auto result = pipeline_->Run(plan);
    ASSERT_TRUE(result.ok()) << result.status();
    loop_->OnStepResult(*std::move(result));
  }

  KeptPlans plans_;
  std::unique_ptr<FakePipeline> pipeline_;
  std::unique_ptr<EngineLoop> loop_;
};

TEST_F(EngineStartTest, ItIsToldWithItsFirstPlanBeforeAnyToken) {
  EngineOptions options;
  options.max_running = 1;
  Run(options, 400);
  const auto first = Submit(3, 0);
  const auto second = Submit(3, 1);
  StepPlan plan = plans_.Next();
  while (plan.started.empty()) {  // a probe
    Answer(plan);
    plan = plans_.Next();
  }
  EXPECT_EQ(first->starts(), 1) << "told before the plan went out";
  EXPECT_EQ(second->starts(), 0) << "it waits";
  while (second->starts() == 0) {
    Answer(plan);
    plan = plans_.Next();
  }
  EXPECT_TRUE(first->end().has_value());
  EXPECT_EQ(first->starts(), 1);
}

TEST_F(EngineStartTest, APreemptedOneIsToldAgainAsOftenAsItStarts) {
  Run({}, /*num_blocks=*/8);
  std::vector<std::shared_ptr<StartSink>> sinks;
  for (uint64_t i = 0; i < 4; ++i) sinks.push_back(Submit(60, i));
  int planned = 0;
  const auto ended = [&] {
    for (const auto& sink : sinks) {
      if (!sink->end()) return false;
    }
    return true;
  };
  while (!ended()) {
    const StepPlan plan = plans_.Next();
    planned += static_cast<int>(plan.started.size());
    Answer(plan);
  }
  int told = 0;
  int preemptions = 0;
  for (const auto& sink : sinks) {
    told += sink->starts();
    preemptions += sink->end()->stats.preemptions;
  }
  EXPECT_EQ(told, planned);
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(told, 4);
}

}  // namespace
}  // namespace sluice
