#include "common/base/exception_counts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>

#include "common/base/mutex.h"

namespace sluice {
namespace {

constexpr size_t kMaxEdges = 32;
constexpr size_t kMaxEdgeName = 31;
constexpr std::string_view kOtherEdge = "other";

struct Edge {
  std::array<char, kMaxEdgeName + 1> name{};
  size_t size = 0;
  uint64_t count = 0;
  std::string_view view() const { return {name.data(), size}; }
};

// The last place is that of the others.
struct EdgeTable {
  Mutex mutex;
  std::array<Edge, kMaxEdges + 1> edges ABSL_GUARDED_BY(mutex);
  size_t used ABSL_GUARDED_BY(mutex) = 0;
};

// In memory of the program's own: the first exception may be that there is no
// other. Never destroyed.
EdgeTable& Edges() {
  alignas(EdgeTable) static std::byte place[sizeof(EdgeTable)];
  static auto* table = new (place) EdgeTable;
  return *table;
}

Edge& FindEdge(EdgeTable& table, std::string_view where)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mutex) {
  for (size_t i = 0; i < table.used; ++i) {
    if (table.edges[i].view() == where) return table.edges[i];
  }
  const bool full = table.used >= kMaxEdges;
  Edge& edge = table.edges[full ? kMaxEdges : table.used];
  if (full) where = kOtherEdge;
  if (!full || table.used == kMaxEdges) ++table.used;
  std::copy(where.begin(), where.end(), edge.name.begin());
  edge.size = where.size();
  return edge;
}

}  // namespace

void CountException(std::string_view where) noexcept {
  EdgeTable& table = Edges();
  MutexLock lock(table.mutex);
  ++FindEdge(table, where.substr(0, kMaxEdgeName)).count;
}

std::vector<std::pair<std::string, uint64_t>> ExceptionCounts() {
  EdgeTable& table = Edges();
  MutexLock lock(table.mutex);
  std::vector<std::pair<std::string, uint64_t>> counts;
  for (size_t i = 0; i < table.used; ++i) {
    counts.emplace_back(table.edges[i].view(), table.edges[i].count);
  }
  return counts;
}

uint64_t ExceptionsAt(std::string_view where) {
  for (const auto& [edge, count] : ExceptionCounts()) {
    if (edge == where) return count;
  }
  return 0;
}

}  // namespace sluice
