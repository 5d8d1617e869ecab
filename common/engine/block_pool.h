#ifndef SLUICE_COMMON_ENGINE_BLOCK_POOL_H_
#define SLUICE_COMMON_ENGINE_BLOCK_POOL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/engine/siphash.h"

namespace sluice {

// Where a chain of full blocks has come to: the hash over its salt and all
// its tokens, and the number of that content. Two chains with one `content`
// hold the same tokens.
struct PrefixHash {
  Hash128 hash;
  uint64_t content = 0;  // 0: nothing but the salt
  bool operator==(const PrefixHash&) const = default;
};

using BlockTokens = std::span<const TokenId, kBlockTokens>;

// The blocks of a replica, for all KV groups: the references to each, and an
// index of full blocks by their content. Not thread safe; owned by a
// BlockManager.
//
// A block is held (one reference per sequence), or free. A free block may still
// be cached; it is handed out again only after every free block that is not,
// least recently freed first. So the cache costs no sequence a block.
class BlockPool {
 public:
  BlockPool(int num_blocks, const SipKey& key);

  // Findable blocks that were handed out again, and are found no more.
  uint64_t evictions() const { return evictions_; }

  // A block of one reference, in no chain; nothing if all are held.
  std::optional<BlockId> Allocate();
  // One more reference, e.g. for a prefix hit.
  void Hold(BlockId block);
  // One reference less.
  void Release(BlockId block);

  // Where chains of this salt begin.
  PrefixHash Root(std::span<const uint8_t> salt) const;
  // The block of KV group `group` that continues the chain at `prefix` with
  // `tokens`. Found by hash, then verified: the same tokens after the same
  // content. Chains go through blocks of group 0; another group's block hangs
  // on the prefix before it, so that it needs none of its own group's.
  struct Found {
    BlockId block;
    PrefixHash prefix;  // behind the block; nothing follows other groups'
  };
  std::optional<Found> Find(int group, const PrefixHash& prefix,
                            BlockTokens tokens) const;
  // Makes a held, full block cached and returns the prefix behind it. If
  // its content is cached already, in another block, that one stays.
  PrefixHash Cache(int group, BlockId block, const PrefixHash& prefix,
                   BlockTokens tokens);

  // The group that a block can be found for; nothing if it cannot be found.
  std::optional<int> CachedFor(BlockId block) const;

  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  int num_free() const { return num_free_; }
  int num_cached() const { return static_cast<int>(by_hash_.size()); }

  // INTERNAL naming the first contradiction: `references[b]` is how often
  // block b stands in tables.
  Status CheckIntegrity(std::span<const int32_t> references) const;

 private:
  struct Block {
    int32_t references = 0;
    bool cached = false;
    // Neighbours in the list of free blocks; -1: none.
    int32_t previous = -1;
    int32_t next = -1;
    // If cached: its group, the prefix behind it, what came before, what it
    // holds.
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
  // Neighbours in the list of free blocks; of -1: its ends.
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

  SipKey key_;
  std::vector<Block> blocks_;
  std::unordered_map<Hash128, int32_t, TakeLowBits> by_hash_;
  int32_t first_free_ = -1;  // handed out next
  int32_t last_free_ = -1;
  int num_free_ = 0;
  uint64_t next_content_ = 1;
  uint64_t evictions_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_BLOCK_POOL_H_
