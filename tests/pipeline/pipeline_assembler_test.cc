// The gateway's client against the real stage protocol, without a model.
#include "common/pipeline/gateway/pipeline_assembler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "tests/pipeline/assembler_fixture.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::FakeInfo;
using testing::FakeStage;
using testing::FakeStageOptions;
using ::testing::HasSubstr;
using testing::Listener;
using testing::PipelineAssemblerTest;
using testing::Timing;

TEST_F(PipelineAssemblerTest, PlansGoThroughOneTwoAndThreeStages) {
  for (int count = 1; count <= 3; ++count) {
    stages_.clear();
    AddStages(count);
    const size_t ups = listener_.ups();
    const size_t before = listener_.results().size();
    const auto client = Connect();
    ASSERT_TRUE(Eventually([&] { return listener_.ups() > ups; }))
        << client->status().message;
    EXPECT_TRUE(client->ready());
    EXPECT_EQ(listener_.num_stages(), count);
    ASSERT_TRUE(SubmitInTurn(*client, 20));
    ASSERT_TRUE(
        Eventually([&] { return listener_.results().size() == before + 20; }));
    for (uint64_t step = 0; step < 20; ++step) {
      const StepResult result = listener_.results()[before + step];
      EXPECT_EQ(result.step_id, StepId(step));
      ASSERT_EQ(result.sequences.size(), 1u);
      EXPECT_EQ(result.sequences[0].sampled[0].token,
                static_cast<TokenId>(100 + step) + count - 1);
    }
  }
}

TEST_F(PipelineAssemblerTest, TheFirstStageReadsWhatTheLastOneSamples) {
  steps_ahead_ = true;
  for (int count = 1; count <= 3; ++count) {
    stages_.clear();
    AddStages(count);
    const size_t ups = listener_.ups();
    const auto client = Connect();
    ASSERT_TRUE(Eventually([&] { return listener_.ups() > ups; }))
        << client->status().message;
    const size_t told = count == 1 ? 0 : 20;
    const size_t before = listener_.results().size();
    ASSERT_TRUE(SubmitInTurn(*client, 20));
    ASSERT_TRUE(Eventually([&] {
      return listener_.results().size() == before + 20 &&
             stages_[0]->runner().sampled().size() == told;
    }));
    for (uint64_t step = 0; step < told; ++step) {
      const StepResult sampled = stages_[0]->runner().sampled()[step];
      EXPECT_EQ(sampled.step_id, StepId(step));
      EXPECT_EQ(sampled.epoch, listener_.epoch());
      ASSERT_EQ(sampled.sequences.size(), 1u);
      EXPECT_EQ(sampled.sequences[0].sampled[0].token,
                static_cast<TokenId>(100 + step) + count - 1);
    }
    for (int other = 1; other < count; ++other) {
      EXPECT_TRUE(stages_[other]->runner().sampled().empty());
    }
  }
}

TEST_F(PipelineAssemblerTest, ThePipelinesLimitsAreTheLeastOfItsStages) {
  StageInfo first = FakeInfo(0, 2);
  StageInfo second = FakeInfo(1, 2);
  first.limits.max_step_tokens = 32;
  second.limits.num_blocks = 9;
  second.limits.max_context = 100;
  AddStage(first);
  AddStage(second);
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  EXPECT_EQ(listener_.limits().max_step_tokens, 32);
  EXPECT_EQ(listener_.limits().num_blocks, 9);
  EXPECT_EQ(listener_.limits().max_context, 100);
  ASSERT_TRUE(client->status().model.has_value());
  EXPECT_EQ(client->status().model->model_digest, "d1");
  EXPECT_EQ(client->status().model->limits.plan.vocab_size, 1000);
}

TEST_F(PipelineAssemblerTest, ATickThatThrowsComesNoSoonerAgain) {
  AddStage(FakeInfo(0, 1));
  check_model_ = [](const StageFacts&) -> Status { throw std::bad_alloc(); };
  const int64_t begin_ns = MonotonicNanos();
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.exceptions() >= 4; }));
  // The stage's arrival, a tick at once, and two of the heartbeat's 50 ms.
  EXPECT_GE(MonotonicNanos() - begin_ns, int64_t{100'000'000});
}

struct Conflict {
  const char* name;
  void (*change)(StageInfo&);
  std::vector<std::string> says;
};

class PipelineConflictTest : public PipelineAssemblerTest,
                             public ::testing::WithParamInterface<Conflict> {};

TEST_P(PipelineConflictTest, IsRefusedNamingTheStageAndBothValues) {
  AddStage(FakeInfo(0, 2));
  StageInfo other = FakeInfo(1, 2);
  GetParam().change(other);
  AddStage(other);
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] {
    return State(*client, 1) == StageState::kRefused ||
           State(*client, 0) == StageState::kRefused;
  })) << client->status().message;
  const std::string message = client->status().message;
  EXPECT_THAT(message, HasSubstr(stages_[1]->address()));
  for (const std::string& text : GetParam().says) {
    EXPECT_THAT(message, HasSubstr(text));
  }
  EXPECT_FALSE(client->ready());
  EXPECT_EQ(listener_.ups(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    AStageOf, PipelineConflictTest,
    ::testing::Values(Conflict{"AnotherModel",
                               [](StageInfo& i) { i.model_digest = "d2"; },
                               {"model digest is d2", "is d1"}},
                      Conflict{"AnotherArithmetic",
                               [](StageInfo& i) { i.numerics = "n2"; },
                               {"numerics is n2", "is n1"}},
                      Conflict{
                          "OtherKeysAndValues",
                          [](StageInfo& i) { i.numerics += "+kv-bf16-1"; },
                          {"numerics (--kv-type) is n1+kv-bf16-1", "is n1"}},
                      Conflict{"OtherWeights",
                               [](StageInfo& i) { i.weights_dtype = "bf16"; },
                               {"weights dtype is bf16", "is f32"}},
                      Conflict{"AnotherHiddenSize",
                               [](StageInfo& i) { i.hidden_size = 16; },
                               {"hidden size is 16", "is 8"}},
                      Conflict{"AnotherVocabulary",
                               [](StageInfo& i) { i.limits.vocab_size = 999; },
                               {"vocabulary size is 999", "is 1000"}},
                      Conflict{"AnotherNumberOfKvGroups",
                               [](StageInfo& i) {
                                 i.limits.kv_windows = {0, 8};
                                 i.limits.num_kv_groups = 2;
                               },
                               {"number of KV groups is 2", "is 1"}},
                      Conflict{"LayersThatLeaveAGap",
                               [](StageInfo& i) { i.first_layer = 3; },
                               {"begins at layer 3", "layer 2 follows"}},
                      Conflict{"LayersThatEndEarly",
                               [](StageInfo& i) { i.last_layer = 3; },
                               {"ends at layer 3", "has 4 layers"}}),
    [](const auto& each) { return std::string(each.param.name); });

TEST_F(PipelineAssemblerTest, AStageThatComesAgainWithTheRightModelIsTaken) {
  AddStage(FakeInfo(0, 2));
  StageInfo other = FakeInfo(1, 2);
  other.model_digest = "d2";
  AddStage(other);
  const auto client = Connect();
  ASSERT_TRUE(
      Eventually([&] { return State(*client, 1) == StageState::kRefused; }));
  const std::string address = stages_[1]->address();
  stages_.pop_back();
  AddStage(FakeInfo(1, 2), address);
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }))
      << client->status().message;
}

TEST_F(PipelineAssemblerTest, AModelThatTheGatewayIsNotForIsRefusedInItsWords) {
  check_model_ = [](const StageFacts& model) {
    if (model.model_digest == "d2") return OkStatus();
    return FailedPrecondition("the stages have ", model.model_digest,
                              ", the gateway has d2");
  };
  AddStage(FakeInfo(0, 1));
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] {
    return client->status().message == "the stages have d1, the gateway has d2";
  })) << client->status().message;
  EXPECT_FALSE(client->ready());
  EXPECT_EQ(listener_.ups(), 0u);
  const std::string address = stages_[0]->address();
  stages_.clear();
  StageInfo other = FakeInfo(0, 1);
  other.model_digest = "d2";
  AddStage(other, address);
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }))
      << client->status().message;
  EXPECT_EQ(client->status().model->model_digest, "d2");
}

TEST_F(PipelineAssemblerTest, AStoppedStageIsNamedAndServesAgainWhenItIsBack) {
  for (const auto& [gone, ahead] :
       {std::pair<size_t, bool>{0, true}, {1, false}, {2, true}, {2, false}}) {
    steps_ahead_ = ahead;
    stages_.clear();
    AddStages(3);
    const size_t ups = listener_.ups();
    const size_t losses = listener_.losses();
    const auto client = Connect();
    ASSERT_TRUE(Eventually([&] { return listener_.ups() > ups; }));
    const Epoch before = listener_.epoch();
    const std::string address = stages_[gone]->address();
    stages_[gone].reset();
    ASSERT_TRUE(Eventually([&] { return listener_.losses() > losses; },
                           std::chrono::seconds(5)));
    EXPECT_THAT(listener_.loss(losses),
                HasSubstr(Cat("stage ", gone, " (", address)));
    EXPECT_FALSE(client->ready());
    const auto is_lost = [&client, stage = gone] {
      return State(*client, stage) == StageState::kLost;
    };
    ASSERT_TRUE(Eventually(is_lost));

    FakeStageOptions options;
    options.info = FakeInfo(static_cast<int>(gone), 3);
    options.listen = address;
    stages_[gone] = std::make_unique<FakeStage>(options);
    ASSERT_TRUE(Eventually([&] { return listener_.ups() > ups + 1; }))
        << client->status().message;
    EXPECT_GT(listener_.epoch(), before);
    EXPECT_EQ(listener_.losses(), losses + 1);
    EXPECT_EQ(listener_.lost(),
              LostStages(std::vector<int32_t>{2 * static_cast<int32_t>(gone)}));
    const size_t results = listener_.results().size();
    client->plans().Submit(Plan(0, 5));
    EXPECT_TRUE(
        Eventually([&] { return listener_.results().size() > results; }));
  }
}

TEST_F(PipelineAssemblerTest, AStageThatLoadsIsShownSoAndTakenWhenItHasLoaded) {
  FakeStageOptions options;
  options.info = FakeInfo(0, 1);
  options.loaded = false;
  stages_.push_back(std::make_unique<FakeStage>(options));
  stages_[0]->session().SetLoading("42 % of 100 MB");
  const auto client = Connect();
  ASSERT_TRUE(
      Eventually([&] { return State(*client, 0) == StageState::kLoading; }));
  EXPECT_EQ(client->status().stages[0].message, "42 % of 100 MB");
  stages_[0]->FinishLoading();
  EXPECT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
}

TEST_F(PipelineAssemblerTest, ASilentStageBecomesSuspectAndThenLost) {
  AddStages(2);
  Timing timing;
  timing.heartbeat = std::chrono::milliseconds(20);
  timing.suspect_after = std::chrono::milliseconds(500);
  timing.peer_timeout = std::chrono::seconds(4);
  const auto client = Connect(timing);
  ASSERT_TRUE(Eventually([&] { return client->ready(); }));
  stages_[1]->runner().SetMute(true);
  ASSERT_TRUE(
      Eventually([&] { return State(*client, 1) == StageState::kSuspect; }));
  EXPECT_FALSE(client->ready());
  EXPECT_THAT(client->status().message, HasSubstr("stage 1"));
  EXPECT_EQ(listener_.losses(), 0u);
  ASSERT_TRUE(Eventually([&] { return listener_.losses() == 1; }));
  EXPECT_THAT(listener_.loss(0), HasSubstr("stage 1"));
  EXPECT_THAT(listener_.loss(0), HasSubstr("silent for"));
  stages_[1]->runner().SetMute(false);
  EXPECT_TRUE(Eventually([&] { return listener_.ups() == 2; }));
}

TEST_F(PipelineAssemblerTest, ASuspectThatAnswersAgainIsReadyAgain) {
  AddStages(1);
  Timing timing;
  timing.heartbeat = std::chrono::milliseconds(20);
  timing.suspect_after = std::chrono::milliseconds(100);
  const auto client = Connect(timing);
  ASSERT_TRUE(Eventually([&] { return client->ready(); }));
  stages_[0]->runner().SetMute(true);
  ASSERT_TRUE(Eventually([&] { return !client->ready(); }));
  stages_[0]->runner().SetMute(false);
  EXPECT_TRUE(Eventually([&] { return client->ready(); }));
  EXPECT_EQ(listener_.losses(), 0u);
  EXPECT_EQ(listener_.ups(), 1u);
}

TEST_F(PipelineAssemblerTest, AResultIsASignOfLifeOfEveryStage) {
  AddStages(2);
  Timing timing;
  timing.heartbeat = std::chrono::milliseconds(20);
  // Far above what a loaded machine takes for a step.
  timing.suspect_after = std::chrono::seconds(1);
  timing.peer_timeout = std::chrono::seconds(2);
  const auto client = Connect(timing);
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  stages_[1]->runner().SetMute(true);  // too busy to answer
  const TimePoint end = Clock::now() + 3 * timing.peer_timeout;
  for (uint64_t step = 0; Clock::now() < end && !HasFailure(); ++step) {
    StepPlan plan = Plan(step, 5);
    plan.chunks[0].start = 0;
    client->plans().Submit(std::move(plan));
    EXPECT_TRUE(
        Eventually([&] { return listener_.results().size() == step + 1; }));
    EXPECT_TRUE(client->ready()) << client->status().message;
    // A step takes its time; as many as there can be would take a CPU.
    std::this_thread::sleep_for(timing.heartbeat / 4);
  }
  stages_[1]->runner().SetMute(false);
  EXPECT_EQ(listener_.losses(), 0u);
}

TEST_F(PipelineAssemblerTest, DrainedStagesAreThereForTheNextGateway) {
  AddStages(2);
  const auto first = Connect();
  ASSERT_TRUE(Eventually([&] { return first->ready(); }));
  const TimePoint begin = Clock::now();
  first->Drain(begin + std::chrono::seconds(60));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
  for (const auto& stage : stages_) EXPECT_TRUE(stage->session().draining());
  first->Stop();
  const auto second = Connect();
  EXPECT_TRUE(Eventually([&] { return second->ready(); }));
  for (const auto& stage : stages_) EXPECT_FALSE(stage->session().draining());
}

TEST_F(PipelineAssemblerTest, DrainWaitsForStepsUnderWayUntilItsDeadline) {
  AddStages(1);
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  stages_[0]->runner().HoldSteps();
  client->plans().Submit(Plan(0, 5));
  ASSERT_TRUE(
      Eventually([&] { return stages_[0]->runner().held_steps() == 1; }));
  const TimePoint deadline = Clock::now() + std::chrono::milliseconds(100);
  client->Drain(deadline);
  EXPECT_GE(Clock::now(), deadline);
  EXPECT_EQ(listener_.results().size(), 0u);
  stages_[0]->runner().ReleaseOne();
  client->Drain(Clock::now() + std::chrono::seconds(60));
  EXPECT_TRUE(Eventually([&] { return listener_.results().size() == 1; }));
}

TEST_F(PipelineAssemblerTest, ASecondGatewayIsRefusedUntilTheFirstLetsGo) {
  AddStages(1);
  auto first = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  const auto second = Connect();
  ASSERT_TRUE(
      Eventually([&] { return State(*second, 0) == StageState::kRefused; }));
  EXPECT_THAT(second->status().stages[0].message,
              HasSubstr("held by another gateway, at ipv4:127.0.0.1:"));
  EXPECT_TRUE(first->ready());
  EXPECT_EQ(first->status().epoch, Epoch(1, 1));
  first.reset();
  EXPECT_TRUE(Eventually([&] { return second->ready(); }));
  EXPECT_EQ(second->status().epoch, Epoch(2, 1));
}

TEST_F(PipelineAssemblerTest, ATermIsAboveThoseOfAllStages) {
  AddStages(2);
  for (int run = 1; run <= 3; ++run) {
    stages_[0].reset();  // it forgets; the other one does not
    FakeStageOptions options;
    options.info = FakeInfo(0, 2);
    stages_[0] = std::make_unique<FakeStage>(options);
    const auto client = Connect();
    ASSERT_TRUE(Eventually([&] { return client->ready(); }));
    EXPECT_EQ(client->status().epoch.term(), static_cast<uint64_t>(run));
  }
}

TEST_F(PipelineAssemblerTest, ASecondGatewayTakesNoStageBehindOneThatIsHeld) {
  AddStages(2);
  const auto first = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  const auto second = Connect();
  ASSERT_TRUE(
      Eventually([&] { return State(*second, 0) == StageState::kRefused; }));
  const std::string address = stages_[1]->address();
  for (size_t restart = 1; restart <= 3; ++restart) {
    stages_[1].reset();
    ASSERT_TRUE(Eventually([&] { return listener_.losses() == restart; }));
    FakeStageOptions options;
    options.info = FakeInfo(1, 2);
    options.listen = address;
    stages_[1] = std::make_unique<FakeStage>(options);
    ASSERT_TRUE(Eventually([&] { return first->ready(); }))
        << first->status().message;
    EXPECT_FALSE(second->ready());
  }
}

TEST_F(PipelineAssemblerTest, PlansBeyondTheCreditsWaitForAcks) {
  AddStages(2);
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  FakeStage& first = *stages_[0];
  first.runner().HoldSteps();
  for (uint64_t step = 0; step < 10; ++step)
    client->plans().Submit(Plan(step, 1));
  ASSERT_TRUE(Eventually([&] { return first.runner().held_steps() == 4; }));
  for (size_t done = 1; done <= 10; ++done) {
    ASSERT_TRUE(Eventually([&] { return first.runner().held_steps() > 0; }));
    EXPECT_LE(first.runner().held_steps(), 4);
    first.runner().ReleaseOne();
    ASSERT_TRUE(Eventually([&] { return listener_.results().size() == done; }));
  }
}

TEST_F(PipelineAssemblerTest, PlansOfAnotherEpochAreDropped) {
  AddStages(1);
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  StepPlan stale = Plan(0, 1);
  stale.epoch = Epoch(stale.epoch.term(), stale.epoch.count() - 1);
  client->plans().Submit(stale);
  client->plans().Submit(Plan(0, 2));
  ASSERT_TRUE(Eventually([&] { return listener_.results().size() == 1; }));
  EXPECT_EQ(listener_.results()[0].sequences[0].sampled[0].token, 2);
}

TEST_F(PipelineAssemblerTest, ABrokenPipelineIsBuiltAnew) {
  AddStages(2);
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  client->plans().OnPipelineBroken(Internal("no such step"));
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 2; }));
  EXPECT_EQ(listener_.losses(), 1u);
  EXPECT_THAT(listener_.loss(0), HasSubstr("no such step"));
  EXPECT_EQ(listener_.lost(), LostStages(std::vector<int32_t>()));
}

TEST_F(PipelineAssemblerTest, AStageWithoutALogComputesForTheNextOne) {
  for (const bool has_log : {false, true}) {
    stages_.clear();
    for (int i = 0; i < 4; ++i) {
      StageInfo info = FakeInfo(i, 4);
      info.replay_log = has_log && i == 0;
      AddStage(info);
    }
    const size_t ups = listener_.ups();
    const auto client = Connect();
    ASSERT_TRUE(Eventually([&] { return listener_.ups() > ups; }));
    EXPECT_EQ(listener_.lost(), std::nullopt);
    const std::string address = stages_[2]->address();
    stages_[2].reset();
    AddStage(FakeInfo(2, 4), address);
    std::swap(stages_[2], stages_.back());
    ASSERT_TRUE(Eventually([&] { return listener_.ups() > ups + 1; }))
        << client->status().message;
    const std::vector<int32_t> lost =
        has_log ? std::vector<int32_t>{2, 4} : std::vector<int32_t>{0, 2, 4};
    EXPECT_EQ(listener_.lost(), LostStages(lost));
  }
}

TEST_F(PipelineAssemblerTest, AResultThatThrowsBuildsThePipelineAnew) {
  AddStages(2);
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  listener_.ThrowOnce();
  client->plans().Submit(Plan(0, 1));
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 2; }));
  EXPECT_EQ(listener_.exceptions(), 1);
  EXPECT_THAT(listener_.loss(0), HasSubstr("out of memory"));
  client->plans().Submit(Plan(0, 2));
  ASSERT_TRUE(Eventually([&] { return listener_.results().size() == 1; }));
}

TEST_F(PipelineAssemblerTest, NoCallbackComesAfterStop) {
  AddStages(1);
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  client->Stop();
  stages_.clear();
  EXPECT_EQ(listener_.losses(), 0u);
  EXPECT_FALSE(client->ready());
}

TEST(PipelineOptionsTest, WhatCannotBeIsRefused) {
  EXPECT_FALSE(PipelineAssembler::Create({}).ok());
  PipelineOptions options;
  options.stages = {"stage-0:7000"};
  EXPECT_THAT(Message(PipelineAssembler::Create(options).status()),
              HasSubstr("--insecure"));
  options.stages = {"127.0.0.1"};
  EXPECT_FALSE(PipelineAssembler::Create(options).ok());
  options.stages = {"127.0.0.1:1"};
  options.suspect_after = std::chrono::seconds(11);
  EXPECT_THAT(Message(PipelineAssembler::Create(options).status()),
              HasSubstr("must rise"));
}

}  // namespace
}  // namespace sluice
