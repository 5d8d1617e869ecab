// A pipeline of real processes: killed, stopped, drained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "common/pipeline/gateway/pipeline_assembler.h"
#include "common/wire/stage.h"
#include "tests/rpc/flood.h"
#include "tests/services/stage/generate.h"
#include "tests/services/stage/stage_process.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/holds_within.h"

namespace sluice::stage {
namespace {

using testing::CollectingSink;
using testing::GreedyRequest;
using ::testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(30);

template <typename Condition>
bool Eventually(Condition condition, Duration limit = kLimit) {
  return testing::HoldsWithin(limit, condition);
}

// One sluice-stage.
class StageProcess {
 public:
  // Part `index` of `parts`; parts 0: the layers that the gateway names.
  StageProcess(const std::string& model, int index, int parts,
               const std::string& listen, double drain_seconds = 30)
      : port_file_(Cat("stage-", parts, "-", index)),
        process_(Command(model, index, parts, listen, drain_seconds)),
        address_(port_file_.Read()) {}

  int End(int signal_number) { return process_.End(signal_number); }
  int WaitEnd() { return process_.WaitEnd(); }
  void Signal(int signal_number) const { process_.Signal(signal_number); }
  const std::string& address() const { return address_; }
  pid_t pid() const { return process_.pid(); }

 private:
  std::vector<std::string> Command(const std::string& model, int index,
                                   int parts, const std::string& listen,
                                   double drain_seconds) const {
    std::vector<std::string> argv = {SLUICE_STAGE_BINARY,
                                     "--listen",
                                     listen,
                                     "--model",
                                     model,
                                     "--layers",
                                     parts == 0 ? "assigned" : "auto",
                                     "--threads",
                                     "1",
                                     "--kv-blocks",
                                     "64",
                                     "--drain-timeout",
                                     std::to_string(drain_seconds),
                                     "--port-file",
                                     port_file_.path()};
    if (parts != 0) {
      argv.insert(argv.end(), {"--stage-index", std::to_string(index),
                               "--num-stages", std::to_string(parts)});
    }
    return argv;
  }

  const testing::PortFile port_file_;
  testing::StageProcess process_;
  const std::string address_;
};

class ProcessesTest : public ::testing::Test {
 protected:
  void Start(const std::string& model, double drain_seconds = 30) {
    model_ = model;
    for (int i = 0; i < 2; ++i) {
      stages_.push_back(std::make_unique<StageProcess>(
          model, i, 2, "127.0.0.1:0", drain_seconds));
    }
    Gather({});
  }
  // A gateway's end over the first two of stages_, the others as spares.
  void Gather(std::vector<StagePlace> places) {
    TearDown();
    PipelineOptions options;
    options.places = std::move(places);
    for (size_t i = 0; i < stages_.size(); ++i) {
      (i < 2 ? options.stages : options.spares)
          .push_back(stages_[i]->address());
    }
    options.heartbeat = std::chrono::milliseconds(50);
    options.suspect_after = std::chrono::milliseconds(500);
    options.transport.peer_timeout = std::chrono::seconds(2);
    auto client = PipelineAssembler::Create(options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    engine_ = std::make_unique<EngineLoop>(EngineOptions(), &client_->plans());
    ASSERT_TRUE(engine_->Start().ok());
    observer_ = std::make_unique<EngineObserver>(engine_.get());
    client_->Start(observer_.get());
    ASSERT_TRUE(WaitReady()) << client_->status().message;
  }
  void TearDown() override {
    if (engine_ != nullptr) engine_->Stop();
    if (client_ != nullptr) client_->Stop();
  }
  bool WaitReady() {
    return Eventually(
        [this] { return client_->ready() && engine_->Progress().pipeline_up; });
  }
  // Greedy tokens after the token 1.
  std::vector<TokenId> Generate(int max_tokens) {
    const auto sink = Begin(max_tokens);
    const auto end = sink->WaitEnd(Clock::now() + kLimit);
    EXPECT_TRUE(end.has_value());
    if (end.has_value()) {
      EXPECT_EQ(end->reason, FinishReason::kLength) << end->status;
    }
    return sink->tokens();
  }
  std::shared_ptr<CollectingSink> Begin(int max_tokens) {
    auto sink = std::make_shared<CollectingSink>();
    const auto id = engine_->Submit(GreedyRequest({1}, max_tokens), sink);
    EXPECT_TRUE(id.ok()) << id.status();
    return sink;
  }
  void Restart(size_t index) {
    const std::string address = stages_[index]->address();
    stages_[index].reset();
    stages_[index] = std::make_unique<StageProcess>(
        model_, static_cast<int>(index), 2, address);
  }

  std::string model_;
  std::vector<std::unique_ptr<StageProcess>> stages_;
  std::unique_ptr<EngineObserver> observer_;
  std::unique_ptr<PipelineAssembler> client_;
  std::unique_ptr<EngineLoop> engine_;
};

TEST_F(ProcessesTest, AKilledStageEndsRequestsWithinFiveSecondsAndComesBack) {
  const std::string model = testing::GoldenModel("stories");
  Start(model);
  const auto first = Begin(50);
  ASSERT_TRUE(first->WaitEnd(Clock::now() + kLimit).has_value());
  for (size_t gone = 0; gone < 2; ++gone) {
    const auto sink = Begin(400);
    ASSERT_TRUE(sink->WaitTokens(3, Clock::now() + kLimit));
    EXPECT_EQ(stages_[gone]->End(SIGKILL), -SIGKILL);
    const auto end = sink->WaitEnd(Clock::now() + std::chrono::seconds(5));
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(Message(end->status), HasSubstr(stages_[gone]->address()));
    Restart(gone);
    ASSERT_TRUE(WaitReady()) << client_->status().message;
    const auto again = Begin(50);
    ASSERT_TRUE(again->WaitEnd(Clock::now() + kLimit).has_value());
    EXPECT_EQ(again->tokens(), first->tokens());
  }
}

TEST_F(ProcessesTest, AStoppedProcessIsSuspectThenLostAndMayComeBack) {
  const std::string model = testing::GoldenModel("stories");
  Start(model);
  const auto sink = Begin(400);
  ASSERT_TRUE(sink->WaitTokens(3, Clock::now() + kLimit));
  stages_[1]->Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([this] { return !client_->ready(); },
                         std::chrono::seconds(2)));
  const auto end = sink->WaitEnd(Clock::now() + std::chrono::seconds(5));
  ASSERT_TRUE(end.has_value());
  EXPECT_THAT(Message(end->status), HasSubstr("stage 1"));
  stages_[1]->Signal(SIGCONT);
  EXPECT_TRUE(WaitReady()) << client_->status().message;
}

TEST_F(ProcessesTest, WhoIsNotWelcomeCostsAStageLittleMemory) {
  const std::string model = testing::GoldenModel("stories");
  Start(model);
  const auto sink = Begin(400);
  ASSERT_TRUE(sink->WaitTokens(3, Clock::now() + kLimit));
  const pid_t stage = stages_[1]->pid();
  const std::string& address = stages_[1]->address();
  const int64_t before = rpc::testing::PeakRss(stage);
  v1::Hello hello;  // of another gateway
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_gateway_id("rogue");
  hello.set_secret(std::string(wire::kSecretBytes, 'r'));
  for (const char* method : {"Control", "Steps", "Results"}) {
    for (const std::string& said : {std::string(), hello.SerializeAsString()}) {
      ASSERT_NO_FATAL_FAILURE(
          rpc::testing::Flood(address, Cat("/sluice.v1.Stage/", method), said));
    }
  }
  EXPECT_LT(rpc::testing::PeakRss(stage) - before, rpc::testing::kFloodBytes);
  const auto end = sink->WaitEnd(Clock::now() + kLimit);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->reason, FinishReason::kLength) << end->status;
}

TEST_F(ProcessesTest, AStageAskedToEndDrainsAndExitsWithZero) {
  const std::string model = testing::GoldenModel("stories");
  Start(model);
  EXPECT_EQ(stages_[0]->End(SIGTERM), 0);
  EXPECT_FALSE(client_->ready());
  EXPECT_THAT(client_->status().message, HasSubstr("told to end"));
}

TEST_F(ProcessesTest, AStageAskedToEndLetsItsSequencesEndBeforeItGoes) {
  const std::string model = testing::GoldenModel("stories");
  Start(model);
  const auto undisturbed = Begin(480);
  ASSERT_TRUE(undisturbed->WaitEnd(Clock::now() + kLimit).has_value());
  for (size_t gone = 0; gone < 2; ++gone) {
    const auto sink = Begin(480);
    ASSERT_TRUE(sink->WaitTokens(3, Clock::now() + kLimit));
    stages_[gone]->Signal(SIGTERM);
    ASSERT_TRUE(Eventually([&] { return !client_->ready(); }));
    const auto refused = engine_->Submit(GreedyRequest({1}, 1),
                                         std::make_shared<CollectingSink>());
    EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
    const auto end = sink->WaitEnd(Clock::now() + kLimit);
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->reason, FinishReason::kLength) << end->status;
    EXPECT_EQ(sink->tokens(), undisturbed->tokens());
    EXPECT_EQ(stages_[gone]->WaitEnd(), 0);
    Restart(gone);
    ASSERT_TRUE(WaitReady()) << client_->status().message;
    EXPECT_GT(client_->status().last_recovery, Duration::zero());
    const auto again = Begin(50);
    ASSERT_TRUE(again->WaitEnd(Clock::now() + kLimit).has_value());
    EXPECT_EQ(again->tokens().size(), 50u);
  }
}

TEST_F(ProcessesTest, WhenItsTimeToDrainIsOverAStageEndsItsStreams) {
  const std::string model = testing::GoldenModel("stories");
  Start(model, /*drain_seconds=*/0);
  const auto sink = Begin(480);
  ASSERT_TRUE(sink->WaitTokens(3, Clock::now() + kLimit));
  EXPECT_EQ(stages_[1]->End(SIGTERM), 0);
  const auto end = sink->WaitEnd(Clock::now() + kLimit);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Eventually([this] { return !client_->ready(); }));
}

TEST_F(ProcessesTest, ASpareTakesAKilledStagesPlaceAndGivesTheSameTokens) {
  const std::string model = testing::GoldenModel("stories");
  Start(model);
  const std::vector<TokenId> want = Generate(40);
  for (int i = 0; i < 2; ++i) {
    stages_.push_back(
        std::make_unique<StageProcess>(model, i, 0, "127.0.0.1:0"));
  }
  Gather({});
  for (const size_t lost : {1, 0}) {
    const auto running = Begin(400);
    ASSERT_TRUE(running->WaitTokens(3, Clock::now() + kLimit));
    stages_[lost]->End(SIGKILL);
    const auto end = running->WaitEnd(Clock::now() + kLimit);
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->status.code(), StatusCode::kUnavailable);
    ASSERT_TRUE(WaitReady()) << client_->status().message;
    EXPECT_EQ(Generate(40), want);
  }
  EXPECT_EQ(client_->status().stages[0].address, stages_[3]->address());
  EXPECT_EQ(client_->status().stages[1].address, stages_[2]->address());
}

TEST_F(ProcessesTest, StagesLoadWhatTheyAreAssignedAndThenOtherLayers) {
  const std::string model = testing::GoldenModel("stories");
  Start(model);
  const std::vector<TokenId> want = Generate(40);
  stages_.clear();
  for (int i = 0; i < 2; ++i) {
    stages_.push_back(
        std::make_unique<StageProcess>(model, i, 0, "127.0.0.1:0"));
  }
  for (const int32_t cut : {3, 1, 4}) {
    Gather({{0, cut}, {cut, 5}});
    EXPECT_EQ(Generate(40), want) << "cut at " << cut;
    EXPECT_EQ(client_->status().stages[1].place(), (StagePlace{cut, 5}));
  }
  for (auto& stage : stages_) EXPECT_EQ(stage->End(SIGTERM), 0);
}

}  // namespace
}  // namespace sluice::stage
