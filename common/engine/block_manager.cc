#include "common/engine/block_manager.h"

#include <algorithm>
#include <optional>

#include "common/base/check.h"

namespace sluice {
namespace {

constexpr BlockId kEvicted = BlockId(-1);

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
    : options_(options), pool_(options.num_blocks, options.key) {
  SLUICE_CHECK(!options.windows.empty() && options.windows[0] == 0);
  SLUICE_CHECK(options.num_blocks >= 0 && options.step_tokens > 0);
}

void BlockManager::Reset(int num_blocks) {
  options_.num_blocks = num_blocks;
  pool_ = BlockPool(num_blocks, options_.key);
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
      const auto found = pool_.Find(static_cast<int>(g), hits.prefixes.back(),
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
  return pool_.num_stale() > 0 && Look(salt, tokens).awaits_replay;
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
        if (block != kEvicted) pool_.Hold(block);
      }
    }
    tables[0].use_cache = true;
    tables[0].num_cached = hit;
    tables[0].num_whole = hits.whole;
    tables[0].prefix = hits.prefixes[static_cast<size_t>(hit)];
    return std::ranges::all_of(
        tables, [this](BlockTable& table) { return FillGaps(table); });
  };
  if (!take(may_replay ? hits.kept : hits.whole)) {
    Release(tables);
    tables.resize(options_.windows.size());
    SLUICE_CHECK(take(hits.whole));
  }
  return std::move(tables);
}

bool BlockManager::FillGaps(BlockTable& table) {
  const auto from = table.blocks.begin() + table.num_evicted;
  for (auto it = from; it != table.blocks.end(); ++it) {
    if (*it != kEvicted) continue;
    const std::optional<BlockId> block = pool_.Allocate();
    if (!block) return false;
    *it = *block;
  }
  return true;
}

void BlockManager::MakeStale(const std::vector<int32_t>& lost) {
  SLUICE_CHECK(num_free() == num_blocks());
  if (lost.empty()) return;
  if (num_stale() == 0) replay_at_.clear();
  replay_at_.insert(replay_at_.end(), lost.begin(), lost.end());
  std::ranges::sort(replay_at_);
  replay_at_.erase(std::unique(replay_at_.begin(), replay_at_.end()),
                   replay_at_.end());
  pool_.MakeStale();
}

int32_t BlockManager::Needed(const std::vector<BlockTable>& tables,
                             int32_t num_tokens) const {
  int32_t needed = 0;
  for (size_t g = 0; g < tables.size(); ++g) {
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

bool BlockManager::Reserve(std::vector<BlockTable>& tables,
                           int32_t num_tokens) {
  SLUICE_CHECK(tables.size() == options_.windows.size());
  const auto wanted = static_cast<size_t>(BlocksFor(num_tokens));
  size_t missing = 0;
  for (const BlockTable& table : tables) {
    missing += wanted - std::min(wanted, table.blocks.size());
  }
  if (missing > static_cast<size_t>(pool_.num_free())) return false;
  for (BlockTable& table : tables) {
    while (table.blocks.size() < wanted) {
      const std::optional<BlockId> block = pool_.Allocate();
      SLUICE_CHECK(block.has_value());
      table.blocks.push_back(*block);
    }
  }
  return true;
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
      pool_.Release(block);
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
    for (const BlockTable& table : tables) {
      if (i < table.num_evicted) continue;
      pool_.Restore(table.blocks[static_cast<size_t>(i)]);
    }
  }
  for (int32_t& i = first.num_cached; i < full; ++i) {
    const auto index = static_cast<size_t>(i);
    const BlockTokens tokens = BlockAt(computed, index);
    const PrefixHash before = first.prefix;
    first.prefix = pool_.Cache(0, first.blocks[index], before, tokens);
    for (int g = 1; g < num_groups(); ++g) {
      const BlockTable& table = tables[static_cast<size_t>(g)];
      if (i < table.num_evicted) continue;
      pool_.Cache(g, table.blocks[index], before, tokens);
    }
  }
}

void BlockManager::Release(std::vector<BlockTable>& tables) {
  for (BlockTable& table : tables) {
    for (; table.num_held() > 0; table.blocks.pop_back()) {
      // Gaps are of a hit that found too few free blocks.
      if (table.blocks.back() != kEvicted) pool_.Release(table.blocks.back());
    }
  }
  tables.clear();
}

Status BlockManager::CheckIntegrity(
    std::span<const std::vector<BlockTable>* const> open) const {
  const auto count = static_cast<size_t>(pool_.num_blocks());
  std::vector<int32_t> references(count);
  std::vector<size_t> groups(count);
  for (const std::vector<BlockTable>* tables : open) {
    if (tables->size() != options_.windows.size()) {
      return Internal("a sequence has ", tables->size(), " tables, of ",
                      options_.windows.size(), " KV groups");
    }
    for (size_t g = 0; g < tables->size(); ++g) {
      const BlockTable& table = (*tables)[g];
      const auto size = static_cast<int32_t>(table.blocks.size());
      const int32_t may_be_gone = options_.windows[g] > 0 ? size : 0;
      if (table.num_evicted > may_be_gone || table.num_cached > size) {
        return Internal("a table of KV group ", g, " has ", size, " blocks, ",
                        table.num_evicted, " let go, ", table.num_cached,
                        " published");
      }
      for (BlockId block : table.held()) {
        if (block.value() < 0 || block.value() >= pool_.num_blocks()) {
          return Internal("a table names block ", block, ", the pool has ",
                          pool_.num_blocks());
        }
        if (const auto found = pool_.CachedFor(block);
            found && *found != static_cast<int>(g)) {
          return Internal("block ", block, " is in a table of KV group ", g,
                          ", found for ", *found);
        }
        const auto index = static_cast<size_t>(block.value());
        if (references[index]++ == 0) groups[index] = g;
        if (groups[index] != g) {
          return Internal("block ", block, " is in tables of KV groups ",
                          groups[index], " and ", g);
        }
      }
    }
  }
  return pool_.CheckIntegrity(references);
}

}  // namespace sluice
