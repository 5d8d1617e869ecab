#include "services/gateway/judge_readiness.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/engine/engine_loop.h"
#include "services/gateway/pipeline/pipeline_client.h"
#include "tests/services/stage/fake_stage.h"

namespace sluice::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

PipelineStatus Up(int stages) {
  PipelineStatus status;
  status.ready = true;
  for (int i = 0; i < stages; ++i) {
    StageStatus& stage = status.stages.emplace_back();
    stage.address = "127.0.0.1:" + std::to_string(7000 + i);
    stage.state = StageState::kReady;
    stage.load.steps_done = 100;
  }
  return status;
}

EngineProgress Moving() {
  EngineProgress progress;
  progress.pipeline_up = true;
  progress.longest_step = milliseconds(100);
  return progress;
}

TEST(JudgeReadinessTest, APipelineThatMovesIsReadyHoweverFullItIs) {
  EngineProgress progress = Moving();
  progress.plans_in_flight = 3;
  progress.oldest_plan_age = milliseconds(900);
  EXPECT_TRUE(JudgeReadiness(Up(3), progress, false).ready);
}

TEST(JudgeReadinessTest, AWedgedStageIsNamedWithinThreeSeconds) {
  PipelineStatus status = Up(3);
  status.stages[0].load.steps_done = 102;  // the wedged one's predecessor
  EngineProgress progress = Moving();
  progress.plans_in_flight = 2;
  progress.oldest_plan_age = milliseconds(2600);
  const GatewayReadiness readiness = JudgeReadiness(status, progress, false);
  EXPECT_FALSE(readiness.ready);
  EXPECT_TRUE(readiness.parts[0].ready);
  EXPECT_FALSE(readiness.parts[1].ready);
  EXPECT_TRUE(readiness.parts[2].ready) << "it waits for stage 1";
  EXPECT_EQ(readiness.why,
            "stage 1 (127.0.0.1:7001): no step has ended for 2.6 s");
}

TEST(JudgeReadinessTest, LongStepsAreNotTakenForAWedge) {
  EngineProgress progress = Moving();
  progress.plans_in_flight = 1;
  progress.longest_step = seconds(2);
  progress.oldest_plan_age = seconds(19);
  EXPECT_TRUE(JudgeReadiness(Up(1), progress, false).ready);
  progress.oldest_plan_age = seconds(21);
  EXPECT_FALSE(JudgeReadiness(Up(1), progress, false).ready);
}

TEST(JudgeReadinessTest, ThePatienceIsBounded) {
  EXPECT_EQ(StuckAfter(Duration::zero()), seconds(60));
  EXPECT_EQ(StuckAfter(seconds(30)), seconds(60));
  EXPECT_EQ(StuckAfter(milliseconds(1)), milliseconds(2500));
}

TEST(JudgeReadinessTest, ASuspectStageIsNamed) {
  PipelineStatus status = Up(2);
  status.ready = false;
  status.message = "stage 1: silent for 2.1 s";
  status.stages[1].state = StageState::kSuspect;
  status.stages[1].message = "silent for 2.1 s";
  const GatewayReadiness readiness = JudgeReadiness(status, Moving(), false);
  EXPECT_FALSE(readiness.ready);
  EXPECT_EQ(readiness.why, status.message);
  EXPECT_EQ(readiness.parts[1].why, "suspect: silent for 2.1 s");
}

TEST(JudgeReadinessTest, DrainingIsNotReady) {
  const GatewayReadiness readiness = JudgeReadiness(Up(1), Moving(), true);
  EXPECT_FALSE(readiness.ready);
  EXPECT_EQ(readiness.why, "draining");
}

TEST(JudgeReadinessTest, AnEngineWithoutItsPipelineIsNotReady) {
  EngineProgress progress = Moving();
  progress.pipeline_up = false;
  EXPECT_FALSE(JudgeReadiness(Up(1), progress, false).ready);
}

// The whole way, with stages that compute nothing.
class CountingSink : public TokenSink {
 public:
  void OnTokens(TokenEvent event) override {
    tokens_ += static_cast<int>(event.tokens.size());
  }
  void OnEnd(FinalEvent event) override { ended_ = true; }
  int tokens() const { return tokens_; }
  bool ended() const { return ended_; }

 private:
  std::atomic<int> tokens_{0};
  std::atomic<bool> ended_{false};
};

TEST(WedgedStageTest, ItAnswersHeartbeatsAndIsNamedUntilItGoesOn) {
  using testing::Eventually;
  std::vector<std::unique_ptr<testing::FakeStage>> stages;
  PipelineOptions options;
  for (int i = 0; i < 2; ++i) {
    testing::FakeStageOptions stage;
    stage.info = testing::FakeInfo(i, 2);
    stages.push_back(std::make_unique<testing::FakeStage>(stage));
    options.stages.push_back(stages.back()->address());
  }
  options.heartbeat = milliseconds(50);
  auto created = PipelineClient::Create(options);
  ASSERT_TRUE(created.ok()) << created.status();
  const std::unique_ptr<PipelineClient> pipeline = *std::move(created);
  EngineLoop engine({}, pipeline.get());
  ASSERT_TRUE(engine.Start().ok());
  pipeline->Start(CallbacksTo(&engine));
  const auto judge = [&] {
    return JudgeReadiness(pipeline->status(), engine.Progress(), false);
  };
  ASSERT_TRUE(Eventually([&] { return judge().ready; }));
  GenerateRequest request;
  request.prompt_tokens = {1, 2, 3};
  request.max_tokens = 20;
  const auto calm = std::make_shared<CountingSink>();
  ASSERT_TRUE(engine.Submit(request, calm).ok());
  ASSERT_TRUE(Eventually([&] { return calm->ended(); }));

  stages[1]->runner().HoldSteps();
  const auto held = std::make_shared<CountingSink>();
  ASSERT_TRUE(engine.Submit(request, held).ok());
  // 2.5 s, or more where the machine itself is slow.
  const TimePoint begin = Clock::now();
  const Duration patience = StuckAfter(engine.Progress().longest_step);
  ASSERT_TRUE(
      Eventually([&] { return !judge().ready; }, patience + seconds(10)));
  EXPECT_GE(Clock::now() - begin, patience / 2);
  EXPECT_TRUE(pipeline->ready()) << "heartbeats alone show nothing";
  EXPECT_NE(judge().why.find("stage 1"), std::string::npos) << judge().why;
  EXPECT_FALSE(judge().parts[1].ready);
  EXPECT_EQ(held->tokens(), 0);

  ASSERT_TRUE(Eventually([&] {
    if (stages[1]->runner().held_steps() > 0) stages[1]->runner().ReleaseOne();
    return held->ended();
  }));
  EXPECT_EQ(held->tokens(), 20);
  EXPECT_TRUE(Eventually([&] { return judge().ready; }));
  engine.Stop();
  pipeline->Stop();
}

}  // namespace
}  // namespace sluice::gateway
