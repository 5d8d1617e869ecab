// Two gateways for the same stages: which one has them.
#include "common/pipeline/gateway/leadership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/core/epochs.h"
#include "common/rpc/status.h"
#include "tests/pipeline/assembler_fixture.h"
#include "tests/pipeline/gateway_run.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Eventually;
using testing::FakeInfo;
using testing::FakeStage;
using testing::FakeStageOptions;
using testing::GatewayRun;
using ::testing::HasSubstr;
using testing::PipelineAssemblerTest;

v1::Refusal::Reason ReasonOf(const Status& status) {
  v1::Refusal refusal;
  EXPECT_TRUE(refusal.ParseFromString(rpc::DetailsOf(status)));
  return refusal.reason();
}

// One of two gateways. Its thread "pipeline" can be stopped.
class Gateway {
 public:
  explicit Gateway(PipelineOptions options) {
    options.lease = seconds(1);
    options.heartbeat = milliseconds(50);
    auto made = PipelineAssembler::Create(std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    assembler_ = *std::move(made);
    PipelineCallbacks callbacks{
        [](Epoch, const PlanLimits&, int, const LostStages&) {},
        [](const Status&) {}, [](StepResult) {}};
    callbacks.on_superseded = [this](const Status&) { ++superseded_; };
    callbacks.stuck = [this] {
      MutexLock lock(mutex_);
      while (stopped_) changed_.Wait(mutex_);
      return false;
    };
    assembler_->Start(std::move(callbacks));
  }
  ~Gateway() { SetStopped(false); }

  // From its next tick on, while its pipeline is up.
  void SetStopped(bool stopped) {
    MutexLock lock(mutex_);
    stopped_ = stopped;
    changed_.NotifyAll();
  }
  bool Becomes(GatewayRole role) const {
    return Eventually([&] { return assembler_->role() == role; });
  }
  PipelineStatus status() const { return assembler_->status(); }
  uint64_t term() const { return TermOf(status().epoch); }
  int superseded() const { return superseded_; }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int> superseded_{0};
  std::unique_ptr<PipelineAssembler> assembler_;  // first to go
};

class LeadershipTest : public PipelineAssemblerTest {
 protected:
  std::unique_ptr<Gateway> Start() {
    return std::make_unique<Gateway>(Options({}));
  }
};

TEST(LeadershipRulesTest, ALeaderLeadsUntilAStageIsAnothers) {
  Leadership one;
  PipelineStatus status;
  EXPECT_EQ(status.role, GatewayRole::kCandidate);
  EXPECT_FALSE(one.Update(false, true, status));
  EXPECT_EQ(status.role, GatewayRole::kStandby);
  EXPECT_FALSE(one.Update(false, false, status)) << "the other has let go";
  EXPECT_EQ(status.role, GatewayRole::kCandidate);
  EXPECT_FALSE(one.Update(true, false, status));
  EXPECT_EQ(status.role, GatewayRole::kLeader);
  EXPECT_FALSE(one.Update(false, false, status)) << "a pipeline that recovers";
  EXPECT_EQ(status.role, GatewayRole::kLeader);
  EXPECT_TRUE(one.Update(false, true, status));
  EXPECT_FALSE(one.Update(false, true, status)) << "told once";
  EXPECT_EQ(status.role, GatewayRole::kStandby);
  EXPECT_EQ(status.takeovers, 1u);
}

TEST_F(LeadershipTest, AStandbyTakesOverWhenTheLeaderEnds) {
  AddStages(2);
  auto first = Start();
  ASSERT_TRUE(first->Becomes(GatewayRole::kLeader));
  const auto second = Start();
  ASSERT_TRUE(second->Becomes(GatewayRole::kStandby));
  EXPECT_EQ(second->status().takeovers, 0u);
  first.reset();
  ASSERT_TRUE(second->Becomes(GatewayRole::kLeader));
  EXPECT_EQ(second->term(), 2u);
  EXPECT_EQ(second->status().takeovers, 1u);
  EXPECT_EQ(second->superseded(), 0);
}

TEST_F(LeadershipTest, AStoppedLeaderFindsThatItIsTheStandby) {
  AddStages(2);
  const auto first = Start();
  ASSERT_TRUE(first->Becomes(GatewayRole::kLeader));
  auto second = Start();
  ASSERT_TRUE(second->Becomes(GatewayRole::kStandby));
  first->SetStopped(true);
  ASSERT_TRUE(second->Becomes(GatewayRole::kLeader));
  EXPECT_EQ(second->term(), 2u);
  EXPECT_EQ(first->superseded(), 0);
  first->SetStopped(false);
  ASSERT_TRUE(first->Becomes(GatewayRole::kStandby));
  EXPECT_TRUE(Eventually([&] { return first->superseded() == 1; }));
  EXPECT_TRUE(second->Becomes(GatewayRole::kLeader)) << "it goes on";
  EXPECT_EQ(second->superseded(), 0);
  second.reset();
  ASSERT_TRUE(first->Becomes(GatewayRole::kLeader));
  EXPECT_EQ(first->term(), 3u) << "a term for each time";
  EXPECT_EQ(first->status().takeovers, 2u);
}

TEST_F(LeadershipTest, OfGatewaysThatStartAtOnceOneHasAllStages) {
  AddStages(3);
  for (uint64_t round = 0; round < 3; ++round) {
    const auto one = Start();
    const auto other = Start();
    const auto leads = [](const auto& gateway) {
      return gateway->status().role == GatewayRole::kLeader;
    };
    ASSERT_TRUE(Eventually([&] { return leads(one) || leads(other); }));
    const auto& rest = leads(one) ? other : one;
    EXPECT_TRUE(rest->Becomes(GatewayRole::kStandby));
    EXPECT_NE(leads(one), leads(other));
  }
}

TEST_F(LeadershipTest, ALeaseIsHeldByHeartbeatsAndLapsesInSilence) {
  FakeStageOptions options;
  options.info = FakeInfo(0, 1);
  FakeStage stage(options);
  GatewayRun holder(stage, 'a', seconds(1));
  const TimePoint end = Clock::now() + milliseconds(1500);
  TimePoint heard{};
  while (Clock::now() < end) {
    heard = Clock::now();
    holder.Beat();
    GatewayRun other(stage, 'b', seconds(1));
    if (other.highest().has_value()) {
      // A machine that stood still between the two calls.
      ASSERT_GE(Clock::now() - heard, seconds(1));
      return;
    }
    ASSERT_TRUE(Eventually([&] { return other.end().has_value(); }));
    EXPECT_EQ(ReasonOf(*other.end()), v1::Refusal::REASON_HELD);
  }
  heard = Clock::now();
  holder.Beat();
  ASSERT_TRUE(Eventually([&] {
    return GatewayRun(stage, 'b', seconds(1)).highest().has_value();
  }));
  EXPECT_GE(Clock::now() - heard, seconds(1));
  ASSERT_TRUE(Eventually([&] { return holder.end().has_value(); }));
  EXPECT_EQ(ReasonOf(*holder.end()), v1::Refusal::REASON_HELD);
  EXPECT_THAT(Message(*holder.end()), HasSubstr("another gateway has this "
                                                "stage: this one was silent"));
}

TEST_F(LeadershipTest, ALeaseIsSomeHeartbeatsAndAtMostThePeerTimeout) {
  AddStages(1);
  for (const Duration lease :
       {Duration(milliseconds(199)), Duration(seconds(11))}) {
    PipelineOptions options = Options({});
    options.lease = lease;
    EXPECT_THAT(Message(PipelineAssembler::Create(options).status()),
                HasSubstr("the lease must be 0.2 s (four heartbeats) to 10 s"));
  }
}

}  // namespace
}  // namespace sluice
