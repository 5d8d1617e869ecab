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
  // Blocks at the front that are behind the group's window and given back.
  // Their entries name no block.
  int32_t num_evicted = 0;
  // In the first group's table alone, for all groups:
  bool use_cache = false;  // whether full blocks get cached
  int32_t num_first = 0;   // full blocks of the tokens that it began with
  int32_t num_cached = 0;  // full blocks from the front that are cached
  PrefixHash prefix;       // behind the cached ones
  // Blocks from the front that every stage has. Behind them come kept ones:
  // stages that were replaced lack them until they are replayed.
  int32_t num_whole = 0;

  int32_t num_held() const {
    return static_cast<int32_t>(blocks.size()) - num_evicted;
  }
  // The blocks behind the evicted ones.
  std::span<const BlockId> held() const {
    return std::span(blocks).subspan(static_cast<size_t>(num_evicted));
  }
};

// Hands out the KV blocks of one replica, and finds the blocks of known
// prefixes. A block id means the same slot on every stage, so no other class
// gives or takes blocks. All KV groups take from one pool, but states have a
// pool of their own. Not thread safe: the engine loop's.
//
// A state's block is large, and a long chunk passes many of them. So within a
// chunk, and where a replay fills gaps, only every state_stride()-th block is
// kept, and the entries before it name the next kept block: a step leaves there
// what is of the last one. Of the blocks that decodes fill as many stay cached.
//
// A block may be reused as soon as its last reference goes, even while a plan
// in flight writes to it: every stage runs plans in step order, so the block's
// next sequence writes in a later plan.
//
// A block may be matched once the plan that computes it has been committed. The
// step may fail for one sequence, and no other sequence may read what it left.
class BlockManager {
 public:
  struct Options {
    // Window of each group, see kv_groups.h; the first group has none.
    std::vector<int32_t> windows = {0};
    int num_blocks = 0;  // of all groups together, but that of states
    int num_state_blocks = 0;
    int step_tokens = 1;  // most tokens of one sequence in one plan
    SipKey key = SipKey::Random();
  };
  explicit BlockManager(const Options& options);

  // Returns the tables of a new sequence, one per group, each block held once
  // more. They hold the longest prefix of `tokens`, in full blocks, that every
  // group knows; a windowed group needs only the blocks that are still read.
  // Sequences share content only under one salt. Without a salt nothing is
  // looked up, and no block of the sequence gets cached.
  //
  // With stale blocks the hit has two parts: blocks that every stage has (see
  // BlockTable::num_whole), and behind them kept ones that are to be replayed.
  // Where a windowed group has let go of a block that a replay reads, its table
  // gets a free block. Without enough of these, or without `may_replay`, the
  // hit is the first part.
  std::vector<BlockTable> MatchPrefix(std::optional<std::string_view> salt,
                                      std::span<const TokenId> tokens,
                                      bool may_replay = true);

  // Whether a hit would have a stale block that another sequence replays. Only
  // one at a time may: a replay that fails leaves a block without meaning.
  bool AwaitsReplay(std::optional<std::string_view> salt,
                    std::span<const TokenId> tokens) const;

  // The stages with the first layers `lost` were replaced and lack what is
  // cached: it is stale until it is replayed. No table may hold a block.
  void MakeStale(const std::vector<int32_t>& lost);
  // Forgets what is stale. The stages of replay_at lack nothing then.
  void ForgetStale() {
    pool_.ForgetStale();
    states_.ForgetStale();
  }
  int num_stale() const { return pool_.num_stale() + states_.num_stale(); }
  // The first layers, rising, of the stages that lack stale blocks. A stage
  // that was replaced earlier still lacks those that have been stale since.
  const std::vector<int32_t>& replay_at() const { return replay_at_; }

  // Returns how many blocks of keys and values the tables hold.
  int32_t NumHeld(const std::vector<BlockTable>& tables) const;

  // Returns how many free blocks the tables take at most until they hold
  // `num_tokens` positions.
  int32_t Needed(const std::vector<BlockTable>& tables,
                 int32_t num_tokens) const;

  // Whether so many blocks are free, and the group of states, if there is one,
  // has some for so many more sequences.
  bool HasRoom(int32_t needed, int64_t sequences) const;

  // Grows every table to hold `num_tokens` positions. Returns false and
  // changes nothing if there are too few free blocks.
  bool Reserve(std::vector<BlockTable>& tables, int32_t num_tokens);

  // Gives back the blocks that windowed groups no longer need when the next
  // query is at `position`. Returns false if there are none. Cached content
  // stays cached.
  bool EvictBehind(std::vector<BlockTable>& tables, int32_t position);

  // Caches the full blocks of `computed`, whose positions are in the KV cache
  // of every stage, so that MatchPrefix finds them. Those that were stale are
  // so no more. Does nothing for tables without a salt.
  void CacheFullBlocks(std::vector<BlockTable>& tables,
                       std::span<const TokenId> computed);

  // Gives back all blocks and empties the tables. The last block goes first, so
  // that a prefix stays cached longer than its continuation.
  void Release(std::vector<BlockTable>& tables);

  // See BlockPool::TakeVacant.
  std::vector<BlockRange> TakeVacant(TimePoint now, Duration idle) {
    return pool_.TakeVacant(now, idle);
  }

  // Forgets all cached content. No table may hold a block.
  void Reset(int num_blocks);

  // Of keys and values.
  int num_blocks() const { return pool_.num_blocks(); }
  int num_free() const { return pool_.num_free(); }  // cached ones included
  // Blocks of cached prefixes that were handed out again since the last Reset.
  uint64_t evictions() const { return pool_.evictions(); }

  // INTERNAL names the first contradiction. `open`: all tables with blocks.
  Status CheckIntegrity(
      std::span<const std::vector<BlockTable>* const> open) const;

 private:
  // What is cached of a prefix.
  struct Hits {
    std::vector<BlockTable> tables;  // block -1: not found
    std::vector<PrefixHash> prefixes;
    int32_t whole = 0;  // blocks that every stage has
    int32_t kept = 0;   // the same and those that are to be replayed
    bool awaits_replay = false;
  };
  Hits Look(std::optional<std::string_view> salt,
            std::span<const TokenId> tokens) const;
  // Fills the gaps of `table` from its first held block on with free blocks.
  // Returns false if there are too few.
  bool FillGaps(size_t group, BlockTable& table);
  // Blocks of states from `have` up to `wanted`.
  void AppendStates(BlockTable& table, size_t wanted);
  // Whether entry `index` is one that the next one stands for.
  bool IsPassed(size_t group, const BlockTable& table, int32_t index) const;
  Status CheckBlock(size_t group, BlockId block) const;
  BlockPool& PoolOf(size_t group) {
    return IsState(options_.windows[group]) ? states_ : pool_;
  }
  const BlockPool& PoolOf(size_t group) const {
    return IsState(options_.windows[group]) ? states_ : pool_;
  }
  // So many blocks of keys and values are for one of states.
  int32_t state_stride() const;
  int num_groups() const { return static_cast<int>(options_.windows.size()); }

  Options options_;
  BlockPool pool_;
  BlockPool states_;
  std::vector<int32_t> replay_at_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_BLOCK_MANAGER_H_
