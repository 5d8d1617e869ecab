// Places, spares, and stages that load what they are assigned.
#include "common/pipeline/gateway/stage_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/pipeline/assembler_fixture.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::FakeInfo;
using testing::FakeStage;
using testing::FakeStageOptions;
using ::testing::HasSubstr;
using testing::Timing;

class StagePlacesTest : public testing::PipelineAssemblerTest {};

// What a step gives that passes through two stages of FakeRunner.
constexpr TokenId kPlusOne = 41 + 1;

TEST_F(StagePlacesTest, ASpareTakesThePlaceOfALostStageInANewEpoch) {
  AddStages(2);
  AddSpare(FakeInfo(0, 2));
  AddSpare(FakeInfo(0, 2));
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }))
      << client->status().message;
  ASSERT_TRUE(Eventually([&] { return SparesAreThere(*client); }));
  const std::string spare = spares_[0]->address();
  const Epoch before = listener_.epoch();
  for (const size_t lost : {1, 0}) {
    const size_t ups = listener_.ups();
    stages_[lost].reset();
    ASSERT_TRUE(Eventually([&] { return listener_.ups() > ups; }))
        << client->status().message;
    EXPECT_EQ(listener_.losses(), ups);
    EXPECT_GT(listener_.epoch(), before);
    EXPECT_EQ(listener_.num_stages(), 2);
    EXPECT_EQ(listener_.lost(),
              LostStages(std::vector<int32_t>{lost == 0 ? 0 : 2}));
    client->plans().Submit(Plan(0, 41));
    ASSERT_TRUE(Eventually([&] { return listener_.results().size() == ups; }));
    EXPECT_EQ(listener_.results().back().sequences[0].sampled[0].token,
              kPlusOne);
  }
  const PipelineStatus status = client->status();
  EXPECT_TRUE(status.ready) << status.message;
  EXPECT_EQ(status.stages[1].address, spare);
  EXPECT_EQ(status.stages[1].place(), (StagePlace{2, 4}));
  EXPECT_EQ(status.stages[0].place(), (StagePlace{0, 2}));
  ASSERT_EQ(status.spares.size(), 2u);
  EXPECT_EQ(status.spares[0].state, StageState::kLost);
}

TEST_F(StagePlacesTest, AssignedStagesTakeThePlacesThatAreNamed) {
  stages_.resize(2);
  for (auto& stage : stages_) {
    FakeStageOptions options;
    options.info = FakeInfo(0, 2);
    options.loads = OkStatus();
    stage = std::make_unique<FakeStage>(options);
  }
  for (const int32_t cut : {1, 3}) {
    places_ = {{0, cut}, {cut, 4}};
    const size_t ups = listener_.ups();
    const auto client = Connect();
    ASSERT_TRUE(Eventually([&] { return listener_.ups() > ups; }))
        << client->status().message;
    EXPECT_EQ(client->status().stages[1].place(), (StagePlace{cut, 4}));
    client->plans().Submit(Plan(0, 41));
    ASSERT_TRUE(Eventually([&] { return listener_.results().size() > ups; }));
    EXPECT_EQ(listener_.results().back().sequences[0].sampled[0].token,
              kPlusOne);
  }
}

TEST_F(StagePlacesTest, StagesWithoutLayersWaitToBeTold) {
  AddStage(FakeInfo(0, 2));
  AddSpare(FakeInfo(0, 2));
  stages_.push_back(std::move(spares_[0]));
  spares_.clear();
  const auto client = Connect();
  EXPECT_TRUE(Eventually([&] {
    return client->status().message.find("waits to be told its layers") !=
           std::string::npos;
  })) << client->status().message;
}

TEST_F(StagePlacesTest, ANewGatewayWaitsForNoStageWhoseLayersASpareHolds) {
  AddStages(2);
  FakeStageOptions successor;
  successor.info = FakeInfo(1, 2);
  successor.loads = OkStatus();
  successor.begins_loaded = true;
  spares_.push_back(std::make_unique<FakeStage>(successor));
  PipelineOptions options = Options({.peer_timeout = std::chrono::seconds(60)});
  stages_[1].reset();  // before the gateway begins
  const auto client = Connect(std::move(options));
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }))
      << client->status().message;
  EXPECT_EQ(client->status().stages[1].address, spares_[0]->address());
}

TEST_F(StagePlacesTest, ASpareOfAnotherModelIsNotTaken) {
  AddStages(2);
  StageInfo other = FakeInfo(0, 2);
  other.model_digest = "d2";
  AddSpare(other);
  AddSpare(FakeInfo(0, 2));
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  ASSERT_TRUE(Eventually([&] {  // before it is needed
    return client->status().spares[0].state == StageState::kRefused &&
           client->status().spares[1].state == StageState::kReady;
  }));
  stages_[1].reset();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 2; }));
  EXPECT_EQ(client->status().stages[1].address, spares_[1]->address());
  stages_[0].reset();
  EXPECT_TRUE(Eventually([&] { return !client->ready(); }));
  ASSERT_TRUE(Eventually([&] {
    return client->status().spares[0].state == StageState::kRefused;
  }));
  EXPECT_THAT(client->status().spares[0].message,
              HasSubstr("its model digest is d2"));
}

TEST_F(StagePlacesTest, AStageOfAnotherModelLosesItsPlaceToASpare) {
  AddStage(FakeInfo(0, 2));
  StageInfo other = FakeInfo(1, 2);
  other.model_digest = "d2";
  AddStage(other);
  AddSpare(FakeInfo(0, 2));
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }))
      << client->status().message;
  EXPECT_EQ(client->status().stages[1].address, spares_[0]->address());
}

TEST_F(StagePlacesTest, TheGatewaysModelCountsNotThatOfTheFirstPlace) {
  check_model_ = [](const StageFacts& stage) {
    if (stage.model_digest == "d1") return OkStatus();
    return FailedPrecondition("it has ", stage.model_digest, ", wanted d1");
  };
  StageInfo other = FakeInfo(0, 2);
  other.model_digest = "d2";
  AddStage(other);
  AddStage(FakeInfo(1, 2));
  AddSpare(other);
  AddSpare(FakeInfo(0, 2));
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }))
      << client->status().message;
  EXPECT_EQ(client->status().stages[0].address, spares_[1]->address());
  EXPECT_EQ(client->status().stages[1].address, stages_[1]->address());
}

TEST_F(StagePlacesTest, ASpareWithOtherNumericsIsRefused) {
  AddStages(2);
  StageInfo other = FakeInfo(0, 2);
  other.numerics = "n2";
  AddSpare(other);
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  stages_[1].reset();
  EXPECT_TRUE(Eventually([&] {
    return client->status().message.find("its numerics is n2") !=
           std::string::npos;
  })) << client->status().message;
  EXPECT_EQ(State(*client, 1), StageState::kRefused);
}

// Also where it took the first place, which the others are compared with.
TEST_F(StagePlacesTest, ASpareWithOtherNumericsLeavesTheFirstPlaceToTheNext) {
  AddStages(2);
  StageInfo other = FakeInfo(0, 2);
  other.numerics = "n2";
  AddSpare(other);
  AddSpare(FakeInfo(0, 2));
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  stages_[0].reset();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 2; }))
      << client->status().message;
  const PipelineStatus status = client->status();
  EXPECT_EQ(status.stages[0].address, spares_[1]->address());
  EXPECT_EQ(status.stages[1].address, stages_[1]->address());
}

TEST_F(StagePlacesTest, APlaceThatTheModelHasNotIsRefused) {
  AddStage(FakeInfo(0, 2));
  AddSpare(FakeInfo(0, 2));
  stages_.push_back(std::move(spares_[0]));
  spares_.clear();
  places_ = {{0, 2}, {2, 9}};
  const auto client = Connect();
  EXPECT_TRUE(Eventually([&] {
    return client->status().message.find(
               "the place has layers 2 to 8, the model has layers 0 to 3") !=
           std::string::npos;
  })) << client->status().message;
  EXPECT_EQ(State(*client, 1), StageState::kRefused);
}

TEST_F(StagePlacesTest, LayersThatCannotBeLoadedAreToldAndPassedOn) {
  AddStages(2);
  AddSpare(FakeInfo(0, 2), FailedPrecondition("no memory for layers 2 to 3"));
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  stages_[1].reset();
  ASSERT_TRUE(Eventually([&] {
    return client->status().stages[1].message == "no memory for layers 2 to 3";
  })) << client->status().message;
  EXPECT_EQ(State(*client, 1), StageState::kRefused);
}

TEST_F(StagePlacesTest, AStageThatComesBackWithItsLayersKeepsItsPlace) {
  AddStages(2);
  AddSpare(FakeInfo(0, 2));
  Timing timing;
  timing.heartbeat = std::chrono::milliseconds(20);
  timing.suspect_after = std::chrono::milliseconds(200);
  timing.peer_timeout = std::chrono::milliseconds(800);
  const auto client = Connect(timing);
  ASSERT_TRUE(Eventually([&] { return client->ready(); }));
  stages_[1]->runner().SetMute(true);
  ASSERT_TRUE(Eventually([&] { return listener_.losses() == 1; }));
  stages_[1]->runner().SetMute(false);
  ASSERT_TRUE(Eventually([&] { return client->ready(); }));
  EXPECT_EQ(client->status().stages[1].address, stages_[1]->address());
  EXPECT_TRUE(client->status().spares[0].place().empty());
}

TEST_F(StagePlacesTest, AProcessThatWasAwayForAnEpochHasLostItsKvCache) {
  AddStages(2);
  AddSpare(FakeInfo(0, 2));
  Timing timing;
  timing.heartbeat = std::chrono::milliseconds(20);
  timing.suspect_after = std::chrono::milliseconds(200);
  timing.peer_timeout = std::chrono::milliseconds(800);
  const auto client = Connect(timing);
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  ASSERT_TRUE(Eventually([&] { return SparesAreThere(*client); }));
  FakeStage& away = *stages_[1];
  const auto second = [&] { return client->status().stages[1].address; };
  away.session().SetStanding(true);
  away.runner().SetMute(true);
  ASSERT_TRUE(Eventually([&] { return listener_.losses() == 1; }));
  away.runner().SetMute(false);
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 2; }))
      << client->status().message;
  EXPECT_EQ(second(), spares_[0]->address());
  EXPECT_EQ(listener_.lost(), LostStages(std::vector<int32_t>{2}));

  // It never ended, and has its place again. But plans ran without it.
  away.session().SetStanding(false);
  ASSERT_TRUE(Eventually(
      [&] { return client->status().spares[0].state == StageState::kReady; }));
  spares_[0].reset();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 3; }))
      << client->status().message;
  EXPECT_EQ(second(), away.address());
  EXPECT_EQ(listener_.lost(), LostStages(std::vector<int32_t>{2}));

  client->plans().OnPipelineBroken(Internal("no such step"));
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 4; }));
  EXPECT_EQ(listener_.lost(), LostStages(std::vector<int32_t>()));
}

TEST_F(StagePlacesTest, NobodyHoldsAStageThatStandsStill) {
  AddStages(2);
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  StageSession& session = stages_[1]->session();
  session.SetStanding(true);
  EXPECT_TRUE(session.held());
  client->plans().OnPipelineBroken(Internal("no such step"));
  ASSERT_TRUE(Eventually([&] { return !session.held(); }));
  EXPECT_EQ(listener_.ups(), 1);
  session.SetStanding(false);
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 2; }))
      << client->status().message;
}

// Each break is reported by the stage, its neighbour or the gateway, whoever is
// first, and the spare has to load the layers.
TEST_F(StagePlacesTest, AStageWhoseStreamsBreakAgainLosesItsPlaceToASpare) {
  AddStages(2);
  AddSpare(FakeInfo(0, 2));
  const auto client = Connect();
  const auto second = [&] { return client->status().stages[1].address; };
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  ASSERT_TRUE(Eventually([&] { return SparesAreThere(*client); }));
  size_t breaks = 0;
  const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
  while (second() == stages_[1]->address() && Clock::now() < deadline) {
    stages_[1]->runner().BreakStreams();
    ++breaks;
    ASSERT_TRUE(Eventually([&] { return listener_.ups() == breaks + 1; }))
        << client->status().message;
    ASSERT_TRUE(Eventually([&] { return SparesAreThere(*client); }));
  }
  EXPECT_EQ(second(), spares_[0]->address());
  EXPECT_GE(breaks, static_cast<size_t>(kMostBreaks));
  EXPECT_FALSE(stages_[1]->session().held());
  client->plans().Submit(Plan(0, 41));
  EXPECT_TRUE(Eventually([&] { return listener_.results().size() == 1; }));

  // It is needed again, before its pause is over.
  const size_t ups = listener_.ups();
  spares_[0].reset();
  ASSERT_TRUE(
      Eventually([&] { return listener_.ups() > ups; }, kGivenUpPause / 2))
      << client->status().message;
  EXPECT_EQ(second(), stages_[1]->address());
}

TEST_F(StagePlacesTest, AStageWhoseStreamsBreakAgainServesOnWithoutASpare) {
  AddStages(2);
  const auto client = Connect();
  for (size_t ups = 1; ups <= 4; ++ups) {
    ASSERT_TRUE(Eventually([&] { return listener_.ups() == ups; }))
        << client->status().message;
    EXPECT_TRUE(stages_[1]->session().held());
    stages_[1]->runner().BreakStreams();
  }
}

TEST_F(StagePlacesTest, ASpareThatLoadsIsShownSoAndWaitedFor) {
  AddStages(2);
  AddSpare(FakeInfo(0, 2), OkStatus(), /*holds_loads=*/true);
  AddSpare(FakeInfo(0, 2));
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  ASSERT_TRUE(Eventually([&] { return SparesAreThere(*client); }));
  stages_[1].reset();
  ASSERT_TRUE(Eventually([&] {
    return State(*client, 1) == StageState::kLoading &&
           client->status().stages[1].message == testing::kFakeProgress;
  })) << client->status().message;
  EXPECT_THAT(client->status().message, HasSubstr(testing::kFakeProgress));
  EXPECT_EQ(client->status().stages[1].address, spares_[0]->address());
  EXPECT_FALSE(client->ready());
  spares_[0]->FinishLoading();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 2; }))
      << client->status().message;
  EXPECT_EQ(client->status().stages[1].address, spares_[0]->address());
}

constexpr Timing kImpatient = {.peer_timeout = std::chrono::milliseconds(500),
                               .suspect_after = std::chrono::milliseconds(200)};

TEST_F(StagePlacesTest, ThePlacesBesideItTellTheLayersOfAPlaceThatIsGone) {
  AddStages(3);
  AddSpare(FakeInfo(0, 3));
  PipelineOptions options = Options(kImpatient);
  stages_[1].reset();  // before the gateway begins
  const auto client = Connect(std::move(options));
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }))
      << client->status().message;
  EXPECT_EQ(client->status().stages[1].address, spares_[0]->address());
  EXPECT_EQ(client->status().stages[1].place(), (StagePlace{2, 4}));
}

TEST_F(StagePlacesTest, ANeighbourThatIsGoneTooIsNamedWithTheFlagThatHelps) {
  AddStages(3);
  AddSpare(FakeInfo(0, 3));
  PipelineOptions options = Options(kImpatient);
  for (const size_t gone : {1, 2}) stages_[gone].reset();
  const auto client = Connect(std::move(options));
  EXPECT_TRUE(Eventually([&] {
    return client->status().message.find("if --layers names them") !=
           std::string::npos;
  })) << client->status().message;
}

TEST_F(StagePlacesTest, PlacesThatDoNotFitTheStagesAreRefused) {
  PipelineOptions options;
  options.stages = {"127.0.0.1:1", "127.0.0.1:2"};
  options.places = {{0, 4}};
  const auto client = PipelineAssembler::Create(options);
  EXPECT_EQ(client.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(client.status()), HasSubstr("1 places"));
}

}  // namespace
}  // namespace sluice
