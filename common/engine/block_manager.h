#ifndef SLUICE_COMMON_ENGINE_BLOCK_MANAGER_H_
#define SLUICE_COMMON_ENGINE_BLOCK_MANAGER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/core/kv_groups.h"
#include "common/engine/block_pool.h"

namespace sluice {

// A sequence's blocks in one KV group. Block i holds positions
// [i * kBlockTokens, (i + 1) * kBlockTokens).
struct BlockTable {
  std::vector<BlockId> blocks;
  // So many at the front are behind the group's window and given back: their
  // entries name no block.
  int32_t num_gone = 0;
  // Of the first group's table alone, for all of them:
  bool findable = false;      // whether full blocks shall be
  int32_t num_published = 0;  // of them, from the front: findable content
  ChainPoint point;           // behind the published ones

  int32_t num_held() const {
    return static_cast<int32_t>(blocks.size()) - num_gone;
  }
  // The blocks that it holds.
  std::span<const BlockId> held() const {
    return std::span(blocks).subspan(static_cast<size_t>(num_gone));
  }
};

// Hands out the KV blocks of one replica, and finds those of known prefixes.
// A block id means the same slot on every stage, so this is the only place
// where blocks are given and taken. All KV groups take from one pool. Not
// thread safe: the engine loop's.
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
    // Window of each group, see kv_groups.h; the first has none.
    std::vector<int32_t> windows = {0};
    int num_blocks = 0;   // of all groups together
    int step_tokens = 1;  // most of one sequence that one plan computes
    SipKey key = SipKey::Random();
  };
  explicit BlockManager(const Options& options);

  // Tables of a new sequence, one per group: the longest prefix of `tokens`,
  // in full blocks, of which every group knows what is still read behind it
  // (a windowed one the last blocks), each held once more.
  // Content is shared among sequences of one salt only; without a salt
  // nothing is looked up, and nothing of it will be found.
  std::vector<BlockTable> Open(std::optional<std::string_view> salt,
                               std::span<const TokenId> tokens);

  // Free blocks that it takes at most to go on until the tables have held
  // `num_tokens` positions.
  int32_t Needed(const std::vector<BlockTable>& tables,
                 int32_t num_tokens) const;

  // Grows every table to hold `num_tokens` positions, or changes nothing and
  // returns false because there are too few free blocks.
  bool Grow(std::vector<BlockTable>& tables, int32_t num_tokens);

  // Gives back what windowed groups need no more when the next query is at
  // `position`; false if that is nothing. What was published stays findable.
  bool ReleaseBehind(std::vector<BlockTable>& tables, int32_t position);

  // The positions of `computed` are in the KV cache: full blocks of them
  // become findable, if the tables were opened with a salt.
  void Publish(std::vector<BlockTable>& tables,
               std::span<const TokenId> computed);

  // Lets go of all blocks, the last first, so that a prefix stays findable
  // longer than what follows it. The tables are empty after.
  void Release(std::vector<BlockTable>& tables);

  // Forgets everything; there must be no open table.
  void Reset(int num_blocks);

  int num_blocks() const { return pool_.num_blocks(); }
  int num_free() const { return pool_.num_free(); }  // cached ones included
  // Blocks of cached prefixes that were given to others since the last Reset.
  uint64_t evictions() const { return pool_.evictions(); }

  // INTERNAL naming the first contradiction. `open` are all tables that were
  // opened and not released.
  Status CheckIntegrity(
      std::span<const std::vector<BlockTable>* const> open) const;

 private:
  int num_groups() const { return static_cast<int>(options_.windows.size()); }

  Options options_;
  BlockPool pool_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_BLOCK_MANAGER_H_
