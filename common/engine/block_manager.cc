#include "common/engine/block_manager.h"

#include <algorithm>
#include <optional>

#include "common/base/check.h"

namespace sluice {
namespace {

constexpr BlockId kEvicted = BlockId(-1);

// The last blocks of a chunk are kept: the next step begins there, and a prompt
// is found by its last full block. Drafts reach no more, and all that they
// reach are kept, since the next step may begin in each of them.
constexpr size_t kKeptStates = kMaxDraftTokens / kBlockTokens + 1;

BlockTokens BlockAt(std::span<const TokenId> tokens, size_t index) {
  return tokens.subspan(index * kBlockTokens).first<kBlockTokens>();
}

// Returns the number of blocks at the front that no step reads after a hit of
// `blocks`, be it one that runs the hit's last token again.
int32_t EvictedAfterHit(int32_t window, int32_t blocks) {
  return BlocksBehind(window, std::max(blocks * kBlockTokens - 1, 0));
}

}  // namespace

BlockManager::BlockManager(const Options& options)
    : options_(options),
      pool_(options.num_blocks, options.key),
      states_(options.num_state_blocks, options.key) {
  SLUICE_CHECK(!options.windows.empty() && options.windows[0] == 0);
  SLUICE_CHECK(options.num_blocks >= 0 && options.step_tokens > 0);
}

// Blocks of states cover about as many positions as those of keys and values.
int32_t BlockManager::state_stride() const {
  constexpr int kMost = 64;
  return std::clamp(num_blocks() / std::max(states_.num_blocks(), 1), 1, kMost);
}

bool BlockManager::IsPassed(size_t group, const BlockTable& table,
                            int32_t index) const {
  const auto at = static_cast<size_t>(index);
  return IsState(options_.windows[group]) && at + 1 < table.blocks.size() &&
         table.blocks[at] == table.blocks[at + 1];
}

void BlockManager::Reset(int num_blocks) {
  options_.num_blocks = num_blocks;
  pool_ = BlockPool(num_blocks, options_.key);
  states_ = BlockPool(options_.num_state_blocks, options_.key);
}

BlockManager::Hits BlockManager::Look(std::optional<std::string_view> salt,
                                      std::span<const TokenId> tokens) const {
  Hits hits;
  hits.tables.resize(options_.windows.size());
  if (!salt) return hits;
  hits.prefixes = {pool_.Root(
      {reinterpret_cast<const uint8_t*>(salt->data()), salt->size()})};
  // The number of blocks that each group knows up to here without a gap.
  struct Run {
    int32_t whole = 0, kept = 0;
  };
  std::vector<Run> known(hits.tables.size());
  bool awaits = false, spoils = false;
  const auto limit = static_cast<int32_t>(tokens.size()) / kBlockTokens;
  for (int32_t i = 0; i < limit; ++i) {
    bool is_kept = true, is_whole = true, has_whole = false;
    std::optional<BlockPool::Found> next;
    for (size_t g = 0; g < hits.tables.size(); ++g) {
      const auto found =
          PoolOf(g).Find(static_cast<int>(g), hits.prefixes.back(),
                         BlockAt(tokens, static_cast<size_t>(i)));
      hits.tables[g].blocks.push_back(found ? found->block : kEvicted);
      known[g].kept = found ? known[g].kept + 1 : 0;
      known[g].whole = found && !found->is_stale ? known[g].whole + 1 : 0;
      const int32_t read = i + 1 - EvictedAfterHit(options_.windows[g], i + 1);
      is_kept &= known[g].kept >= read;
      is_whole &= known[g].whole >= read;
      awaits |= found && found->is_stale && found->is_held;
      has_whole |= found && !found->is_stale;
      if (g == 0) next = found;
      if (!next) break;
    }
    if (!next) break;
    hits.prefixes.push_back(next->prefix);
    if (is_whole) {
      hits.whole = i + 1;
      awaits = false;  // Only what is behind would be replayed.
    }
    // A replay that fails would spoil a whole block.
    spoils = !is_whole && (spoils || has_whole);
    if (!is_kept || spoils) continue;
    hits.kept = i + 1;
    hits.awaits_replay = awaits;
  }
  return hits;
}

bool BlockManager::AwaitsReplay(std::optional<std::string_view> salt,
                                std::span<const TokenId> tokens) const {
  return num_stale() > 0 && Look(salt, tokens).awaits_replay;
}

std::vector<BlockTable> BlockManager::MatchPrefix(
    std::optional<std::string_view> salt, std::span<const TokenId> tokens,
    bool may_replay) {
  Hits hits = Look(salt, tokens);
  std::vector<BlockTable>& tables = hits.tables;
  if (!salt) return std::move(tables);
  const std::vector<BlockTable> found = tables;
  const auto take = [&](int32_t hit) {
    for (size_t g = 0; g < tables.size(); ++g) {
      BlockTable& table = tables[g];
      table.blocks = found[g].blocks;
      table.blocks.resize(static_cast<size_t>(hit));
      table.num_evicted = EvictedAfterHit(options_.windows[g], hits.whole);
      std::fill_n(table.blocks.begin(), table.num_evicted, kEvicted);
      for (BlockId block : table.held()) {
        if (block != kEvicted) PoolOf(g).Hold(block);
      }
    }
    tables[0].use_cache = true;
    tables[0].num_first = static_cast<int32_t>(tokens.size()) / kBlockTokens;
    tables[0].num_cached = hit;
    tables[0].num_whole = hits.whole;
    tables[0].prefix = hits.prefixes[static_cast<size_t>(hit)];
    for (size_t g = 0; g < tables.size(); ++g) {
      if (!FillGaps(g, tables[g])) return false;
    }
    return true;
  };
  if (!take(may_replay ? hits.kept : hits.whole)) {
    Release(tables);
    tables.resize(options_.windows.size());
    SLUICE_CHECK(take(hits.whole));
  }
  return std::move(tables);
}

bool BlockManager::FillGaps(size_t group, BlockTable& table) {
  BlockPool& pool = PoolOf(group);
  // The next block stands for passed ones, so from the back. A hit ends with a
  // state that is known.
  for (size_t i = table.blocks.size();
       i-- > static_cast<size_t>(table.num_evicted);) {
    BlockId& block = table.blocks[i];
    if (block != kEvicted) continue;
    if (IsState(options_.windows[group]) && i + 1 < table.blocks.size()) {
      block = table.blocks[i + 1];
      pool.Hold(block);
      continue;
    }
    const std::optional<BlockId> free = pool.Allocate();
    if (!free) return false;
    block = *free;
  }
  return true;
}

void BlockManager::MakeStale(const std::vector<int32_t>& lost) {
  SLUICE_CHECK(num_free() == num_blocks());
  SLUICE_CHECK(states_.num_free() == states_.num_blocks());
  if (lost.empty()) return;
  if (num_stale() == 0) replay_at_.clear();
  replay_at_.insert(replay_at_.end(), lost.begin(), lost.end());
  std::ranges::sort(replay_at_);
  replay_at_.erase(std::unique(replay_at_.begin(), replay_at_.end()),
                   replay_at_.end());
  pool_.MakeStale();
  states_.MakeStale();
}

int32_t BlockManager::NumHeld(const std::vector<BlockTable>& tables) const {
  int32_t held = 0;
  for (size_t g = 0; g < tables.size(); ++g) {
    if (!IsState(options_.windows[g])) held += tables[g].num_held();
  }
  return held;
}

int32_t BlockManager::Needed(const std::vector<BlockTable>& tables,
                             int32_t num_tokens) const {
  int32_t needed = 0;
  for (size_t g = 0; g < tables.size(); ++g) {
    if (IsState(options_.windows[g])) continue;
    const auto have = static_cast<int32_t>(tables[g].blocks.size());
    const int32_t missing = BlocksFor(num_tokens) - have;
    const int32_t most =
        MostBlocks(options_.windows[g], num_tokens, options_.step_tokens);
    const int32_t room = options_.windows[g] > 0
                             ? std::max(most - tables[g].num_held(), 0)
                             : missing;
    needed += std::min(missing, room);
  }
  return needed;
}

bool BlockManager::HasRoom(int32_t needed, int64_t sequences) const {
  if (num_free() < needed) return false;
  return !IsState(options_.windows.back()) ||
         states_.num_free() >= sequences + static_cast<int64_t>(kKeptStates);
}

bool BlockManager::Reserve(std::vector<BlockTable>& tables,
                           int32_t num_tokens) {
  SLUICE_CHECK(tables.size() == options_.windows.size());
  const auto wanted = static_cast<size_t>(BlocksFor(num_tokens));
  size_t missing = 0;
  for (size_t g = 0; g < tables.size(); ++g) {
    const size_t more = wanted - std::min(wanted, tables[g].blocks.size());
    if (!IsState(options_.windows[g])) {
      missing += more;
    } else if (std::min(more, kKeptStates) >
               static_cast<size_t>(states_.num_free())) {
      return false;
    }
  }
  if (missing > static_cast<size_t>(pool_.num_free())) return false;
  for (size_t g = 0; g < tables.size(); ++g) {
    BlockTable& table = tables[g];
    if (IsState(options_.windows[g])) {
      AppendStates(table, wanted);
      continue;
    }
    while (table.blocks.size() < wanted) {
      const std::optional<BlockId> block = pool_.Allocate();
      SLUICE_CHECK(block.has_value());
      table.blocks.push_back(*block);
    }
  }
  return true;
}

void BlockManager::AppendStates(BlockTable& table, size_t wanted) {
  const size_t have = table.blocks.size();
  if (wanted <= have) return;
  table.blocks.resize(wanted, kEvicted);
  const auto stride = static_cast<size_t>(state_stride());
  for (size_t i = wanted; i-- > have;) {
    const bool is_kept = i + kKeptStates >= wanted;
    // Snapshots take no block that a sequence may need soon.
    const bool has_room = states_.num_free() > states_.num_blocks() / 2;
    if (is_kept || ((i + 1) % stride == 0 && has_room)) {
      const std::optional<BlockId> block = states_.Allocate();
      SLUICE_CHECK(block.has_value());
      table.blocks[i] = *block;
    } else {
      table.blocks[i] = table.blocks[i + 1];
      states_.Hold(table.blocks[i]);
    }
  }
}

bool BlockManager::EvictBehind(std::vector<BlockTable>& tables,
                               int32_t position) {
  bool any = false;
  for (size_t g = 0; g < tables.size(); ++g) {
    BlockTable& table = tables[g];
    const int32_t behind = std::min(BlocksBehind(options_.windows[g], position),
                                    static_cast<int32_t>(table.blocks.size()));
    for (; table.num_evicted < behind; ++table.num_evicted, any = true) {
      BlockId& block = table.blocks[static_cast<size_t>(table.num_evicted)];
      // Decodes leave a state cached now and then.
      const bool is_kept = !IsState(options_.windows[g]) ||
                           table.num_evicted < tables[0].num_first ||
                           (table.num_evicted + 1) % state_stride() == 0;
      is_kept ? PoolOf(g).Release(block) : PoolOf(g).Discard(block);
      block = kEvicted;
    }
  }
  return any;
}

void BlockManager::CacheFullBlocks(std::vector<BlockTable>& tables,
                                   std::span<const TokenId> computed) {
  BlockTable& first = tables[0];
  if (!first.use_cache) return;
  const auto full = static_cast<int32_t>(computed.size()) / kBlockTokens;
  SLUICE_CHECK(full <= static_cast<int32_t>(first.blocks.size()));
  for (int32_t& i = first.num_whole; i < std::min(full, first.num_cached);
       ++i) {
    for (size_t g = 0; g < tables.size(); ++g) {
      const BlockTable& table = tables[g];
      if (i < table.num_evicted || IsPassed(g, table, i)) continue;
      PoolOf(g).Restore(table.blocks[static_cast<size_t>(i)]);
    }
  }
  for (int32_t& i = first.num_cached; i < full; ++i) {
    const auto index = static_cast<size_t>(i);
    const BlockTokens tokens = BlockAt(computed, index);
    const PrefixHash before = first.prefix;
    first.prefix = pool_.Cache(0, first.blocks[index], before, tokens);
    for (size_t g = 1; g < tables.size(); ++g) {
      const BlockTable& table = tables[g];
      if (i < table.num_evicted || IsPassed(g, table, i)) continue;
      PoolOf(g).Cache(static_cast<int>(g), table.blocks[index], before, tokens);
    }
  }
}

void BlockManager::Release(std::vector<BlockTable>& tables) {
  for (size_t g = 0; g < tables.size(); ++g) {
    BlockTable& table = tables[g];
    for (; table.num_held() > 0; table.blocks.pop_back()) {
      // Gaps are of a hit that found too few free blocks.
      const BlockId block = table.blocks.back();
      if (block != kEvicted) PoolOf(g).Release(block);
    }
  }
  tables.clear();
}

Status BlockManager::CheckIntegrity(
    std::span<const std::vector<BlockTable>* const> open) const {
  const auto count = static_cast<size_t>(pool_.num_blocks());
  std::vector<int32_t> references(count);
  std::vector<int32_t> of_states(static_cast<size_t>(states_.num_blocks()));
  std::vector<size_t> groups(count);
  for (const std::vector<BlockTable>* tables : open) {
    if (tables->size() != options_.windows.size()) {
      return Internal("a sequence has ", tables->size(), " tables, of ",
                      options_.windows.size(), " KV groups");
    }
    for (size_t g = 0; g < tables->size(); ++g) {
      const BlockTable& table = (*tables)[g];
      const auto size = static_cast<int32_t>(table.blocks.size());
      const int32_t may_be_gone = options_.windows[g] != 0 ? size : 0;
      if (table.num_evicted > may_be_gone || table.num_cached > size) {
        return Internal("a table of KV group ", g, " has ", size, " blocks, ",
                        table.num_evicted, " let go, ", table.num_cached,
                        " published");
      }
      for (BlockId block : table.held()) {
        SLUICE_RETURN_IF_ERROR(CheckBlock(g, block));
        const auto index = static_cast<size_t>(block.value());
        if (IsState(options_.windows[g])) {
          ++of_states[index];
          continue;
        }
        if (references[index]++ == 0) groups[index] = g;
        if (groups[index] != g) {
          return Internal("block ", block, " is in tables of KV groups ",
                          groups[index], " and ", g);
        }
      }
    }
  }
  SLUICE_RETURN_IF_ERROR(states_.CheckIntegrity(of_states));
  return pool_.CheckIntegrity(references);
}

// Checks an entry of a table of `group`.
Status BlockManager::CheckBlock(size_t group, BlockId block) const {
  const BlockPool& pool = PoolOf(group);
  if (block.value() < 0 || block.value() >= pool.num_blocks()) {
    return Internal("a table names block ", block, ", the pool has ",
                    pool.num_blocks());
  }
  const auto found = pool.CachedFor(block);
  if (!found || *found == static_cast<int>(group)) return OkStatus();
  return Internal("block ", block, " is in a table of KV group ", group,
                  ", found for ", *found);
}

}  // namespace sluice
