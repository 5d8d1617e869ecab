#include "common/engine/block_manager.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <vector>

#include "common/base/clock.h"
#include "common/core/step_plan.h"
#include "tests/engine/block_tables.h"

namespace sluice {
namespace {

size_t Hits(const Tables& tables) { return tables[0].blocks.size(); }

TEST(BlockManagerTest, ATableGrowsByOneBlockPerSixteenTokens) {
  BlockManager manager({.num_blocks = 4});
  Tables tables = manager.MatchPrefix("", {});
  EXPECT_TRUE(manager.Reserve(tables, 1));
  EXPECT_EQ(tables[0].blocks, std::vector<BlockId>{BlockId(0)});
  EXPECT_TRUE(manager.Reserve(tables, 16));
  EXPECT_EQ(tables[0].blocks.size(), 1u);
  EXPECT_TRUE(manager.Reserve(tables, 17));
  EXPECT_EQ(tables[0].blocks.size(), 2u);
  EXPECT_EQ(manager.num_free(), 2);
  ExpectSound(manager, {&tables});
  manager.Release(tables);
  EXPECT_EQ(manager.num_free(), 4);
  ExpectSound(manager);
}

TEST(BlockManagerTest, AnEmptyPoolRefusesAndChangesNothing) {
  BlockManager manager({.num_blocks = 2});
  Tables tables = manager.MatchPrefix("", {});
  ASSERT_TRUE(manager.Reserve(tables, 16));
  EXPECT_FALSE(manager.Reserve(tables, 16 * 3));
  EXPECT_EQ(tables[0].blocks.size(), 1u);
  EXPECT_EQ(manager.num_free(), 1);
  ExpectSound(manager, {&tables});
}

TEST(BlockManagerTest, APublishedPrefixIsFoundAndShared) {
  BlockManager manager({.num_blocks = 8});
  const Tables first = Fill(manager, Count(40));
  std::vector<TokenId> longer = Count(50);
  const Tables second = manager.MatchPrefix("", longer);
  ASSERT_EQ(Hits(second), 2u);
  EXPECT_EQ(second[0].blocks[0], first[0].blocks[0]);
  EXPECT_EQ(second[0].blocks[1], first[0].blocks[1]);
  EXPECT_EQ(manager.num_free(), 5);
  ExpectSound(manager, {&first, &second});
}

TEST(BlockManagerTest, WhatIsNotPublishedIsNotFound) {
  BlockManager manager({.num_blocks = 8});
  Tables tables = manager.MatchPrefix("", Count(32));
  ASSERT_TRUE(manager.Reserve(tables, 32));
  EXPECT_EQ(Hits(manager.MatchPrefix("", Count(32))), 0u);
  manager.CacheFullBlocks(tables, Count(31));
  Tables found = manager.MatchPrefix("", Count(32));
  EXPECT_EQ(Hits(found), 1u);
  manager.Release(found);
}

TEST(BlockManagerTest, WhatNoSequenceUsesIsVacantOnceItWasIdle) {
  using std::chrono::seconds;
  BlockManager manager({.num_blocks = 8});
  const TimePoint start = Clock::now();
  const auto vacant = [&](int second) {
    return manager.TakeVacant(start + seconds(second), seconds(8));
  };
  const std::vector<BlockRange> none;
  EXPECT_EQ(vacant(0), none);  // never used
  Tables first = Fill(manager, Count(40));
  Tables second = manager.MatchPrefix("", {});
  ASSERT_TRUE(manager.Reserve(second, 20));
  manager.Release(first);
  EXPECT_EQ(vacant(10), none);
  // Looked up and used again: idle from its second release on.
  first = manager.MatchPrefix("", Count(40));
  EXPECT_EQ(Hits(first), 2u);
  EXPECT_EQ(vacant(14), none);
  manager.Release(first);
  EXPECT_EQ(vacant(16), none);
  // Of the first table the block that was not full was idle all along.
  const std::vector<BlockRange> third = {{2, 3}};
  EXPECT_EQ(vacant(19), third);
  EXPECT_EQ(vacant(20), none);  // it looks every two seconds
  const std::vector<BlockRange> others = {{0, 2}};
  EXPECT_EQ(vacant(24), others);
  EXPECT_EQ(Hits(manager.MatchPrefix("", Count(40))), 0u);
  ExpectSound(manager, {&second});
  // The lowest are handed out first, and vacant again later.
  Tables fourth = manager.MatchPrefix("", {});
  ASSERT_TRUE(manager.Reserve(fourth, 16 * 4));
  EXPECT_EQ(fourth[0].blocks, (std::vector<BlockId>{BlockId(0), BlockId(1),
                                                    BlockId(2), BlockId(5)}));
  manager.Release(fourth);
  manager.Release(second);
  EXPECT_EQ(vacant(30), none);
  const std::vector<BlockRange> all = {{0, 6}};
  EXPECT_EQ(vacant(38), all);
  EXPECT_EQ(vacant(60), none);
  ExpectSound(manager);
}

TEST(BlockManagerTest, AReleasedPrefixIsFoundAgain) {
  BlockManager manager({.num_blocks = 4});
  Tables tables = Fill(manager, Count(32));
  manager.Release(tables);
  EXPECT_EQ(manager.num_free(), 4);
  tables = manager.MatchPrefix("", Count(32));
  EXPECT_EQ(Hits(tables), 2u);
  EXPECT_EQ(manager.num_free(), 2);
  ExpectSound(manager, {&tables});
}

TEST(BlockManagerTest, EqualBlocksAfterDifferentPrefixesAreDifferent) {
  BlockManager manager({.num_blocks = 8});
  std::vector<TokenId> tokens = Count(32);
  Fill(manager, tokens);
  tokens[3] = 99;
  EXPECT_EQ(Hits(manager.MatchPrefix("", tokens)), 0u);
}

TEST(BlockManagerTest, AnotherSaltFindsNothing) {
  BlockManager manager({.num_blocks = 8});
  Fill(manager, Count(32), "tenant a");
  EXPECT_EQ(Hits(manager.MatchPrefix("tenant b", Count(32))), 0u);
  EXPECT_EQ(Hits(manager.MatchPrefix("tenant a", Count(32))), 2u);
}

TEST(BlockManagerTest, WithoutASaltNothingIsLookedUpOrFound) {
  BlockManager manager({.num_blocks = 8});
  Tables hidden = manager.MatchPrefix(std::nullopt, Count(32));
  ASSERT_TRUE(manager.Reserve(hidden, 32));
  manager.CacheFullBlocks(hidden, Count(32));
  EXPECT_EQ(Hits(manager.MatchPrefix("", Count(32))), 0u);
  Tables seen = Fill(manager, Count(32));
  EXPECT_EQ(Hits(manager.MatchPrefix(std::nullopt, Count(32))), 0u);
  EXPECT_EQ(Hits(manager.MatchPrefix("", Count(32))), 2u);
}

TEST(BlockManagerTest, TheCacheCostsNobodyABlock) {
  BlockManager manager({.num_blocks = 4});
  Tables old = Fill(manager, Count(64));
  manager.Release(old);
  Tables tables = Fill(manager, Count(64, 100));
  EXPECT_EQ(manager.num_free(), 0);
  ExpectSound(manager, {&tables});
  manager.Release(tables);
  EXPECT_EQ(Hits(manager.MatchPrefix("", Count(64))), 0u);
}

TEST(BlockManagerTest, BlocksThatCannotBeFoundAreReusedFirst) {
  BlockManager manager({.num_blocks = 4});
  Tables cached = Fill(manager, Count(32));
  manager.Release(cached);
  Tables plain = manager.MatchPrefix("", {});
  ASSERT_TRUE(manager.Reserve(plain, 32));
  EXPECT_EQ(manager.evictions(), 0u);
  EXPECT_EQ(Hits(manager.MatchPrefix("", Count(32))), 2u);
}

TEST(BlockManagerTest, TheLeastRecentlyFreedPrefixGoesFirstAndItsTailBefore) {
  BlockManager manager({.num_blocks = 4});
  Tables a = Fill(manager, Count(32));
  Tables b = Fill(manager, Count(32, 100));
  manager.Release(a);
  manager.Release(b);
  Tables plain = manager.MatchPrefix("", {});
  ASSERT_TRUE(manager.Reserve(plain, 16));
  EXPECT_EQ(manager.evictions(), 1u);
  Tables found_a = manager.MatchPrefix("", Count(32));
  EXPECT_EQ(Hits(found_a), 1u) << "the head outlives the tail";
  manager.Release(found_a);
  EXPECT_EQ(Hits(manager.MatchPrefix("", Count(32, 100))), 2u);
}

TEST(BlockManagerTest, APrefixComputedTwiceStaysFoundWhenOneCopyGoes) {
  BlockManager manager({.num_blocks = 8});
  Tables a = manager.MatchPrefix("", Count(48));
  Tables b = manager.MatchPrefix("", Count(48));
  ASSERT_TRUE(manager.Reserve(a, 48) && manager.Reserve(b, 48));
  manager.CacheFullBlocks(a, Count(32));
  manager.CacheFullBlocks(b, Count(48));
  ExpectSound(manager, {&a, &b});
  Tables found = manager.MatchPrefix("", Count(48));
  ASSERT_EQ(Hits(found), 3u);
  EXPECT_EQ(found[0].blocks[0], a[0].blocks[0]);
  EXPECT_EQ(found[0].blocks[2], b[0].blocks[2]);
}

TEST(BlockManagerTest, AChildOfAnEvictedPrefixIsNotFoundByItself) {
  BlockManager manager({.num_blocks = 3});
  Tables parent = Fill(manager, Count(16));
  Tables child = Fill(manager, Count(32));  // shares the first block
  Tables orphan{child};
  ASSERT_EQ(child[0].blocks[0], parent[0].blocks[0]);
  // Keep the second block alive alone by releasing the first twice.
  manager.Release(parent);
  Tables again = manager.MatchPrefix("", Count(32));
  manager.Release(child);
  ExpectSound(manager, {&again});
  manager.Release(again);
  // The tail is evicted before the head: after one allocation only the head
  // is left.
  Tables plain = manager.MatchPrefix("", {});
  ASSERT_TRUE(manager.Reserve(plain, 32));
  EXPECT_EQ(Hits(manager.MatchPrefix("", Count(32))), 1u);
}

TEST(BlockManagerTest, GroupsAgreeOnTheShortestHit) {
  BlockManager manager({.windows = {0, 0}, .num_blocks = 8});
  Tables tables = Fill(manager, Count(48));
  ASSERT_EQ(tables.size(), 2u);
  Tables found = manager.MatchPrefix("", Count(40));
  EXPECT_EQ(found[0].blocks.size(), 2u);
  EXPECT_EQ(found[1].blocks.size(), 2u);
  ExpectSound(manager, {&tables, &found});
}

TEST(BlockManagerTest, ResetForgetsPrefixesAndMayChangeTheSize) {
  BlockManager manager({.num_blocks = 4});
  Tables tables = Fill(manager, Count(32));
  manager.Release(tables);
  manager.Reset(9);
  EXPECT_EQ(manager.num_free(), 9);
  EXPECT_EQ(Hits(manager.MatchPrefix("", Count(32))), 0u);
  ExpectSound(manager);
}

TEST(BlockManagerTest, IntegrityNamesALostReference) {
  BlockManager manager({.num_blocks = 4});
  Tables tables = Fill(manager, Count(32));
  const Status status = manager.CheckIntegrity({});
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(Message(status), "block 0 counts 1 references, tables have 0");
}

TEST(BlockManagerTest, RandomUseKeepsItSoundAndEveryHitHoldsItsTokens) {
  std::mt19937 random(7);
  BlockManager manager({.windows = {0, 0}, .num_blocks = 48});
  struct Open {
    Tables tables;
    std::vector<TokenId> tokens;
    int32_t published = 0;
  };
  std::vector<Open> open;
  // What was last written to each block, with the whole prefix before it.
  std::vector<std::vector<std::vector<TokenId>>> written(
      2, std::vector<std::vector<TokenId>>(48));
  size_t hits = 0;
  for (int step = 0; step < 20000; ++step) {
    const auto pick = [&](size_t n) { return random() % n; };
    if (open.size() < 6 && pick(3) == 0) {
      Open entry;
      // Few distinct prefixes, so that many are shared.
      const size_t kind = pick(2), length = 1 + pick(6) * 16;
      for (size_t i = 0; i < length; ++i) {
        entry.tokens.push_back(static_cast<TokenId>(i / 16 * kind));
      }
      entry.tables = manager.MatchPrefix("", entry.tokens);
      for (size_t g = 0; g < 2; ++g) {
        for (size_t i = 0; i < entry.tables[g].blocks.size(); ++i, ++hits) {
          const std::vector<TokenId> prefix(
              entry.tokens.begin(),
              entry.tokens.begin() + static_cast<ptrdiff_t>((i + 1) * 16));
          const size_t block =
              static_cast<size_t>(entry.tables[g].blocks[i].value());
          ASSERT_EQ(written[g][block], prefix);
        }
      }
      open.push_back(std::move(entry));
    } else if (!open.empty() && pick(2) == 0) {
      Open& entry = open[pick(open.size())];
      const int32_t size = static_cast<int32_t>(entry.tokens.size());
      const size_t before = Hits(entry.tables);
      if (manager.Reserve(entry.tables, size)) {
        for (size_t g = 0; g < 2; ++g) {
          for (size_t i = before; i < Hits(entry.tables); ++i) {
            const size_t end = std::min((i + 1) * 16, entry.tokens.size());
            written[g][static_cast<size_t>(entry.tables[g].blocks[i].value())] =
                {entry.tokens.begin(),
                 entry.tokens.begin() + static_cast<ptrdiff_t>(end)};
          }
        }
        manager.CacheFullBlocks(entry.tables, entry.tokens);
      }
    } else if (!open.empty()) {
      const size_t index = pick(open.size());
      manager.Release(open[index].tables);
      open.erase(open.begin() + static_cast<ptrdiff_t>(index));
    }
    std::vector<const Tables*> tables;
    for (const Open& entry : open) tables.push_back(&entry.tables);
    const Status status = manager.CheckIntegrity(tables);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_GT(hits, 1000u);
}

TEST(BlockManagerTest, AStaleBlockIsKeptUntilItIsReplayed) {
  BlockManager manager({.num_blocks = 8});
  Tables first = Fill(manager, Count(48));
  manager.Release(first);
  manager.MakeStale({0});
  EXPECT_EQ(manager.num_stale(), 3);
  EXPECT_FALSE(manager.AwaitsReplay("", Count(48)));

  Tables second = manager.MatchPrefix("", Count(48));
  EXPECT_EQ(Hits(second), 3u);
  EXPECT_EQ(second[0].num_whole, 0);
  EXPECT_TRUE(manager.AwaitsReplay("", Count(16)));
  EXPECT_FALSE(manager.AwaitsReplay("other", Count(48)));
  manager.CacheFullBlocks(second, Count(40));
  EXPECT_EQ(manager.num_stale(), 1);
  EXPECT_EQ(second[0].num_whole, 2);
  EXPECT_FALSE(manager.AwaitsReplay("", Count(32)));
  EXPECT_TRUE(manager.AwaitsReplay("", Count(48)));
  manager.Release(second);
  ExpectSound(manager);

  Tables third = manager.MatchPrefix("", Count(48));
  EXPECT_EQ(Hits(third), 3u);
  EXPECT_EQ(third[0].num_whole, 2);
  // Blocks that are handed out again are no one's.
  Tables all(1);
  EXPECT_TRUE(manager.Reserve(all, 5 * kBlockTokens));
  manager.Release(third);
  Tables more(1);
  EXPECT_TRUE(manager.Reserve(more, 3 * kBlockTokens));
  EXPECT_EQ(manager.num_stale(), 0);
  ExpectSound(manager, {&all, &more});
}

TEST(BlockManagerTest, AReplayEndsBeforeABlockThatEveryStageHas) {
  BlockManager manager({.num_blocks = 8});
  Tables first = Fill(manager, Count(32));
  manager.Release(first);
  manager.MakeStale({0});
  // Computes copies of the stale blocks, and a third block that is whole.
  Tables second = manager.MatchPrefix("", Count(48), /*may_replay=*/false);
  EXPECT_EQ(Hits(second), 0u);
  EXPECT_TRUE(manager.Reserve(second, 48));
  manager.CacheFullBlocks(second, Count(48));
  EXPECT_EQ(manager.num_stale(), 2);

  Tables third = manager.MatchPrefix("", Count(48));
  EXPECT_EQ(Hits(third), 2u);
  EXPECT_EQ(third[0].num_whole, 0);
  // With the two replayed all three are whole.
  manager.CacheFullBlocks(third, Count(32));
  Tables fourth = manager.MatchPrefix("", Count(48));
  EXPECT_EQ(Hits(fourth), 3u);
  EXPECT_EQ(fourth[0].num_whole, 3);
  ExpectSound(manager, {&second, &third, &fourth});
}

}  // namespace
}  // namespace sluice
