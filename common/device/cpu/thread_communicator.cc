#include "common/device/cpu/thread_communicator.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace sluice {

void ThreadCommunicator::Meet() {
  const int64_t start = MonotonicNanos();
  ranks_->meeting_.Arrive();
  times_.wait_ns += MonotonicNanos() - start;
}

void ThreadCommunicator::ReduceTree(int32_t num_leaves,
                                    std::span<const kernels::TreeNode> nodes,
                                    std::span<const kernels::ConstMatrix> parts,
                                    kernels::Matrix out) {
  SLUICE_CHECK(nodes.size() == parts.size());
  ranks_->slots_[rank_] = {nodes, parts, out};
  if (ranks_->num_ranks() == 1) {
    // The usual case: the product is in the root already.
    if (parts.size() == 1 && parts[0].data == out.data) return;
    return JoinColumns(num_leaves, 0, out.cols);
  }
  const int64_t start = MonotonicNanos();
  Meet();
  // Slices start on cache lines, so that ranks do not share one.
  const int64_t lines = (out.cols + 15) / 16;
  const int64_t world = ranks_->num_ranks();
  const int64_t begin = std::min(out.cols, lines * rank_ / world * 16);
  const int64_t end = std::min(out.cols, lines * (rank_ + 1) / world * 16);
  JoinColumns(num_leaves, begin, end);
  Meet();
  times_.reduce_ns += MonotonicNanos() - start;
}

void ThreadCommunicator::JoinColumns(int32_t num_leaves, int64_t begin,
                                     int64_t end) {
  const int64_t rows = ranks_->slots_[rank_].out.rows;
  parts_.clear();
  for (const auto& slot : ranks_->slots_) {
    for (size_t i = 0; i < slot.parts.size(); ++i) {
      parts_.emplace_back(slot.nodes[i], slot.parts[i]);
    }
  }
  // Ranks need not own leaves in the order of their numbers.
  const auto before = [](const auto& a, const auto& b) {
    return a.first.begin < b.first.begin;
  };
  if (!std::is_sorted(parts_.begin(), parts_.end(), before)) {
    std::sort(parts_.begin(), parts_.end(), before);
  }
  row_.resize(parts_.size());
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t c = begin; c < end; c += kJoinColumns) {
      for (size_t i = 0; i < parts_.size(); ++i) {
        row_[i] = {parts_[i].first, parts_[i].second.row(t) + c};
      }
      const int64_t count = std::min(kJoinColumns, end - c);
      float sum[kJoinColumns];
      JoinParts(num_leaves, row_, count, sum);
      for (const auto& slot : ranks_->slots_) {
        std::memcpy(slot.out.row(t) + c, sum, sizeof(float) * count);
      }
    }
  }
}

void ThreadCommunicator::GatherColumns(kernels::ConstMatrix part,
                                       int64_t col_begin, kernels::Matrix out) {
  const int64_t start = MonotonicNanos();
  const bool alone = ranks_->num_ranks() == 1;
  ranks_->slots_[rank_].out = out;
  if (!alone) Meet();
  const kernels::Matrix& to = ranks_->slots_[0].out;
  SLUICE_CHECK(part.rows == to.rows && col_begin + part.cols <= to.cols);
  const int64_t rows = part.cols == 0 ? 0 : part.rows;
  for (int64_t t = 0; t < rows; ++t) {
    float* row = to.row(t) + col_begin;
    if (row == part.row(t)) continue;
    std::memcpy(row, part.row(t), sizeof(float) * part.cols);
  }
  if (alone) return;
  Meet();
  times_.gather_ns += MonotonicNanos() - start;
}

}  // namespace sluice
