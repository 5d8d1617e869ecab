// Real stages over gRPC in one process give what they give without it.
#include "tests/testing/local_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/golden_file.h"
#include "tests/services/stage/generate.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"

namespace sluice::stage {
namespace {

using testing::CollectingSink;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::LocalCluster;
using testing::LocalClusterOptions;

constexpr auto kLimit = std::chrono::seconds(30);

LocalClusterOptions Options(const std::string& model, int stages, bool grpc) {
  LocalClusterOptions options;
  options.stage.model_path = model;
  options.stage.threads = 1;
  options.stage.kv_blocks = 64;
  options.stages = stages;
  options.grpc = grpc;
  return options;
}

std::vector<TokenId> Generate(LocalCluster& cluster,
                              std::vector<TokenId> prompt, int max_tokens) {
  auto sink = std::make_shared<CollectingSink>();
  const auto id = cluster.engine().Submit(
      GreedyRequest(std::move(prompt), max_tokens), sink);
  EXPECT_TRUE(id.ok()) << id.status();
  const auto end = sink->WaitEnd(Clock::now() + kLimit);
  EXPECT_TRUE(end.has_value());
  if (end.has_value()) {
    EXPECT_EQ(end->reason, FinishReason::kLength) << end->status;
  }
  return sink->tokens();
}

TEST(LocalClusterTest, GrpcAndInProcessGiveTheGoldenIdsOnOneToFiveStages) {
  const std::string model = testing::GoldenModel("stories");
  const testing::GoldenPrompt golden = testing::ReadGolden(model)[0];
  const int count = static_cast<int>(golden.greedy_ids.size());
  ASSERT_EQ(count, 200);
  for (const int stages : {1, 2, 3, 5}) {
    for (const bool grpc : {false, true}) {
      auto cluster = LocalCluster::Start(Options(model, stages, grpc));
      ASSERT_TRUE(cluster.ok()) << cluster.status();
      EXPECT_EQ(Generate(**cluster, golden.ids, count), golden.greedy_ids)
          << stages << " stages, gRPC " << grpc;
    }
  }
}

TEST(LocalClusterTest, ALostStageEndsItsRequestsAndServesAgainWhenRestarted) {
  const std::string model = testing::GoldenModel("stories");
  auto started = LocalCluster::Start(Options(model, 2, true));
  ASSERT_TRUE(started.ok()) << started.status();
  LocalCluster& cluster = **started;
  const std::vector<TokenId> before = Generate(cluster, {1}, 20);
  for (const int gone : {0, 1}) {
    auto sink = std::make_shared<CollectingSink>();
    ASSERT_TRUE(cluster.engine().Submit(GreedyRequest({1}, 400), sink).ok());
    ASSERT_TRUE(sink->WaitTokens(3, Clock::now() + kLimit));
    cluster.StopStage(gone);
    const auto end = sink->WaitEnd(Clock::now() + std::chrono::seconds(5));
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->reason, FinishReason::kError);
    EXPECT_EQ(end->status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(Message(end->status), HasSubstr(cluster.address(gone)));
    EXPECT_FALSE(cluster.engine().Submit(GreedyRequest({1}, 4), sink).ok());
    ASSERT_TRUE(cluster.RestartStage(gone).ok());
    ASSERT_TRUE(cluster.WaitReady(Clock::now() + kLimit))
        << cluster.pipeline()->status().message;
    EXPECT_EQ(Generate(cluster, {1}, 20), before);
  }
}

// Whether all but the last blocks were computed on the lost stage alone.
void ExpectOthersComputedNothing(const EngineStats& before,
                                 const EngineStats& now, size_t sequences) {
  const uint64_t replayed = now.replayed_tokens - before.replayed_tokens;
  const uint64_t kept = now.kept_tokens - before.kept_tokens;
  EXPECT_GT(kept, sequences * 100);
  EXPECT_LE(replayed - kept, sequences * (kBlockTokens + 1));
}

// Enough for a stage to be lost within; a sanitizer's steps are slower.
const int32_t kLongAnswer = testing::OnlyQuick() ? 250 : 380;

TEST(LocalClusterTest, ALostStageAloneComputesAgainAndNoTokenChanges) {
  const std::string model = testing::GoldenModel("stories");
  LocalClusterOptions options = Options(model, 3, true);
  options.stage.kv_blocks = 200;
  options.engine.recovery_timeout = std::chrono::seconds(30);
  options.engine.max_replays = 10;
  for (const bool logs : {true, false}) {
    options.stage.replay_log = logs;
    auto started = LocalCluster::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    LocalCluster& cluster = **started;
    std::vector<std::vector<TokenId>> prompts, want;
    for (int i = 0; i < 4; ++i) {
      std::vector<TokenId>& prompt = prompts.emplace_back();
      for (int t = 0; t < 100 + i; ++t) prompt.push_back(1 + (t * 7 + i) % 500);
      want.push_back(Generate(cluster, prompt, kLongAnswer));
    }
    for (const int gone : {0, 1, 2}) {
      std::vector<std::shared_ptr<CollectingSink>> sinks;
      for (const auto& prompt : prompts) {
        sinks.push_back(std::make_shared<CollectingSink>());
        ASSERT_TRUE(
            cluster.engine()
                .Submit(GreedyRequest(prompt, kLongAnswer), sinks.back())
                .ok());
      }
      for (const auto& sink : sinks) {
        ASSERT_TRUE(sink->WaitTokens(20, Clock::now() + kLimit));
      }
      const EngineStats before = cluster.engine().Stats();
      cluster.StopStage(gone);
      ASSERT_TRUE(cluster.RestartStage(gone).ok());
      for (size_t i = 0; i < sinks.size(); ++i) {
        ASSERT_TRUE(sinks[i]->WaitEnd(Clock::now() + kLimit).has_value());
        EXPECT_EQ(sinks[i]->tokens(), want[i]) << "stage " << gone;
      }
      const EngineStats now = cluster.engine().Stats();
      EXPECT_EQ(now.recoveries, before.recoveries + 1);
      // Without logs the stages before the last one compute again too, which
      // is all of them then.
      if (logs || gone < 2) ExpectOthersComputedNothing(before, now, 4);
    }
  }
}

}  // namespace
}  // namespace sluice::stage
