// The choices of one request: one computes the prompt, the others share it.
#include <gtest/gtest.h>

#include <vector>

#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

EngineOptions Options(bool prefix_cache) {
  EngineOptions options;
  options.prefix_cache = prefix_cache;
  options.prefill_chunk = 32;
  return options;
}

GenerateRequest Choice(int index, int n, int length, int max_tokens,
                       const char* request_id = "request") {
  GenerateRequest request = TestRequest(length, max_tokens);
  request.request_id = request_id;
  request.num_choices = n;
  // The fake pipeline's random numbers know the seed alone.
  request.sampling.seed = 100 + static_cast<uint64_t>(index);
  request.sampling.choice = static_cast<uint32_t>(index);
  return request;
}

std::vector<SequenceId> AddChoices(SchedulerHarness& harness, int n, int length,
                                   int max_tokens) {
  std::vector<SequenceId> ids;
  for (int i = 0; i < n; ++i) {
    ids.push_back(harness.Add(Choice(i, n, length, max_tokens)));
  }
  return ids;
}

void ExpectUndisturbed(const SchedulerHarness& harness,
                       const std::vector<SequenceId>& ids) {
  for (SequenceId id : ids) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), 50));
  }
}

TEST(SchedulerGroupTest, ChoicesComputeTheirPromptOnce) {
  for (const bool cache : {true, false}) {
    for (const int stages : {1, 3}) {
      SchedulerHarness harness(Options(cache), TestLimits(100), stages);
      const auto ids = AddChoices(harness, 4, 100, 6);
      harness.RunToEnd();
      ExpectUndisturbed(harness, ids);
      // The prompt, then its tail of 4 for three more, and 5 decodes each.
      EXPECT_EQ(harness.tokens_computed(), 100 + 3 * 4 + 4 * 5)
          << "cache " << cache << ", stages " << stages;
      EXPECT_EQ(harness.outcome(ids[0]).ends[0].stats.cached_tokens, 0);
      EXPECT_EQ(harness.outcome(ids[3]).ends[0].stats.cached_tokens, 96);
    }
  }
}

TEST(SchedulerGroupTest, TheyHoldThePromptsBlocksTogether) {
  SchedulerHarness harness(Options(false), TestLimits(100));
  AddChoices(harness, 4, 96, 40);
  while (harness.num_running() < 4) {
    harness.Plan();
    harness.Commit();
  }
  EngineStats stats;
  harness.scheduler().FillStats(stats);
  EXPECT_LE(stats.blocks_used, 5 + 4 * 2) << "alone they would hold 4 times 6";
  harness.RunToEnd();
}

TEST(SchedulerGroupTest, OfAPromptOfWholeBlocksTheLastIsComputedAgain) {
  SchedulerHarness harness(Options(false), TestLimits(100));
  AddChoices(harness, 3, 96, 1);
  harness.RunToEnd();
  EXPECT_EQ(harness.tokens_computed(), 96 + 2 * 16);
}

TEST(SchedulerGroupTest, TheBlocksStayWhileAnyChoiceWaits) {
  EngineOptions options = Options(false);
  options.max_running = 1;
  SchedulerHarness harness(options, TestLimits(100));
  const auto ids = AddChoices(harness, 3, 100, 5);
  harness.RunToEnd();
  ExpectUndisturbed(harness, ids);
  EXPECT_EQ(harness.tokens_computed(), 100 + 2 * 4 + 3 * 4);
}

TEST(SchedulerGroupTest, WhenTheLeaderIsCancelledAnotherLeads) {
  SchedulerHarness harness(Options(false), TestLimits(100));
  const auto ids = AddChoices(harness, 3, 100, 5);
  harness.Plan();
  EXPECT_EQ(harness.num_running(), 1u);
  harness.End(ids[0], FinishReason::kCancelled);
  harness.RunToEnd();
  ExpectUndisturbed(harness, {ids[1], ids[2]});
  EXPECT_EQ(harness.outcome(ids[0]).ends[0].reason, FinishReason::kCancelled);
  EXPECT_EQ(harness.tokens_computed(), 32 + 100 + 4 + 2 * 4);
}

TEST(SchedulerGroupTest, WhenTheLeaderFailsTheOthersDoNot) {
  SchedulerHarness harness(Options(false), TestLimits(100));
  const auto ids = AddChoices(harness, 3, 30, 5);
  harness.Plan();
  harness.NextResult().sequences.at(0).status = Internal("injected");
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(ids[0]).ends[0].reason, FinishReason::kError);
  ExpectUndisturbed(harness, {ids[1], ids[2]});
}

TEST(SchedulerGroupTest, AChoiceThatIsCancelledLeavesTheOthersTheirBlocks) {
  SchedulerHarness harness(Options(false), TestLimits(100));
  const auto ids = AddChoices(harness, 3, 100, 30);
  while (harness.num_running() < 3) {
    harness.Plan();
    harness.Commit();
  }
  harness.End(ids[0], FinishReason::kCancelled);
  harness.End(ids[2], FinishReason::kCancelled);
  harness.RunToEnd();
  ExpectUndisturbed(harness, {ids[1]});
}

TEST(SchedulerGroupTest, WithoutAPrefixCacheNobodyElseSharesThem) {
  SchedulerHarness harness(Options(false), TestLimits(100));
  AddChoices(harness, 2, 96, 1);
  harness.Add(Choice(0, 2, 96, 1, "another request"));
  GenerateRequest salted = Choice(1, 2, 96, 1);
  salted.cache_salt = "salt";
  harness.Add(salted);
  harness.Add(TestRequest(96, 1));
  harness.RunToEnd();
  EXPECT_EQ(harness.tokens_computed(), 96 + 16 + 3 * 96);
}

TEST(SchedulerGroupTest, PromptsOfOneRequestThatDifferAreGroupsOfTheirOwn) {
  SchedulerHarness harness(Options(false), TestLimits(100));
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(harness.Add(Choice(i, 4, i < 2 ? 96 : 80, 3)));
  }
  harness.RunToEnd();
  ExpectUndisturbed(harness, ids);
  EXPECT_EQ(harness.tokens_computed(), 96 + 16 + 80 + 16 + 4 * 2);
}

TEST(SchedulerGroupTest, AChoiceWithPromptLogprobsComputesItsWholePrompt) {
  SchedulerHarness harness(Options(false), TestLimits(100));
  GenerateRequest first = Choice(0, 3, 96, 2);
  first.sampling.prompt_logprobs = 1;
  const SequenceId asked = harness.Add(first);
  harness.Add(Choice(1, 3, 96, 2));
  GenerateRequest last = Choice(2, 3, 96, 2);
  last.sampling.prompt_logprobs = 0;
  const SequenceId also = harness.Add(last);
  harness.RunToEnd();
  EXPECT_EQ(harness.outcome(asked).prompt.size(), 95u);
  EXPECT_EQ(harness.outcome(also).prompt.size(), 95u);
  EXPECT_EQ(harness.tokens_computed(), 2 * 96 + 16 + 3);
}

TEST(SchedulerGroupTest, ChoicesThatWaitForTheirLeaderHoldUpNobody) {
  SchedulerHarness harness(Options(true), TestLimits(100));
  AddChoices(harness, 3, 300, 2);
  const SequenceId other = harness.Add(TestRequest(10, 20, 7));
  harness.Plan();
  harness.Commit();
  harness.Plan();
  harness.Commit();
  EXPECT_FALSE(harness.outcome(other).tokens.empty());
  EXPECT_EQ(harness.num_running(), 2u);
  harness.RunToEnd();
}

TEST(SchedulerGroupTest, PreemptedChoicesGoOnWithTheirOwnTokens) {
  for (const bool cache : {true, false}) {
    SchedulerHarness harness(Options(cache), TestLimits(9), /*num_stages=*/2);
    const auto ids = AddChoices(harness, 4, 60, 60);
    harness.RunToEnd();
    EXPECT_GT(harness.counters().preemptions, 0u);
    ExpectUndisturbed(harness, ids);
  }
}

}  // namespace
}  // namespace sluice
