#include "common/engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

const Chunk* ChunkOf(const StepPlan& plan, SequenceId id) {
  for (const Chunk& chunk : plan.chunks) {
    if (chunk.sequence == id) return &chunk;
  }
  return nullptr;
}

// Plans and commits until `id` has `count` tokens.
void RunUntilTokens(SchedulerHarness& harness, SequenceId id, size_t count) {
  while (harness.outcome(id).tokens.size() < count) {
    harness.Plan();
    ASSERT_TRUE(harness.Commit());
  }
}

TEST(SchedulerPlanTest, AShortPromptIsOneChunkThatSamples) {
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId id = harness.Add(TestRequest(20, 3));
  const auto plan = harness.Plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->step_id, StepId(0));
  EXPECT_EQ(plan->epoch, Epoch(1));
  ASSERT_EQ(plan->started.size(), 1u);
  EXPECT_EQ(plan->started[0].num_prompt_tokens, 20);
  ASSERT_EQ(plan->chunks.size(), 1u);
  const Chunk& chunk = *ChunkOf(*plan, id);
  EXPECT_EQ(chunk.start, 0);
  EXPECT_EQ(chunk.tokens.size(), 20u);
  EXPECT_TRUE(chunk.samples);
  EXPECT_EQ(chunk.logits, LogitsWanted::kLast);
  EXPECT_EQ(chunk.new_blocks[0].size(), 2u);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).tokens.size(), 3u);
}

TEST(SchedulerPlanTest, APlanHoldsNoMoreThanItsTokenBudget) {
  EngineOptions options;
  options.max_step_tokens = 100;
  options.prefill_chunk = 70;
  SchedulerHarness harness(options, TestLimits(100));
  const SequenceId first = harness.Add(TestRequest(80, 3, 1));
  const SequenceId second = harness.Add(TestRequest(80, 3, 2));
  auto plan = harness.Plan();
  EXPECT_EQ(ChunkOf(*plan, first)->tokens.size(), 70u);
  EXPECT_EQ(ChunkOf(*plan, second)->tokens.size(), 30u);
  EXPECT_FALSE(ChunkOf(*plan, first)->samples);
  EXPECT_EQ(ChunkOf(*plan, first)->logits, LogitsWanted::kNone);
  harness.Commit();
  plan = harness.Plan();
  EXPECT_EQ(ChunkOf(*plan, first)->tokens.size(), 10u);
  EXPECT_TRUE(ChunkOf(*plan, first)->samples);
  EXPECT_EQ(ChunkOf(*plan, second)->tokens.size(), 50u);
}

TEST(SchedulerPlanTest, DecodesComeBeforePromptChunks) {
  EngineOptions options;
  options.max_step_tokens = 32;
  SchedulerHarness harness(options, TestLimits(100));
  const SequenceId first = harness.Add(TestRequest(10, 50));
  RunUntilTokens(harness, first, 1);
  const SequenceId second = harness.Add(TestRequest(100, 3, 2));
  for (int i = 0; i < 3; ++i) {
    const auto plan = harness.Plan();
    ASSERT_NE(ChunkOf(*plan, first), nullptr);
    EXPECT_EQ(ChunkOf(*plan, second)->tokens.size(), 31u);
    harness.Commit();
  }
}

TEST(SchedulerPlanTest, ChunksOfOnePromptGoOutInConsecutivePlans) {
  EngineOptions options;
  options.prefill_chunk = 16;
  SchedulerHarness harness(options, TestLimits(100), /*num_stages=*/3);
  const SequenceId id = harness.Add(TestRequest(64, 3));
  for (int i = 0; i < 3; ++i) {
    const auto plan = harness.Plan();
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(ChunkOf(*plan, id)->start, i * 16);
  }
  EXPECT_FALSE(harness.Plan().has_value()) << "three stages, three plans";
  harness.Commit();
  EXPECT_TRUE(ChunkOf(*harness.Plan(), id)->samples);
  harness.Commit();
  EXPECT_FALSE(harness.Plan().has_value())
      << "the next position is not known before the sample is back";
}

TEST(SchedulerPlanTest, ManyDecodesAreSpreadOverThePlansInFlight) {
  SchedulerHarness harness({}, TestLimits(200), /*num_stages=*/2);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 10; ++i) {
    ids.push_back(harness.Add(TestRequest(4, 60, static_cast<uint64_t>(i))));
  }
  harness.Plan();
  while (harness.Commit()) {
  }
  const auto one = harness.Plan();
  const auto two = harness.Plan();
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->chunks.size(), 5u);
  EXPECT_EQ(two->chunks.size(), 5u);
  for (const Chunk& chunk : one->chunks) {
    EXPECT_EQ(ChunkOf(*two, chunk.sequence), nullptr);
  }
}

TEST(SchedulerPlanTest, FewDecodesShareOnePlan) {
  SchedulerHarness harness({}, TestLimits(200), /*num_stages=*/2);
  for (uint64_t i = 0; i < 4; ++i) harness.Add(TestRequest(4, 60, i));
  harness.Plan();
  while (harness.Commit()) {
  }
  EXPECT_EQ(harness.Plan()->chunks.size(), 4u);
  EXPECT_FALSE(harness.Plan().has_value());
}

TEST(SchedulerPlanTest, DecodeGroupsMergeAgainWhenSequencesEnd) {
  SchedulerHarness harness({}, TestLimits(200), /*num_stages=*/2);
  std::vector<SequenceId> ids;
  for (uint64_t i = 0; i < 8; ++i)
    ids.push_back(harness.Add(TestRequest(4, 60, i)));
  harness.Plan();
  harness.Commit();
  ASSERT_EQ(harness.Plan()->chunks.size(), 4u);
  ASSERT_EQ(harness.Plan()->chunks.size(), 4u);
  for (size_t i : {0, 1, 4, 5}) harness.End(ids[i], FinishReason::kCancelled);
  harness.Commit();
  EXPECT_FALSE(harness.Plan().has_value()) << "waits for the other group";
  harness.Commit();
  EXPECT_EQ(harness.Plan()->chunks.size(), 4u);
}

TEST(SchedulerPlanTest, ACachedPrefixIsNotComputedAgain) {
  SchedulerHarness harness({}, TestLimits(100));
  harness.Add(TestRequest(50, 1));
  harness.RunToEnd();
  const SequenceId again = harness.Add(TestRequest(50, 1));
  const auto plan = harness.Plan();
  EXPECT_EQ(plan->started[0].blocks[0].size(), 3u);
  EXPECT_EQ(plan->started[0].tokens.size(), 50u) << "the whole history";
  EXPECT_EQ(ChunkOf(*plan, again)->start, 48);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(again).ends[0].stats.cached_tokens, 48);
  EXPECT_EQ(harness.counters().prefix_query_tokens, 100u);
  EXPECT_EQ(harness.counters().prefix_hit_tokens, 48u);
}

TEST(SchedulerPlanTest, AHitLeavesOutTheBlockOfTheLastToken) {
  SchedulerHarness harness({}, TestLimits(100));
  harness.Add(TestRequest(48, 1));
  harness.RunToEnd();
  const SequenceId again = harness.Add(TestRequest(48, 1));
  const auto plan = harness.Plan();
  EXPECT_EQ(ChunkOf(*plan, again)->start, 32);
  EXPECT_EQ(ChunkOf(*plan, again)->tokens.size(), 16u);
  EXPECT_TRUE(ChunkOf(*plan, again)->samples);
  harness.RunToEnd();
}

TEST(SchedulerPlanTest, APrefixIsFoundOnceItsPlanIsCommittedNotBefore) {
  EngineOptions options;
  options.prefill_chunk = 16;
  SchedulerHarness harness(options, TestLimits(100), /*num_stages=*/4);
  harness.Add(TestRequest(48, 1));
  harness.Plan();
  harness.Plan();
  harness.Commit();
  const SequenceId again = harness.Add(TestRequest(48, 1));
  EXPECT_EQ(ChunkOf(*harness.Plan(), again)->start, 16)
      << "one block is committed, one is in flight";
  harness.RunToEnd();
}

TEST(SchedulerPlanTest, PromptLogprobsSkipPrefixHitsAndWantAllLogits) {
  SchedulerHarness harness({}, TestLimits(100));
  harness.Add(TestRequest(48, 1));
  harness.RunToEnd();
  GenerateRequest request = TestRequest(48, 2);
  request.sampling.prompt_logprobs = 1;
  const SequenceId id = harness.Add(request);
  const auto plan = harness.Plan();
  EXPECT_EQ(ChunkOf(*plan, id)->start, 0);
  EXPECT_EQ(ChunkOf(*plan, id)->logits, LogitsWanted::kAll);
  EXPECT_TRUE(ChunkOf(*plan, id)->samples);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).prompt.size(), 47u);
}

TEST(SchedulerPlanTest, MaxTokensZeroComputesThePromptAndSamplesNothing) {
  SchedulerHarness harness({}, TestLimits(100));
  GenerateRequest request = TestRequest(20, 0);
  request.sampling.prompt_logprobs = 0;
  const SequenceId echo = harness.Add(request);
  const SequenceId plain = harness.Add(TestRequest(20, 0, 2));
  const auto plan = harness.Plan();
  EXPECT_FALSE(ChunkOf(*plan, echo)->samples);
  EXPECT_EQ(ChunkOf(*plan, echo)->logits, LogitsWanted::kAll);
  EXPECT_EQ(ChunkOf(*plan, plain)->logits, LogitsWanted::kNone);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(echo).prompt.size(), 19u);
  EXPECT_TRUE(harness.outcome(echo).tokens.empty());
  EXPECT_EQ(harness.outcome(echo).ends[0].reason, FinishReason::kLength);
}

TEST(SchedulerPlanTest, EndedSequencesRideOnTheNextPlanOrGetAnEmptyOne) {
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId first = harness.Add(TestRequest(4, 1));
  const SequenceId second = harness.Add(TestRequest(4, 2, 2));
  harness.Plan();
  harness.Commit();  // ends the first
  auto plan = harness.Plan();
  EXPECT_EQ(plan->ended, std::vector<SequenceId>{first});
  EXPECT_EQ(plan->chunks.size(), 1u);
  harness.Commit();
  plan = harness.Plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->ended, std::vector<SequenceId>{second});
  EXPECT_TRUE(plan->chunks.empty());
  harness.Commit();
  EXPECT_FALSE(harness.Plan().has_value());
}

TEST(SchedulerPlanTest, ASequenceThatNeverRanIsNotToldToTheStages) {
  EngineOptions options;
  options.max_running = 1;
  SchedulerHarness harness(options, TestLimits(100));
  harness.Add(TestRequest(4, 2));
  const SequenceId waiting = harness.Add(TestRequest(4, 2));
  harness.Plan();
  harness.End(waiting, FinishReason::kCancelled);
  harness.Commit();
  EXPECT_TRUE(harness.Plan()->ended.empty());
  harness.RunToEnd();
}

TEST(SchedulerQueueTest, SequencesStartInTheOrderTheyCame) {
  EngineOptions options;
  options.max_running = 2;
  SchedulerHarness harness(options, TestLimits(20));
  std::vector<SequenceId> added, started;
  for (uint64_t i = 0; i < 12; ++i) {
    // Long ones among short ones: nobody overtakes.
    added.push_back(harness.Add(TestRequest(i % 3 == 0 ? 200 : 5, 6, i)));
  }
  for (;;) {
    const auto plan = harness.Plan();
    if (plan) {
      for (const StartedSequence& s : plan->started) {
        if (std::find(started.begin(), started.end(), s.sequence) ==
            started.end()) {
          started.push_back(s.sequence);
        }
      }
    }
    if (!harness.Commit()) break;
  }
  EXPECT_EQ(started, added);
}

TEST(SchedulerQueueTest, NoMoreRunAtOnceThanAllowed) {
  EngineOptions options;
  options.max_running = 3;
  SchedulerHarness harness(options, TestLimits(100));
  for (uint64_t i = 0; i < 8; ++i) harness.Add(TestRequest(4, 5, i));
  harness.Plan();
  EXPECT_EQ(harness.num_running(), 3u);
  EXPECT_EQ(harness.num_waiting(), 5u);
  EXPECT_TRUE(harness.scheduler().state().admission_blocked);
  harness.RunToEnd();
  EXPECT_FALSE(harness.scheduler().state().admission_blocked);
}

// Else a slow pipeline promises a long wait, and an engine without a sequence
// refuses every request.
TEST(SchedulerQueueTest, PlacesAreFreeOnceAllThatWaitedIsCancelled) {
  EngineOptions options;
  options.max_running = 1;
  SchedulerHarness harness(options, TestLimits(100));
  const SequenceId running = harness.Add(TestRequest(4, 5, 1));
  const SequenceId waiting = harness.Add(TestRequest(4, 5, 2));
  harness.Plan();
  EXPECT_EQ(harness.queue().free_places, 0);
  harness.End(waiting, FinishReason::kCancelled);
  harness.End(running, FinishReason::kCancelled);
  EXPECT_EQ(harness.queue().free_places, 1);
}

TEST(SchedulerQueueTest, NobodyStarvesWhileOthersKeepComing) {
  SchedulerHarness harness({}, TestLimits(16), /*num_stages=*/2);
  const SequenceId large = harness.Add(TestRequest(180, 60, 1));
  for (uint64_t i = 0; i < 400; ++i) {
    if (harness.num_waiting() < 3) {
      harness.Add(TestRequest(30, 20, i));
    }
    harness.Plan();
    if (i % 2 == 1) harness.Commit();
    if (!harness.outcome(large).ends.empty()) break;
  }
  EXPECT_EQ(harness.outcome(large).ends.size(), 1u);
  harness.RunToEnd();
}

TEST(SchedulerPreemptTest, TheYoungestGivesItsBlocksAndKeepsItsTokens) {
  // Two sequences of 3 blocks each, at first; 7 blocks do not hold both to
  // their end.
  EngineOptions options;
  options.prefix_cache = false;
  SchedulerHarness harness(options, TestLimits(7));
  const SequenceId old = harness.Add(TestRequest(40, 40, 1));
  const SequenceId young = harness.Add(TestRequest(32, 40, 2));
  std::optional<StepPlan> plan;
  while (harness.counters().preemptions == 0) {
    plan = harness.Plan();
    ASSERT_TRUE(plan.has_value());
    if (harness.counters().preemptions > 0) break;
    harness.Commit();
  }
  EXPECT_EQ(plan->ended, std::vector<SequenceId>{young});
  EXPECT_NE(ChunkOf(*plan, old), nullptr);
  EXPECT_EQ(ChunkOf(*plan, young), nullptr);
  const size_t sampled = harness.outcome(young).tokens.size();
  EXPECT_GT(sampled, 0u);
  harness.Commit();
  do {
    plan = harness.Plan();
    ASSERT_TRUE(plan.has_value());
    harness.Commit();
  } while (plan->started.empty());
  EXPECT_EQ(plan->started[0].sequence, young);
  EXPECT_EQ(plan->started[0].num_prompt_tokens, 32);
  EXPECT_EQ(plan->started[0].tokens.size(), 32 + sampled);
  harness.RunToEnd();
  for (SequenceId id : {old, young}) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), 50));
  }
  EXPECT_EQ(harness.outcome(young).ends[0].stats.preemptions, 1);
  EXPECT_EQ(harness.counters().prompt_tokens, 72u) << "counted once each";
}

TEST(SchedulerPreemptTest, ATokenOnItsWayToAPreemptedSequenceIsKept) {
  EngineOptions options;
  options.prefix_cache = false;
  options.min_decode_batch = 1;
  SchedulerHarness harness(options, TestLimits(6), /*num_stages=*/2);
  harness.Add(TestRequest(40, 40, 1));
  const SequenceId young = harness.Add(TestRequest(32, 40, 2));
  while (harness.counters().preemptions == 0) {
    harness.Commit();
    while (harness.Plan()) {
    }
  }
  const size_t before = harness.outcome(young).tokens.size();
  ASSERT_GT(harness.results_out(), 1u);
  while (harness.Commit()) {
  }
  EXPECT_EQ(harness.outcome(young).tokens.size(), before + 1);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(young).result(),
            Undisturbed(harness.request(young), 50));
}

TEST(SchedulerPreemptTest, APreemptedSequenceWaitsForPlansThatCarryIt) {
  EngineOptions options;
  options.prefix_cache = false;
  options.min_decode_batch = 1;
  SchedulerHarness harness(options, TestLimits(6), /*num_stages=*/3);
  const SequenceId old = harness.Add(TestRequest(40, 40, 1));
  const SequenceId young = harness.Add(TestRequest(32, 40, 2));
  while (harness.counters().preemptions == 0) {
    harness.Commit();
    while (harness.Plan()) {
    }
  }
  harness.End(old, FinishReason::kCancelled);  // there is room again
  EXPECT_FALSE(harness.Plan().has_value()) << "its token is on its way";
  std::optional<StepPlan> plan;
  while (!plan) {
    ASSERT_TRUE(harness.Commit());
    plan = harness.Plan();
  }
  ASSERT_EQ(plan->started.size(), 1u);
  EXPECT_EQ(plan->started[0].tokens.size(),
            32 + harness.outcome(young).tokens.size());
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(young).result(),
            Undisturbed(harness.request(young), 50));
}

TEST(SchedulerPreemptTest, PromptLogprobsAreDeliveredOnce) {
  EngineOptions options;
  options.prefix_cache = false;
  options.prefill_chunk = 16;
  SchedulerHarness harness(options, TestLimits(7));
  harness.Add(TestRequest(40, 40, 1));
  GenerateRequest request = TestRequest(40, 24, 2);
  request.sampling.prompt_logprobs = 2;
  request.sampling.return_logits = true;
  const SequenceId young = harness.Add(request);
  harness.RunToEnd();
  EXPECT_GT(harness.counters().preemptions, 0u);
  EXPECT_EQ(harness.outcome(young).prompt.size(), 39u);
  EXPECT_EQ(harness.outcome(young).logits.size(), (40u + 23u) * 50u);
}

}  // namespace
}  // namespace sluice
