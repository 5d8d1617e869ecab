#ifndef SLUICE_COMMON_DEVICE_CUDA_GATHERED_RANKS_H_
#define SLUICE_COMMON_DEVICE_CUDA_GATHERED_RANKS_H_

#include <cstddef>
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
  // What a collective is for every rank alike.
  struct Collective {
    int32_t num_leaves = 0;  // of a sum; 0: columns are gathered
    int64_t cols = 0;        // of a sum
    bool operator==(const Collective&) const = default;
  };
  // What one rank brings to it.
  struct Share {
    std::vector<kernels::TreeNode> nodes;  // of a sum
    int64_t cols = 0;                      // of gathered columns
    int64_t col_begin = 0;
    bool operator==(const Share&) const = default;
  };
  struct alignas(64) Slot {
    Collective of;
    Share share;
    int64_t rows = 0;
    bool copied = false;  // since its step's first collective
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
// What ranks must know of each other is the same in every step: collective n of
// a step has the same nodes or columns, whatever its rows. So threads meet in
// the first step, and in one that BeginStep says is new: before every exchange,
// to tell what each brings, and behind it. Each rank keeps what it was told
// (agreed_). In the other steps no thread waits for another: the collective is
// enqueued, and a graph may have it.
//
// All ranks decide alike whether they meet at a collective, since they decide
// by what is common: BeginStep's word, the number of the collective within its
// step, its leaves and columns, and how much memory was asked for so far. A
// rank that brings something else than was agreed ends the process. One that
// comes to another collective waits alone to meet the others, and one that
// comes to none leaves their devices waiting: the watch ends the process, and
// rank 0 has no logits of the step, whose gather is the last collective.
//
// A rank allocates memory only while all of what its device waits for is
// enqueued on the other devices, and no device waits for what it will enqueue:
// an allocation may wait for devices. In a step where ranks meet they are at
// most a collective apart. Memory grows in no other step: what a step needs
// depends on its shape, and one of a shape that comes first is new. (What rank
// 0 samples with depends on its tasks: it grows behind a gather of logits, by
// which a step's collectives end, or go on with more rows of logits.) A thread
// that waits for its own device alone waits for collectives that it has
// enqueued; of all ranks that do so, the one that is furthest behind goes on.
//
// A collective's time is that of the exchange on the rank's stream: from where
// what the rank brings is packed until what all bring is there, so the wait for
// the slowest device is within. Where threads meet, that is within, too.
class GatheringCommunicator final : public DeviceCommunicator {
 public:
  GatheringCommunicator(kernels::cuda::Runtime* runtime,
                        std::shared_ptr<GatheredRankTable> ranks, int rank)
      : DeviceCommunicator(runtime, CollectiveClock::kMostSpans),
        runtime_(*runtime),
        ranks_(std::move(ranks)),
        rank_(rank),
        send_(runtime),
        receive_(runtime) {}

  void BeginStep(bool is_new) override {
    turn_ = 0;
    learns_ = is_new;
    copied_ = is_cut_ = false;
  }
  void NoteCopy() override { copied_ = copied_ || turn_ > 0; }
  bool step_is_cut() const override { return is_cut_; }
  void ReduceTree(int32_t num_leaves, std::span<const kernels::TreeNode> nodes,
                  std::span<const kernels::Matrix> parts,
                  kernels::Matrix out) override;
  void GatherColumns(kernels::ConstMatrix part, int64_t col_begin,
                     kernels::Matrix out) override;
  void OnSynced(bool goes_on) override {
    ranks_->watch_.End(rank_);
    if (goes_on) ranks_->watch_.Begin(rank_);
  }
  bool overlaps_steps() const override { return !ranks_->exchange_->waits(); }

 private:
  using Collective = GatheredRankTable::Collective;
  using Share = GatheredRankTable::Share;
  struct Agreement {
    Collective of;
    std::vector<Share> shares;  // by rank
    int64_t most = 0;           // nodes or columns that a rank brings
  };

  // Returns what all ranks bring to the step's next collective, of `rows` rows,
  // to which this one brings own_. Tells the others where it is not agreed.
  const Agreement& Agree(const Collective& of, int64_t rows);
  // The collective is enqueued.
  void Leave();
  void Meet();
  // Makes place for `count` floats of every rank, the same on each of them.
  void Reach(int64_t count);
  void Exchange(int64_t count);
  // The collective's time begins here on the stream, if it has not begun. A
  // graph that has the exchange is replayed before its last times are read: a
  // list that may become one notes no moments.
  void BeginTime();

  kernels::cuda::Runtime& runtime_;
  const std::shared_ptr<GatheredRankTable> ranks_;
  const int rank_;
  GrowingMemory send_;                          // [count]
  GrowingMemory receive_;                       // [ranks, count]
  int64_t count_ = 0;                           // that both have place for
  std::vector<Agreement> agreed_;               // by number within a step
  size_t turn_ = 0;                             // of the next collective
  bool learns_ = false;                         // the whole step
  bool meets_ = false;                          // in the present collective
  CollectiveClock::Kind kind_ = nullptr;        // of the present collective
  bool copied_ = false;                         // as Slot's
  bool is_cut_ = false;                         // the step, as far as was told
  Share own_;                                   // to the present collective
  std::vector<kernels::cuda::NodeRows> parts_;  // scratch of ReduceTree
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_GATHERED_RANKS_H_
