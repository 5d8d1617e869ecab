#include "common/engine/block_manager.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "common/base/check.h"

namespace sluice {
namespace {

BlockTokens BlockAt(std::span<const TokenId> tokens, size_t index) {
  return tokens.subspan(index * kBlockTokens).first<kBlockTokens>();
}

}  // namespace

BlockManager::BlockManager(const Options& options) : options_(options) {
  SLUICE_CHECK(options.num_groups > 0 && options.num_blocks >= 0);
  Reset(options.num_blocks);
}

void BlockManager::Reset(int num_blocks) {
  options_.num_blocks = num_blocks;
  pools_.clear();
  for (int g = 0; g < options_.num_groups; ++g) {
    pools_.emplace_back(num_blocks, options_.key);
  }
}

std::vector<BlockTable> BlockManager::Open(std::optional<std::string_view> salt,
                                           std::span<const TokenId> tokens) {
  std::vector<BlockTable> tables(pools_.size());
  if (!salt) return tables;
  const std::span<const uint8_t> salt_bytes(
      reinterpret_cast<const uint8_t*>(salt->data()), salt->size());
  // Points behind each block, per group: a group may know a longer prefix
  // than another, and is cut back to the shortest.
  std::vector<std::vector<ChainPoint>> points(pools_.size());
  size_t limit = tokens.size() / kBlockTokens;
  for (size_t g = 0; g < pools_.size(); ++g) {
    ChainPoint point = pools_[g].Root(salt_bytes);
    points[g].push_back(point);
    for (size_t i = 0; i < limit; ++i) {
      const auto found = pools_[g].Find(point, BlockAt(tokens, i));
      if (!found) break;
      tables[g].blocks.push_back(found->block);
      points[g].push_back(point = found->point);
    }
    limit = tables[g].blocks.size();
  }
  for (size_t g = 0; g < pools_.size(); ++g) {
    tables[g].blocks.resize(limit);
    tables[g].findable = true;
    tables[g].num_published = static_cast<int32_t>(limit);
    tables[g].point = points[g][limit];
    for (BlockId block : tables[g].blocks) pools_[g].Hold(block);
  }
  return tables;
}

bool BlockManager::Grow(std::vector<BlockTable>& tables, int32_t num_tokens) {
  SLUICE_CHECK(tables.size() == pools_.size());
  const size_t wanted = static_cast<size_t>(BlocksFor(num_tokens));
  for (size_t g = 0; g < pools_.size(); ++g) {
    const size_t have = tables[g].blocks.size();
    if (wanted > have + static_cast<size_t>(pools_[g].num_free())) return false;
  }
  for (size_t g = 0; g < pools_.size(); ++g) {
    std::vector<BlockId>& blocks = tables[g].blocks;
    while (blocks.size() < wanted) {
      const std::optional<BlockId> block = pools_[g].Allocate();
      SLUICE_CHECK(block.has_value());
      blocks.push_back(*block);
    }
  }
  return true;
}

void BlockManager::Publish(std::vector<BlockTable>& tables,
                           std::span<const TokenId> computed) {
  const size_t full = computed.size() / kBlockTokens;
  for (size_t g = 0; g < pools_.size(); ++g) {
    BlockTable& table = tables[g];
    if (!table.findable) continue;
    SLUICE_CHECK(full <= table.blocks.size());
    for (size_t i = static_cast<size_t>(table.num_published); i < full; ++i) {
      table.point =
          pools_[g].Publish(table.blocks[i], table.point, BlockAt(computed, i));
      ++table.num_published;
    }
  }
}

void BlockManager::Release(std::vector<BlockTable>& tables) {
  for (size_t g = 0; g < tables.size(); ++g) {
    std::vector<BlockId>& blocks = tables[g].blocks;
    while (!blocks.empty()) {
      pools_[g].Release(blocks.back());
      blocks.pop_back();
    }
  }
  tables.clear();
}

int BlockManager::num_free() const {
  int least = std::numeric_limits<int>::max();
  for (const BlockPool& pool : pools_) least = std::min(least, pool.num_free());
  return least;
}

Status BlockManager::CheckIntegrity(
    std::span<const std::vector<BlockTable>* const> open) const {
  for (size_t g = 0; g < pools_.size(); ++g) {
    std::vector<int32_t> references(
        static_cast<size_t>(pools_[g].num_blocks()));
    for (const std::vector<BlockTable>* tables : open) {
      if (tables->size() != pools_.size()) {
        return Internal("a sequence has ", tables->size(), " tables, of ",
                        pools_.size(), " KV groups");
      }
      for (BlockId block : (*tables)[g].blocks) {
        if (block.value() < 0 || block.value() >= pools_[g].num_blocks()) {
          return Internal("a table names block ", block, ", the pool has ",
                          pools_[g].num_blocks());
        }
        ++references[static_cast<size_t>(block.value())];
      }
    }
    SLUICE_RETURN_IF_ERROR(
        Annotate(pools_[g].CheckIntegrity(references), "KV group ", g));
  }
  return OkStatus();
}

}  // namespace sluice
