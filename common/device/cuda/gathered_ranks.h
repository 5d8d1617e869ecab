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
#include "common/device/cuda/own_ranks.h"
#include "common/device/cuda/rank_telling.h"
#include "kernels/cuda/shared/gather.h"

namespace sluice {

// What the ranks of one process, threads with a device each, tell each other of
// a collective, and how the devices' values of all ranks reach each other.
class GatheredRankTable {
 public:
  GatheredRankTable(const OwnRanks& ranks,
                    std::unique_ptr<DeviceExchange> exchange,
                    const CollectiveLimits& limits = {})
      : of_(ranks),
        meeting_(ranks.count),
        slots_(static_cast<size_t>(ranks.count)),
        exchange_(std::move(exchange)),
        watch_(ranks, exchange_.get(), limits) {}
  const OwnRanks& of() const { return of_; }

 private:
  friend class GatheringCommunicator;
  struct alignas(64) Slot {
    RankTelling told;
  };
  const OwnRanks of_;
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
// which a step's collectives end, or go on with more rows of logits. What NCCL
// takes in the first gather of all, where it connects ranks of one process at
// that: NcclExchange.) A thread
// that waits for its own device alone waits for collectives that it has
// enqueued; of all ranks that do so, the one that is furthest behind goes on.
//
// Threads of several processes meet by their devices (TellingExchange): a rank
// whose stream has done that exchange knows that all have enqueued it, and what
// each brings. The threads of one process meet at its MeetingPoint before they
// enqueue it: an allocation may wait for all devices of the process, so none of
// them may wait for the telling of a rank that still allocates. An allocation
// waits for no device of another process. So where a collective ends, or memory
// has grown, the process's own threads meet alone: what their devices wait for,
// the other processes enqueue by themselves, since none of them waits for more
// than the telling that is done. A rank that alone comes to another collective
// sends its telling where others send values: it ends its process as soon as it
// reads those, and if it is left waiting, the watch does. The others may take
// the telling for values, if it has as many floats, and go on: a step's tokens
// may be wrong, and be answered, until their watch or NCCL ends them. With
// other numbers of floats NCCL leaves undefined what they read.
//
// A collective's time is that of the exchange on the rank's stream: from where
// what the rank brings is packed until what all bring is there, so the wait for
// the slowest device is within. Where threads meet, that is within, too.
class GatheringCommunicator final : public DeviceCommunicator {
 public:
  // `index`: the rank's within the process. `telling`: of ranks of several
  // processes, this one's.
  GatheringCommunicator(kernels::cuda::Runtime* runtime,
                        std::shared_ptr<GatheredRankTable> ranks, int index,
                        std::unique_ptr<TellingExchange> telling = nullptr);

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
    ranks_->watch_.End(index_);
    if (goes_on) ranks_->watch_.Begin(index_);
  }
  bool overlaps_steps() const override { return !ranks_->exchange_->waits(); }

 private:
  struct Agreement {
    Collective of;
    std::vector<RankShare> shares;  // by rank
    int64_t most = 0;               // nodes or columns that a rank brings
  };

  // Returns what all ranks bring to the step's next collective, of `rows` rows,
  // to which this one brings own_. Tells the others where it is not agreed.
  const Agreement& Agree(const Collective& of, int64_t rows);
  // Returns what every rank tells of its next collective, this one `own`, when
  // all have come to it.
  std::vector<RankTelling> Tell(const RankTelling& own);
  // The collective is enqueued.
  void Leave();
  // Waits for the process's other ranks.
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
  const int index_;                             // within the process
  const int rank_;                              // its number
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
  RankShare own_;                               // to the present collective
  std::vector<kernels::cuda::NodeRows> parts_;  // scratch of ReduceTree
  const std::unique_ptr<TellingExchange> telling_;  // to other processes
};

}  // namespace sluice

#endif  // SLUICE_COMMON_DEVICE_CUDA_GATHERED_RANKS_H_
