#ifndef SLUICE_COMMON_ENGINE_RESERVE_INTO_H_
#define SLUICE_COMMON_ENGINE_RESERVE_INTO_H_

#include <cstddef>
#include <vector>

#include "common/core/ids.h"
#include "common/engine/block_manager.h"

namespace sluice {

// Calls `reserve`, which grows `tables`, and appends the new blocks to `added`,
// one entry per table. Returns false, and appends none, if `reserve` does.
template <typename Reserve>
bool ReserveInto(std::vector<BlockTable>& tables,
                 std::vector<std::vector<BlockId>>& added, Reserve reserve) {
  std::vector<size_t> before;
  for (const BlockTable& table : tables) before.push_back(table.blocks.size());
  if (!reserve()) return false;
  added.resize(before.size());
  for (size_t g = 0; g < before.size(); ++g) {
    const std::vector<BlockId>& blocks = tables[g].blocks;
    added[g].insert(added[g].end(),
                    blocks.begin() + static_cast<ptrdiff_t>(before[g]),
                    blocks.end());
  }
  return true;
}

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_RESERVE_INTO_H_
