// A traced plan through the real protocol: gateway's client, sessions and
// servers of stages, without a model.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "common/base/mutex.h"
#include "common/pipeline/gateway/pipeline_assembler.h"
#include "tests/pipeline/fake_stage.h"

namespace sluice {
namespace {

using testing::FakeInfo;
using testing::FakeStage;

class Answers : public PipelineObserver {
 public:
  void OnUp(Epoch epoch, const PlanLimits&, int, const LostStages&) override {
    MutexLock lock(mutex_);
    epoch_ = epoch;
    changed_.NotifyAll();
  }
  void OnLost(const Status&) override {}
  void OnResult(StepResult result) override {
    MutexLock lock(mutex_);
    results_.push_back(std::move(result));
    changed_.NotifyAll();
  }
  Epoch AwaitEpoch() {
    MutexLock lock(mutex_);
    const TimePoint deadline = Clock::now() + std::chrono::seconds(30);
    while (!epoch_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    return epoch_.value_or(Epoch(0));
  }
  std::vector<StepResult> AwaitResults(size_t count) {
    MutexLock lock(mutex_);
    const TimePoint deadline = Clock::now() + std::chrono::seconds(30);
    while (results_.size() < count && changed_.WaitUntil(mutex_, deadline)) {
    }
    return results_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Epoch> epoch_ ABSL_GUARDED_BY(mutex_);
  std::vector<StepResult> results_ ABSL_GUARDED_BY(mutex_);
};

StepPlan Plan(Epoch epoch, uint64_t step, bool traced) {
  StepPlan plan;
  plan.epoch = epoch;
  plan.step_id = StepId(step);
  Chunk chunk;
  chunk.sequence = SequenceId(1);
  chunk.tokens = {5, 6};
  chunk.logits = LogitsWanted::kLast;
  chunk.samples = true;
  chunk.new_blocks = {{BlockId(0)}};
  plan.chunks = {chunk};
  if (traced) {
    plan.trace.emplace().step_id = plan.step_id;
    plan.trace->chunks = {{SequenceId(1), 0, 2, true}};
  }
  return plan;
}

TEST(PipelineTraceTest, ATracedPlanComesBackWithEveryStagesPartInOrder) {
  std::vector<std::unique_ptr<FakeStage>> stages;
  PipelineOptions options;
  for (int i = 0; i < 3; ++i) {
    testing::FakeStageOptions stage;
    stage.info = FakeInfo(i, 3);
    stages.push_back(std::make_unique<FakeStage>(stage));
    options.stages.push_back(stages.back()->address());
  }
  auto client = PipelineAssembler::Create(std::move(options));
  ASSERT_TRUE(client.ok());
  Answers answers;
  (*client)->Start(&answers);
  const Epoch epoch = answers.AwaitEpoch();
  const int64_t before = MonotonicNanos();
  (*client)->plans().Submit(Plan(epoch, 0, true));
  (*client)->plans().Submit(Plan(epoch, 1, false));
  const auto results = answers.AwaitResults(2);
  const int64_t after = MonotonicNanos();
  (*client)->Stop();

  ASSERT_EQ(results.size(), 2u);
  EXPECT_FALSE(results[1].trace.has_value()) << "nobody asked for it";
  ASSERT_TRUE(results[0].trace.has_value());
  const StepTrace& trace = *results[0].trace;
  ASSERT_EQ(trace.stages.size(), 3u);
  EXPECT_EQ(trace.chunks.size(), 1u);
  EXPECT_EQ(results[0].sequences.at(0).sampled.at(0).token, 8);
  int64_t last = before;
  const auto follows = [&](const TraceSpan& span, const char* what) {
    EXPECT_GE(span.start_ns, last) << what;
    EXPECT_GE(span.stop_ns, span.start_ns) << what;
    last = span.stop_ns;
  };
  follows(trace.serialise, "the plan's frame");
  for (const StageTrace& stage : trace.stages) {
    follows(stage.receive, "a stage receives");
    follows(stage.serialise, "a stage sends on");
  }
  follows(trace.receive, "the result arrives");
  EXPECT_LE(last, after);
}

}  // namespace
}  // namespace sluice
