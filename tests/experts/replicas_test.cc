// One replica of the experts that lives is enough, and what is asked of it is
// bounded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/model_config/open_model.h"
#include "tests/experts/experts_fixture.h"
#include "tests/experts/mute_host.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(ReplicasTest, OneOfTwoMayEndAtAnyTime) {
  Start({path_, {{0, 7, {"a", "b"}}}, 2});
  for (const int gone : {0, 1}) {
    const double before = Batches();
    std::atomic<bool> over{false};
    bool within = false;
    std::thread killer([&] {
      // In the midst of it: the first layers are answered.
      EXPECT_TRUE(Eventually([&] { return Batches() > before + 2 || over; }));
      within = !over;
      hosts_->Stop(gone);
    });
    ExpectSame(Generate(), AllLocal(path_));
    over = true;
    killer.join();
    EXPECT_TRUE(within);
    ExpectSame(Generate(), AllLocal(path_));
    ASSERT_TRUE(hosts_->Restart(gone).ok());
    // Only a host that is used again lets the other one go.
    ASSERT_TRUE(Eventually(
        [&] { return clients_->Metric("sluice_stage_expert_up") == 2; }));
  }
}

TEST_F(ReplicasTest, ALateOneIsNotWaitedFor) {
  // So late that waiting for every layer would take half a minute.
  Start({path_,
         {{0, 7, {"a", "b"}}},
         2,
         WeightsMode::kAuto,
         {std::chrono::seconds(1)}});
  const TimePoint begin = Clock::now();
  ExpectSame(Generate(), AllLocal(path_));
  EXPECT_LT(Seconds(Clock::now() - begin), 3);
  EXPECT_GT(clients_->Metric("sluice_stage_expert_hedges_total"), 0);
}

TEST_F(ReplicasTest, AHedgeIsChargedOnceForABatchAndEndsWithTheBudget) {
  constexpr auto kDelay = std::chrono::seconds(3);
  // Two shards on the same hosts.
  StartHosts({path_,
              {{0, 2, {"a", "b"}}, {3, 3, {}}, {4, 7, {"a", "b"}}},
              2,
              WeightsMode::kAuto,
              {kDelay}});
  hosts_->Stop(1);
  StartClients(hosts_->placement(), InfoOf(path_), /*most_hedges=*/1);
  WaitReady();
  std::thread change([&] {
    // One batch with a unit of each shard is with the late host. Were they
    // charged one by one, the second would wait for it.
    EXPECT_TRUE(Eventually([&] {
      return clients_->Metric("sluice_stage_expert_part_seconds_count") > 0;
    }));
    EXPECT_TRUE(hosts_->Restart(1).ok());
  });
  const TimePoint begin = Clock::now();
  ExpectSame(Generate(), AllLocal(path_));
  EXPECT_LT(Clock::now() - begin, kDelay);
  change.join();
  const double hedges = clients_->Metric("sluice_stage_expert_hedges_total");
  EXPECT_GE(hedges, 1);
  // One to begin with, and one of ten; the late one is under way.
  EXPECT_LE(hedges, 1 + (Batches() + 1) / 10);
}

TEST_F(ReplicasTest, WithoutABudgetALateOneIsWaitedFor) {
  StartHosts({path_,
              {{0, 7, {"a", "b"}}},
              2,
              WeightsMode::kAuto,
              {std::chrono::milliseconds(400)}});
  StartClients(hosts_->placement(), InfoOf(path_), /*most_hedges=*/0);
  WaitReady();
  std::vector<Ask> one = Asks(path_);
  one.resize(1);
  one[0].max_tokens = 1;
  const auto answers = pipeline_->Generate(one);
  ASSERT_TRUE(answers[0].status.ok()) << answers[0].status;
  EXPECT_EQ(clients_->Metric("sluice_stage_expert_hedges_total"), 0);
}

TEST_F(ReplicasTest, StoppingWhileAnswersComeEndsWhatIsAsked) {
  StartHosts({path_, {{0, 3, {"a", "b"}}, {4, 7, {"b", "c"}}}, 3});
  for (int round = 0; round < 8; ++round) {
    ASSERT_NO_FATAL_FAILURE(StartClients(hosts_->placement(), InfoOf(path_)));
    WaitReady();
    std::vector<Answer> answers;
    std::thread asker([&] { answers = Generate(); });
    EXPECT_TRUE(Eventually([&] { return Batches() > 3 * round; }));
    (*clients_)->Stop();
    asker.join();
    for (const Answer& answer : answers) {
      if (answer.status.ok()) continue;
      EXPECT_EQ(answer.status.code(), StatusCode::kUnavailable);
      EXPECT_THAT(Message(answer.status),
                  HasSubstr("this stage is shutting down"));
    }
    EXPECT_FALSE((*clients_)->Ready().ok());
    // What is still told goes to nobody: the metrics are gone.
    pipeline_.reset();
    clients_.reset();
  }
}

TEST_F(ReplicasTest, WithNoneLeftSequencesEndAndTheStageGoesOn) {
  Start({path_, {{0, 3, {}}, {4, 7, {"a"}}}, 1});
  hosts_->Stop(0);
  for (const Answer& answer : Generate()) {
    EXPECT_EQ(answer.status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(Message(answer.status),
              "experts 4-7 of layers 1-3 have no host left of: a");
  }
  EXPECT_FALSE((*clients_)->Ready().ok());
  EXPECT_TRUE(Eventually([&] { return !clients_->told_ready(); }));
  ASSERT_TRUE(hosts_->Restart(0).ok());
  ASSERT_TRUE((*clients_)->WaitReady(Clock::now() + kLimit).ok());
  EXPECT_TRUE(Eventually([&] { return clients_->told_ready(); }));
  ExpectSame(Generate(), AllLocal(path_));
}

TEST_F(ReplicasTest, WhoAsksNothingOfALostHostGoesOn) {
  Start({path_, {{0, 6, {}}, {7, 7, {"a"}}}, 1});
  hosts_->Stop(0);
  // Prompts of one token: some of them never ask the last expert.
  std::vector<Ask> asks;
  for (int i = 0; i < 24; ++i) {
    Ask ask{{static_cast<TokenId>(5 + 9 * i)}, {}, 1};
    ask.sampling.temperature = 0;
    asks.push_back(ask);
  }
  const auto answers = pipeline_->Generate(asks);
  const auto local = (*Pipeline::Load({StageOf(path_, 1), 1}))->Generate(asks);
  int failed = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].status.ok()) {
      EXPECT_TRUE(answers[i].tokens == local[i].tokens) << "request " << i;
      continue;
    }
    ++failed;
    EXPECT_EQ(Message(answers[i].status),
              "experts 7-7 of layers 1-3 have no host left of: a");
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, static_cast<int>(answers.size()));
}

TEST_F(ReplicasTest, AHostOfAnotherModelIsNamedAndNeverAsked) {
  StartHosts({path_, {{0, 7, {"a"}}}, 1});
  StageInfo other = InfoOf(path_);
  other.model_digest = std::string(64, 'e');
  StartClients(hosts_->placement(), other);
  std::string why;
  EXPECT_TRUE(Eventually([&] {
    why = Message((*clients_)->Ready());
    return why.find("differs") != std::string::npos;
  }));
  EXPECT_THAT(why, HasSubstr("host a: model digest differs"));
  EXPECT_THAT(why, HasSubstr(other.model_digest));
  EXPECT_THAT(why, HasSubstr(InfoOf(path_).model_digest));
  for (const Answer& answer : Generate()) {
    EXPECT_EQ(answer.status.code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(Batches(), 0);
  EXPECT_THAT(hosts_->host(0).HeatJson(), HasSubstr("\"asks\": [0, 0, 0"));
}

TEST_F(ReplicasTest, ASilentOneIsNotAskedAndDoesNotCount) {
  StartHosts({path_, {{0, 7, {"a", "b"}}}, 2});
  MuteHost mute(*hosts_->host(0).info(), /*pongs=*/false);
  ExpertPlacement placement = hosts_->placement();
  placement.hosts[0].address = mute.address();
  StartClients(placement, InfoOf(path_));
  WaitReady();
  ASSERT_TRUE(Eventually([&] {
    return clients_->Metric("sluice_stage_expert_up") == 2 &&
           clients_->Metric("sluice_stage_expert_silent") == 1;
  }));
  ExpectSame(Generate(), AllLocal(path_));
  EXPECT_EQ(mute.batches(), 0);
  hosts_->Stop(1);
  ASSERT_TRUE(Eventually([&] { return !(*clients_)->Ready().ok(); }));
  EXPECT_THAT(Message((*clients_)->Ready()), HasSubstr("host a: silent"));
  EXPECT_TRUE(Eventually([&] { return !clients_->told_ready(); }));
}

TEST_F(ReplicasTest, WhatASilentOneHasIsAskedElsewhereWithoutAHedgeToSpare) {
  StartHosts({path_, {{0, 7, {"a", "b"}}}, 2});
  MuteHost mute(*hosts_->host(0).info(), /*pongs=*/true);
  ExpertPlacement placement = hosts_->placement();
  placement.hosts[0].address = mute.address();
  StartClients(placement, InfoOf(path_), /*most_hedges=*/0);
  WaitReady();
  ASSERT_TRUE(Eventually(
      [&] { return clients_->Metric("sluice_stage_expert_up") == 2; }));
  const TimePoint begin = Clock::now();
  ExpectSame(Generate(), AllLocal(path_));
  EXPECT_LT(Seconds(Clock::now() - begin), 8);
  EXPECT_EQ(mute.batches(), 1);
  EXPECT_GT(clients_->Metric("sluice_stage_expert_hedges_total"), 0);
}

TEST_F(ReplicasTest, ABatchIsCutForAReplicaThatTakesLessAndComesUpLater) {
  StartHosts({path_, {{0, 7, {"a", "b"}}}, 2, WeightsMode::kAuto, {}, {16, 3}});
  hosts_->Stop(1);
  // Takes 2048 rows and answers none.
  auto mute = std::make_unique<MuteHost>(*hosts_->host(0).info(),
                                         /*pongs=*/true);
  ExpertPlacement placement = hosts_->placement();
  placement.hosts[0].address = mute->address();
  StartClients(placement, InfoOf(path_));
  WaitReady();
  std::thread change([&] {
    EXPECT_TRUE(Eventually([&] { return mute->batches() == 1; }));
    EXPECT_TRUE(hosts_->Restart(1).ok());
  });
  ExpectSame(Generate(), AllLocal(path_));
  change.join();
  EXPECT_EQ(mute->batches(), 1);
  EXPECT_EQ(clients_->Metric("sluice_stage_expert_failed_rows_total"), 0);
}

TEST_F(ReplicasTest, AHostThatLacksExpertsIsNamed) {
  auto hosts = ExpertHosts::Start({path_, {{0, 3, {"a"}}, {4, 7, {"b"}}}, 2});
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  auto more = ExpertHosts::Start({path_, {{0, 7, {"a"}}}, 1});
  ASSERT_TRUE(more.ok()) << more.status();
  // Where a host should have all there is one that has half.
  (*more)->Stop(0);
  ExpertPlacement wrong = (*more)->placement();
  wrong.hosts[0].address = (*hosts)->placement().hosts[0].address;
  const auto file = OpenModel(path_);
  const auto config = ParseModelConfig((*file)->config());
  DispatchOptions options;
  options.placement = wrong;
  options.layers = {0, config->num_layers()};
  auto client = ExpertDispatcher::Make(*config, std::move(options));
  ASSERT_TRUE(client.ok()) << client.status();
  (*client)->Connect(InfoOf(path_));
  const TimePoint end = Clock::now() + kLimit;
  std::string why;
  do {
    why = Message((*client)->WaitReady(Clock::now()));
  } while (Clock::now() < end && why.find("wanted") == std::string::npos);
  EXPECT_THAT(why, HasSubstr("experts 0-7 of layer 1 are wanted and not all "
                             "of them are here"));
}

TEST_F(ReplicasTest, AHostWithoutAnAddressIsRefused) {
  auto hosts = ExpertHosts::Start({path_, {{0, 7, {"a"}}}, 1});
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  const auto file = OpenModel(path_);
  const auto config = ParseModelConfig((*file)->config());
  DispatchOptions options;
  options.placement = (*hosts)->placement();
  options.layers = {0, config->num_layers()};
  options.placement.hosts[0].address.clear();
  EXPECT_EQ(Message(ExpertDispatcher::Make(*config, options).status()),
            "placement: host 'a' has no address");
  options.placement.hosts[0].address = "10.1.2.3:7101";
  EXPECT_THAT(Message(ExpertDispatcher::Make(*config, options).status()),
              HasSubstr("host 'a': address 10.1.2.3:7101 is beyond loopback"));
}

}  // namespace
}  // namespace sluice::testing
