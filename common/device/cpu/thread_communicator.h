#ifndef SLUICE_COMMON_DEVICE_CPU_THREAD_COMMUNICATOR_H_
#define SLUICE_COMMON_DEVICE_CPU_THREAD_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/concurrency/meeting_point.h"
#include "common/device/collective_times.h"
#include "common/device/cpu/join_parts.h"
#include "kernels/views.h"

namespace sluice {

// The memory that the ranks of one stage, threads of one process, share during
// a collective. Sums go through the fixed binary tree of
// kernels/reduction_tree.h, so that any number of ranks gives the same bits;
// there is no plain all-reduce.
class RankTable {
 public:
  explicit RankTable(int num_ranks) : meeting_(num_ranks), slots_(num_ranks) {}
  int num_ranks() const { return static_cast<int>(slots_.size()); }

 private:
  friend class ThreadCommunicator;
  struct alignas(64) Slot {
    std::span<const kernels::TreeNode> nodes;
    std::span<const kernels::ConstMatrix> parts;
    kernels::Matrix out;
  };
  MeetingPoint meeting_;
  std::vector<Slot> slots_;
};

// One rank's end of a RankTable, used by that rank's thread. Every rank calls
// the same operations in the same order. An operation returns when this rank
// may read `out` and reuse its own buffers. A single rank never waits.
class ThreadCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<RankTable> ranks, int rank)
      : ranks_(std::move(ranks)), rank_(rank) {}

  // As Backend::ReduceTree. Every rank joins a slice of the columns of all
  // ranks' nodes and writes the slice into every rank's out, so that the ranks
  // share the work and copy nothing twice.
  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const kernels::ConstMatrix> parts,
                  kernels::Matrix out);

  // Rank 0 gets, in out, every rank's `part` [T, n] at columns [col_begin,
  // col_begin + n) of out [T, sum of n]; other ranks pass an empty out.
  void GatherColumns(kernels::ConstMatrix part, int64_t col_begin,
                     kernels::Matrix out);

  // Returns this rank's times since the last call; zero for one rank.
  CollectiveTimes TakeTimes() {
    return std::exchange(times_, CollectiveTimes());
  }

 private:
  // Waits for all ranks, and adds the time to the time of waiting.
  void Meet();
  // Joins columns [begin, end) of all ranks' nodes into all ranks' outs.
  void JoinColumns(int32_t num_leaves, int64_t begin, int64_t end);

  const std::shared_ptr<RankTable> ranks_;
  const int rank_;
  CollectiveTimes times_;
  // Scratch of JoinColumns: all ranks' nodes, rising; one row's values.
  std::vector<std::pair<kernels::TreeNode, kernels::ConstMatrix>> parts_;
  std::vector<NodePart> row_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CPU_THREAD_COMMUNICATOR_H_
