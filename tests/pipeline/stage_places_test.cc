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
    client->plans().Submit(Plan(0, 41));
    ASSERT_TRUE(Eventually([&] { return listener_.results().size() == ups; }));
    EXPECT_EQ(listener_.results().back().sequences[0].sampled[0].token,
              kPlusOne);
  }
  const PipelineStatus status = client->status();
  EXPECT_TRUE(status.ready) << status.message;
  EXPECT_EQ(status.stages[1].address, spare);
  EXPECT_EQ(status.stages[1].identity.place(), (StagePlace{2, 4}));
  EXPECT_EQ(status.stages[0].identity.place(), (StagePlace{0, 2}));
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
    EXPECT_EQ(client->status().stages[1].identity.place(),
              (StagePlace{cut, 4}));
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

TEST_F(StagePlacesTest, ASpareOfAnotherModelIsNotTaken) {
  AddStages(2);
  StageInfo other = FakeInfo(0, 2);
  other.model_digest = "d2";
  AddSpare(other);
  AddSpare(FakeInfo(0, 2));
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 1; }));
  stages_[1].reset();
  ASSERT_TRUE(Eventually([&] { return listener_.ups() == 2; }));
  EXPECT_EQ(client->status().stages[1].address, spares_[1]->address());
  stages_[0].reset();
  ASSERT_TRUE(Eventually([&] {
    return client->status().spares[0].state == StageState::kRefused;
  }));
  EXPECT_THAT(client->status().spares[0].message,
              HasSubstr("its model digest is d2"));
  EXPECT_FALSE(client->ready());
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
