// What a peer can do to a stage that another gateway holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/random_bytes.h"
#include "common/pipeline/gateway/pipeline_assembler.h"
#include "common/pipeline/gateway/stage_links.h"
#include "common/rpc/status.h"
#include "tests/pipeline/fake_stage.h"

namespace sluice {
namespace {

using testing::Eventually;
using testing::FakeInfo;
using testing::FakeStage;
using testing::FakeStageOptions;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGatewayId[] = "the-gateway-of-the-test";

// Says hello to a stage, as anybody can who reaches it.
class Stranger {
 public:
  Stranger(const std::string& address, const std::string& id,
           const std::string& secret = RandomBytes(wire::kSecretBytes),
           uint64_t count = 0) {
    auto channel = rpc::Connect(address, {});
    EXPECT_TRUE(channel.ok()) << channel.status();
    v1::Hello hello;
    hello.set_protocol_version(wire::kProtocolVersion);
    hello.set_gateway_id(id);
    hello.set_secret(secret);
    hello.set_count(count);
    ControlLink::Events events;
    events.on_message = [log = log_](v1::ControlResponse&) {
      MutexLock lock(log->mutex);
      ++log->messages;
    };
    events.on_end = [log = log_](const Status& status) {
      MutexLock lock(log->mutex);
      log->end = status;
      log->ended = Clock::now();
    };
    link_ = OpenControl(*channel, hello, std::move(events));
  }
  ~Stranger() { link_->Cancel(Cancelled("the test is over")); }

  // Asks the stage, which holds other layers, for those of `place`.
  void Assign(const StagePlace& place) {
    v1::ControlRequest request;
    request.mutable_assign()->set_first_layer(place.first_layer);
    request.mutable_assign()->set_last_layer(place.last_layer);
    link_->Send(std::move(request));
  }

  int messages() const {
    MutexLock lock(log_->mutex);
    return log_->messages;
  }
  std::optional<Status> end() const {
    MutexLock lock(log_->mutex);
    return log_->end;
  }
  // How it was refused.
  Status WaitRefused() const {
    EXPECT_TRUE(Eventually([this] { return end().has_value(); }));
    EXPECT_EQ(messages(), 0);
    return end().value_or(OkStatus());
  }
  // From its making to its end.
  Duration lasted() const {
    MutexLock lock(log_->mutex);
    return log_->ended - begun_;
  }

 private:
  struct Log {
    Mutex mutex;
    int messages = 0;
    std::optional<Status> end;
    TimePoint ended{};
  };
  const TimePoint begun_ = Clock::now();
  const std::shared_ptr<Log> log_ = std::make_shared<Log>();
  std::shared_ptr<ControlLink> link_;
};

v1::Refusal::Reason ReasonOf(const Status& status) {
  v1::Refusal refusal;
  EXPECT_TRUE(refusal.ParseFromString(rpc::DetailsOf(status)));
  return refusal.reason();
}

class StrangersTest : public ::testing::Test, public PipelineObserver {
 public:
  void OnUp(Epoch epoch, const PlanLimits&, int, const LostStages&) override {
    term_ = epoch.term();
    epoch_ = epoch.count();
  }
  void OnLost(const Status&) override { ++losses_; }
  void OnResult(StepResult) override { ++results_; }

 protected:
  void Start(Duration peer_timeout = std::chrono::seconds(10)) {
    FakeStageOptions options;
    options.info = FakeInfo(0, 1);
    options.transport.peer_timeout = peer_timeout;
    stage_ = std::make_unique<FakeStage>(options);
  }
  // A gateway whose pipeline is this one stage.
  std::unique_ptr<PipelineAssembler> Connect() {
    PipelineOptions options;
    options.stages = {stage_->address()};
    options.gateway_id = kGatewayId;
    options.heartbeat = std::chrono::milliseconds(50);
    auto client = PipelineAssembler::Create(options);
    EXPECT_TRUE(client.ok()) << client.status();
    (*client)->Start(this);
    return *std::move(client);
  }
  // One more step, answered.
  void Step(PipelineAssembler& client) {
    StepPlan plan;
    plan.epoch = Epoch(term_, epoch_);
    plan.step_id = StepId(step_++);
    Chunk chunk;
    chunk.sequence = SequenceId(1);
    chunk.tokens = {5};
    plan.chunks = {chunk};
    client.plans().Submit(plan);
    ASSERT_TRUE(Eventually([&] { return results_ == step_; }));
  }

  std::unique_ptr<FakeStage> stage_;
  std::atomic<uint64_t> term_{0};
  std::atomic<uint64_t> epoch_{0};
  std::atomic<int> losses_{0};
  std::atomic<uint64_t> results_{0};
  uint64_t step_ = 0;
};

TEST_F(StrangersTest, ARefusalTellsNothingThatTakesTheStage) {
  Start();
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return client->ready(); }));
  const Status refused = Stranger(stage_->address(), "rogue").WaitRefused();
  EXPECT_EQ(ReasonOf(refused), v1::Refusal::REASON_HELD);
  EXPECT_THAT(Message(refused), Not(HasSubstr(kGatewayId)));
  EXPECT_THAT(Message(refused), HasSubstr("held by another gateway, at ipv4:"));
  // Nor does the id, for who has it from elsewhere.
  const Status again = Stranger(stage_->address(), kGatewayId).WaitRefused();
  EXPECT_EQ(ReasonOf(again), v1::Refusal::REASON_HELD);
  for (const char* secret : {"", "short"}) {
    EXPECT_EQ(
        Stranger(stage_->address(), kGatewayId, secret).WaitRefused().code(),
        StatusCode::kInvalidArgument);
  }
  Step(*client);
  EXPECT_EQ(losses_, 0);
}

TEST_F(StrangersTest, TheSecretOfTheRunReplacesItsStream) {
  Start();
  const std::string secret = RandomBytes(wire::kSecretBytes);
  const Stranger first(stage_->address(), "a", secret);
  ASSERT_TRUE(Eventually([&] { return first.messages() == 1; }));
  const Stranger second(stage_->address(), "a", secret);
  ASSERT_TRUE(Eventually([&] { return second.messages() == 1; }));
  ASSERT_TRUE(Eventually([&] { return first.end().has_value(); }));
  EXPECT_EQ(first.end()->code(), StatusCode::kCancelled);
  EXPECT_FALSE(second.end().has_value());
}

// Fifty at once, four times, beside a pipeline that works. The bound is that of
// a loaded machine with sanitizers.
TEST_F(StrangersTest, EveryRefusedHelloIsAnsweredAtOnce) {
  Start();
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return client->ready(); }));
  constexpr size_t kAtOnce = 50;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::unique_ptr<Stranger>> strangers;
    for (size_t i = 0; i < kAtOnce; ++i) {
      strangers.push_back(
          std::make_unique<Stranger>(stage_->address(), "rogue"));
      if (i % 10 == 0) Step(*client);
    }
    for (const auto& stranger : strangers) {
      EXPECT_EQ(ReasonOf(stranger->WaitRefused()), v1::Refusal::REASON_HELD);
      EXPECT_LT(stranger->lasted(), std::chrono::seconds(8));
    }
  }
  EXPECT_TRUE(client->ready());
  EXPECT_EQ(losses_, 0);
}

TEST_F(StrangersTest, WhoHoldsAStageInSilenceLosesItToTheNextGateway) {
  Start(/*peer_timeout=*/std::chrono::seconds(1));
  const Stranger silent(stage_->address(), "rogue");
  ASSERT_TRUE(Eventually([&] { return silent.messages() == 1; }));
  const TimePoint begin = Clock::now();
  const auto client = Connect();
  EXPECT_TRUE(Eventually([&] { return client->ready(); }));
  EXPECT_GT(Clock::now() - begin, std::chrono::milliseconds(800));
  ASSERT_TRUE(Eventually([&] { return silent.end().has_value(); }));
  EXPECT_EQ(ReasonOf(*silent.end()), v1::Refusal::REASON_HELD);
}

// A gateway with `secret` makes the stage load; what the stage's load ends
// with is `loads`.
class LoadsTest : public StrangersTest {
 protected:
  void Load(Status loads, Duration peer_timeout = std::chrono::seconds(10)) {
    FakeStageOptions options;
    options.info = FakeInfo(0, 2);
    options.loads = std::move(loads);
    options.holds_loads = true;
    options.transport.peer_timeout = peer_timeout;
    stage_ = std::make_unique<FakeStage>(options);
    Stranger asker(stage_->address(), "asker", secret_);
    ASSERT_TRUE(Eventually([&] { return asker.messages() == 1; }));
    asker.Assign({0, 2});
    ASSERT_TRUE(Eventually([&] { return asker.end().has_value(); }));
    EXPECT_EQ(ReasonOf(*asker.end()), v1::Refusal::REASON_LOADING);
    ASSERT_TRUE(Eventually([&] { return stage_->loading(); }));
  }
  Status Refused(const std::string& secret, uint64_t count = 0) const {
    return Stranger(stage_->address(), "a", secret, count).WaitRefused();
  }
  // Whether the stage welcomes a hello with `secret`.
  bool Welcomed(const std::string& secret) const {
    const Stranger gateway(stage_->address(), "a", secret);
    EXPECT_TRUE(Eventually(
        [&] { return gateway.messages() == 1 || gateway.end().has_value(); }));
    return gateway.messages() == 1;
  }

  const std::string secret_ = RandomBytes(wire::kSecretBytes);
  const std::string other_ = RandomBytes(wire::kSecretBytes);
};

TEST_F(LoadsTest, TheStageIsForTheGatewayThatAskedForItsLayers) {
  Load(OkStatus());
  EXPECT_EQ(ReasonOf(Refused(other_)), v1::Refusal::REASON_HELD);
  const Status loading = Refused(secret_);
  EXPECT_EQ(ReasonOf(loading), v1::Refusal::REASON_LOADING);
  EXPECT_EQ(Message(loading), testing::kFakeProgress);
  stage_->FinishLoading();
  EXPECT_EQ(ReasonOf(Refused(other_)), v1::Refusal::REASON_HELD);
  EXPECT_TRUE(Welcomed(secret_));
  EXPECT_TRUE(Eventually([&] { return Welcomed(other_); }));
}

TEST_F(LoadsTest, AHelloCountsThoughItIsRefused) {
  Load(OkStatus());
  EXPECT_EQ(ReasonOf(Refused(secret_, 5)), v1::Refusal::REASON_LOADING);
  EXPECT_EQ(ReasonOf(Refused(secret_, 5)), v1::Refusal::REASON_HELD) << "copy";
  EXPECT_EQ(ReasonOf(Refused(secret_, 6)), v1::Refusal::REASON_LOADING);
}

TEST_F(LoadsTest, AFailureIsToldToTheGatewayThatAskedAndFreesTheStage) {
  Load(FailedPrecondition("no memory for layers 0 to 1"));
  stage_->FinishLoading();
  EXPECT_EQ(ReasonOf(Refused(other_)), v1::Refusal::REASON_HELD);
  const Status failed = Refused(secret_);
  EXPECT_EQ(ReasonOf(failed), v1::Refusal::REASON_LOAD_FAILED);
  EXPECT_EQ(Message(failed), "no memory for layers 0 to 1");
  EXPECT_TRUE(Welcomed(other_));
}

TEST_F(LoadsTest, AGatewayThatDoesNotComeBackLosesTheStageAndItsFailure) {
  Load(FailedPrecondition("no memory"), std::chrono::seconds(1));
  stage_->FinishLoading();
  EXPECT_TRUE(Eventually([&] { return Welcomed(other_); }));
}

TEST_F(StrangersTest, AGatewayThatSendsHeartbeatsKeepsItsStage) {
  Start(/*peer_timeout=*/std::chrono::seconds(1));
  const auto client = Connect();
  ASSERT_TRUE(Eventually([&] { return client->ready(); }));
  const TimePoint end = Clock::now() + std::chrono::milliseconds(2500);
  while (Clock::now() < end) {
    const Status refused = Stranger(stage_->address(), "rogue").WaitRefused();
    ASSERT_EQ(ReasonOf(refused), v1::Refusal::REASON_HELD);
  }
  EXPECT_EQ(losses_, 0);
}

}  // namespace
}  // namespace sluice
