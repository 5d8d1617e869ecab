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

TEST(SchedulerPlanTest, AFullPrefixHitComputesItsLastTokenAgain) {
  SchedulerHarness harness({}, TestLimits(100));
  harness.Add(TestRequest(48, 1));
  harness.RunToEnd();
  const SequenceId again = harness.Add(TestRequest(48, 1));
  const auto plan = harness.Plan();
  EXPECT_EQ(ChunkOf(*plan, again)->start, 47);
  EXPECT_EQ(ChunkOf(*plan, again)->tokens.size(), 1u);
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
  EXPECT_EQ(harness.scheduler().num_running(), 3u);
  EXPECT_EQ(harness.scheduler().num_waiting(), 5u);
  EXPECT_TRUE(harness.scheduler().admission_blocked());
  harness.RunToEnd();
  EXPECT_FALSE(harness.scheduler().admission_blocked());
}

TEST(SchedulerQueueTest, NobodyStarvesWhileOthersKeepComing) {
  SchedulerHarness harness({}, TestLimits(16), /*num_stages=*/2);
  const SequenceId large = harness.Add(TestRequest(180, 60, 1));
  for (uint64_t i = 0; i < 400; ++i) {
    if (harness.scheduler().num_waiting() < 3) {
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

TEST(SchedulerEndTest, AnEndTokenIsNotDeliveredAndNamedInTheEnd) {
  SchedulerHarness harness({}, TestLimits(100));
  GenerateRequest request = TestRequest(10, 30);
  const Expected free_run = Undisturbed(request, 50);
  request.eos_token_ids = {free_run.tokens[5]};
  const SequenceId id = harness.Add(request);
  harness.RunToEnd();
  const Outcome& outcome = harness.outcome(id);
  EXPECT_EQ(outcome.ends[0].reason, FinishReason::kStop);
  EXPECT_EQ(outcome.ends[0].stop_token, free_run.tokens[5]);
  EXPECT_EQ(outcome.ends[0].stop_result.token, free_run.tokens[5]);
  EXPECT_LE(outcome.tokens.size(), 5u);
  EXPECT_EQ(outcome.ends[0].stats.completion_tokens,
            static_cast<int32_t>(outcome.tokens.size()));
}

TEST(SchedulerEndTest, BeforeMinTokensAnEndTokenIsATokenLikeAnyOther) {
  SchedulerHarness harness({}, TestLimits(100));
  GenerateRequest request = TestRequest(10, 8);
  for (TokenId t = 0; t < 50; ++t) request.eos_token_ids.push_back(t);
  request.sampling.min_tokens = 5;
  const SequenceId id = harness.Add(request);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).tokens.size(), 5u);
  EXPECT_EQ(harness.outcome(id).ends[0].reason, FinishReason::kStop);
}

TEST(SchedulerEndTest, AFailedSequenceEndsAloneWithItsStatus) {
  SchedulerHarness harness({}, TestLimits(100));
  const SequenceId bad = harness.Add(TestRequest(10, 8, 1));
  const SequenceId good = harness.Add(TestRequest(10, 8, 2));
  harness.Plan();
  harness.NextResult().sequences[0].status = DataLoss("logits are not finite");
  harness.NextResult().sequences[0].sampled.clear();
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(bad).ends[0].reason, FinishReason::kError);
  EXPECT_EQ(harness.outcome(bad).ends[0].status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(harness.outcome(good).result(),
            Undisturbed(harness.request(good), 50));
}

TEST(SchedulerEndTest, ADeadlineEndsWaitingAndRunningSequences) {
  EngineOptions options;
  options.max_running = 1;
  SchedulerHarness harness(options, TestLimits(100));
  const TimePoint start = Clock::now();
  GenerateRequest request = TestRequest(10, 8);
  request.deadline = start + std::chrono::seconds(5);
  const SequenceId running = harness.Add(request);
  request.deadline = start + std::chrono::seconds(3);
  const SequenceId waiting = harness.Add(request);
  harness.Plan();
  EXPECT_EQ(harness.scheduler().next_deadline(),
            start + std::chrono::seconds(3));
  harness.Take(harness.scheduler().Expire(start + std::chrono::seconds(4)));
  EXPECT_EQ(harness.outcome(waiting).ends.size(), 1u);
  EXPECT_TRUE(harness.outcome(running).ends.empty());
  harness.Take(harness.scheduler().Expire(start + std::chrono::seconds(5)));
  EXPECT_EQ(harness.outcome(running).ends[0].status.code(),
            StatusCode::kDeadlineExceeded);
  harness.RunToEnd();
}

TEST(SchedulerEndTest, DetachEndsAllAndForgetsThePlansInFlight) {
  SchedulerHarness harness({}, TestLimits(100), /*num_stages=*/2);
  const SequenceId id = harness.Add(TestRequest(10, 8));
  harness.Plan();
  harness.Take(harness.scheduler().Detach(Unavailable("stage 1 is gone")));
  EXPECT_EQ(Message(harness.outcome(id).ends[0].status), "stage 1 is gone");
  EXPECT_FALSE(harness.scheduler().Plan(Clock::now()).has_value());
  EXPECT_EQ(harness.scheduler().plans_in_flight(), 0u);
}

TEST(SchedulerEndTest, AttachEndsWhatTheNewPipelineCannotHold) {
  EngineCounters counters;
  Scheduler scheduler({}, &counters);
  scheduler.Attach(Epoch(1), TestLimits(100), 1);
  scheduler.Add(SequenceId(1), TestRequest(100, 10));
  scheduler.Add(SequenceId(2), TestRequest(10, 10));
  const SequenceEvents events = scheduler.Attach(Epoch(2), TestLimits(4), 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].sequence, SequenceId(1));
  EXPECT_EQ(std::get<FinalEvent>(events[0].what).status.code(),
            StatusCode::kUnavailable);
  EXPECT_TRUE(scheduler.CheckIntegrity().ok());
}

// Each way in which a result can fail to be the answer to its plan.
class RefusedResultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    first_ = harness_.Add(TestRequest(10, 8, 1));
    second_ = harness_.Add(TestRequest(10, 8, 2));
    harness_.Plan();
  }
  // The result changed by `change` is refused as a whole.
  template <typename F>
  void ExpectPipelineBroken(F change) {
    StepResult result = harness_.NextResult();
    change(result);
    const auto events =
        harness_.scheduler().Commit(std::move(result), Clock::now());
    EXPECT_EQ(events.status().code(), StatusCode::kInternal);
    harness_.Check();
    harness_.RunToEnd();  // the true result still fits
    EXPECT_EQ(harness_.outcome(first_).result(),
              Undisturbed(harness_.request(first_), 50));
  }
  // The result changed by `change` ends the first sequence only.
  template <typename F>
  void ExpectFirstEnds(F change) {
    change(harness_.NextResult());
    harness_.RunToEnd();
    const FinalEvent& end = harness_.outcome(first_).ends.at(0);
    EXPECT_EQ(end.status.code(), StatusCode::kInternal) << end.status;
    EXPECT_EQ(harness_.outcome(second_).result(),
              Undisturbed(harness_.request(second_), 50));
    EXPECT_EQ(harness_.counters().refused_results, 1u);
  }

  SchedulerHarness harness_{{}, TestLimits(100)};
  SequenceId first_, second_;
};

TEST_F(RefusedResultTest, AnotherStepIsRefused) {
  ExpectPipelineBroken([](StepResult& r) { r.step_id = StepId(7); });
}
TEST_F(RefusedResultTest, AnotherReplicaIsRefused) {
  ExpectPipelineBroken([](StepResult& r) { r.replica = ReplicaId(7); });
}
TEST_F(RefusedResultTest, AnUnknownSequenceIsRefused) {
  ExpectPipelineBroken(
      [](StepResult& r) { r.sequences[0].sequence = SequenceId(99); });
}
TEST_F(RefusedResultTest, OneSequenceTwiceIsRefused) {
  ExpectPipelineBroken(
      [](StepResult& r) { r.sequences[1].sequence = r.sequences[0].sequence; });
}
TEST_F(RefusedResultTest, AnOlderEpochIsDroppedAndCounted) {
  StepResult result = harness_.NextResult();
  result.epoch = Epoch(0);
  EXPECT_TRUE(harness_.scheduler().Commit(result, Clock::now())->empty());
  EXPECT_EQ(harness_.counters().stale_results, 1u);
  harness_.RunToEnd();
}
TEST_F(RefusedResultTest, NoTokenWhereOneWasWantedEndsTheSequence) {
  ExpectFirstEnds([](StepResult& r) { r.sequences[0].sampled.clear(); });
}
TEST_F(RefusedResultTest, TwoTokensWhereOneWasWantedEndTheSequence) {
  ExpectFirstEnds([](StepResult& r) {
    r.sequences[0].sampled.push_back(r.sequences[0].sampled[0]);
  });
}
TEST_F(RefusedResultTest, ATokenOutsideTheVocabularyEndsTheSequence) {
  ExpectFirstEnds([](StepResult& r) { r.sequences[0].sampled[0].token = 50; });
}
TEST_F(RefusedResultTest, ANegativeTokenEndsTheSequence) {
  ExpectFirstEnds([](StepResult& r) { r.sequences[0].sampled[0].token = -1; });
}
TEST_F(RefusedResultTest, AMissingSequenceEnds) {
  ExpectFirstEnds(
      [](StepResult& r) { r.sequences.erase(r.sequences.begin()); });
}

TEST(RefusedPromptTest, WrongPromptLogprobsEndTheSequence) {
  const auto run = [](auto change) {
    SchedulerHarness harness({}, TestLimits(100));
    GenerateRequest request = TestRequest(10, 2);
    request.sampling.prompt_logprobs = 1;
    request.sampling.logprobs = 1;
    request.sampling.return_logits = true;
    const SequenceId id = harness.Add(request);
    harness.Plan();
    change(harness.NextResult().sequences[0]);
    harness.RunToEnd();
    return harness.outcome(id).ends.at(0).status;
  };
  using R = SequenceResult&;
  EXPECT_TRUE(run([](R) {}).ok());
  EXPECT_FALSE(run([](R r) { r.prompt.pop_back(); }).ok());
  EXPECT_FALSE(run([](R r) { r.prompt[2].token ^= 1; }).ok());
  EXPECT_FALSE(run([](R r) { r.prompt[2].logprob.reset(); }).ok());
  EXPECT_FALSE(run([](R r) { r.prompt[2].top_logprobs[0].token = 50; }).ok());
  EXPECT_FALSE(run([](R r) { r.sampled[0].logprob.reset(); }).ok());
  EXPECT_FALSE(run([](R r) { r.sampled[0].top_logprobs.resize(2); }).ok());
  EXPECT_FALSE(run([](R r) { r.logits.pop_back(); }).ok());
}

TEST(RequestCheckTest, NamesWhatDoesNotFit) {
  PlanLimits limits = TestLimits(4);
  limits.max_context = 100;
  const auto check = [&](int prompt, int max_tokens) {
    return CheckRequest(TestRequest(prompt, max_tokens), limits);
  };
  EXPECT_TRUE(check(60, 5).ok()) << "the last token is never computed";
  EXPECT_EQ(Message(check(60, 6)),
            "the prompt has 60 tokens and max_tokens is 6; the KV cache holds "
            "64 positions");
  EXPECT_EQ(Message(check(60, 41)),
            "the prompt has 60 tokens and max_tokens is 41, together 101; the "
            "context limit is 100");
  EXPECT_EQ(check(0, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(check(1, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(check(1, 2147483647).code(), StatusCode::kInvalidArgument);
  GenerateRequest request = TestRequest(3, 1);
  request.prompt_tokens[1] = 50;
  EXPECT_EQ(Message(CheckRequest(request, limits)),
            "prompt token 1 is 50, vocabulary size is 50");
  request = TestRequest(3, 1);
  request.sampling.top_p = 0;
  EXPECT_EQ(CheckRequest(request, limits).code(), StatusCode::kInvalidArgument);
}

TEST(JournalTest, ReplaysThePromptAndWhatWasEmitted) {
  Journal journal;
  const JournalEntry& entry =
      journal.Open(SequenceId(3), TestRequest(4, 9, /*seed=*/5));
  EXPECT_TRUE(entry.request.prompt_tokens.empty());
  journal.Append(SequenceId(3), 17);
  journal.Append(SequenceId(3), 18);
  EXPECT_EQ(entry.num_emitted(), 2);
  const StartedSequence started = journal.Replay(SequenceId(3));
  EXPECT_EQ(started.num_prompt_tokens, 4);
  EXPECT_EQ(started.sampling.seed, 5u);
  ASSERT_EQ(started.tokens.size(), 6u);
  EXPECT_EQ(started.tokens[5], 18);
  journal.Close(SequenceId(3));
  EXPECT_EQ(journal.size(), 0u);
}

}  // namespace
}  // namespace sluice
