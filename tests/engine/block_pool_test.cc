#include "common/engine/block_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace sluice {
namespace {

constexpr SipKey kKey = {1, 2};

std::array<TokenId, kBlockTokens> TokensFrom(TokenId first) {
  std::array<TokenId, kBlockTokens> tokens{};
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Two prefixes with one hash stand for a collision: the content decides.
TEST(BlockPoolTest, ABlockIsNotFoundBehindAnotherPrefixOfTheSameHash) {
  BlockPool pool(4, kKey);
  const auto tokens = TokensFrom(100);
  const PrefixHash root = pool.Root({});
  const PrefixHash other = {root.hash, root.content + 1};
  pool.Cache(0, *pool.Allocate(), root, tokens);
  EXPECT_TRUE(pool.Find(0, root, tokens).has_value());
  EXPECT_FALSE(pool.Find(0, other, tokens).has_value());
}

TEST(BlockPoolTest, ABlockBehindAnEvictedPrefixGivesItsPlaceToALaterBlock) {
  BlockPool pool(4, kKey);
  const auto parent_tokens = TokensFrom(100);
  const auto child_tokens = TokensFrom(200);
  const PrefixHash root = pool.Root({});
  const BlockId parent = *pool.Allocate();
  const PrefixHash behind_parent = pool.Cache(0, parent, root, parent_tokens);
  const BlockId child = *pool.Allocate();
  pool.Cache(0, child, behind_parent, child_tokens);
  // The pool hands out its other blocks first, and the parent's content is
  // gone.
  pool.Release(parent);
  const BlockId later = *pool.Allocate();
  ASSERT_TRUE(pool.Allocate().has_value());
  const BlockId again = *pool.Allocate();
  ASSERT_EQ(again, parent);
  ASSERT_FALSE(pool.Find(0, root, parent_tokens).has_value());

  const PrefixHash behind_again = pool.Cache(0, again, root, parent_tokens);
  EXPECT_EQ(behind_again.hash, behind_parent.hash);
  EXPECT_NE(behind_again.content, behind_parent.content);
  EXPECT_FALSE(pool.Find(0, behind_again, child_tokens).has_value());
  pool.Cache(0, later, behind_again, child_tokens);
  const auto found = pool.Find(0, behind_again, child_tokens);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->block, later);
  EXPECT_EQ(pool.CachedFor(child), std::nullopt);
}

}  // namespace
}  // namespace sluice
