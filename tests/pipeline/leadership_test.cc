// Two gateways for the same stages: which one has them.
#include "common/pipeline/gateway/leadership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "common/base/mutex.h"
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
class Gateway : public PipelineObserver {
 public:
  explicit Gateway(PipelineOptions options) {
    options.lease = seconds(2);
    options.heartbeat = milliseconds(50);
    auto made = PipelineAssembler::Create(std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    assembler_ = *std::move(made);
    assembler_->Start(this);
  }
  ~Gateway() override { SetStopped(false); }
  void OnUp(Epoch, const PlanLimits&, int, const LostStages&) override {}
  void OnLost(const Status&) override {}
  void OnResult(StepResult) override {}
  void OnSuperseded(const Status&) override { ++superseded_; }
  bool IsStuck() override {
    MutexLock lock(mutex_);
    while (stopped_) changed_.Wait(mutex_);
    return false;
  }

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
  uint64_t term() const { return status().epoch.term(); }
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

constexpr Duration kLease = seconds(3);

// Signs to one gateway, each at a time of its own.
class Signs {
 public:
  explicit Signs(Duration lease = kLease) : gateway(lease) {}

  // Returns whether the gateway is superseded.
  bool At(Duration time, const LeadershipSigns& seen) {
    LeadershipSigns signs = seen;
    signs.now = TimePoint() + seconds(1) + time;
    return gateway.Update(signs);
  }

  Leadership gateway;
};

TEST(LeadershipRulesTest, ALeaderLeadsUntilAllStagesAreAnothers) {
  Signs one;
  EXPECT_EQ(one.gateway.role(), GatewayRole::kCandidate);
  EXPECT_FALSE(one.At({}, {.held = 0}));
  EXPECT_EQ(one.gateway.role(), GatewayRole::kStandby);
  EXPECT_FALSE(one.At({}, {})) << "the other has let go";
  EXPECT_EQ(one.gateway.role(), GatewayRole::kCandidate);
  EXPECT_FALSE(one.At({}, {.up = true}));
  EXPECT_EQ(one.gateway.role(), GatewayRole::kLeader);
  EXPECT_FALSE(one.At({}, {})) << "a pipeline that recovers";
  EXPECT_EQ(one.gateway.role(), GatewayRole::kLeader);
  EXPECT_TRUE(one.At({}, {.held = 0, .all_held = true}));
  EXPECT_FALSE(one.At({}, {.held = 0, .all_held = true})) << "told once";
  EXPECT_EQ(one.gateway.role(), GatewayRole::kStandby);
  EXPECT_EQ(one.gateway.takeovers(), 1u);
}

TEST(LeadershipRulesTest, ALeaderKeepsItsStagesWhileAnotherHasOneForAMoment) {
  Signs one;
  one.At({}, {.up = true});
  EXPECT_FALSE(one.At(seconds(1), {.held = 0}));
  EXPECT_TRUE(one.gateway.MayHold(0));
  EXPECT_TRUE(one.gateway.MayHold(1));
  EXPECT_FALSE(one.At(seconds(6), {.held = 0}));
  EXPECT_FALSE(one.At(seconds(7), {})) << "it has let go";
  EXPECT_FALSE(one.At(seconds(8), {.held = 1}));
  EXPECT_FALSE(one.At(seconds(13), {.held = 1}));
  EXPECT_EQ(one.gateway.role(), GatewayRole::kLeader);
  EXPECT_TRUE(one.At(seconds(14), {.held = 1})) << "two leases";
}

TEST(LeadershipRulesTest, AStandbyLeavesTheStagesToALeaderThatRecovers) {
  Signs one;
  for (const PeerLead peer :
       {PeerLead::kUnknown, PeerLead::kRecovering, PeerLead::kUp}) {
    one.At({}, {.peer = peer});
    EXPECT_FALSE(one.gateway.MayHold(0));
    EXPECT_FALSE(one.gateway.MayHold(1));
    EXPECT_EQ(one.gateway.role(), peer == PeerLead::kUnknown
                                      ? GatewayRole::kCandidate
                                      : GatewayRole::kStandby);
  }
  one.At({}, {.peer = PeerLead::kNone});
  EXPECT_TRUE(one.gateway.MayHold(0));
  EXPECT_TRUE(one.gateway.takes_in_order());
}

TEST(LeadershipRulesTest, AStandbyKeepsNoStageBesideOneThatIsAnothers) {
  Signs one;
  one.At(seconds(1), {.held = 1});
  EXPECT_TRUE(one.gateway.MayHold(0));
  EXPECT_TRUE(one.gateway.MayHold(1)) << "it asks for that one";
  EXPECT_FALSE(one.gateway.MayHold(2));
  one.At(seconds(4), {.held = 1});
  EXPECT_FALSE(one.gateway.MayHold(0));
  EXPECT_TRUE(one.gateway.MayHold(1));
  one.At(seconds(5), {});
  EXPECT_TRUE(one.gateway.MayHold(0));
}

TEST(LeadershipRulesTest, ALeaderThatIsCutOffEndsForOneWhosePipelineIsUp) {
  Signs one;
  one.At({}, {.up = true});
  EXPECT_FALSE(one.At({}, {.down = seconds(2), .peer = PeerLead::kUp}));
  EXPECT_FALSE(one.At({}, {.down = seconds(9), .peer = PeerLead::kRecovering}));
  EXPECT_TRUE(one.At({}, {.down = seconds(3), .peer = PeerLead::kUp}));
  EXPECT_FALSE(one.gateway.MayHold(0));
}

TEST(LeadershipRulesTest, AloneAGatewayKeepsWhatLiesBeforeAHeldStage) {
  Signs one{Duration()};
  one.At({}, {.up = true});
  EXPECT_TRUE(one.At({}, {.held = 1})) << "shown as a standby";
  one.At(seconds(100), {.held = 1});
  EXPECT_TRUE(one.gateway.MayHold(0));
  EXPECT_FALSE(one.gateway.MayHold(2));
  EXPECT_FALSE(one.gateway.takes_in_order());
}

TEST_F(LeadershipTest, AStandbyTakesOverWhenTheLeaderEnds) {
  AddStages(2);
  auto first = Start();
  ASSERT_TRUE(first->Becomes(GatewayRole::kLeader));
  const uint64_t term = first->term();
  const auto second = Start();
  ASSERT_TRUE(second->Becomes(GatewayRole::kStandby));
  EXPECT_EQ(second->status().takeovers, 0u);
  first.reset();
  ASSERT_TRUE(second->Becomes(GatewayRole::kLeader));
  EXPECT_GT(second->term(), term);
  EXPECT_EQ(second->status().takeovers, 1u);
  EXPECT_EQ(second->superseded(), 0);
}

TEST_F(LeadershipTest, AStoppedLeaderFindsThatItIsTheStandby) {
  AddStages(2);
  const auto first = Start();
  ASSERT_TRUE(first->Becomes(GatewayRole::kLeader));
  auto second = Start();
  ASSERT_TRUE(second->Becomes(GatewayRole::kStandby));
  const uint64_t term = first->term();
  first->SetStopped(true);
  ASSERT_TRUE(second->Becomes(GatewayRole::kLeader));
  const uint64_t next = second->term();
  EXPECT_GT(next, term);
  EXPECT_EQ(first->superseded(), 0);
  first->SetStopped(false);
  ASSERT_TRUE(first->Becomes(GatewayRole::kStandby));
  EXPECT_TRUE(Eventually([&] { return first->superseded() == 1; }));
  EXPECT_TRUE(second->Becomes(GatewayRole::kLeader)) << "it goes on";
  EXPECT_EQ(second->superseded(), 0);
  second.reset();
  ASSERT_TRUE(first->Becomes(GatewayRole::kLeader));
  EXPECT_GT(first->term(), next) << "a term for each time";
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
