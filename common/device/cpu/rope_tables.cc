#include "common/device/cpu/rope_tables.h"

#include <algorithm>
#include <utility>

namespace sluice {

RopeHandle RopeTables::Add(RopeSpec spec) {
  const size_t half = spec.inv_freq.size();
  const size_t bytes = sizeof(float) * half * spec.positions;
  Table& table = tables_.emplace_back();
  table.spec = std::move(spec);
  table.cos = Buffer(bytes);
  table.sin = Buffer(bytes);
  table.rows = {table.cos.as<float>(), table.sin.as<float>(), 0,
                static_cast<int64_t>(half)};
  return static_cast<RopeHandle>(tables_.size() - 1);
}

void RopeTables::Reach(int64_t last) {
  constexpr int64_t kAhead = 256;
  for (Table& table : tables_) {
    if (last < table.rows.positions) continue;
    const int64_t end = std::min(last + kAhead, table.spec.positions);
    kernels::MakeRopeTable(table.spec.inv_freq, {table.rows.positions, end},
                           table.spec.scale, table.cos.as<float>(),
                           table.sin.as<float>());
    table.rows.positions = std::max(table.rows.positions, end);
  }
}

}  // namespace sluice
