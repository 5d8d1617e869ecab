// What a windowed KV group holds: its window and a step, however long the
// sequence is, and of known prefixes what is still read.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/core/kv_groups.h"
#include "tests/engine/block_tables.h"
#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

// Group 1 sees 32 tokens.
BlockManager Manager(int num_blocks) {
  return BlockManager(
      {.windows = {0, 32}, .num_blocks = num_blocks, .step_tokens = 16});
}

TEST(KvGroupsTest, ABlockIsBehindWhenItsLastPositionIs) {
  EXPECT_EQ(BlocksBehind(0, 1000), 0);
  EXPECT_EQ(BlocksBehind(32, 46), 0);  // sees 15 to 46
  EXPECT_EQ(BlocksBehind(32, 47), 1);  // sees 16 to 47
  EXPECT_EQ(BlocksBehind(1, 15), 0);
  EXPECT_EQ(BlocksBehind(1, 16), 1);
}

TEST(KvGroupsTest, NoStepNeedsMoreThanTheMostBlocks) {
  for (const int32_t window : {1, 2, 15, 16, 17, 33, 128}) {
    for (const int32_t step : {1, 2, 16, 17, 100}) {
      int32_t seen = 0;
      for (int32_t start = 0; start < 400; ++start) {
        const int32_t held =
            BlocksFor(start + step) - BlocksBehind(window, start);
        seen = std::max(seen, held);
        EXPECT_LE(held, MostBlocks(window, start + step, step));
      }
      EXPECT_GE(seen, MostBlocks(window, 1000, step) - 1);
    }
  }
}

TEST(KvWindowTest, WhatIsBehindTheWindowIsGivenBackAndTheRestStays) {
  BlockManager manager = Manager(20);
  Tables tables = manager.MatchPrefix("", {});
  ASSERT_TRUE(manager.Reserve(tables, 80));
  EXPECT_EQ(manager.num_free(), 10);
  EXPECT_FALSE(manager.EvictBehind(tables, 46));
  EXPECT_TRUE(manager.EvictBehind(tables, 79));  // sees 48 to 79
  EXPECT_EQ(tables[0].num_held(), 5);
  EXPECT_EQ(tables[1].num_held(), 2);
  EXPECT_EQ(manager.num_free(), 13);
  ExpectSound(manager, {&tables});
  manager.Release(tables);
  EXPECT_EQ(manager.num_free(), 20);
  ExpectSound(manager);
}

TEST(KvWindowTest, AHitHoldsTheWholePrefixAndTheLastWindow) {
  BlockManager manager = Manager(20);
  const Tables first = Fill(manager, Count(80));
  const Tables second = manager.MatchPrefix("", Count(90));
  EXPECT_EQ(second[0].num_held(), 5);
  EXPECT_EQ(second[1].num_held(), 2);
  EXPECT_EQ(second[1].num_evicted, 3);
  EXPECT_TRUE(std::ranges::equal(second[1].held(), first[1].held()));
  ExpectSound(manager, {&first, &second});
}

TEST(KvWindowTest, AHitInTheMiddleFindsWhatWasGivenBackThere) {
  BlockManager manager = Manager(20);
  const Tables first = Fill(manager, Count(80));
  std::vector<TokenId> other = Count(80);
  other[50] = 99;
  const Tables second = manager.MatchPrefix("", other);
  EXPECT_EQ(second[0].num_held(), 3);
  EXPECT_EQ(second[1].num_held(), 2);
  ExpectSound(manager, {&first, &second});
}

TEST(KvWindowTest, AHitIsShortenedToWhereTheWindowIsKnown) {
  BlockManager manager = Manager(11);
  Tables first = Fill(manager, Count(80));
  EXPECT_EQ(manager.num_free(), 4);
  // Takes the free blocks: those behind the window are forgotten.
  Tables other = manager.MatchPrefix(std::nullopt, {});
  ASSERT_TRUE(manager.Reserve(other, 32));
  std::vector<TokenId> branch = Count(80);
  branch[70] = 99;
  Tables second = manager.MatchPrefix("", branch);
  EXPECT_EQ(second[0].num_held(), 0) << "group 1 forgot positions 32 to 47";
  Tables third = manager.MatchPrefix("", Count(80));
  EXPECT_EQ(third[0].num_held(), 5) << "the end of it is known";
  ExpectSound(manager, {&first, &other, &second, &third});
}

TEST(KvWindowTest, ABlockIsFoundForItsOwnGroupAlone) {
  BlockManager manager = Manager(20);
  const Tables tables = Fill(manager, Count(32));
  const Tables found = manager.MatchPrefix("", Count(32));
  EXPECT_TRUE(std::ranges::equal(found[0].held(), tables[0].held()));
  EXPECT_TRUE(std::ranges::equal(found[1].held(), tables[1].held()));
  EXPECT_NE(found[0].blocks, found[1].blocks);
}

TEST(KvWindowTest, ATableThatSaysWhatCannotBeIsSeen) {
  BlockManager manager = Manager(20);
  Tables tables = Fill(manager, Count(32));
  const auto message = [&] {
    return Message(manager.CheckIntegrity(std::vector<const Tables*>{&tables}));
  };
  EXPECT_EQ(message(), "");
  std::swap(tables[0].blocks, tables[1].blocks);
  EXPECT_NE(message().find("found for 1"), std::string::npos) << message();
  std::swap(tables[0].blocks, tables[1].blocks);
  tables[0].num_evicted = 1;
  EXPECT_NE(message().find("KV group 0 has 2 blocks, 1 let go"),
            std::string::npos)
      << message();
  tables[0].num_evicted = 0;
  tables[1].num_evicted = 3;
  EXPECT_NE(message().find("3 let go"), std::string::npos) << message();
  tables[1].num_evicted = 0;
  ++tables[0].num_cached;
  EXPECT_NE(message().find("3 published"), std::string::npos) << message();
}

PlanLimits Limits(int num_blocks, int32_t window, int32_t step_tokens) {
  PlanLimits limits = TestLimits(num_blocks);
  limits.num_kv_groups = 2;
  limits.kv_windows = {0, window};
  limits.max_step_tokens = step_tokens;
  return limits;
}

int BlocksUsed(const SchedulerHarness& harness) {
  EngineStats stats;
  harness.scheduler().FillStats(stats);
  return stats.blocks_used;
}

// The memory bound, as the pool sees it.
TEST(KvWindowTest, TheWindowedGroupHoldsAWindowAndAStepHoweverLongItGets) {
  const PlanLimits limits = Limits(400, 32, 48);
  SchedulerHarness harness({}, limits);
  const SequenceId id = harness.Add(TestRequest(700, 300));
  int most = 0;
  int32_t computed = 0;
  while (const auto plan = harness.Plan()) {
    for (const Chunk& chunk : plan->chunks) {
      computed = chunk.start + static_cast<int32_t>(chunk.tokens.size());
    }
    most = std::max(most, BlocksUsed(harness) - BlocksFor(computed));
    harness.Commit();
  }
  harness.RunToEnd();
  EXPECT_EQ(computed, 999);
  EXPECT_EQ(most, MostBlocks(32, 999, 48) - 1);  // chunks begin at an edge
  EXPECT_EQ(harness.outcome(id).result(),
            Undisturbed(harness.request(id), limits.vocab_size));
}

TEST(KvWindowTest, TheLongestSequenceThatIsTakenRunsAlone) {
  for (const int stages : {1, 4}) {
    for (const int32_t window : {1, 16, 40}) {
      PlanLimits limits = Limits(40, window, 64);
      limits.max_context = 2048;
      const auto most = static_cast<int>(MaxPositions(limits));
      EXPECT_GT(most, 40 * kBlockTokens / 2 + 100);
      // Its last token is sampled and never computed.
      GenerateRequest request = TestRequest(most - 40, 42);
      EXPECT_FALSE(CheckRequest(request, limits).ok());
      request.max_tokens = 41;
      EngineOptions options;
      options.max_step_tokens = 64;
      SchedulerHarness harness(options, limits, stages);
      const SequenceId id = harness.Add(request);
      harness.RunToEnd();
      EXPECT_EQ(harness.outcome(id).result(),
                Undisturbed(request, limits.vocab_size));
    }
  }
}

// The second one starts because the first will give back what is behind its
// window; but half of that is held by the second one, too.
TEST(KvWindowTest, WhoIsPreemptedInThePlanThatStartsItIsNotInThatPlan) {
  const PlanLimits limits = Limits(77, 128, 256);
  SchedulerHarness harness({}, limits, 2);
  const SequenceId first = harness.Add(TestRequest(752, 1));
  ASSERT_TRUE(harness.Plan());
  ASSERT_TRUE(harness.Plan());
  ASSERT_TRUE(harness.Commit());
  const SequenceId second = harness.Add(TestRequest(272, 1));
  const auto plan = harness.Plan();
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(harness.counters().preemptions, 1u);
  EXPECT_TRUE(plan->started.empty());
  EXPECT_TRUE(plan->ended.empty());
  ASSERT_EQ(plan->chunks.size(), 1u);
  EXPECT_EQ(plan->chunks[0].sequence, first);
  harness.RunToEnd();
  for (SequenceId id : {first, second}) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), limits.vocab_size));
  }
}

TEST(KvWindowTest, ChoicesShareTheirPromptAndKeepTheirOwnWindows) {
  const PlanLimits limits = Limits(100, 24, 64);
  SchedulerHarness harness({}, limits);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) {
    GenerateRequest request = TestRequest(150, 100);
    request.request_id = "request";
    request.num_choices = 4;
    request.sampling.seed = 100 + static_cast<uint64_t>(i);
    request.sampling.choice = static_cast<uint32_t>(i);
    ids.push_back(harness.Add(std::move(request)));
  }
  harness.RunToEnd();
  for (SequenceId id : ids) {
    EXPECT_EQ(harness.outcome(id).result(),
              Undisturbed(harness.request(id), limits.vocab_size));
  }
  EXPECT_EQ(harness.outcome(ids[3]).ends[0].stats.cached_tokens, 144);
}

TEST(KvWindowTest, AReplayGetsBlocksInThePlaceOfThoseBehindTheWindow) {
  BlockManager manager({.windows = {0, 20}, .num_blocks = 12});
  Tables first = Fill(manager, Count(80));
  manager.Release(first);
  manager.MakeStale({0});
  Tables again = manager.MatchPrefix("", Count(80));
  EXPECT_EQ(again[0].blocks.size(), 5u);
  EXPECT_EQ(again[0].num_whole, 0);
  // Every block is there; those that the window had left are free ones.
  EXPECT_EQ(again[1].num_held(), 5);
  ExpectSound(manager, {&again});
  manager.CacheFullBlocks(again, Count(80));
  manager.EvictBehind(again, 80);
  EXPECT_EQ(manager.num_stale(), 0);
  EXPECT_EQ(again[1].num_held(), 2);
  manager.Release(again);

  // Without free blocks for them the hit is what every stage has.
  manager.MakeStale({0});
  Tables rest(2);
  EXPECT_TRUE(manager.Reserve(rest, 2 * kBlockTokens));
  again = manager.MatchPrefix("", Count(80));
  EXPECT_EQ(again[0].blocks.size(), 0u);
  EXPECT_EQ(again[1].blocks.size(), 0u);
  ExpectSound(manager, {&again, &rest});
}

}  // namespace
}  // namespace sluice
