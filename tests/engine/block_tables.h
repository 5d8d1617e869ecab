#ifndef SLUICE_TESTS_ENGINE_BLOCK_TABLES_H_
#define SLUICE_TESTS_ENGINE_BLOCK_TABLES_H_

#include <gtest/gtest.h>

#include <numeric>
#include <string_view>
#include <vector>

#include "common/engine/block_manager.h"

namespace sluice {

using Tables = std::vector<BlockTable>;

// `length` tokens: first, first + 1, and so on.
inline std::vector<TokenId> Count(int length, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(length));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Fails the test unless `open` are all tables there are and agree with the
// pool.
inline void ExpectSound(const BlockManager& manager,
                        std::vector<const Tables*> open = {}) {
  const Status status = manager.CheckIntegrity(open);
  EXPECT_TRUE(status.ok()) << status;
}

// A sequence whose `tokens` were computed: opened, filled, published, and let
// go of what is behind windows.
inline Tables Fill(BlockManager& manager, const std::vector<TokenId>& tokens,
                   std::string_view salt = "") {
  const auto size = static_cast<int32_t>(tokens.size());
  Tables tables = manager.MatchPrefix(salt, tokens);
  EXPECT_TRUE(manager.Reserve(tables, size));
  manager.CacheFullBlocks(tables, tokens);
  manager.EvictBehind(tables, size);
  return tables;
}

}  // namespace sluice

#endif  // SLUICE_TESTS_ENGINE_BLOCK_TABLES_H_
