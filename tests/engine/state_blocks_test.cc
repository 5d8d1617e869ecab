// What the group of states holds: few blocks, however long a chunk is, and of
// known prefixes the last state alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/core/kv_groups.h"
#include "tests/engine/block_tables.h"
#include "tests/engine/scheduler_harness.h"

namespace sluice {
namespace {

BlockManager Manager(int num_blocks, int num_state_blocks) {
  return BlockManager({.windows = {0, kStateWindow},
                       .num_blocks = num_blocks,
                       .num_state_blocks = num_state_blocks,
                       .step_tokens = 512});
}

size_t HitOf(const Tables& tables) { return tables[0].blocks.size(); }

size_t Distinct(const BlockTable& table) {
  const auto held = table.held();
  return std::set<BlockId>(held.begin(), held.end()).size();
}

TEST(StateBlocksTest, TheBlockOfThePositionBeforeIsRead) {
  EXPECT_EQ(BlocksBehind(kStateWindow, 0), 0);
  EXPECT_EQ(BlocksBehind(kStateWindow, 16), 0);
  EXPECT_EQ(BlocksBehind(kStateWindow, 17), 1);
  EXPECT_EQ(BlocksBehind(kStateWindow, 33), 2);
  EXPECT_EQ(MostBlocks(kStateWindow, 1000, 100), 0);
}

TEST(StateBlocksTest, ALongChunkHoldsItsLastBlocksAndSomeOnTheWay) {
  BlockManager manager = Manager(320, 20);  // a state for 16 blocks
  Tables tables = manager.MatchPrefix("", Count(40 * 16));
  ASSERT_TRUE(manager.Reserve(tables, 40 * 16));
  ASSERT_EQ(tables[1].blocks.size(), 40u);
  EXPECT_EQ(Distinct(tables[1]), 4u);  // of blocks 15, 31, 38 and 39
  EXPECT_EQ(tables[1].blocks[0], tables[1].blocks[15]);
  EXPECT_EQ(tables[1].blocks[32], tables[1].blocks[38]);
  EXPECT_NE(tables[1].blocks[38], tables[1].blocks[39]);
  EXPECT_EQ(manager.num_free(), 280);      // of keys and values
  EXPECT_EQ(manager.NumHeld(tables), 40);  // of these alone
  ExpectSound(manager, {&tables});
  manager.CacheFullBlocks(tables, Count(40 * 16));
  EXPECT_TRUE(manager.EvictBehind(tables, 40 * 16));
  EXPECT_EQ(tables[1].num_held(), 1);
  ExpectSound(manager, {&tables});
  // Hits end where there is a state.
  EXPECT_EQ(HitOf(manager.MatchPrefix("", Count(40 * 16))), 40u);
  EXPECT_EQ(HitOf(manager.MatchPrefix("", Count(39 * 16 + 5))), 39u);
  EXPECT_EQ(HitOf(manager.MatchPrefix("", Count(38 * 16))), 32u);
  EXPECT_EQ(HitOf(manager.MatchPrefix("", Count(31 * 16))), 16u);
  EXPECT_EQ(HitOf(manager.MatchPrefix("", Count(15 * 16))), 0u);
}

TEST(StateBlocksTest, FewBlocksAreKeptForSequencesThatRun) {
  BlockManager manager = Manager(320, kLeastStateBlocks);
  Tables first = Fill(manager, Count(500));
  Tables second = manager.MatchPrefix("", Count(500, 1000));
  ASSERT_TRUE(manager.Reserve(second, 500));
  EXPECT_EQ(Distinct(second[1]), 2u);
  ExpectSound(manager, {&first, &second});
  EXPECT_FALSE(manager.HasRoom(0, 0));
  Tables third = manager.MatchPrefix("", Count(500, 2000));
  EXPECT_FALSE(manager.Reserve(third, 500));
  EXPECT_TRUE(third[0].blocks.empty());
  manager.Release(second);
  EXPECT_TRUE(manager.Reserve(third, 500));
  ExpectSound(manager, {&first, &third});
}

// Of decodes' blocks every stride-th and the last stay cached.
TEST(StateBlocksTest, DecodesLeaveAStateNowAndThen) {
  BlockManager manager = Manager(80, 20);  // a state for 4 blocks
  Tables tables = manager.MatchPrefix("", Count(40));
  for (int32_t tokens = 40; tokens <= 160; ++tokens) {
    ASSERT_TRUE(manager.Reserve(tables, tokens));
    manager.CacheFullBlocks(tables, Count(tokens));
    manager.EvictBehind(tables, tokens);
    EXPECT_LE(tables[1].num_held(), 2);
  }
  manager.Release(tables);
  ExpectSound(manager);
  for (const auto& [asked, hit] : {std::pair{1, 0},
                                   {2, 2},
                                   {3, 2},
                                   {4, 4},
                                   {6, 4},
                                   {8, 8},
                                   {9, 8},
                                   {10, 10}}) {
    Tables found = manager.MatchPrefix("", Count(asked * 16));
    EXPECT_EQ(HitOf(found), static_cast<size_t>(hit)) << asked;
  }
}

TEST(StateBlocksTest, AReplayPassesBlocksAndMakesTheKnownOnesWhole) {
  BlockManager manager = Manager(160, 40);
  Tables tables = Fill(manager, Count(12 * 16));
  manager.Release(tables);
  manager.MakeStale({1});
  const int stale = manager.num_stale();
  Tables again = manager.MatchPrefix("", Count(12 * 16));
  EXPECT_EQ(HitOf(again), 12u);
  EXPECT_EQ(again[0].num_whole, 0);
  EXPECT_EQ(again[1].num_held(), 12);
  // Known are the states of blocks 3, 7, 10 and 11.
  EXPECT_EQ(again[1].blocks[0], again[1].blocks[3]);
  EXPECT_NE(again[1].blocks[3], again[1].blocks[4]);
  ExpectSound(manager, {&again});
  EXPECT_TRUE(manager.AwaitsReplay("", Count(12 * 16)));
  // Block 0's entry names block 3's, which is not whole yet.
  manager.CacheFullBlocks(again, Count(16));
  EXPECT_EQ(manager.num_stale(), stale - 1);
  EXPECT_EQ(manager.MatchPrefix("", Count(4 * 16), false)[0].blocks.size(), 0u);
  manager.CacheFullBlocks(again, Count(4 * 16));
  EXPECT_EQ(manager.MatchPrefix("", Count(4 * 16), false)[0].blocks.size(), 4u);
  manager.CacheFullBlocks(again, Count(12 * 16));
  EXPECT_EQ(manager.num_stale(), 0);
}

TEST(StateBlocksTest, LimitsNeedStatesForTheLastGroup) {
  PlanLimits limits = TestLimits(40);
  limits.num_kv_groups = 2;
  limits.kv_windows = {0, kStateWindow};
  EXPECT_FALSE(Validate(limits).ok());
  limits.num_state_blocks = kLeastStateBlocks;
  EXPECT_TRUE(Validate(limits).ok());
  EXPECT_EQ(limits.blocks_of(0), 40);
  EXPECT_EQ(limits.blocks_of(1), kLeastStateBlocks);
  EXPECT_EQ(MaxPositions(limits), 40 * kBlockTokens);
  limits.num_kv_groups = 3;
  limits.kv_windows = {0, kStateWindow, 16};
  EXPECT_EQ(Message(Validate(limits)),
            "the group of states must be the last, is KV group 1 of 3");
}

}  // namespace
}  // namespace sluice
