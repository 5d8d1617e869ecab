// A stage whose tensor-parallel ranks are of several processes, on emulated
// GPUs: the tokens of one process, and what becomes of the stage when one of
// them ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/end_process.h"
#include "common/pipeline/gateway/pipeline_assembler.h"
#include "tests/services/stage/generate.h"
#include "tests/services/stage/stage_process.h"
#include "tests/testing/shared_data.h"

namespace sluice::stage {
namespace {

using testing::CollectingSink;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::PortFile;
using testing::StageProcess;

constexpr auto kLimit = std::chrono::seconds(60);

class RankProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SLUICE_REQUIRE_SHARED(model, "golden/llama3-tied");
    model_ = model;
  }
  void TearDown() override { Disconnect(); }

  std::vector<std::string> Lead(const std::string& listen, int more,
                                const std::string& layers = "") const {
    std::vector<std::string> argv = {SLUICE_EMULATED_STAGE,
                                     "--model",
                                     model_,
                                     "--listen",
                                     listen,
                                     "--port-file",
                                     port_.path(),
                                     "--kv-blocks",
                                     "64",
                                     "--max-context",
                                     "256",
                                     "--max-step-tokens",
                                     "32",
                                     "--max-sequences",
                                     "4",
                                     "--packed",
                                     "off"};
    if (more > 0) {
      argv.insert(argv.end(), {"--follower-ranks", std::to_string(more)});
    }
    if (!layers.empty()) argv.insert(argv.end(), {"--layers", layers});
    return argv;
  }
  std::vector<std::string> Follower(int first_rank, int ranks) const {
    return {SLUICE_EMULATED_STAGE,
            "--model",
            model_,
            "--lead",
            address_,
            "--first-rank",
            std::to_string(first_rank),
            "--ranks",
            std::to_string(ranks),
            "--packed",
            "off"};
  }
  // A lead with one rank, and followers with so many.
  void Start(const std::vector<int>& followers,
             const std::string& layers = "") {
    int more = 0;
    for (const int ranks : followers) more += ranks;
    const std::string listen = address_.empty() ? "127.0.0.1:0" : address_;
    processes_.push_back(
        std::make_unique<StageProcess>(Lead(listen, more, layers)));
    if (address_.empty()) address_ = port_.Read();
    int first = 1;
    for (const int ranks : followers) {
      processes_.push_back(
          std::make_unique<StageProcess>(Follower(first, ranks)));
      first += ranks;
    }
  }
  void Connect() { Connect({address_}, {}); }
  void Connect(std::vector<std::string> stages,
               std::vector<StagePlace> places) {
    Disconnect();
    PipelineOptions options;
    options.stages = std::move(stages);
    options.places = std::move(places);
    options.heartbeat = std::chrono::milliseconds(50);
    options.suspect_after = std::chrono::milliseconds(500);
    options.transport.peer_timeout = std::chrono::seconds(2);
    auto client = PipelineAssembler::Create(options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    engine_ = std::make_unique<EngineLoop>(EngineOptions(), &client_->plans());
    ASSERT_TRUE(engine_->Start().ok());
    client_->Start(CallbacksTo(engine_.get()));
    ASSERT_TRUE(WaitReady()) << client_->status().message;
  }
  void Disconnect() {
    if (engine_ != nullptr) engine_->Stop();
    if (client_ != nullptr) client_->Stop();
    engine_.reset();
    client_.reset();
  }
  bool WaitReady() {
    return testing::HoldsWithin(kLimit, [this] {
      return client_->ready() && engine_->Progress().pipeline_up;
    });
  }
  std::shared_ptr<CollectingSink> Begin(int max_tokens) {
    auto sink = std::make_shared<CollectingSink>();
    const auto id = engine_->Submit(GreedyRequest({1, 5, 9}, max_tokens), sink);
    EXPECT_TRUE(id.ok()) << id.status();
    return sink;
  }
  std::vector<TokenId> Generate(int max_tokens) {
    const auto sink = Begin(max_tokens);
    const auto end = sink->WaitEnd(Clock::now() + kLimit);
    EXPECT_TRUE(end.has_value());
    if (end.has_value()) {
      EXPECT_EQ(end->reason, FinishReason::kLength) << end->status;
    }
    return sink->tokens();
  }
  // What one process answers.
  std::vector<TokenId> OfOneProcess() {
    StageProcess one(Lead("127.0.0.1:0", 0));
    address_ = port_.Read();
    Connect();
    std::vector<TokenId> tokens = Generate(kTokens);
    Disconnect();
    EXPECT_EQ(one.End(SIGTERM), 0);
    return tokens;
  }

  static constexpr int kTokens = 12;
  const PortFile port_{"ranks"};
  std::string model_;
  std::string address_;
  std::vector<std::unique_ptr<StageProcess>> processes_;  // the lead first
  std::unique_ptr<PipelineAssembler> client_;
  std::unique_ptr<EngineLoop> engine_;
};

TEST_F(RankProcessesTest, TheTokensOfOneProcessAlsoAfterOneIsKilled) {
  const std::vector<TokenId> want = OfOneProcess();
  for (const size_t killed : {1u, 0u, 2u}) {
    Start({1, 2});
    Connect();
    EXPECT_EQ(client_->status().stages[0].ranks, 4);
    EXPECT_EQ(Generate(kTokens), want);
    const auto running = Begin(200);
    ASSERT_TRUE(running->WaitTokens(3, Clock::now() + kLimit));
    EXPECT_EQ(processes_[killed]->End(SIGKILL), -SIGKILL);
    // The others end to be replaced, which is a lost stage for the gateway.
    for (size_t p = 0; p < processes_.size(); ++p) {
      if (p == killed) continue;
      EXPECT_EQ(processes_[p]->WaitEnd(), kToBeReplaced) << p;
    }
    const auto end = running->WaitEnd(Clock::now() + kLimit);
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->status.code(), StatusCode::kUnavailable);
    processes_.clear();
    Disconnect();
  }
}

TEST_F(RankProcessesTest, ALeadThatEndsInOrderIsFollowedAgain) {
  const std::vector<TokenId> want = OfOneProcess();
  Start({1});
  for (int i = 0; i < 2; ++i) {
    Connect();
    EXPECT_EQ(Generate(kTokens), want);
    Disconnect();
    EXPECT_EQ(processes_[0]->End(SIGTERM), 0);
    processes_[0] = std::make_unique<StageProcess>(Lead(address_, 1));
  }
  Connect();
  EXPECT_EQ(Generate(kTokens), want);
  // The lead drains, since a process with some of its ranks is told to end.
  Disconnect();
  EXPECT_EQ(processes_[1]->End(SIGTERM), 0);
  EXPECT_EQ(processes_[0]->WaitEnd(), 1);
}

// Beside a stage on a CPU, whose bits are the same.
TEST_F(RankProcessesTest, FollowersLoadTheLayersThatTheLeadIsAssigned) {
  const std::vector<TokenId> want = OfOneProcess();
  const PortFile cpu_port("ranks-cpu");
  StageProcess cpu({SLUICE_STAGE_BINARY, "--model", model_, "--layers",
                    "assigned", "--kv-blocks", "64", "--threads", "1",
                    "--packed", "off", "--port-file", cpu_port.path()});
  Start({2}, "assigned");
  for (const int32_t cut : {2, 1, 3}) {
    Connect({address_, cpu_port.Read()}, {{0, cut}, {cut, 4}});
    EXPECT_EQ(Generate(kTokens), want) << "cut at " << cut;
  }
  Disconnect();
  EXPECT_EQ(processes_[0]->End(SIGTERM), 0);
  // Waits for another lead.
  EXPECT_EQ(processes_[1]->End(SIGTERM), 0);
}

TEST_F(RankProcessesTest, AProcessThatDoesNotFitEndsAndSaysWhy) {
  StageProcess lead(Lead("127.0.0.1:0", 2));
  address_ = port_.Read();
  // Ranks that the stage does not have, what the lead says, another model.
  EXPECT_EQ(StageProcess(Follower(3, 1)).WaitEnd(), 1);
  std::vector<std::string> blocks = Follower(1, 2);
  blocks.insert(blocks.end(), {"--kv-blocks", "64"});
  EXPECT_EQ(StageProcess(blocks).WaitEnd(), 1);
  SLUICE_REQUIRE_SHARED(other, "golden/qwen3");
  const std::string model = std::exchange(model_, other);
  EXPECT_EQ(StageProcess(Follower(1, 2)).WaitEnd(), 1);
  model_ = model;
  StageProcess first(Follower(1, 1));
  StageProcess second(Follower(2, 1));
  Connect();
  // What is taken is refused, and tried again.
  StageProcess taken(Follower(2, 1));
  EXPECT_EQ(Generate(kTokens).size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(taken.End(SIGTERM), 0);
  EXPECT_EQ(Generate(kTokens).size(), static_cast<size_t>(kTokens));
}

}  // namespace
}  // namespace sluice::stage
