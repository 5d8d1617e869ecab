// Places and blocks are shared out among clients that want more than there is.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

class SchedulerShareTest : public ::testing::Test {
 protected:
  static EngineOptions Options(int max_running) {
    EngineOptions options;
    options.max_running = max_running;
    options.prefix_cache = false;
    return options;
  }

  void Start(const EngineOptions& options, int blocks) {
    harness_.emplace(options, TestLimits(blocks));
    harness_->set_now(now_);
  }

  SequenceId Add(const std::string& client, int length, int max_tokens) {
    GenerateRequest request = TestRequest(length, max_tokens, ++seed_);
    request.client = client;
    return harness_->Add(request);
  }

  // `count` steps, none of which takes any time.
  void Steps(int count) {
    for (int i = 0; i < count; ++i) {
      harness_->Plan();
      ASSERT_TRUE(harness_->Commit());
    }
  }

  void Pass(Duration time) { harness_->set_now(now_ += time); }

  std::map<std::string, int> Running() const {
    std::map<std::string, int> running;
    for (const auto& client : harness_->scheduler().Queue().clients) {
      running[client.name] = client.running;
    }
    return running;
  }

  bool Ended(SequenceId id) const {
    return !harness_->outcome(id).ends.empty();
  }

  // All of them, as if each had been alone.
  void FinishAsAlone() {
    harness_->RunToEnd();
    for (const auto& [id, outcome] : harness_->outcomes()) {
      EXPECT_EQ(outcome.result(), Undisturbed(harness_->request(id), 50));
    }
  }

  std::optional<SchedulerHarness> harness_;

 private:
  TimePoint now_ = Clock::now();
  uint64_t seed_ = 0;
};

constexpr auto kTurn = std::chrono::milliseconds(501);

TEST_F(SchedulerShareTest, LongGenerationsMakeWayForAnotherClientsShortOne) {
  Start(Options(4), 400);
  std::vector<SequenceId> longs;
  for (int i = 0; i < 6; ++i) longs.push_back(Add("long", 10, 300));
  Steps(5);
  Pass(kTurn);
  const SequenceId brief = Add("brief", 10, 5);
  Steps(8);
  EXPECT_TRUE(Ended(brief));
  for (const SequenceId id : longs) EXPECT_FALSE(Ended(id));
  EXPECT_EQ(harness_->counters().yields, 1u);
  FinishAsAlone();
}

TEST_F(SchedulerShareTest, TwoClientsEndUpWithHalfOfThePlacesEach) {
  Start(Options(8), 400);
  for (int i = 0; i < 12; ++i) Add("a", 10, 300);
  Steps(5);
  Pass(kTurn);
  for (int i = 0; i < 12; ++i) Add("b", 10, 300);
  Steps(10);
  EXPECT_EQ(Running(), (std::map<std::string, int>{{"a", 4}, {"b", 4}}));
  // From here on nobody takes anything from anybody.
  const uint64_t yields = harness_->counters().yields;
  Pass(kTurn);
  Steps(50);
  EXPECT_EQ(harness_->counters().yields, yields);
  FinishAsAlone();
}

TEST_F(SchedulerShareTest, AClientAloneHasAllPlacesAndIsNotDisturbed) {
  Start(Options(8), 400);
  for (int i = 0; i < 30; ++i) Add("a", 10, 50);
  Steps(5);
  Pass(kTurn);
  EXPECT_EQ(Running(), (std::map<std::string, int>{{"a", 8}}));
  FinishAsAlone();
  EXPECT_EQ(harness_->counters().preemptions, 0u);
}

TEST_F(SchedulerShareTest, ASequenceKeepsItsPlaceForItsTurn) {
  Start(Options(2), 400);
  Add("a", 10, 100);
  Add("a", 10, 100);
  Steps(3);
  Pass(std::chrono::milliseconds(400));
  Add("b", 10, 5);
  Steps(5);
  EXPECT_EQ(harness_->counters().yields, 0u);
  Pass(std::chrono::milliseconds(200));
  Steps(5);
  EXPECT_EQ(harness_->counters().yields, 1u);
  FinishAsAlone();
}

TEST_F(SchedulerShareTest, AClientOfOnePlaceGivesItToNobody) {
  Start(Options(1), 400);
  const SequenceId first = Add("a", 10, 100);
  Steps(3);
  Pass(kTurn);
  const SequenceId later = Add("b", 10, 5);
  Steps(20);
  EXPECT_EQ(harness_->counters().yields, 0u);
  EXPECT_FALSE(Ended(later));
  FinishAsAlone();
  EXPECT_TRUE(Ended(first));
}

TEST_F(SchedulerShareTest, AFlagCapsThePlacesOfOneWhileAnotherWaits) {
  EngineOptions options = Options(8);
  options.max_running_per_client = 2;
  Start(options, 400);
  for (int i = 0; i < 8; ++i) Add("a", 10, 300);
  Steps(5);
  EXPECT_EQ(Running()["a"], 8);
  Pass(kTurn);
  for (int i = 0; i < 8; ++i) Add("b", 10, 300);
  Steps(10);
  EXPECT_EQ(Running()["b"], 2);
  EXPECT_EQ(Running()["a"], 6);
  FinishAsAlone();
}

TEST_F(SchedulerShareTest, BlocksAreGivenAwayAsPlacesAre) {
  Start(Options(64), 20);
  Add("large", 130, 20);
  Add("large", 130, 20);
  Steps(3);
  ASSERT_EQ(Running()["large"], 2);
  Pass(kTurn);
  const SequenceId brief = Add("brief", 60, 5);
  Steps(8);
  EXPECT_TRUE(Ended(brief));
  EXPECT_GE(harness_->counters().yields, 1u);
  FinishAsAlone();
}

TEST_F(SchedulerShareTest, AClientsOwnGrowthTakesNoBlocksFromAnother) {
  Start(Options(64), 30);
  Add("grows", 60, 180);
  Add("grows", 60, 180);
  Steps(2);
  const SequenceId small = Add("small", 30, 150);
  FinishAsAlone();
  EXPECT_EQ(harness_->outcome(small).ends[0].stats.preemptions, 0);
  EXPECT_GT(harness_->counters().preemptions, 0u);
}

TEST_F(SchedulerShareTest, OneThatWaitsForBlocksHoldsUpNoClientWithLess) {
  Start(Options(64), 30);
  Add("large", 240, 100);
  Add("large", 240, 30);
  Steps(3);
  ASSERT_EQ(Running()["large"], 1);
  const SequenceId brief = Add("brief", 30, 5);
  Steps(8);
  EXPECT_TRUE(Ended(brief));
  FinishAsAlone();
}

}  // namespace
}  // namespace sluice
