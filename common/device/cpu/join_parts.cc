#include "common/device/cpu/join_parts.h"

#include <cstring>

#include "common/base/check.h"

namespace sluice {
namespace {

// Joins leaves [begin, end), one aligned node covered by parts[0..], into out.
// Returns the number of parts in it.
size_t JoinNode(int32_t begin, int32_t end, std::span<const NodePart> parts,
                int64_t count, float* out) {
  SLUICE_CHECK(!parts.empty() && parts[0].node.begin == begin &&
               parts[0].node.end <= end);
  if (parts[0].node.end == end) {
    std::memcpy(out, parts[0].values, sizeof(float) * count);
    return 1;
  }
  const int32_t middle = begin + kernels::SplitPoint(end - begin);
  const size_t left = JoinNode(begin, middle, parts, count, out);
  float right[kJoinColumns];
  const size_t used = JoinNode(middle, end, parts.subspan(left), count, right);
  for (int64_t i = 0; i < count; ++i) out[i] += right[i];
  return left + used;
}

}  // namespace

void JoinParts(int32_t num_leaves, std::span<const NodePart> parts,
               int64_t count, float* out) {
  SLUICE_CHECK(count <= kJoinColumns);
  if (parts.size() == 1) {
    SLUICE_CHECK(parts[0].node.begin == 0 && parts[0].node.end == num_leaves);
    std::memmove(out, parts[0].values, sizeof(float) * count);
    return;
  }
  // Into a separate buffer first: `out` may be a part that is read later.
  float sum[kJoinColumns];
  const size_t used = JoinNode(0, num_leaves, parts, count, sum);
  SLUICE_CHECK(used == parts.size());
  std::memcpy(out, sum, sizeof(float) * count);
}

}  // namespace sluice
