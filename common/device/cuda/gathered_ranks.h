#ifndef SLUICE_COMMON_DEVICE_CUDA_GATHERED_RANKS_H_
#define SLUICE_COMMON_DEVICE_CUDA_GATHERED_RANKS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/concurrency/meeting_point.h"
#include "common/device/cuda/collective_watch.h"
#include "common/device/cuda/cuda_memory.h"
#include "common/device/cuda/device_communicator.h"
#include "common/device/cuda/device_exchange.h"
#include "kernels/cuda/gather.h"

namespace sluice {

// What the ranks of one stage, threads with a device each, tell each other of
// a collective, and how their devices' values reach each other.
class GatheredRankTable {
 public:
  GatheredRankTable(int num_ranks, std::unique_ptr<DeviceExchange> exchange,
                    const CollectiveLimits& limits = {})
      : meeting_(num_ranks),
        slots_(static_cast<size_t>(num_ranks)),
        exchange_(std::move(exchange)),
        watch_(num_ranks, exchange_.get(), limits) {}
  int num_ranks() const { return static_cast<int>(slots_.size()); }

 private:
  friend class GatheringCommunicator;
  struct alignas(64) Slot {
    std::span<const kernels::TreeNode> nodes;
    int64_t rows = 0;
    int64_t cols = 0;  // of a part
    int64_t col_begin = 0;
  };
  MeetingPoint meeting_;
  std::vector<Slot> slots_;
  const std::unique_ptr<DeviceExchange> exchange_;
  CollectiveWatch watch_;
};

// One rank's end of a GatheredRankTable: every rank gathers the nodes of all
// ranks and joins them by itself, which takes one exchange where a sum of runs
// of columns would take two.
//
// Threads meet before and behind every exchange. So each knows what the others
// bring, and a rank allocates memory only while all of what its device waits
// for is enqueued on the other devices: an allocation may wait for the device.
class GatheringCommunicator final : public DeviceCommunicator {
 public:
  GatheringCommunicator(kernels::cuda::Runtime* runtime,
                        std::shared_ptr<GatheredRankTable> ranks, int rank)
      : runtime_(*runtime),
        ranks_(std::move(ranks)),
        rank_(rank),
        send_(runtime),
        receive_(runtime) {}

  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const kernels::Matrix> parts,
                  kernels::Matrix out) override;
  void GatherColumns(kernels::ConstMatrix part, int64_t col_begin,
                     kernels::Matrix out) override;
  void OnSynced() override { ranks_->watch_.End(rank_); }

 private:
  // Tells the others what this rank brings, and returns when all have.
  void Tell(const GatheredRankTable::Slot& own);
  void Meet();
  // Makes place for `count` floats of every rank, the same on each of them.
  void Reach(int64_t count);
  void Exchange(int64_t count);

  kernels::cuda::Runtime& runtime_;
  const std::shared_ptr<GatheredRankTable> ranks_;
  const int rank_;
  GrowingMemory send_;                          // [count]
  GrowingMemory receive_;                       // [ranks, count]
  int64_t count_ = 0;                           // that both have place for
  std::vector<kernels::cuda::NodeRows> parts_;  // scratch of ReduceTree
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_GATHERED_RANKS_H_
