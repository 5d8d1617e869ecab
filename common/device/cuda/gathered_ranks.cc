#include "common/device/cuda/gathered_ranks.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace sluice {

using kernels::Matrix;
using kernels::cuda::NodeRows;
using kernels::cuda::TakeRows;

void GatheringCommunicator::Meet() {
  runtime_.StepAside();
  const int64_t start = MonotonicNanos();
  ranks_->meeting_.Arrive();
  times_.wait_ns += MonotonicNanos() - start;
}

void GatheringCommunicator::Tell(const GatheredRankTable::Slot& own) {
  ranks_->watch_.Begin(rank_);
  ranks_->slots_[static_cast<size_t>(rank_)] = own;
  Meet();
}

void GatheringCommunicator::Reach(int64_t count) {
  if (count <= count_) return;
  // Every rank comes here, and no device waits for another meanwhile.
  runtime_.Sync();
  send_.AtLeast<float>(count);
  receive_.AtLeast<float>(count * ranks_->num_ranks());
  count_ = count;
  Meet();
}

void GatheringCommunicator::Exchange(int64_t count) {
  ranks_->exchange_->AllGather(rank_, runtime_, send_.AtLeast<float>(0),
                               receive_.AtLeast<float>(0), count);
}

void GatheringCommunicator::ReduceTree(int32_t num_leaves,
                                       std::span<const kernels::TreeNode> nodes,
                                       std::span<const Matrix> parts,
                                       Matrix out) {
  SLUICE_CHECK(nodes.size() == parts.size());
  const int64_t start = MonotonicNanos();
  Tell({nodes, out.rows, out.cols, 0});
  size_t most = 0;
  for (const auto& slot : ranks_->slots_) {
    SLUICE_CHECK(slot.rows == out.rows && slot.cols == out.cols);
    most = std::max(most, slot.nodes.size());
  }
  const int64_t each = out.rows * out.cols;
  const int64_t count = each * static_cast<int64_t>(most);
  Reach(count);
  float* to = send_.AtLeast<float>(0);
  for (const Matrix& part : parts) {
    TakeRows(runtime_.stream(), part, nullptr,
             {to, out.rows, out.cols, out.cols});
    to += each;
  }
  Exchange(count);
  parts_.clear();
  const float* from = receive_.AtLeast<float>(0);
  for (const auto& slot : ranks_->slots_) {
    for (size_t i = 0; i < slot.nodes.size(); ++i) {
      parts_.push_back({slot.nodes[i],
                        {from + each * static_cast<int64_t>(i), out.rows,
                         out.cols, out.cols}});
    }
    from += count;
  }
  // Ranks need not own leaves in the order of their numbers.
  std::sort(parts_.begin(), parts_.end(),
            [](const NodeRows& a, const NodeRows& b) {
              return a.node.begin < b.node.begin;
            });
  SLUICE_CHECK(!parts_.empty() && parts_.back().node.end == num_leaves);
  kernels::cuda::JoinNodes(runtime_.stream(), parts_, 0, out.cols, {&out, 1});
  Meet();
  times_.reduce_ns += MonotonicNanos() - start;
}

void GatheringCommunicator::GatherColumns(kernels::ConstMatrix part,
                                          int64_t col_begin, Matrix out) {
  const int64_t start = MonotonicNanos();
  Tell({{}, part.rows, part.cols, col_begin});
  int64_t most = 0;
  for (const auto& slot : ranks_->slots_) {
    SLUICE_CHECK(slot.rows == part.rows);
    most = std::max(most, slot.cols);
  }
  const int64_t count = part.rows * most;
  Reach(count);
  if (part.cols > 0) {
    TakeRows(runtime_.stream(), part, nullptr,
             {send_.AtLeast<float>(0), part.rows, part.cols, part.cols});
  }
  Exchange(count);
  const float* from = receive_.AtLeast<float>(0);
  for (const auto& slot : ranks_->slots_) {
    if (rank_ == 0 && slot.cols > 0) {
      SLUICE_CHECK(slot.col_begin + slot.cols <= out.cols);
      TakeRows(runtime_.stream(), {from, slot.rows, slot.cols, slot.cols},
               nullptr,
               {out.data + slot.col_begin, out.rows, slot.cols, out.stride});
    }
    from += count;
  }
  Meet();
  times_.gather_ns += MonotonicNanos() - start;
}

}  // namespace sluice
