#ifndef SLUICE_TESTS_ENGINE_ENGINE_FIXTURE_H_
#define SLUICE_TESTS_ENGINE_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/concurrency/bounded_queue.h"
#include "common/concurrency/named_thread.h"
#include "common/engine/engine_loop.h"
#include "tests/engine/fake_pipeline.h"
#include "tests/engine/scheduler_harness.h"

namespace sluice {

// Long enough for any machine; a test that gets there has failed.
inline TimePoint Never() { return Clock::now() + std::chrono::seconds(60); }

// Gathers what a sequence gets; other threads wait for it.
class RecordingSink : public TokenSink {
 public:
  void OnTokens(TokenEvent event) override {
    std::function<void()> hook;
    {
      MutexLock lock(mutex_);
      EXPECT_FALSE(end_.has_value()) << "tokens after the end";
      for (const TokenResult& t : event.tokens) tokens_.push_back(t.token);
      changed_.NotifyAll();
      hook = std::move(on_first_token_);
      on_first_token_ = nullptr;
    }
    if (hook) hook();
  }
  void OnSuspend() override {
    MutexLock lock(mutex_);
    ++suspensions_;
  }
  void OnEnd(FinalEvent event) override {
    MutexLock lock(mutex_);
    EXPECT_FALSE(end_.has_value()) << "a second end";
    end_ = std::move(event);
    changed_.NotifyAll();
  }

  void set_on_first_token(std::function<void()> hook) {
    MutexLock lock(mutex_);
    on_first_token_ = std::move(hook);
  }
  FinalEvent WaitForEnd() {
    MutexLock lock(mutex_);
    const TimePoint deadline = Never();
    while (!end_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    EXPECT_TRUE(end_.has_value()) << "no end";
    return end_.value_or(FinalEvent());
  }
  void WaitForTokens(size_t count) {
    MutexLock lock(mutex_);
    const TimePoint deadline = Never();
    while (tokens_.size() < count && changed_.WaitUntil(mutex_, deadline)) {
    }
    EXPECT_GE(tokens_.size(), count);
  }
  std::vector<TokenId> tokens() {
    MutexLock lock(mutex_);
    return tokens_;
  }
  int suspensions() {
    MutexLock lock(mutex_);
    return suspensions_;
  }
  bool ended() {
    MutexLock lock(mutex_);
    return end_.has_value();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<TokenId> tokens_ ABSL_GUARDED_BY(mutex_);
  int suspensions_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<FinalEvent> end_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_first_token_ ABSL_GUARDED_BY(mutex_);
};

// Runs plans on a thread of its own, as a pipeline does. It can be paused:
// plans are then kept.
class ThreadedPipeline : public StepExecutor {
 public:
  explicit ThreadedPipeline(const PlanLimits& limits) : limits_(limits) {}
  ~ThreadedPipeline() override { Stop(); }

  void Start(EngineLoop* loop) {
    loop_ = loop;
    thread_ = NamedThread("fake-pipeline", [this] { Run(); });
  }
  void Stop() {
    Resume();
    plans_.Close();
    thread_.Join();
  }
  void Submit(StepPlan plan) override {
    if (throws_.exchange(false)) throw std::bad_alloc();
    EXPECT_TRUE(plans_.Push(std::move(plan)).ok());
  }
  void OnPipelineBroken(Status why) override {
    MutexLock lock(mutex_);
    broken_ = why;
    changed_.NotifyAll();
  }
  Status WaitForBroken() {
    MutexLock lock(mutex_);
    const TimePoint deadline = Never();
    while (broken_.ok() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return broken_;
  }

  void Pause() {
    MutexLock lock(mutex_);
    paused_ = true;
  }
  void Resume() {
    MutexLock lock(mutex_);
    paused_ = false;
    changed_.NotifyAll();
  }
  // The next plan is not taken.
  void ThrowOnce() { throws_ = true; }
  // Changes every result from now on.
  void set_tamper(std::function<void(StepResult&)> tamper) {
    MutexLock lock(mutex_);
    tamper_ = std::move(tamper);
  }

 private:
  void Run() {
    std::unique_ptr<FakePipeline> pipeline;
    std::optional<Epoch> epoch;
    while (std::optional<StepPlan> plan = plans_.Pop()) {
      if (epoch != plan->epoch) {
        epoch = plan->epoch;
        pipeline = std::make_unique<FakePipeline>(*epoch, limits_);
      }
      StatusOr<StepResult> result = pipeline->Run(*plan);
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return;
      std::function<void(StepResult&)> tamper;
      {
        MutexLock lock(mutex_);
        while (paused_) changed_.Wait(mutex_);
        tamper = tamper_;
      }
      if (tamper) tamper(*result);
      loop_->OnStepResult(*std::move(result));
    }
  }

  const PlanLimits limits_;
  EngineLoop* loop_ = nullptr;
  std::atomic<bool> throws_{false};
  BoundedQueue<StepPlan> plans_{64};
  Mutex mutex_;
  CondVar changed_;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  Status broken_ ABSL_GUARDED_BY(mutex_);
  std::function<void(StepResult&)> tamper_ ABSL_GUARDED_BY(mutex_);
  NamedThread thread_;
};

class EngineLoopTest : public ::testing::Test {
 protected:
  void Run(const EngineOptions& options = {}, int num_blocks = 400,
           int num_stages = 2) {
    limits_ = TestLimits(num_blocks);
    pipeline_ = std::make_unique<ThreadedPipeline>(limits_);
    loop_ = std::make_unique<EngineLoop>(options, pipeline_.get());
    pipeline_->Start(loop_.get());
    ASSERT_TRUE(loop_->Start().ok());
    loop_->OnPipelineUp(Epoch(1), limits_, num_stages);
  }
  void TearDown() override {
    if (pipeline_) pipeline_->Resume();
    if (loop_) loop_->Stop();
    if (pipeline_) pipeline_->Stop();
  }
  std::shared_ptr<RecordingSink> Submit(const GenerateRequest& request) {
    auto sink = std::make_shared<RecordingSink>();
    const auto id = loop_->Submit(request, sink);
    EXPECT_TRUE(id.ok()) << id.status();
    if (id.ok()) last_id_ = *id;
    return sink;
  }
  Status SubmitError(const GenerateRequest& request) {
    auto sink = std::make_shared<RecordingSink>();
    const Status status = loop_->Submit(request, sink).status();
    EXPECT_FALSE(sink->ended());
    return status;
  }

  PlanLimits limits_;
  std::unique_ptr<ThreadedPipeline> pipeline_;
  std::unique_ptr<EngineLoop> loop_;
  SequenceId last_id_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_ENGINE_ENGINE_FIXTURE_H_
