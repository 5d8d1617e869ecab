#include "common/engine/block_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace sluice {

BlockPool::BlockPool(int num_blocks, const SipKey& key)
    : key_(key), blocks_(static_cast<size_t>(std::max(num_blocks, 0))) {
  // Pushed to the front one by one, so block 0 is handed out first.
  for (int32_t i = num_blocks - 1; i >= 0; --i) PushFree(i);
}

BlockPool::Block& BlockPool::at(BlockId block) {
  return blocks_.at(static_cast<size_t>(block.value()));
}

std::optional<BlockId> BlockPool::Allocate() {
  if (first_free_ < 0) return std::nullopt;
  const int32_t index = first_free_;
  RemoveFree(index);
  Block& block = blocks_[static_cast<size_t>(index)];
  if (block.cached) {
    Forget(block);
    ++evictions_;
  }
  block.references = 1;
  block.free_since = TimePoint();
  if (!std::exchange(block.touched, true)) ++num_touched_;
  return BlockId(index);
}

void BlockPool::Hold(BlockId id) {
  Block& block = at(id);
  if (block.references == 0) RemoveFree(id.value());
  ++block.references;
  block.free_since = TimePoint();
}

void BlockPool::Release(BlockId id) {
  Block& block = at(id);
  SLUICE_CHECK(block.references > 0);
  if (--block.references == 0) PushFree(id.value());
}

void BlockPool::Discard(BlockId id) {
  Block& block = at(id);
  if (block.references == 1 && block.cached) Forget(block);
  Release(id);
}

PrefixHash BlockPool::Root(std::span<const uint8_t> salt) const {
  return {SipHash128(key_, salt), 0};
}

Hash128 BlockPool::Extend(int group, const Hash128& hash,
                          BlockTokens tokens) const {
  std::array<uint8_t, sizeof(hash) + sizeof(TokenId) * kBlockTokens + 1> bytes;
  std::memcpy(bytes.data(), &hash, sizeof(hash));
  std::memcpy(bytes.data() + sizeof(hash), tokens.data(), tokens.size_bytes());
  bytes.back() = static_cast<uint8_t>(group);
  return SipHash128(key_, bytes);
}

// Equal content numbers mean equal tokens up to there, so this compares the
// whole prefix.
bool BlockPool::Holds(const Block& block, int group, const PrefixHash& prefix,
                      BlockTokens tokens) const {
  return block.group == group && block.parent == prefix.content &&
         std::equal(tokens.begin(), tokens.end(), block.tokens.begin());
}

std::optional<BlockPool::Found> BlockPool::Find(int group,
                                                const PrefixHash& prefix,
                                                BlockTokens tokens) const {
  const auto it = by_hash_.find(Extend(group, prefix.hash, tokens));
  if (it == by_hash_.end()) return std::nullopt;
  const Block& block = blocks_[static_cast<size_t>(it->second)];
  if (!Holds(block, group, prefix, tokens)) return std::nullopt;
  return Found{BlockId(it->second), block.prefix, block.stale,
               block.references > 0};
}

PrefixHash BlockPool::Cache(int group, BlockId id, const PrefixHash& prefix,
                            BlockTokens tokens) {
  Block& block = at(id);
  SLUICE_CHECK(block.references > 0 && !block.cached);
  const Hash128 hash = Extend(group, prefix.hash, tokens);
  const auto it = by_hash_.find(hash);
  if (it != by_hash_.end()) {
    Block& other = blocks_[static_cast<size_t>(it->second)];
    if (Holds(other, group, prefix, tokens)) return other.prefix;
    // Its parent was evicted and came back with another content number, so no
    // lookup reaches it any more.
    Forget(other);
  }
  block.cached = true;
  block.group = group;
  block.prefix = {hash, next_content_++};
  block.parent = prefix.content;
  std::copy(tokens.begin(), tokens.end(), block.tokens.begin());
  by_hash_.emplace(hash, id.value());
  return block.prefix;
}

void BlockPool::Forget(Block& block) {
  by_hash_.erase(block.prefix.hash);
  block.cached = false;
  if (std::exchange(block.stale, false)) --num_stale_;
}

void BlockPool::MakeStale() {
  for (Block& block : blocks_) block.stale = block.cached;
  num_stale_ = num_cached();
}

void BlockPool::ForgetStale() {
  for (Block& block : blocks_) {
    if (block.stale) Forget(block);
  }
}

void BlockPool::Restore(BlockId block) {
  if (std::exchange(at(block).stale, false)) --num_stale_;
}

std::vector<BlockRange> BlockPool::TakeVacant(TimePoint now, Duration idle) {
  std::vector<BlockRange> vacant;
  if (num_touched_ == 0 || now < next_look_) return vacant;
  next_look_ = now + idle / 4;
  for (int32_t i = 0; i < num_blocks(); ++i) {
    Block& block = blocks_[static_cast<size_t>(i)];
    if (!block.touched || block.references > 0) continue;
    if (block.free_since == TimePoint()) block.free_since = now;
    if (now - block.free_since < idle) continue;
    const bool follows = !vacant.empty() && vacant.back().end == i;
    if (!follows && vacant.size() == kMaxVacantRanges) break;
    if (block.cached) Forget(block);
    block.touched = false;
    --num_touched_;
    if (!follows) vacant.push_back({i, i});
    vacant.back().end = i + 1;
  }
  if (!vacant.empty()) SortFree();
  return vacant;
}

// Lists the free blocks that are not cached by their ids, before the others.
void BlockPool::SortFree() {
  std::vector<int32_t> cached;
  for (int32_t i = first_free_; i >= 0;
       i = blocks_[static_cast<size_t>(i)].next) {
    if (blocks_[static_cast<size_t>(i)].cached) cached.push_back(i);
  }
  first_free_ = last_free_ = -1;
  num_free_ = 0;
  for (int32_t i = num_blocks() - 1; i >= 0; --i) {
    const Block& block = blocks_[static_cast<size_t>(i)];
    if (block.references == 0 && !block.cached) PushFree(i);
  }
  for (const int32_t i : cached) PushFree(i);
}

void BlockPool::PushFree(int32_t index) {
  Block& block = blocks_[static_cast<size_t>(index)];
  ++num_free_;
  if (block.cached) {
    block.previous = last_free_;
    block.next = -1;
  } else {
    block.previous = -1;
    block.next = first_free_;
  }
  NextOf(block.previous) = index;
  PreviousOf(block.next) = index;
}

void BlockPool::RemoveFree(int32_t index) {
  Block& block = blocks_[static_cast<size_t>(index)];
  --num_free_;
  NextOf(block.previous) = block.next;
  PreviousOf(block.next) = block.previous;
}

std::optional<int> BlockPool::CachedFor(BlockId block) const {
  const Block& found = blocks_[static_cast<size_t>(block.value())];
  return found.cached ? std::optional(found.group) : std::nullopt;
}

Status BlockPool::CheckIntegrity(std::span<const int32_t> references) const {
  if (references.size() != blocks_.size()) {
    return Internal("references of ", references.size(), " blocks, pool has ",
                    blocks_.size());
  }
  size_t held = 0, cached = 0, stale = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.references != references[i]) {
      return Internal("block ", i, " counts ", block.references,
                      " references, tables have ", references[i]);
    }
    held += block.references > 0 ? 1 : 0;
    stale += block.stale ? 1 : 0;
    if (block.stale && !block.cached) {
      return Internal("block ", i, " is stale and not cached");
    }
    if (!block.cached) continue;
    ++cached;
    const auto it = by_hash_.find(block.prefix.hash);
    if (it == by_hash_.end() || it->second != static_cast<int32_t>(i)) {
      return Internal("cached block ", i, " is not found by its hash");
    }
  }
  if (stale != static_cast<size_t>(num_stale_)) {
    return Internal(stale, " blocks are stale, counted: ", num_stale_);
  }
  if (cached != by_hash_.size()) {
    return Internal(by_hash_.size(), " hashes for ", cached, " blocks");
  }
  // The free list names every free block once.
  size_t listed = 0;
  int32_t previous = -1;
  for (int32_t i = first_free_; i >= 0 && listed <= blocks_.size();
       i = blocks_[static_cast<size_t>(i)].next) {
    const Block& block = blocks_[static_cast<size_t>(i)];
    if (block.references != 0 || block.previous != previous) {
      return Internal("free list is broken at block ", i);
    }
    previous = i;
    ++listed;
  }
  if (previous != last_free_ || listed + held != blocks_.size() ||
      listed != static_cast<size_t>(num_free_)) {
    return Internal(listed, " blocks listed free and ", held, " held, of ",
                    blocks_.size(), "; counted free: ", num_free_);
  }
  return OkStatus();
}

}  // namespace sluice
