#ifndef SLUICE_KERNELS_REDUCTION_TREE_H_
#define SLUICE_KERNELS_REDUCTION_TREE_H_

#include <cstdint>
#include <vector>

namespace sluice::kernels {

// The one order in which partial results are joined. Leaves 0..n-1; the node
// (level, index) covers leaves [index << level, (index + 1) << level) cut off
// at n, and is the sum of its left and its right child, left first. A child
// without leaves is skipped. The order depends on n alone, so a process with
// leaves [a, b) can finish the largest aligned nodes inside and send those.

// Leaves [begin, end) of one aligned node.
struct TreeNode {
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const TreeNode&) const = default;
};

// The fewest aligned nodes of the tree over n leaves that cover [begin, end)
// exactly, in leaf order. [0, n) gives one node, the root.
inline std::vector<TreeNode> AlignedNodes(int32_t begin, int32_t end,
                                          int32_t n) {
  std::vector<TreeNode> nodes;
  int32_t at = begin;
  while (at < end) {
    int32_t size = 1;
    // Grow while aligned and inside; a node cut off at n counts as whole.
    while (at % (size * 2) == 0 &&
           (at + size * 2 <= end || (end == n && at + size < n))) {
      size *= 2;
    }
    const int32_t stop = at + size < end ? at + size : end;
    nodes.push_back({at, stop});
    at = stop;
  }
  return nodes;
}

// Largest power of two below `count` (count >= 2): where a node of `count`
// leaves that starts aligned is split into its two children.
inline int32_t SplitPoint(int32_t count) {
  int32_t half = 1;
  while (half * 2 < count) half *= 2;
  return half;
}

// Joins leaves [begin, end), which must be one aligned node, in tree order:
// leaf(i) gives a value, join(left, right) combines two.
template <typename Leaf, typename Join>
auto ReduceTree(int32_t begin, int32_t end, const Leaf& leaf, const Join& join)
    -> decltype(leaf(begin)) {
  if (end - begin == 1) return leaf(begin);
  const int32_t middle = begin + SplitPoint(end - begin);
  auto left = ReduceTree(begin, middle, leaf, join);
  return join(left, ReduceTree(middle, end, leaf, join));
}

}  // namespace sluice::kernels

#endif  // SLUICE_KERNELS_REDUCTION_TREE_H_
