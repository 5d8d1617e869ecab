// A stage whose tensor-parallel ranks are of several processes, on emulated
// GPUs: the tokens of one process, and what becomes of the stage when one of
// them ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/end_process.h"
#include "common/pipeline/gateway/pipeline_assembler.h"
#include "tests/services/stage/generate.h"
#include "tests/services/stage/stage_process.h"
#include "tests/testing/golden_model.h"

namespace sluice::stage {
namespace {

using testing::CollectingSink;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::StageProcess;

constexpr auto kLimit = std::chrono::seconds(60);

class RankProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string model = testing::GoldenModel("llama3-tied");
    model_ = model;
    folder_ =
        std::filesystem::temp_directory_path() / Cat("sluice-ranks-", getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    address_ = Cat("unix:", (folder_ / "stage").string());
  }
  void TearDown() override {
    Disconnect();
    processes_.clear();
    std::filesystem::remove_all(folder_);
  }

  std::string NextLog() { return (folder_ / Cat("log-", ++logs_)).string(); }
  // A lead with one rank, and so many in other processes.
  std::unique_ptr<StageProcess> Lead(int more, const std::string& layers = "") {
    std::vector<std::string> argv = {SLUICE_EMULATED_STAGE,
                                     "--model",
                                     model_,
                                     "--listen",
                                     address_,
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
    return std::make_unique<StageProcess>(argv, NextLog());
  }
  std::unique_ptr<StageProcess> Follower(int first_rank, int ranks,
                                         std::vector<std::string> more = {},
                                         std::vector<std::string> env = {}) {
    std::vector<std::string> argv = {SLUICE_EMULATED_STAGE,
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
    argv.insert(argv.end(), more.begin(), more.end());
    return std::make_unique<StageProcess>(argv, NextLog(), env);
  }
  // A lead, and followers with so many ranks.
  void Start(const std::vector<int>& followers,
             const std::string& layers = "") {
    int more = 0;
    for (const int ranks : followers) more += ranks;
    processes_.push_back(Lead(more, layers));
    int first = 1;
    for (const int ranks : followers) {
      processes_.push_back(Follower(first, ranks));
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
    observer_ = std::make_unique<EngineObserver>(engine_.get());
    client_->Start(observer_.get());
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
    const auto one = Lead(0);
    Connect();
    std::vector<TokenId> tokens = Generate(kTokens);
    Disconnect();
    EXPECT_EQ(one->End(SIGTERM), 0);
    return tokens;
  }

  static constexpr int kTokens = 12;
  std::filesystem::path folder_;
  int logs_ = 0;
  std::string model_;
  std::string address_;
  std::vector<std::unique_ptr<StageProcess>> processes_;  // the lead first
  std::unique_ptr<EngineObserver> observer_;
  std::unique_ptr<PipelineAssembler> client_;
  std::unique_ptr<EngineLoop> engine_;
};

TEST_F(RankProcessesTest, TheTokensOfOneProcessAlsoAfterOneIsKilled) {
  const std::pair<const char*, std::vector<size_t>> cases[] = {
      {"llama3-tied", {1, 0, 2}}, {"gpt_oss-mxfp4", {1}}};
  for (const auto& [name, all_killed] : cases) {
    model_ = testing::GoldenModel(name);
    const std::vector<TokenId> want = OfOneProcess();
    for (const size_t killed : all_killed) {
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
        EXPECT_THAT(processes_[p]->said(), HasSubstr(" lost: ")) << p;
      }
      const auto end = running->WaitEnd(Clock::now() + kLimit);
      ASSERT_TRUE(end.has_value());
      EXPECT_EQ(end->status.code(), StatusCode::kUnavailable);
      processes_.clear();
      Disconnect();
    }
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
    processes_[0] = Lead(1);
  }
  Connect();
  EXPECT_EQ(Generate(kTokens), want);
  // The lead drains, since a process with some of its ranks is told to end; the
  // sequence has its time.
  const auto running = Begin(100);
  ASSERT_TRUE(running->WaitTokens(3, Clock::now() + kLimit));
  processes_[1]->Signal(SIGTERM);
  const auto end = running->WaitEnd(Clock::now() + kLimit);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->reason, FinishReason::kLength) << end->status;
  EXPECT_EQ(processes_[1]->WaitEnd(), 0);
  EXPECT_EQ(processes_[0]->WaitEnd(), 1);
}

// Beside a stage on a CPU, whose bits are the same.
TEST_F(RankProcessesTest, FollowersLoadTheLayersThatTheLeadIsAssigned) {
  const std::vector<TokenId> want = OfOneProcess();
  const std::string cpu_address = Cat("unix:", (folder_ / "cpu").string());
  StageProcess cpu({SLUICE_STAGE_BINARY, "--model", model_, "--layers",
                    "assigned", "--kv-blocks", "64", "--threads", "1",
                    "--packed", "off", "--listen", cpu_address},
                   NextLog());
  Start({2}, "assigned");
  for (const int32_t cut : {2, 1, 3}) {
    Connect({address_, cpu_address}, {{0, cut}, {cut, 4}});
    EXPECT_EQ(Generate(kTokens), want) << "cut at " << cut;
  }
  Disconnect();
  EXPECT_EQ(processes_[0]->End(SIGTERM), 0);
  // Waits for another lead.
  ASSERT_TRUE(processes_[1]->AwaitSaid("waits for the lead"));
  EXPECT_EQ(processes_[1]->End(SIGTERM), 0);
}

TEST_F(RankProcessesTest, AProcessThatDoesNotFitEndsAndSaysWhy) {
  const auto lead = Lead(2);
  ASSERT_TRUE(lead->AwaitSaid("waits for ranks 1 to 2"));
  // Ranks that the stage does not have, what the lead says, another model.
  const auto beyond = Follower(3, 1);
  EXPECT_EQ(beyond->WaitEnd(), 1);
  EXPECT_THAT(beyond->said(), HasSubstr("the stage has ranks 0 to 2"));
  const auto blocks = Follower(1, 2, {"--kv-blocks", "64"});
  EXPECT_EQ(blocks->WaitEnd(), 1);
  EXPECT_THAT(blocks->said(), HasSubstr("--kv-blocks is the lead's"));
  const std::string qwen = testing::GoldenModel("qwen3");
  const std::string model = std::exchange(model_, qwen);
  const auto other = Follower(1, 2);
  EXPECT_EQ(other->WaitEnd(), 1);
  EXPECT_THAT(other->said(), HasSubstr("the model of ranks 1 to 2"));
  model_ = model;
  const auto first = Follower(1, 1);
  const auto second = Follower(2, 1);
  Connect();
  // What is taken is refused, and tried again.
  const auto taken = Follower(2, 1);
  ASSERT_TRUE(taken->AwaitSaid("another follower has rank 2"));
  EXPECT_EQ(Generate(kTokens).size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(taken->End(SIGTERM), 0);
  EXPECT_EQ(Generate(kTokens).size(), static_cast<size_t>(kTokens));
}

TEST_F(RankProcessesTest, AStageThatTakesNoFollowersIsNamed) {
  const auto alone = Lead(0);
  Connect();
  const auto follower = Follower(1, 1);
  EXPECT_EQ(follower->WaitEnd(), 1);
  EXPECT_THAT(follower->said(), HasSubstr("that stage takes no followers"));
  EXPECT_EQ(Generate(kTokens).size(), static_cast<size_t>(kTokens));
}

// Its GPU does not hold the weights of its rank, which it knows when the GPUs
// are connected.
TEST_F(RankProcessesTest, AFollowerThatCannotLoadIsTheLeadsReason) {
  const auto lead = Lead(1);
  const auto follower = Follower(1, 1, {}, {"EMULATED_GPU_BYTES=400000"});
  EXPECT_EQ(lead->WaitEnd(), 1);
  EXPECT_EQ(follower->WaitEnd(), 1);
  for (const auto* process : {&lead, &follower}) {
    EXPECT_THAT((*process)->said(), HasSubstr("its weights take"));
  }
}

TEST_F(RankProcessesTest, AModelThatIsGoneWhenItIsOrderedIsTheLeadsReason) {
  const auto lead = Lead(2);
  ASSERT_TRUE(lead->AwaitSaid("waits for ranks 1 to 2"));
  const std::string whole = std::exchange(model_, (folder_ / "model").string());
  std::filesystem::copy(whole, model_);
  const auto gone = Follower(1, 1);
  ASSERT_TRUE(lead->AwaitSaid("waits for rank 2"));
  std::filesystem::remove_all(model_);
  model_ = whole;
  const auto other = Follower(2, 1);
  EXPECT_EQ(lead->WaitEnd(), 1);
  EXPECT_EQ(gone->WaitEnd(), 1);
  EXPECT_THAT(lead->said(), HasSubstr((folder_ / "model").string()));
  // The lead is over, not lost: its load was dropped.
  ASSERT_TRUE(other->AwaitSaid("waits for the lead"));
  EXPECT_EQ(other->End(SIGTERM), 0);
}

TEST_F(RankProcessesTest, ProcessesThatWaitForOthersEndWhenTheyAreTold) {
  const auto lead = Lead(2);
  const auto follower = Follower(1, 1);
  ASSERT_TRUE(lead->AwaitSaid("waits for rank 2"));
  EXPECT_EQ(follower->End(SIGTERM), 0);
  ASSERT_TRUE(lead->AwaitSaid("waits for ranks 1 to 2"));
  EXPECT_EQ(lead->End(SIGTERM), 0);
}

}  // namespace
}  // namespace sluice::stage
