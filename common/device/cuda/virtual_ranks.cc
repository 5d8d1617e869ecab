#include "common/device/cuda/virtual_ranks.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace sluice {

using kernels::Matrix;
using kernels::cuda::NodeRows;

void VirtualCommunicator::Meet() {
  runtime_.Sync();
  const int64_t start = MonotonicNanos();
  ranks_->meeting_.Arrive();
  clock_.NoteWait(MonotonicNanos() - start);
}

void VirtualCommunicator::ReduceTree(int32_t num_leaves,
                                     std::span<const kernels::TreeNode> nodes,
                                     std::span<const Matrix> parts,
                                     Matrix out) {
  SLUICE_CHECK(nodes.size() == parts.size());
  ranks_->slots_[rank_] = {nodes, parts, out};
  if (ranks_->num_ranks() == 1) {
    // The usual case: the product is in the root already.
    if (parts.size() == 1 && parts[0].data == out.data) return;
    return JoinColumns(num_leaves, 0, out.cols);
  }
  clock_.Begin(&CollectiveTimes::reduce_ns);
  Meet();
  const int64_t world = ranks_->num_ranks();
  JoinColumns(num_leaves, out.cols * rank_ / world,
              out.cols * (rank_ + 1) / world);
  Meet();
  clock_.End();
}

void VirtualCommunicator::JoinColumns(int32_t num_leaves, int64_t begin,
                                      int64_t end) {
  parts_.clear();
  outs_.clear();
  for (const auto& slot : ranks_->slots_) {
    for (size_t i = 0; i < slot.parts.size(); ++i) {
      parts_.push_back({slot.nodes[i], slot.parts[i]});
    }
    outs_.push_back(slot.out);
  }
  // Ranks need not own leaves in the order of their numbers.
  std::sort(parts_.begin(), parts_.end(),
            [](const NodeRows& a, const NodeRows& b) {
              return a.node.begin < b.node.begin;
            });
  SLUICE_CHECK(!parts_.empty() && parts_.back().node.end == num_leaves);
  kernels::cuda::JoinNodes(runtime_.stream(), parts_, begin, end, outs_);
}

void VirtualCommunicator::GatherColumns(kernels::ConstMatrix part,
                                        int64_t col_begin, Matrix out) {
  const bool alone = ranks_->num_ranks() == 1;
  ranks_->slots_[rank_].out = out;
  if (!alone) {
    clock_.Begin(&CollectiveTimes::gather_ns);
    Meet();
  }
  const Matrix& to = ranks_->slots_[0].out;
  SLUICE_CHECK(part.rows == to.rows && col_begin + part.cols <= to.cols);
  const Matrix own = {to.data + col_begin, part.rows, part.cols, to.stride};
  if (part.cols > 0 && own.data != part.data) {
    kernels::cuda::TakeRows(runtime_.stream(), part, nullptr, own);
  }
  if (alone) return;
  Meet();
  clock_.End();
}

}  // namespace sluice
