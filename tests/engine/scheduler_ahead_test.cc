// Plans that leave before the tokens of their chunks are known.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

constexpr int kAheadVocab = 50;

EngineOptions AlwaysAhead() {
  EngineOptions options;
  options.ahead_within = kAlwaysAhead;
  return options;
}

// One stage: from the second plan on, one is computed while the result of the
// one before is on its way. The last token is known to be the last.
TEST(SchedulerAheadTest, APlanGoesAheadOfEveryResultButTheLast) {
  SchedulerHarness harness(AlwaysAhead(), TestLimits(100));
  const GenerateRequest request = TestRequest(20, 5);
  const SequenceId id = harness.Add(request);
  ASSERT_TRUE(harness.Plan());
  for (int32_t i = 0; i < 4; ++i) {
    const std::optional<StepPlan> plan = harness.Plan();
    ASSERT_TRUE(plan.has_value()) << i;
    ASSERT_EQ(plan->chunks.size(), 1u);
    EXPECT_EQ(plan->chunks[0].start, 20 + i);
    EXPECT_EQ(plan->chunks[0].sampled_by, StepId(static_cast<uint64_t>(i)));
    EXPECT_FALSE(harness.Plan());
    ASSERT_TRUE(harness.Commit());
  }
  EXPECT_FALSE(harness.Plan());
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).result(), Undisturbed(request, kAheadVocab));
  EXPECT_EQ(harness.counters().steps, 6u);  // the last one tells of the end
  EXPECT_EQ(harness.counters().computed_tokens, 24u);
}

// An end token shows when the next plan has left: one row is dropped. So does a
// failure, and a cancel.
TEST(SchedulerAheadTest, AnEndThatIsFoundLateCostsOneRow) {
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kError, FinishReason::kCancelled}) {
    SchedulerHarness harness(AlwaysAhead(), TestLimits(100));
    GenerateRequest request = TestRequest(20, 30);
    const std::vector<TokenId> tokens =
        Undisturbed(request, kAheadVocab).tokens;
    size_t last = 4;
    while (std::count(tokens.begin(), tokens.begin() + ptrdiff_t(last),
                      tokens[last]) > 0) {
      ++last;
    }
    if (reason == FinishReason::kStop) request.eos_token_ids = {tokens[last]};
    const SequenceId id = harness.Add(request);
    for (size_t i = 0; i <= last; ++i) {
      while (harness.Plan()) {
      }
      if (i == last && reason == FinishReason::kError) {
        harness.NextResult().sequences[0].status = Internal("injected");
      }
      if (i == last && reason == FinishReason::kCancelled) {
        harness.End(id, reason);
      }
      ASSERT_TRUE(harness.Commit());
    }
    EXPECT_EQ(harness.outcome(id).ends.size(), 1u);
    EXPECT_EQ(harness.results_out(), 1u);
    harness.RunToEnd();
    const Outcome& outcome = harness.outcome(id);
    EXPECT_EQ(outcome.ends[0].reason, reason);
    EXPECT_EQ(outcome.tokens,
              std::vector<TokenId>(tokens.begin(),
                                   tokens.begin() + static_cast<int>(last)));
    EXPECT_EQ(harness.counters().computed_tokens, 20 + last + 1);
  }
}

// Only plans that are short enough go ahead.
TEST(SchedulerAheadTest, NoPlanGoesAheadWhereAStepTakesLong) {
  for (const int step_ms : {1, 9}) {
    EngineOptions options;
    options.ahead_within = std::chrono::milliseconds(5);
    SchedulerHarness harness(options, TestLimits(100));
    harness.Add(TestRequest(20, 30));
    TimePoint now = Clock::now();
    while (harness.num_live() > 0) {
      harness.set_now(now);
      while (harness.Plan()) {
      }
      now += std::chrono::milliseconds(step_ms);
      harness.set_now(now);
      ASSERT_TRUE(harness.Commit());
    }
    // The first plan goes before it is known what a step takes.
    EXPECT_EQ(harness.chunks_ahead(), step_ms == 1 ? 29 : 1);
    // What plans take counts from when they could run.
    EXPECT_NEAR(Seconds(harness.counters().step_time) /
                    static_cast<double>(harness.counters().steps),
                step_ms * 1e-3, 1e-5);
  }
}

// So that none falls behind the others.
TEST(SchedulerAheadTest, AllSequencesOfAPlanGoAheadOrNone) {
  SchedulerHarness harness(AlwaysAhead(), TestLimits(3));
  const SequenceId first = harness.Add(TestRequest(15, 30, 1));
  const SequenceId second = harness.Add(TestRequest(15, 30, 2));
  ASSERT_TRUE(harness.Plan());
  const std::optional<StepPlan> plan = harness.Plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->chunks.size(), 2u);
  ASSERT_TRUE(harness.Commit());
  // Both need a block for position 16, and one is left.
  EXPECT_FALSE(harness.Plan());
  harness.RunToEnd();
  EXPECT_GT(harness.counters().preemptions, 0u);
  EXPECT_EQ(harness.outcome(first).result(),
            Undisturbed(harness.request(first), kAheadVocab));
  EXPECT_EQ(harness.outcome(second).result(),
            Undisturbed(harness.request(second), kAheadVocab));
}

TEST(SchedulerAheadTest, NoPlanGoesAheadOfOneWithDrafts) {
  EngineOptions with_drafts = AlwaysAhead();
  with_drafts.propose_drafts = [](auto, const auto&, int32_t) {
    return std::vector<TokenId>{1};
  };
  SchedulerHarness drafted(with_drafts, TestLimits(100));
  drafted.Add(TestRequest(20, 10));
  drafted.RunToEnd();
  EXPECT_EQ(drafted.chunks_ahead(), 0);
}

// Tokens that come back while a sequence is preempted are its own, and it
// starts again behind them.
TEST(SchedulerAheadTest, ALostPipelineLosesNoTokenThatWasAhead) {
  SchedulerHarness harness(AlwaysAhead(), TestLimits(100));
  const SequenceId id = harness.Add(TestRequest(20, 9));
  for (uint64_t epoch = 2; epoch < 5; ++epoch) {
    for (int i = 0; i < 2; ++i) {
      while (harness.Plan()) {
      }
      ASSERT_TRUE(harness.Commit());
    }
    while (harness.Plan()) {
    }
    EXPECT_EQ(harness.results_out(), 2u);
    harness.Attach(Epoch(epoch), 1);
  }
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(id).result(),
            Undisturbed(harness.request(id), kAheadVocab));
}

}  // namespace
}  // namespace sluice
