#ifndef SLUICE_COMMON_ENGINE_BLOCK_POOL_H_
#define SLUICE_COMMON_ENGINE_BLOCK_POOL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/core/step_plan.h"
#include "common/engine/siphash.h"

namespace sluice {

// The end of a chain of full blocks: the hash over its salt and tokens, and the
// number of that content. Two chains with one `content` hold the same tokens.
struct PrefixHash {
  Hash128 hash;
  uint64_t content = 0;  // 0: nothing but the salt
  bool operator==(const PrefixHash&) const = default;
};

using BlockTokens = std::span<const TokenId, kBlockTokens>;

// The blocks of a replica, for all KV groups: the references to each block, and
// an index of full blocks by their content. Not thread safe; owned by a
// BlockManager.
//
// A block is held (one reference per sequence) or free. A free block may still
// be cached. Cached blocks are handed out after all other free blocks, least
// recently freed first, so the cache costs no sequence a block.
//
// A cached block is stale while some stages of the pipeline lack its content.
class BlockPool {
 public:
  BlockPool(int num_blocks, const SipKey& key);

  // Cached blocks that were handed out again.
  uint64_t evictions() const { return evictions_; }

  // Returns a block with one reference, not cached; nothing if all are held.
  std::optional<BlockId> Allocate();
  // Adds a reference, e.g. for a prefix hit.
  void Hold(BlockId block);
  // Drops a reference.
  void Release(BlockId block);
  // The same, and forgets the content unless others hold the block.
  void Discard(BlockId block);

  // Returns the start of all chains with this salt.
  PrefixHash Root(std::span<const uint8_t> salt) const;
  // Returns the block of KV group `group` that continues the chain at `prefix`
  // with `tokens`. It is found by hash, then verified: the same tokens after
  // the same content. Chains go through blocks of group 0. A block of another
  // group hangs on the prefix before it, so it needs no other of its group.
  struct Found {
    BlockId block;
    PrefixHash prefix;  // behind the block; nothing follows other groups'
    bool is_stale = false;
    bool is_held = false;
  };
  std::optional<Found> Find(int group, const PrefixHash& prefix,
                            BlockTokens tokens) const;
  // Caches a held, full block and returns the prefix behind it. Content that
  // another block holds in the cache stays with that block.
  PrefixHash Cache(int group, BlockId block, const PrefixHash& prefix,
                   BlockTokens tokens);

  // Some stages have lost the content of all cached blocks.
  void MakeStale();
  // Forgets stale content.
  void ForgetStale();
  // Every stage has the block's content.
  void Restore(BlockId block);
  int num_stale() const { return num_stale_; }

  // Forgets the free blocks that were free at a call at least `idle` before
  // `now`, and at all calls since, and returns those that were handed out since
  // they were last returned: at most kMaxVacantRanges ranges, rising. Blocks
  // with the lowest ids are handed out first from then on. Looks at all blocks
  // at most four times per `idle`.
  std::vector<BlockRange> TakeVacant(TimePoint now, Duration idle);

  // Returns the group for which the block is cached; nothing if it is not.
  std::optional<int> CachedFor(BlockId block) const;

  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  int num_free() const { return num_free_; }
  int num_cached() const { return static_cast<int>(by_hash_.size()); }

  // INTERNAL names the first contradiction. `references[b]`: how often block b
  // stands in tables.
  Status CheckIntegrity(std::span<const int32_t> references) const;

 private:
  struct Block {
    int32_t references = 0;
    bool cached = false;
    bool stale = false;    // needs `cached`
    bool touched = false;  // a stage may have written to it
    // At TakeVacant: since when the block is free; zero: not seen free.
    TimePoint free_since{};
    // Neighbours in the list of free blocks; -1: none.
    int32_t previous = -1;
    int32_t next = -1;
    // Of a cached block: its group, the prefix behind it, the content before
    // it, its tokens.
    int group = 0;
    PrefixHash prefix;
    uint64_t parent = 0;
    std::array<TokenId, kBlockTokens> tokens{};
  };
  struct TakeLowBits {
    size_t operator()(const Hash128& hash) const { return hash.low; }
  };

  Block& at(BlockId block);
  Hash128 Extend(int group, const Hash128& hash, BlockTokens tokens) const;
  bool Holds(const Block& block, int group, const PrefixHash& prefix,
             BlockTokens tokens) const;
  // Neighbours in the list of free blocks; for -1 the list's ends.
  int32_t& NextOf(int32_t index) {
    return index < 0 ? first_free_ : blocks_[static_cast<size_t>(index)].next;
  }
  int32_t& PreviousOf(int32_t index) {
    return index < 0 ? last_free_
                     : blocks_[static_cast<size_t>(index)].previous;
  }
  void PushFree(int32_t index);
  void RemoveFree(int32_t index);
  void Forget(Block& block);
  void SortFree();

  SipKey key_;
  std::vector<Block> blocks_;
  std::unordered_map<Hash128, int32_t, TakeLowBits> by_hash_;
  int32_t first_free_ = -1;  // handed out next
  int32_t last_free_ = -1;
  int num_free_ = 0;
  int num_stale_ = 0;
  int num_touched_ = 0;
  TimePoint next_look_{};  // of TakeVacant
  uint64_t next_content_ = 1;
  uint64_t evictions_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_BLOCK_POOL_H_
