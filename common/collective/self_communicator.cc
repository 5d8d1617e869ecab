#include "common/collective/self_communicator.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/collective/join_parts.h"

namespace sluice {

void SelfCommunicator::ReduceTree(int32_t num_leaves,
                                  std::span<const kernels::TreeNode> nodes,
                                  std::span<const kernels::ConstMatrix> parts,
                                  kernels::Matrix out) {
  SLUICE_CHECK(nodes.size() == parts.size() && !nodes.empty());
  // The usual case: the product was finished into the root in place.
  if (parts.size() == 1 && parts[0].data == out.data) return;
  std::vector<NodePart> row(parts.size());
  for (int64_t t = 0; t < out.rows; ++t) {
    for (int64_t c = 0; c < out.cols; c += kJoinColumns) {
      for (size_t i = 0; i < parts.size(); ++i) {
        row[i] = {nodes[i], parts[i].row(t) + c};
      }
      JoinParts(num_leaves, row, std::min(kJoinColumns, out.cols - c),
                out.row(t) + c);
    }
  }
}

void SelfCommunicator::GatherColumns(kernels::ConstMatrix part,
                                     int64_t col_begin, kernels::Matrix out) {
  SLUICE_CHECK(part.rows == out.rows && col_begin + part.cols <= out.cols);
  for (int64_t t = 0; t < part.rows; ++t) {
    float* to = out.row(t) + col_begin;
    if (to == part.row(t)) continue;
    std::memcpy(to, part.row(t), sizeof(float) * part.cols);
  }
}

}  // namespace sluice
