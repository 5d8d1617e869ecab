#ifndef SLUICE_COMMON_DEVICE_CUDA_VIRTUAL_RANKS_H_
#define SLUICE_COMMON_DEVICE_CUDA_VIRTUAL_RANKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/concurrency/meeting_point.h"
#include "common/device/backend.h"
#include "kernels/cuda/gather.h"
#include "kernels/cuda/runtime.h"

namespace sluice {

// What the ranks of one stage, threads over one device, show each other during
// a collective. Sums go through the fixed tree, as between threads of a CPU.
class VirtualRankTable {
 public:
  explicit VirtualRankTable(int num_ranks)
      : meeting_(num_ranks), slots_(num_ranks) {}
  int num_ranks() const { return static_cast<int>(slots_.size()); }

 private:
  friend class VirtualCommunicator;
  struct alignas(64) Slot {
    std::span<const kernels::TreeNode> nodes;
    std::span<const kernels::Matrix> parts;
    kernels::Matrix out;
  };
  MeetingPoint meeting_;
  std::vector<Slot> slots_;
};

// One rank's end of a VirtualRankTable, used by that rank's thread. Every rank
// calls the same operations in the same order. Ranks meet when their streams
// have done what comes before; a single rank only enqueues.
class VirtualCommunicator {
 public:
  VirtualCommunicator(kernels::cuda::Runtime* runtime,
                      std::shared_ptr<VirtualRankTable> ranks, int rank)
      : runtime_(*runtime), ranks_(std::move(ranks)), rank_(rank) {}

  // As Backend::ReduceTree. Every rank joins a run of the columns of all ranks'
  // nodes, and writes it into every rank's out.
  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const kernels::Matrix> parts, kernels::Matrix out);

  // Rank 0 gets, in out, every rank's `part` [T, n] at columns [col_begin,
  // col_begin + n); other ranks pass an empty out.
  void GatherColumns(kernels::ConstMatrix part, int64_t col_begin,
                     kernels::Matrix out);

  // Returns this rank's times since the last call; zero for one rank.
  CollectiveTimes TakeTimes() {
    return std::exchange(times_, CollectiveTimes());
  }

 private:
  // Waits for the stream, then for all ranks.
  void Meet();
  void JoinColumns(int32_t num_leaves, int64_t begin, int64_t end);

  kernels::cuda::Runtime& runtime_;
  const std::shared_ptr<VirtualRankTable> ranks_;
  const int rank_;
  CollectiveTimes times_;
  std::vector<kernels::cuda::NodeRows> parts_;  // scratch of JoinColumns
  std::vector<kernels::Matrix> outs_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_VIRTUAL_RANKS_H_
