#ifndef SLUICE_TESTS_STAGE_STAGE_LOOP_FIXTURE_H_
#define SLUICE_TESTS_STAGE_STAGE_LOOP_FIXTURE_H_

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/stage/stage_loop.h"
#include "tests/testing/golden_model.h"

namespace sluice {

// Records what a loop says.
class RecordingSink final : public StepOutputSink {
 public:
  struct Error {
    Epoch epoch;
    StepId step;
    Status why;
  };
  void OnStep(StepOutput output) override {
    MutexLock lock(mutex_);
    outputs_.push_back(std::move(output));
    said_.NotifyAll();
  }
  void OnStepError(Epoch epoch, StepId step, Status why) override {
    MutexLock lock(mutex_);
    errors_.push_back({epoch, step, std::move(why)});
    said_.NotifyAll();
  }
  StepOutput AwaitStep() {
    MutexLock lock(mutex_);
    while (outputs_.empty()) said_.Wait(mutex_);
    StepOutput output = std::move(outputs_.front());
    outputs_.pop_front();
    return output;
  }
  Error AwaitError() {
    MutexLock lock(mutex_);
    while (errors_.empty()) said_.Wait(mutex_);
    Error error = std::move(errors_.front());
    errors_.pop_front();
    return error;
  }
  size_t outputs() {
    MutexLock lock(mutex_);
    return outputs_.size();
  }

 private:
  Mutex mutex_;
  CondVar said_;
  std::deque<StepOutput> outputs_ ABSL_GUARDED_BY(mutex_);
  std::deque<Error> errors_ ABSL_GUARDED_BY(mutex_);
};

// The whole model `stories` as one stage, or its upper half.
class StageLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = testing::GoldenModel("stories");
    Load(path, 0);
  }
  void Load(const std::string& path, int32_t first_layer, int32_t ranks = 1,
            int32_t last_layer = -1, bool replay_log = true) {
    loop_.reset();
    StageOptions options;
    options.model_path = path;
    options.first_layer = first_layer;
    options.last_layer = last_layer;
    options.threads = 1;
    options.ranks = ranks;
    options.replay_log = replay_log;
    options.kv_blocks = 16;
    options.max_sequences = 4;
    options.max_step_tokens = 64;
    options.spin = spin_;
    auto stage = Stage::Load(options);
    ASSERT_TRUE(stage.ok()) << stage.status();
    stage_ = *std::move(stage);
    loop_ = std::make_unique<StageLoop>(stage_.get(), &sink_, 4);
    loop_->Start();
  }
  void TearDown() override { loop_.reset(); }

  Status Push(StepPlan plan, uint64_t step, uint64_t epoch = 0) {
    plan.step_id = StepId(step);
    plan.epoch = Epoch(epoch);
    return loop_->Push({std::move(plan), {}});
  }

  // A plan that starts sequence 1 with prompt 1 2 3 and runs all of it.
  static StepPlan FirstPlan() {
    StepPlan plan;
    SamplingParams sampling;
    sampling.temperature = 0;
    plan.started.push_back({SequenceId(1), sampling, 3, {1, 2, 3}, {}});
    Chunk chunk;
    chunk.sequence = SequenceId(1);
    chunk.tokens = {1, 2, 3};
    chunk.logits = LogitsWanted::kLast;
    chunk.samples = true;
    chunk.new_blocks = {{BlockId(5)}};
    plan.chunks.push_back(chunk);
    return plan;
  }
  // The decode step that follows it.
  static StepPlan NextPlan(int32_t start, TokenId token) {
    StepPlan plan;
    Chunk chunk;
    chunk.sequence = SequenceId(1);
    chunk.start = start;
    chunk.tokens = {token};
    chunk.logits = LogitsWanted::kLast;
    chunk.samples = true;
    plan.chunks.push_back(chunk);
    return plan;
  }
  // The same before its token, which `step` samples, is known.
  static StepPlan AheadPlan(int32_t start, uint64_t step) {
    StepPlan plan = NextPlan(start, 0);
    plan.chunks[0].sampled_by = StepId(step);
    return plan;
  }
  TokenId RunFirst() {
    EXPECT_TRUE(Push(FirstPlan(), 0).ok());
    const StepOutput output = sink_.AwaitStep();
    return output.result->sequences.at(0).sampled.at(0).token;
  }

  // The same on a first stage that samples nothing.
  void RunFirstOfSeveral(uint64_t epoch = 0) {
    EXPECT_TRUE(Push(FirstPlan(), 0, epoch).ok());
    EXPECT_FALSE(sink_.AwaitStep().result.has_value());
  }
  static HiddenStates Hidden(int32_t rows) {
    HiddenStates hidden(rows, 64);
    for (int i = 0; i < rows * 64; ++i) hidden.values()[i] = 0.1f;
    return hidden;
  }

  std::optional<Duration> spin_;  // of Load
  RecordingSink sink_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<StageLoop> loop_;
};

}  // namespace sluice

#endif  // SLUICE_TESTS_STAGE_STAGE_LOOP_FIXTURE_H_
