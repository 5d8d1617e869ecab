// Models whose layers carry a state, under the gateway's scheduler: prefix
// hits, preemption, drafts, long chunks that pass blocks, and lost stages
// change no bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/model/expect_same.h"
#include "tests/model/pipeline.h"
#include "tests/model/scheduler_driver.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/representative.h"

namespace sluice::testing {
namespace {

std::unique_ptr<Pipeline> LoadPipeline(const std::string& name) {
  PipelineOptions options;
  options.stage.model_path = GoldenModel(name);
  options.stage.threads = 1;
  options.stage.kv_blocks = 128;
  options.stage.max_step_tokens = 256;
  options.stages = 2;
  auto pipeline = Pipeline::Load(options);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  return pipeline.ok() ? *std::move(pipeline) : nullptr;
}

// Prompts that share beginnings of several lengths.
std::vector<Ask> SharedAsks() {
  std::vector<Ask> asks;
  for (int i = 0; i < 8; ++i) {
    Ask ask;
    const int shared = 40 + 25 * (i % 4);
    for (int t = 0; t < shared + 7 * i; ++t) {
      const int own = t < shared ? 0 : i + 1;
      ask.prompt.push_back(4 + (t * t * 7 + own * 31) % 240);
    }
    ask.max_tokens = 45 + i;
    ask.sampling.seed = 70 + static_cast<uint64_t>(i);
    ask.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    ask.sampling.logprobs = 2;
    asks.push_back(ask);
  }
  return asks;
}

// Of four drafts three are the tokens of `answers`.
DraftProposer Oracle(const std::vector<Ask>& asks,
                     const std::vector<Answer>& answers) {
  std::map<uint64_t, std::vector<TokenId>> histories;
  for (size_t i = 0; i < asks.size(); ++i) {
    std::vector<TokenId>& history = histories[asks[i].sampling.seed];
    history = asks[i].prompt;
    for (const TokenId id : answers[i].ids()) history.push_back(id);
  }
  return [histories](std::span<const TokenId> tokens,
                     const SamplingParams& sampling, int32_t limit) {
    const std::vector<TokenId>& history = histories.at(sampling.seed);
    std::vector<TokenId> drafts;
    for (size_t at = tokens.size();
         at < history.size() && std::ssize(drafts) < limit; ++at) {
      drafts.push_back(at % 4 == 3 ? history[at] ^ 1 : history[at]);
    }
    return drafts;
  };
}

struct Case {
  std::string name;
  SchedulerDriver::Pools pools = {128, 128};
  int32_t chunk = 64;
  bool drafts = false;
  int losses = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& tested) {
  return out << tested.name;
}

class StateSchedulerTest : public ::testing::TestWithParam<const char*> {};

TEST_P(StateSchedulerTest, WhatTheSchedulerDoesChangesNoBit) {
  if (OnlyRepresentative()) GTEST_SKIP() << "nothing here has a second thread";
  const std::unique_ptr<Pipeline> pipeline = LoadPipeline(GetParam());
  ASSERT_NE(pipeline, nullptr);
  const std::vector<Ask> asks = SharedAsks();
  // One alone, in whole chunks.
  const std::vector<Answer> wanted =
      pipeline->Generate(asks, {.max_running = 1});
  for (const Case& tested : {
           Case{"plain"},
           Case{"few states", {128, 5}, 250},
           Case{"preemption", {15, 9}, 33},
           Case{"drafts", {128, 40}, 64, true},
           Case{"drafts and preemption", {16, 9}, 250, true},
           Case{"losses", {128, 128}, 64, false, 3},
           Case{"losses with few states", {64, 11}, 250, true, 3},
       }) {
    SCOPED_TRACE(tested);
    EngineOptions options;
    options.prefill_chunk = tested.chunk;
    options.max_step_tokens = 256;
    options.recovery_timeout = std::chrono::hours(1);
    options.max_replays = 100;
    if (tested.drafts) options.propose_drafts = Oracle(asks, wanted);
    SchedulerDriver run(*pipeline, options, tested.pools);
    // The second time prompts are found in the cache.
    for (int round = 0; round < 2; ++round) {
      for (const Ask& ask : asks) run.Add(ask);
      for (int loss = 0; loss < tested.losses; ++loss) {
        if (run.Go(9)) run.LoseLast();
      }
      run.Go(10'000);
    }
    std::vector<Answer> twice = wanted;
    twice.insert(twice.end(), wanted.begin(), wanted.end());
    ExpectSame(run.answers(), twice);
    const EngineCounters& counters = run.counters();
    EXPECT_GT(counters.prefix_hit_tokens, 0u);
    if (tested.pools.blocks <= 20) {
      EXPECT_GT(counters.preemptions, 0u);
    }
    if (tested.drafts) {
      EXPECT_GT(run.drafts(), 50);
    }
    if (tested.losses > 0) {
      EXPECT_GT(counters.replayed_tokens, 100u);
    }
    if (tested.name == "losses") {
      EXPECT_GT(counters.kept_tokens, 100u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, StateSchedulerTest,
                         ::testing::Values("lfm2", "qwen3_next", "nemotron_h",
                                           "falcon_h1"));

}  // namespace
}  // namespace sluice::testing
