#include "common/collective/thread_communicator.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace sluice {
namespace {

// Long enough to bridge the skew of equal work on idle cores (some tens of
// microseconds), short enough not to take a core from those still working.
constexpr int kSpins = 2000;

inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spinning with more ranks than cores only delays the rank waited for.
int SpinsFor(int world_size) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return world_size <= cores ? kSpins : 0;
}

}  // namespace

void MeetingPoint::Arrive() {
  const uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    generation_.notify_all();
    return;
  }
  for (int i = 0; i < spins_; ++i) {
    if (generation_.load(std::memory_order_acquire) != generation) return;
    CpuRelax();
  }
  while (generation_.load(std::memory_order_acquire) == generation) {
    generation_.wait(generation, std::memory_order_acquire);
  }
}

ThreadCommunicatorGroup::ThreadCommunicatorGroup(int world_size)
    : meeting_(world_size, SpinsFor(world_size)), slots_(world_size) {
  SLUICE_CHECK(world_size >= 1);
  for (int rank = 0; rank < world_size; ++rank) {
    ranks_.push_back(std::make_unique<ThreadCommunicator>(this, rank));
  }
}

ThreadCommunicatorGroup::~ThreadCommunicatorGroup() = default;

Communicator* ThreadCommunicatorGroup::rank(int rank) {
  return ranks_.at(rank).get();
}

void ThreadCommunicator::Meet() {
  const int64_t start = MonotonicNanos();
  group_->meeting_.Arrive();
  times_.wait_ns += MonotonicNanos() - start;
}

void ThreadCommunicator::ReduceTree(int32_t num_leaves,
                                    std::span<const kernels::TreeNode> nodes,
                                    std::span<const kernels::ConstMatrix> parts,
                                    kernels::Matrix out) {
  SLUICE_CHECK(nodes.size() == parts.size());
  const int64_t start = MonotonicNanos();
  group_->slots_[rank_] = {nodes, parts, out};
  Meet();
  // Slices start on cache lines, so that ranks do not share one.
  const int64_t lines = (out.cols + 15) / 16;
  const int64_t world = world_size();
  const int64_t begin = std::min(out.cols, lines * rank_ / world * 16);
  const int64_t end = std::min(out.cols, lines * (rank_ + 1) / world * 16);
  JoinColumns(num_leaves, begin, end);
  Meet();
  times_.reduce_ns += MonotonicNanos() - start;
}

void ThreadCommunicator::JoinColumns(int32_t num_leaves, int64_t begin,
                                     int64_t end) {
  const int64_t rows = group_->slots_[rank_].out.rows;
  parts_.clear();
  for (const auto& slot : group_->slots_) {
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
      for (const auto& slot : group_->slots_) {
        std::memcpy(slot.out.row(t) + c, sum, sizeof(float) * count);
      }
    }
  }
}

void ThreadCommunicator::GatherColumns(kernels::ConstMatrix part,
                                       int64_t col_begin, kernels::Matrix out) {
  const int64_t start = MonotonicNanos();
  group_->slots_[rank_].out = out;
  Meet();
  const kernels::Matrix& to = group_->slots_[0].out;
  SLUICE_CHECK(part.rows == to.rows && col_begin + part.cols <= to.cols);
  const int64_t rows = part.cols == 0 ? 0 : part.rows;
  for (int64_t t = 0; t < rows; ++t) {
    float* row = to.row(t) + col_begin;
    if (row == part.row(t)) continue;
    std::memcpy(row, part.row(t), sizeof(float) * part.cols);
  }
  Meet();
  times_.gather_ns += MonotonicNanos() - start;
}

}  // namespace sluice
