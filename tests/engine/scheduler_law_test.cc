// The same tokens come out however the work is cut, and no block is ever read
// that holds another history: random runs (random_run.h) of many shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/random_run.h"
#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

TEST(SchedulerLawTest, BatchedSequencesGetTheTokensTheyGetAlone) {
  const Totals totals = RunRandom({}, 1, 200);
  EXPECT_GT(totals.counters.steps_with_several_sequences, 100u);
  EXPECT_GT(totals.counters.prefix_hit_tokens, 100u);
}

TEST(SchedulerLawTest, ChunkSizeChangesNoToken) {
  for (int chunk : {1, 5, 16, 17, 64, 0}) {
    Shape shape;
    shape.options.prefill_chunk = chunk;
    shape.options.max_step_tokens = 96;
    const Totals totals = RunRandom(shape, 2, 60);
    if (chunk == 16) {
      EXPECT_GT(totals.counters.split_prefills, 20u);
    }
  }
}

TEST(SchedulerLawTest, PrefixCacheOnAndOffGiveTheSameTokens) {
  for (bool on : {true, false}) {
    Shape shape;
    shape.options.prefix_cache = on;
    const Totals totals = RunRandom(shape, 3, 100);
    EXPECT_EQ(totals.counters.prefix_hit_tokens > 0, on);
  }
}

// The stages forget what vacant blocks held.
TEST(SchedulerLawTest, VacantBlocksAreNeverReadAndPrefixesGoWithThem) {
  EngineOptions options;
  options.prefix_idle = std::chrono::seconds(8);
  const PlanLimits limits = TestLimits(100);
  SchedulerHarness harness(options, limits);
  const GenerateRequest request = TestRequest(50, 5);
  const auto hits = [&] {
    const SequenceId id = harness.Add(request);
    harness.RunToEnd();
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(request, limits.vocab_size));
    return harness.outcome(id).ends[0].stats.cached_tokens;
  };
  EXPECT_EQ(hits(), 0);
  EXPECT_EQ(harness.Probe(std::chrono::seconds(1)).vacant.size(), 0u);
  EXPECT_EQ(hits(), 48);
  EXPECT_EQ(harness.Probe(std::chrono::seconds(2)).vacant.size(), 0u);
  EXPECT_EQ(hits(), 48);
  EXPECT_EQ(harness.Probe(std::chrono::seconds(2)).vacant.size(), 0u);
  EXPECT_EQ(harness.Probe(std::chrono::seconds(8)).vacant.size(), 1u);
  EXPECT_EQ(hits(), 0);
  EXPECT_EQ(hits(), 48);
}

TEST(SchedulerLawTest, PreemptedSequencesGetTheTokensOfUndisturbedOnes) {
  uint64_t preemptions = 0;
  for (int blocks : {13, 16, 24}) {
    Shape shape;
    shape.num_blocks = blocks;
    shape.options.prefill_chunk = 32;
    preemptions += RunRandom(shape, 4, 300).counters.preemptions;
  }
  EXPECT_GT(preemptions, 50u);
}

TEST(SchedulerLawTest, PlansInFlightChangeNoToken) {
  for (int plans = 1; plans <= 4; ++plans) {
    Shape shape;
    shape.num_stages = plans;
    shape.options.prefill_chunk = 16;
    const Totals totals = RunRandom(shape, 5, 100);
    EXPECT_EQ(totals.max_plans, plans);
  }
}

TEST(SchedulerLawTest, PlansThatGoAheadChangeNoToken) {
  for (int stages = 1; stages <= 4; ++stages) {
    for (int blocks : {13, 24, 400}) {
      Shape shape;
      shape.num_blocks = blocks;
      shape.num_stages = stages;
      shape.options.prefill_chunk = 16;
      shape.options.min_decode_batch = stages % 2 == 0 ? 1 : 4;
      shape.options.ahead_within = kAlwaysAhead;
      const Totals totals = RunRandom(shape, 8, 100);
      ASSERT_FALSE(HasFailure()) << stages << " stages, " << blocks;
      EXPECT_GT(totals.ahead, 200);
      if (blocks == 13) {
        EXPECT_GT(totals.counters.preemptions, 5u);
      } else if (blocks == 400) {
        EXPECT_EQ(totals.max_plans, stages + 1);
      }
    }
  }
}

TEST(SchedulerLawTest, EveryKvGroupReadsItsOwnHistory) {
  Shape shape;
  shape.windows = {0, 0, 0};
  shape.num_blocks = 40;
  shape.num_stages = 2;
  RunRandom(shape, 6, 100);
}

TEST(SchedulerLawTest, WindowedGroupsReadTheirWindowWhateverIsGivenBack) {
  uint64_t preemptions = 0;
  uint64_t hits = 0;
  for (const int32_t window : {1, 5, 16, 33, 100}) {
    for (const int stages : {1, 3}) {
      Shape shape;
      shape.windows = {0, window};
      shape.step_tokens = 24;
      shape.num_blocks = stages == 1 ? 15 : 18;
      shape.num_stages = stages;
      shape.options.prefill_chunk = 20;
      const Totals totals =
          RunRandom(shape, static_cast<uint32_t>(300 + window), 200);
      ASSERT_FALSE(HasFailure()) << "window " << window;
      preemptions += totals.counters.preemptions;
      hits += totals.counters.prefix_hit_tokens;
    }
  }
  EXPECT_GT(preemptions, 50u);
  EXPECT_GT(hits, 1000u);
}

// Long chunks that pass many blocks, few blocks and many, drafts, lost stages.
TEST(SchedulerLawTest, StatesAreTheHistorysWhateverIsGivenBack) {
  uint64_t hits = 0;
  for (const int states : {kLeastStateBlocks, 9, 40, 400}) {
    for (const int stages : {1, 3}) {
      for (const int right : {0, 3}) {
        Shape shape;
        shape.windows = {0, kStateWindow};
        if (right == 0) shape.windows = {0, 24, kStateWindow};
        shape.num_state_blocks = states;
        shape.num_blocks = stages == 1 ? 40 : 400;
        shape.num_stages = stages;
        shape.logs = right == 0;
        if (right > 0) shape.options.propose_drafts = Oracle(right);
        const Totals totals =
            RunRandom(shape, static_cast<uint32_t>(500 + states), 100,
                      {.losses = stages == 3 ? 5 : 0});
        ASSERT_FALSE(HasFailure()) << states << ", " << stages << " stages";
        hits += totals.counters.prefix_hit_tokens;
      }
    }
  }
  EXPECT_GT(hits, 1000u);
}

TEST(SchedulerLawTest, ARebuiltPipelineGoesOnWithTheSameTokens) {
  Shape shape;
  shape.num_stages = 2;
  shape.num_blocks = 40;
  for (const std::vector<int32_t>& windows :
       {std::vector<int32_t>{0}, std::vector<int32_t>{0, 24}}) {
    shape.windows = windows;
    const Totals totals = RunRandom(shape, 7, 200, {.losses = 5});
    EXPECT_GT(totals.epochs, 3u);
    EXPECT_EQ(totals.counters.recoveries, totals.epochs - 1);
    EXPECT_GT(totals.counters.replayed_tokens, 100u);
  }
}

// Constraints that are late, complete, fail and force tokens, in one step or
// one by one, beside requests without; with windows, plans ahead, preemption,
// drafts for the others, and rebuilt pipelines.
TEST(SchedulerLawTest, ConstraintsHoldWhateverElseRuns) {
  uint64_t preemptions = 0;
  for (const bool takes_forced : {true, false}) {
    for (const int stages : {1, 3}) {
      for (const int blocks : {16, 400}) {
        Shape shape;
        shape.constrained = true;
        shape.takes_forced = takes_forced;
        shape.num_stages = stages;
        shape.num_blocks = blocks;
        shape.options.prefill_chunk = 32;
        if (stages == 1) shape.options.ahead_within = kAlwaysAhead;
        if (stages == 3) shape.windows = {0, 24};
        const Totals totals =
            RunRandom(shape, 11, 200, {.losses = stages == 3 ? 5 : 0});
        ASSERT_FALSE(HasFailure())
            << takes_forced << ", " << stages << " stages, " << blocks;
        preemptions += totals.counters.preemptions;
        EXPECT_GT(totals.counters.finished_stop, 20u);
      }
    }
  }
  EXPECT_GT(preemptions, 30u);
}

TEST(SchedulerLawTest, RightAndWrongDraftsChangeNoToken) {
  uint64_t preemptions = 0;
  for (const int right : {0, 2, 4}) {
    for (const int stages : {1, 3}) {
      Shape shape;
      shape.options.propose_drafts = Oracle(right);
      shape.num_stages = stages;
      shape.num_blocks = stages == 1 ? 400 : 16;
      const Totals totals =
          RunRandom(shape, 8, 200, {.losses = stages == 3 ? 5 : 0});
      ASSERT_FALSE(HasFailure()) << right << " of 4 are right";
      preemptions += totals.counters.preemptions;
    }
  }
  EXPECT_GT(preemptions, 50u);
}

TEST(SchedulerLawTest, DraftsBehindAWindowChangeNoToken) {
  uint64_t preemptions = 0;
  for (const int32_t window : {1, 16, 33}) {
    for (const int right : {0, 3, 4}) {
      Shape shape;
      shape.options.propose_drafts = Oracle(right);
      shape.windows = {0, window};
      shape.step_tokens = 24;
      shape.num_blocks = 18;
      shape.num_stages = 2;
      const Totals totals =
          RunRandom(shape, static_cast<uint32_t>(400 + window), 100);
      ASSERT_FALSE(HasFailure()) << "window " << window << ", " << right;
      preemptions += totals.counters.preemptions;
    }
  }
  EXPECT_GT(preemptions, 50u);
}

// Each step gives as many tokens as its drafts are right, and one more; the
// last plan tells of the end.
TEST(SchedulerLawTest, RightDraftsSaveSteps) {
  const GenerateRequest request = TestRequest(20, 171);
  for (const auto& [right, steps] : {std::pair{4, 12}, std::pair{0, 172}}) {
    EngineOptions options;
    options.propose_drafts = Oracle(right);
    SchedulerHarness harness(options, TestLimits(100));
    const SequenceId id = harness.Add(request);
    harness.RunToEnd();
    EXPECT_EQ(harness.outcome(id).result(), Undisturbed(request, kRunVocab));
    EXPECT_EQ(harness.counters().steps, static_cast<uint64_t>(steps));
  }
}

// With wrong drafts each plan has the tokens that it has without drafts, for
// they get what decodes and prompts leave, and every decode its part of that.
TEST(SchedulerLawTest, DraftsTakeNoRowFromDecodesOrPrompts) {
  PlanLimits limits = TestLimits(400);
  limits.max_step_tokens = 20;
  EngineOptions with_drafts;
  with_drafts.propose_drafts = Oracle(0);
  SchedulerHarness drafted(with_drafts, limits), plain(EngineOptions(), limits);
  const TimePoint now = Clock::now();
  int64_t drafts = 0;
  for (int step = 0; step < 60; ++step) {
    for (SchedulerHarness* harness : {&drafted, &plain}) {
      harness->set_now(now + std::chrono::milliseconds(step));
      if (step < 3) harness->Add(TestRequest(4, 40, uint64_t(step) + 1));
      if (step == 20) harness->Add(TestRequest(90, 8, 9));
    }
    std::optional<StepPlan> plan = drafted.Plan();
    const std::optional<StepPlan> expected = plain.Plan();
    ASSERT_EQ(plan.has_value(), expected.has_value()) << "step " << step;
    if (!plan) break;
    EXPECT_LE(plan->num_tokens(), limits.max_step_tokens);
    ASSERT_EQ(plan->chunks.size(), expected->chunks.size()) << *plan;
    int32_t least = kMaxDraftTokens, most = 0;
    for (size_t i = 0; i < plan->chunks.size(); ++i) {
      Chunk& chunk = plan->chunks[i];
      least = std::min(least, chunk.num_draft_tokens);
      most = std::max(most, chunk.num_draft_tokens);
      drafts += chunk.num_draft_tokens;
      chunk.tokens.resize(chunk.tokens.size() -
                          static_cast<size_t>(chunk.num_draft_tokens));
      EXPECT_EQ(chunk.sequence, expected->chunks[i].sequence);
      EXPECT_EQ(chunk.start, expected->chunks[i].start);
      EXPECT_EQ(chunk.tokens, expected->chunks[i].tokens) << *plan;
    }
    if (step == 10) {
      EXPECT_EQ(plan->chunks.size(), 3u);
      EXPECT_EQ(std::pair(least, most), std::pair(5, 6));
    }
    ASSERT_TRUE(drafted.Commit());
    ASSERT_TRUE(plain.Commit());
  }
  EXPECT_GT(drafts, 300);
}

// A result that goes on behind a wrong draft is the pipeline's mistake.
TEST(SchedulerLawTest, WhatFollowsAWrongDraftIsRefused) {
  for (const bool too_many : {false, true}) {
    EngineOptions options;
    options.propose_drafts = Oracle(0);
    SchedulerHarness harness(options, TestLimits(100));
    const SequenceId id = harness.Add(TestRequest(20, 30));
    ASSERT_TRUE(harness.Plan());
    ASSERT_TRUE(harness.Commit());
    const auto plan = harness.Plan();
    ASSERT_TRUE(plan.has_value());
    ASSERT_EQ(plan->chunks[0].num_draft_tokens, kMaxDraftTokens);
    auto& sampled = harness.NextResult().sequences[0].sampled;
    const size_t more = too_many ? kMaxDraftTokens + 1 : 1;
    sampled.insert(sampled.end(), more, sampled[0]);
    ASSERT_TRUE(harness.Commit());
    const Outcome& outcome = harness.outcome(id);
    ASSERT_EQ(outcome.ends.size(), 1u);
    EXPECT_EQ(outcome.ends[0].status.code(), StatusCode::kInternal);
    EXPECT_EQ(outcome.tokens.size(), 1u);
    EXPECT_EQ(harness.counters().refused_results, 1u);
  }
}

TEST(SchedulerLawTest, AnyMixOfAllOfItGivesTheSameTokens) {
  Totals sum;
  for (uint32_t seed = 100; seed < 160; ++seed) {
    const Shape shape = RandomShape(seed);
    const Totals totals =
        RunRandom(shape, seed, 60, {.losses = seed % 4 == 0 ? 5 : 0});
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    sum.counters.preemptions += totals.counters.preemptions;
    sum.counters.yields += totals.counters.yields;
    sum.counters.steps += totals.counters.steps;
    sum.ahead += totals.ahead;
    sum.counters.split_prefills += totals.counters.split_prefills;
    sum.counters.prefix_hit_tokens += totals.counters.prefix_hit_tokens;
  }
  EXPECT_GT(sum.counters.steps, 10000u);
  EXPECT_GT(sum.ahead, 1000);
  EXPECT_GT(sum.counters.preemptions, 100u);
  EXPECT_GT(sum.counters.yields, 100u);
  EXPECT_GT(sum.counters.split_prefills, 100u);
  EXPECT_GT(sum.counters.prefix_hit_tokens, 1000u);
}

}  // namespace
}  // namespace sluice
