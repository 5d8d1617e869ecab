#include "services/gateway/judge_readiness.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/engine/engine_loop.h"
#include "common/pipeline/gateway/pipeline_assembler.h"
#include "tests/pipeline/fake_stage.h"

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
  progress.expected_step = milliseconds(100);
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
  const serving::Readiness readiness = JudgeReadiness(status, progress, false);
  EXPECT_FALSE(readiness.ready);
  EXPECT_TRUE(readiness.parts[0].ready);
  EXPECT_FALSE(readiness.parts[1].ready);
  EXPECT_TRUE(readiness.parts[2].ready) << "it waits for stage 1";
  EXPECT_EQ(readiness.why,
            "stage 1 (127.0.0.1:7001): no step has ended for 2.6 s");
}

TEST(JudgeReadinessTest, ALongStepIsNotTakenForAWedge) {
  EngineProgress progress = Moving();
  progress.plans_in_flight = 1;
  progress.expected_step = seconds(2);
  progress.oldest_plan_age = seconds(19);
  EXPECT_TRUE(JudgeReadiness(Up(1), progress, false).ready);
  progress.oldest_plan_age = seconds(21);
  EXPECT_FALSE(JudgeReadiness(Up(1), progress, false).ready);
}

TEST(JudgeReadinessTest, ThePatienceIsBounded) {
  EXPECT_EQ(StuckAfter(Duration::zero()), seconds(60));
  EXPECT_EQ(StuckAfter(seconds(30)), seconds(60));
  EXPECT_EQ(StuckAfter(milliseconds(1)), milliseconds(2500));
  EXPECT_EQ(StuckAfter(milliseconds(300)), seconds(3));
}

TEST(JudgeReadinessTest, ASuspectStageIsNamed) {
  PipelineStatus status = Up(2);
  status.ready = false;
  status.message = "stage 1: silent for 2.1 s";
  status.stages[1].state = StageState::kSuspect;
  status.stages[1].message = "silent for 2.1 s";
  const serving::Readiness readiness = JudgeReadiness(status, Moving(), false);
  EXPECT_FALSE(readiness.ready);
  EXPECT_EQ(readiness.why, status.message);
  EXPECT_EQ(readiness.parts[1].why, "suspect: silent for 2.1 s");
}

TEST(JudgeReadinessTest, AStageWithoutItsExpertsIsNamed) {
  PipelineStatus status = Up(2);
  status.stages[1].load.experts_missing = true;
  const serving::Readiness readiness = JudgeReadiness(status, Moving(), false);
  EXPECT_FALSE(readiness.ready);
  EXPECT_EQ(readiness.why,
            "stage 1 (127.0.0.1:7001): some of its experts have no host left");
  EXPECT_EQ(readiness.open_why,
            "stage 1: some of its experts have no host left");
  EXPECT_TRUE(readiness.parts[0].ready);
  EXPECT_FALSE(readiness.parts[1].ready);
}

TEST(JudgeReadinessTest, WhatAnybodyMayReadNamesStagesByTheirLayers) {
  PipelineStatus status = Up(2);
  status.ready = false;
  status.message = "stage 1 (127.0.0.1:7001): connection refused";
  status.stages[1].state = StageState::kLost;
  status.stages[1].message = "127.0.0.1:7001: connection refused";
  status.stages[1].first_layer = 10;
  status.stages[1].last_layer = 20;
  const auto open = [&] {
    return ReadinessJson(JudgeReadiness(status, Moving(), false),
                         Audience::kAnybody);
  };
  EXPECT_EQ(open(),
            "{\"ready\":false,\"why\":\"stage 1 (layers 10 to 19): lost\","
            "\"not_ready\":[{\"name\":\"stage 1 (layers 10 to 19)\","
            "\"why\":\"lost\"}],\"epoch\":0,\"term\":0}");
  status.stages[1].state = StageState::kReady;  // and yet the whole is down
  EXPECT_EQ(open(),
            "{\"ready\":false,\"why\":\"the pipeline is not up\","
            "\"not_ready\":[],\"epoch\":0,\"term\":0}");
}

TEST(JudgeReadinessTest, AWedgedStageIsToldToAnybodyByItsIndex) {
  EngineProgress progress = Moving();
  progress.oldest_plan_age = milliseconds(2600);
  const std::string open =
      ReadinessJson(JudgeReadiness(Up(1), progress, false), Audience::kAnybody);
  EXPECT_NE(open.find("stage 0: no step has ended for 2.6 s"), open.npos)
      << open;
  EXPECT_EQ(open.find("127.0.0.1"), open.npos) << open;
}

TEST(JudgeReadinessTest, DrainingIsNotReady) {
  const serving::Readiness readiness = JudgeReadiness(Up(1), Moving(), true);
  EXPECT_FALSE(readiness.ready);
  EXPECT_EQ(readiness.why, "draining");
  EXPECT_TRUE(readiness.draining);
  EXPECT_EQ(readiness.retry_after_seconds, 1);
}

TEST(JudgeReadinessTest, AStageThatWasToldToEndIsNamed) {
  PipelineStatus status = Up(2);
  status.ready = false;
  status.message = "stage 1 (127.0.0.1:7001) is draining";
  status.stages[1].state = StageState::kDraining;
  status.stages[1].drain_left = milliseconds(4200);
  status.last_recovery = seconds(3);
  const serving::Readiness readiness = JudgeReadiness(status, Moving(), false);
  EXPECT_FALSE(readiness.ready);
  EXPECT_TRUE(readiness.draining);
  EXPECT_EQ(readiness.parts[1].why, "draining");
  EXPECT_EQ(readiness.open_why, "stage 1: draining");
  EXPECT_EQ(readiness.retry_after_seconds, 8) << "its drain, then a recovery";
}

TEST(JudgeBesidePeersTest, AStandbyIsAsReadyAsItsStandingSays) {
  serving::Readiness own;
  own.why = own.open_why = "stage 0 is held by another gateway";
  own.parts.emplace_back();
  own.missing_stages = 1;
  standby::Standing standing{
      .role = GatewayRole::kStandby, .leader = "127.0.0.1:8000", .ready = true};
  serving::Readiness judged = JudgeBesidePeers(own, standing, {"a:1"});
  EXPECT_TRUE(judged.ready);
  EXPECT_EQ(judged.stages, std::vector<std::string>{"a:1"});
  EXPECT_EQ(ReadinessJson(judged, Audience::kAnybody),
            "{\"ready\":true,\"why\":\"\",\"not_ready\":[],\"epoch\":0,"
            "\"term\":0,\"role\":\"standby\"}");
  EXPECT_EQ(ReadinessJson(judged, Audience::kKeyHolder),
            "{\"ready\":true,\"why\":\"\",\"not_ready\":[],\"epoch\":0,"
            "\"term\":0,\"role\":\"standby\",\"leader\":\"127.0.0.1:8000\"}");
  standing = {.why = "no gateway leads: a:2 is silent",
              .open_why = "no gateway leads"};
  judged = JudgeBesidePeers(own, standing, {"a:1"});
  EXPECT_FALSE(judged.ready);
  EXPECT_EQ(judged.why, "no gateway leads: a:2 is silent");
  EXPECT_EQ(judged.open_why, "no gateway leads");
}

TEST(JudgeBesidePeersTest, AStandbyThatDrainsSaysSo) {
  const serving::Readiness judged =
      JudgeBesidePeers(JudgeReadiness(Up(1), Moving(), true),
                       {.role = GatewayRole::kStandby}, {"a:1"});
  EXPECT_FALSE(judged.ready);
  EXPECT_EQ(judged.why, "draining");
}

TEST(JudgeBesidePeersTest, ALeaderIsAsReadyAsItsPipeline) {
  serving::Readiness own;
  own.why = own.open_why = "the pipeline is not up";
  own.parts.emplace_back().open_name = "stage 0";
  const serving::Readiness judged = JudgeBesidePeers(
      own, {.role = GatewayRole::kLeader, .pipeline = "lost"}, {"a:1"});
  EXPECT_EQ(ReadinessJson(judged, Audience::kAnybody),
            "{\"ready\":false,\"why\":\"the pipeline is not up\","
            "\"not_ready\":[{\"name\":\"stage 0\",\"why\":\"\"}],\"epoch\":0,"
            "\"term\":0,\"role\":\"leader\",\"pipeline\":\"lost\"}");
}

TEST(RetryAfterTest, ARecoveryIsTakenToLastAsLongAsTheLatest) {
  PipelineStatus status = Up(1);
  EXPECT_EQ(RetryAfter(status, false), 1) << "nothing is known";
  status.ready = false;
  status.last_recovery = seconds(12);
  status.down = milliseconds(2500);
  EXPECT_EQ(RetryAfter(status, false), 10);
  status.down = milliseconds(11900);
  EXPECT_EQ(RetryAfter(status, false), 1);
}

TEST(RetryAfterTest, ALongerOneIsTakenToLastAsLongAgain) {
  PipelineStatus status = Up(1);
  status.ready = false;
  status.last_recovery = seconds(2);
  status.down = seconds(7);
  EXPECT_EQ(RetryAfter(status, false), 7);
  status.last_recovery = Duration::zero();
  EXPECT_EQ(RetryAfter(status, false), 7);
  status.down = seconds(3600);
  EXPECT_EQ(RetryAfter(status, false), 30) << "nobody knows so much";
}

TEST(RetryAfterTest, APipelineThatStandsIsLookedAtAgainSoon) {
  PipelineStatus status = Up(1);
  status.last_recovery = seconds(20);
  EXPECT_EQ(RetryAfter(status, false), 1) << "it is not down";
}

TEST(RetryAfterTest, AnotherGatewayMayAnswerWhileThisOneDrains) {
  PipelineStatus status = Up(1);
  status.down = seconds(30);
  status.last_recovery = seconds(60);
  status.stages[0].drain_left = seconds(40);
  EXPECT_EQ(RetryAfter(status, true), 1);
  EXPECT_EQ(RetryAfter(status, false), 30) << "a stage's drain is everybody's";
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

using testing::Eventually;

class WedgedStageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PipelineOptions options;
    for (int i = 0; i < 2; ++i) {
      testing::FakeStageOptions stage;
      stage.info = testing::FakeInfo(i, 2);
      stages_.push_back(std::make_unique<testing::FakeStage>(stage));
      options.stages.push_back(stages_.back()->address());
    }
    options.heartbeat = milliseconds(50);
    auto created = PipelineAssembler::Create(options);
    ASSERT_TRUE(created.ok()) << created.status();
    pipeline_ = *std::move(created);
    engine_ =
        std::make_unique<EngineLoop>(EngineOptions(), &pipeline_->plans());
    ASSERT_TRUE(engine_->Start().ok());
    observer_ = std::make_unique<EngineObserver>(engine_.get());
    pipeline_->Start(observer_.get());
    ASSERT_TRUE(Eventually([&] { return Judge().ready; }));
    const auto calm = std::make_shared<CountingSink>();
    ASSERT_TRUE(engine_->Submit(request_, calm).ok());
    ASSERT_TRUE(Eventually([&] { return calm->ended(); }));
  }
  void TearDown() override {
    if (engine_) engine_->Stop();
    if (pipeline_) pipeline_->Stop();
  }
  static GenerateRequest Request() {
    GenerateRequest request;
    request.prompt_tokens = {1, 2, 3};
    request.max_tokens = 20;
    return request;
  }
  serving::Readiness Judge() {
    return JudgeReadiness(pipeline_->status(), engine_->Progress(), false);
  }
  // Off within the time that the machine's own slowness may take on top.
  void ExpectStageOneIsBlamed() {
    const TimePoint begin = Clock::now();
    ASSERT_TRUE(Eventually([&] { return !Judge().ready; }, seconds(20)));
    EXPECT_GE(Clock::now() - begin, seconds(1));
    EXPECT_TRUE(pipeline_->ready()) << "heartbeats alone show nothing";
    // Its predecessor's progress comes with the next heartbeat.
    EXPECT_TRUE(Eventually([&] { return !Judge().parts[1].ready; }));
    EXPECT_NE(Judge().why.find("stage 1"), std::string::npos) << Judge().why;
  }
  void ReleaseOne() {
    auto& runner = stages_[1]->runner();
    if (runner.held_steps() > 0) runner.ReleaseOne();
  }

  const GenerateRequest request_ = Request();
  std::vector<std::unique_ptr<testing::FakeStage>> stages_;
  std::unique_ptr<EngineObserver> observer_;
  std::unique_ptr<PipelineAssembler> pipeline_;
  std::unique_ptr<EngineLoop> engine_;
};

TEST_F(WedgedStageTest, ItAnswersHeartbeatsAndIsNamedUntilItGoesOn) {
  stages_[1]->runner().HoldSteps();
  const auto held = std::make_shared<CountingSink>();
  ASSERT_TRUE(engine_->Submit(request_, held).ok());
  ExpectStageOneIsBlamed();
  EXPECT_EQ(held->tokens(), 0);
  ASSERT_TRUE(Eventually([&] {
    ReleaseOne();
    return held->ended();
  }));
  EXPECT_EQ(held->tokens(), 20);
  EXPECT_TRUE(Eventually([&] {
    ReleaseOne();
    return Judge().ready;
  }));
}

TEST_F(WedgedStageTest, OneThatHangsWhileIdleIsNoticedBeforeAnyRequest) {
  ASSERT_TRUE(engine_->WaitIdle(Clock::now() + seconds(20)));
  const uint64_t steps = engine_->Stats().steps;
  stages_[1]->runner().HoldSteps();
  ExpectStageOneIsBlamed();
  EXPECT_TRUE(engine_->idle());
  EXPECT_EQ(engine_->Stats().plans_in_flight, 0);
  EXPECT_TRUE(Eventually([&] {
    ReleaseOne();
    return Judge().ready;
  }));
  EXPECT_EQ(engine_->Stats().steps, steps);
}

}  // namespace
}  // namespace sluice::gateway
