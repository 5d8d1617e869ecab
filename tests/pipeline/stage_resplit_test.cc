// The layers are split anew: over fewer stages, and over more.
#include "common/pipeline/gateway/stage_resplit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/pipeline/assembler_fixture.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Eventually;
using testing::FakeRoomyInfo;
using testing::FakeStage;
using testing::FakeStageOptions;
using ::testing::HasSubstr;

class StageResplitTest : public testing::PipelineAssemblerTest {
 protected:
  // A stage with layers of its own, which loads others when it is told to.
  std::unique_ptr<FakeStage> Make(const StageInfo& info,
                                  const std::string& listen = "127.0.0.1:0") {
    FakeStageOptions options;
    options.info = info;
    options.listen = listen;
    options.loads = OkStatus();
    options.begins_loaded = true;
    return std::make_unique<FakeStage>(options);
  }
  void AddAssignable(int count, uint64_t memory = 1 << 20) {
    for (int i = 0; i < count; ++i) {
      stages_.push_back(Make(FakeRoomyInfo(i, count, memory)));
    }
  }
  std::unique_ptr<PipelineAssembler> Start(
      Duration shrink_after = milliseconds(50),
      Duration grow_after = milliseconds(50)) {
    PipelineOptions options = Options({});
    options.resplit = {shrink_after, grow_after};
    auto client = PipelineAssembler::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    (*client)->Start(&listener_);
    return *std::move(client);
  }
  bool UpTimes(size_t count) {
    return Eventually([&] { return listener_.ups() >= count; }, seconds(30));
  }
  static std::string LayersOf(const PipelineAssembler& client) {
    std::string text;
    for (const StageStatus& stage : client.status().stages) {
      text += Cat(text.empty() ? "" : " ", stage.first_layer, "-",
                  stage.last_layer - 1);
    }
    return text;
  }
  // Whether a plan passes: every stage but the first adds one to the token.
  bool Serves(PipelineAssembler& client) {
    const size_t before = listener_.results().size();
    client.plans().Submit(Plan(0, 41));
    if (!Eventually([&] { return listener_.results().size() > before; })) {
      return false;
    }
    return listener_.results().back().sequences[0].sampled[0].token ==
           40 + listener_.num_stages();
  }
};

TEST_F(StageResplitTest, TheOthersTakeTheLayersOfALostStageAndGiveThemBack) {
  AddAssignable(3);
  const auto client = Start();
  ASSERT_TRUE(UpTimes(1)) << client->status().message;
  EXPECT_EQ(client->status().full_count, 3u);
  const std::string address = stages_[1]->address();
  stages_[1].reset();
  ASSERT_TRUE(UpTimes(2)) << client->status().message;
  EXPECT_EQ(listener_.num_stages(), 2);
  EXPECT_EQ(LayersOf(*client), "0-2 3-5");
  EXPECT_EQ(listener_.lost(), std::nullopt);
  EXPECT_TRUE(client->ready());
  EXPECT_TRUE(Serves(*client));
  EXPECT_EQ(listener_.resplits(), 0);
  EXPECT_EQ(client->status().spares[0].address, address);

  stages_[1] = Make(FakeRoomyInfo(1, 3), address);
  ASSERT_TRUE(UpTimes(3)) << client->status().message;
  EXPECT_EQ(listener_.num_stages(), 3);
  EXPECT_EQ(LayersOf(*client), "0-1 2-3 4-5");
  EXPECT_EQ(client->status().stages[1].address, address);
  EXPECT_TRUE(Serves(*client));
  EXPECT_EQ(listener_.resplits(), 1);
  EXPECT_EQ(listener_.losses(), 1u);
  EXPECT_EQ(client->status().shrinks, 1u);
  EXPECT_EQ(client->status().growths, 1u);
}

TEST_F(StageResplitTest, AStageThatKeepsItsLayersKeepsItsKvCache) {
  AddAssignable(4);
  const auto client = Start(milliseconds(50), seconds(100));
  ASSERT_TRUE(UpTimes(1)) << client->status().message;
  stages_[3].reset();
  ASSERT_TRUE(UpTimes(2)) << client->status().message;
  EXPECT_EQ(LayersOf(*client), "0-1 2-4 5-7");
  EXPECT_EQ(listener_.lost(), LostStages(std::vector<int32_t>{2, 5}));
  EXPECT_TRUE(Serves(*client));
}

TEST_F(StageResplitTest, OneStageMayBeLeft) {
  AddAssignable(3);
  const auto client = Start();
  ASSERT_TRUE(UpTimes(1));
  for (const size_t lost : {0, 2}) stages_[lost].reset();
  ASSERT_TRUE(Eventually([&] { return listener_.num_stages() == 1; }))
      << client->status().message;
  EXPECT_EQ(LayersOf(*client), "0-5");
  EXPECT_TRUE(Serves(*client));
}

TEST_F(StageResplitTest, AProcessThatIsBackInTimeHasItsPlaceAgain) {
  AddAssignable(2);
  const auto client = Start(seconds(100));
  ASSERT_TRUE(UpTimes(1));
  const std::string address = stages_[1]->address();
  stages_[1].reset();
  ASSERT_TRUE(Eventually([&] { return listener_.losses() == 1; }));
  stages_[1] = Make(FakeRoomyInfo(1, 2), address);
  ASSERT_TRUE(UpTimes(2)) << client->status().message;
  EXPECT_EQ(LayersOf(*client), "0-1 2-3");
  EXPECT_EQ(client->status().shrinks, 0u);
}

TEST_F(StageResplitTest, LayersThatDoNotFitAreNamed) {
  AddAssignable(3, /*memory=*/250);
  const auto client = Start();
  ASSERT_TRUE(UpTimes(1));
  stages_[1].reset();
  EXPECT_TRUE(Eventually([&] {
    return client->status().message.find(
               "is gone, nothing takes its place, and the other stages "
               "cannot: no split of 6 layers over 2 processes fits their "
               "memory: 250, 250 bytes") != std::string::npos;
  })) << client->status().message;
  EXPECT_EQ(client->status().stages.size(), 3u);
  EXPECT_FALSE(client->ready());
}

TEST_F(StageResplitTest, StagesThatAreNotAssignableKeepTheirLayers) {
  AddStages(2);
  const auto client = Start();
  ASSERT_TRUE(UpTimes(1));
  stages_[1].reset();
  EXPECT_TRUE(Eventually([&] {
    return client->status().message.find("no split of 4 layers over 1") !=
           std::string::npos;
  })) << client->status().message;
  EXPECT_EQ(client->status().stages.size(), 2u);
}

TEST_F(StageResplitTest, ASpareComesBeforeANewSplit) {
  AddAssignable(2);
  AddSpare(FakeRoomyInfo(0, 2));
  const auto client = Start();
  ASSERT_TRUE(UpTimes(1));
  ASSERT_TRUE(Eventually([&] { return SparesAreThere(*client); }));
  stages_[0].reset();
  ASSERT_TRUE(UpTimes(2)) << client->status().message;
  EXPECT_EQ(LayersOf(*client), "0-1 2-3");
  EXPECT_EQ(client->status().shrinks, 0u);
}

TEST_F(StageResplitTest, ASpareThatComesLaterMakesThePipelineLargerAgain) {
  AddAssignable(2);
  const std::string address = [] {
    FakeStageOptions options;
    options.info = FakeRoomyInfo(0, 2);
    return FakeStage(options).address();
  }();
  spares_.clear();
  PipelineOptions options = Options({});
  options.spares = {address};
  options.resplit = {milliseconds(50), milliseconds(50)};
  const auto client = Connect(std::move(options));
  ASSERT_TRUE(UpTimes(1));
  stages_[1].reset();
  ASSERT_TRUE(UpTimes(2)) << client->status().message;
  EXPECT_EQ(LayersOf(*client), "0-3");
  FakeStageOptions late;
  late.info = FakeRoomyInfo(0, 2);
  late.loads = OkStatus();
  late.listen = address;
  spares_.push_back(std::make_unique<FakeStage>(late));
  ASSERT_TRUE(UpTimes(3)) << client->status().message;
  EXPECT_EQ(LayersOf(*client), "0-1 2-3");
  EXPECT_TRUE(Serves(*client));
}

// The wait for a quiet time begins anew with every process that comes.
TEST_F(StageResplitTest, AProcessThatComesAndGoesChangesNothing) {
  AddAssignable(2);
  const auto client = Start(milliseconds(50), seconds(30));
  ASSERT_TRUE(UpTimes(1));
  const std::string address = stages_[1]->address();
  stages_[1].reset();
  ASSERT_TRUE(UpTimes(2)) << client->status().message;
  const auto spare = [&] { return client->status().spares[0].state; };
  for (int i = 0; i < 3; ++i) {
    stages_[1] = Make(FakeRoomyInfo(1, 2), address);
    ASSERT_TRUE(Eventually([&] { return spare() == StageState::kReady; }));
    stages_[1].reset();
    ASSERT_TRUE(Eventually([&] { return spare() != StageState::kReady; }));
  }
  EXPECT_TRUE(Serves(*client));
  EXPECT_EQ(listener_.ups(), 2u);
  EXPECT_EQ(client->status().growths, 0u);
}

TEST_F(StageResplitTest, APauseThatMayNotBeIsNotMade) {
  AddAssignable(2);
  listener_.SetPauseCost(INT64_MAX);
  const auto client = Start();
  ASSERT_TRUE(UpTimes(1));
  const std::string address = stages_[1]->address();
  stages_[1].reset();
  ASSERT_TRUE(UpTimes(2)) << client->status().message;
  stages_[1] = Make(FakeRoomyInfo(1, 2), address);
  ASSERT_TRUE(Eventually(
      [&] { return client->status().spares[0].state == StageState::kReady; }));
  EXPECT_TRUE(Serves(*client));
  EXPECT_EQ(listener_.ups(), 2u);
  listener_.SetPauseCost(0);
  ASSERT_TRUE(UpTimes(3)) << client->status().message;
  EXPECT_EQ(listener_.num_stages(), 2);
}

// As after a restart of the gateway alone, while the cluster is smaller.
TEST_F(StageResplitTest, StagesThatBeginWithLayersTwiceAgreeOnASplit) {
  for (const auto& [first, last] :
       std::vector<std::pair<int, int>>{{0, 3}, {3, 6}, {4, 6}}) {
    StageInfo info = FakeRoomyInfo(0, 3);
    info.first_layer = first;
    info.last_layer = last;
    info.replay_log = !info.is_last();
    stages_.push_back(Make(info));
  }
  const auto client = Start();
  ASSERT_TRUE(UpTimes(1)) << client->status().message;
  EXPECT_EQ(LayersOf(*client), "0-1 2-3 4-5");
  EXPECT_TRUE(Serves(*client));
}

TEST_F(StageResplitTest, AssignedStagesNeedNobodyToNameTheirLayers) {
  for (int i = 0; i < 2; ++i) AddSpare(FakeRoomyInfo(0, 2));
  stages_ = std::move(spares_);
  spares_.clear();
  const auto client = Start();
  ASSERT_TRUE(UpTimes(1)) << client->status().message;
  EXPECT_EQ(LayersOf(*client), "0-1 2-3");
}

}  // namespace
}  // namespace sluice
