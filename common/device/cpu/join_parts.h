#ifndef SLUICE_COMMON_DEVICE_CPU_JOIN_PARTS_H_
#define SLUICE_COMMON_DEVICE_CPU_JOIN_PARTS_H_

#include <cstdint>
#include <span>

#include "kernels/reduction_tree.h"

namespace sluice {

// One finished node of the tree and a run of its values.
struct NodePart {
  kernels::TreeNode node;
  const float* values = nullptr;
};

// Columns that JoinParts handles at once.
inline constexpr int64_t kJoinColumns = 256;

// out[i] = the tree's root over leaves [0, num_leaves) of parts' values[i],
// for i in [0, count), count <= kJoinColumns. `parts` are aligned nodes in
// leaf order that cover the leaves once. `out` may be one of the parts.
void JoinParts(int32_t num_leaves, std::span<const NodePart> parts,
               int64_t count, float* out);

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_JOIN_PARTS_H_
