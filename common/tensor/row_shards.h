#ifndef SLUICE_COMMON_TENSOR_ROW_SHARDS_H_
#define SLUICE_COMMON_TENSOR_ROW_SHARDS_H_

#include <cstdint>
#include <vector>

#include "kernels/reduction_tree.h"

namespace sluice {

// One rank's share of a row-parallel product: its leaves of the reduction
// tree (see kernels/matmul.h and common/device/backend.h).
struct RowShards {
  int32_t num_leaves = 0;  // of the whole tree, all ranks together
  int64_t col_begin = 0;   // columns [col_begin, col_end) of the whole weight
  int64_t col_end = 0;
  std::vector<int32_t> bounds;               // of own shards, from col_begin
  std::vector<kernels::TreeNode> nodes;      // nodes that this rank can finish
  std::vector<kernels::TreeNode> own_nodes;  // the same, counted from its
                                             // first leaf
  int64_t cols() const { return col_end - col_begin; }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_TENSOR_ROW_SHARDS_H_
