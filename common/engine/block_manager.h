#ifndef SLUICE_COMMON_ENGINE_BLOCK_MANAGER_H_
#define SLUICE_COMMON_ENGINE_BLOCK_MANAGER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/engine/block_pool.h"

namespace sluice {

// A sequence's blocks in one KV group. Block i holds positions
// [i * kBlockTokens, (i + 1) * kBlockTokens).
struct BlockTable {
  std::vector<BlockId> blocks;
  bool findable = false;      // whether its full blocks shall be
  int32_t num_published = 0;  // of them, from the front: findable content
  ChainPoint point;           // behind the published ones
};

// Blocks of positions [0, num_tokens).
constexpr int32_t BlocksFor(int32_t num_tokens) {
  return (num_tokens + kBlockTokens - 1) / kBlockTokens;
}

// Hands out the KV blocks of one replica, and finds those of known prefixes.
// A block id means the same slot on every stage, so this is the only place
// where blocks are given and taken. Not thread safe: the engine loop's.
//
// When a block may be reused: at once when its last reference goes, even
// while a plan in flight still writes to it. Every stage runs plans in step
// order, so whoever is handed the block writes in a later plan, after that.
// When a block may be found: once the plan that computes it has been
// committed. (Order alone would allow it from the moment of planning, but a
// step may fail for one sequence, and nobody else shall read what it left.)
class BlockManager {
 public:
  struct Options {
    int num_groups = 1;
    int num_blocks = 0;  // of each group
    SipKey key = SipKey::Random();
  };
  explicit BlockManager(const Options& options);

  // Tables of a new sequence, one per group: the longest run of full blocks
  // that every group knows for a prefix of `tokens`, each held once more.
  // Content is shared among sequences of one salt only; without a salt
  // nothing is looked up, and nothing of it will be found.
  std::vector<BlockTable> Open(std::optional<std::string_view> salt,
                               std::span<const TokenId> tokens);

  // Grows every table to hold `num_tokens` positions, or changes nothing and
  // returns false because some group has too few free blocks.
  bool Grow(std::vector<BlockTable>& tables, int32_t num_tokens);

  // The positions of `computed` are in the KV cache: full blocks of them
  // become findable, if the tables were opened with a salt.
  void Publish(std::vector<BlockTable>& tables,
               std::span<const TokenId> computed);

  // Lets go of all blocks, the last first, so that a prefix stays findable
  // longer than what follows it. The tables are empty after.
  void Release(std::vector<BlockTable>& tables);

  // Forgets everything; there must be no open table.
  void Reset(int num_blocks);

  int num_blocks() const { return pools_[0].num_blocks(); }
  // Free, cached ones included, in the group that has the fewest.
  int num_free() const;

  // INTERNAL naming the first contradiction. `open` are all tables that were
  // opened and not released.
  Status CheckIntegrity(
      std::span<const std::vector<BlockTable>* const> open) const;

 private:
  Options options_;
  std::vector<BlockPool> pools_;  // one per group
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_BLOCK_MANAGER_H_
