#ifndef SLUICE_COMMON_DEVICE_CUDA_VIRTUAL_RANKS_H_
#define SLUICE_COMMON_DEVICE_CUDA_VIRTUAL_RANKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/concurrency/meeting_point.h"
#include "common/device/cuda/device_communicator.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/shared/gather.h"

namespace sluice {

// What the ranks of one stage, threads over one device or over devices that
// reach each other's memory, show each other during a collective. Sums go
// through the fixed tree, as between threads of a CPU.
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

// One rank's end of a VirtualRankTable. Ranks meet when their streams have done
// what comes before; a single rank only enqueues. A collective's time begins
// when the rank's stream has done that.
class VirtualCommunicator final : public DeviceCommunicator {
 public:
  VirtualCommunicator(kernels::cuda::Runtime* runtime,
                      std::shared_ptr<VirtualRankTable> ranks, int rank)
      : DeviceCommunicator(
            runtime, ranks->num_ranks() > 1 ? CollectiveClock::kMostSpans : 0),
        runtime_(*runtime),
        ranks_(std::move(ranks)),
        rank_(rank) {}

  // Every rank joins a run of the columns of all ranks' nodes, and writes it
  // into every rank's out.
  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const kernels::Matrix> parts,
                  kernels::Matrix out) override;
  void GatherColumns(kernels::ConstMatrix part, int64_t col_begin,
                     kernels::Matrix out) override;
  bool overlaps_steps() const override { return ranks_->num_ranks() == 1; }

 private:
  // Waits for the stream, then for all ranks.
  void Meet();
  void JoinColumns(int32_t num_leaves, int64_t begin, int64_t end);

  kernels::cuda::Runtime& runtime_;
  const std::shared_ptr<VirtualRankTable> ranks_;
  const int rank_;
  std::vector<kernels::cuda::NodeRows> parts_;  // scratch of JoinColumns
  std::vector<kernels::Matrix> outs_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_VIRTUAL_RANKS_H_
