#ifndef SLUICE_COMMON_STAGE_RANK_GROUP_H_
#define SLUICE_COMMON_STAGE_RANK_GROUP_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/concurrency/meeting_point.h"
#include "common/concurrency/named_thread.h"
#include "common/device/backend.h"
#include "common/model/stage_model.h"

namespace sluice {

// The tensor-parallel ranks of one stage that this process has: threads, each
// with its own backend and slice of the model. The thread that calls Begin is
// the first of them, called rank 0 here; the others sleep while no step is
// begun.
class RankGroup {
 public:
  struct Rank {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<StageModel> model;
  };

  // Takes the ranks, in order, and starts their threads. `all_ranks`: of the
  // stage, other processes' included. Threads of ranks that overlap steps look
  // for the next one for `spin`, at least kShortSpin, before they sleep.
  RankGroup(std::vector<Rank> ranks, int32_t all_ranks, Duration spin = {});
  ~RankGroup();  // ends what is begun, and joins the ranks' threads
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Whether a step may begin before the one before it has ended.
  bool overlaps_steps() const { return overlaps_steps_; }
  // Begins one step on all ranks: if they do not overlap steps, runs it.
  // Otherwise each rank's thread enqueues it; at most one more may begin before
  // End, until which `step` and what `io` points to stay in place.
  void Begin(const StepInputs& step, const StepIo& io);
  // Whether End does not wait.
  bool IsDone();
  // Returns when the oldest step that was begun is done on all ranks.
  void End();

  // Gives the memory of KV blocks back, on all ranks. Between steps.
  void GiveBack(const BlockRange& range) {
    for (Rank& rank : ranks_) rank.model->GiveBack(range);
  }

  // The bytes of one block of stage layer `index` on all ranks (see
  // StageModel::KvBytes), and copies of these, rank by rank. Between steps.
  size_t KvBytes(int32_t index, int32_t group) const;
  void ReadKv(int32_t index, int32_t group, BlockId block, std::byte* out);
  void WriteKv(int32_t index, int32_t group, BlockId block,
               const std::byte* in);
  // Whether the calling thread reaches the memory of all of these ranks.
  bool can_copy_kv() const;

  // Failed rows of the last step: see StageModel. Rank 0 reports for all.
  const std::vector<RowFailure>& failed_rows() const {
    return ranks_[0].model->failed_rows();
  }

  // The ranks' times in collectives in the last step that ended; empty if the
  // stage has one rank.
  const std::vector<CollectiveTimes>& collective_times() const {
    return times_;
  }
  // The time of rank 0's sampling in that step.
  const TraceSpan& sampling() const { return sampling_; }

 private:
  // Steps that are begun and not ended, at most.
  static constexpr uint32_t kSteps = 2;
  struct Step {
    const StepInputs* inputs = nullptr;  // null: the threads end
    StepIo io;
  };
  // What a rank's thread has ended, of steps that overlap.
  struct alignas(64) Ended {
    std::atomic<uint32_t> steps{0};
    CollectiveTimes times[kSteps];  // by the step's number
  };

  Step& StepOf(uint32_t number) { return steps_[number % kSteps]; }
  // The threads of ranks 1 and up: steps one by one, and steps that overlap.
  void RunSteps(size_t rank);
  void RunAhead(size_t rank);
  // Tells the threads of the next step.
  void Tell(const Step& step);
  void RunRank(size_t rank);
  void Note(size_t rank, const StepTimes& times);

  std::vector<Rank> ranks_;
  const bool overlaps_steps_;
  const std::chrono::microseconds spin_;
  MeetingPoint meeting_;  // of steps one by one
  // Rank 0 sets a step before it counts it, and again when all have ended it.
  Step steps_[kSteps];
  // Steps that were told, and ended by End: counts are modulo 2^32.
  std::atomic<uint32_t> begun_{0};
  uint32_t finished_ = 0;
  std::atomic<uint32_t> sleepers_{0};  // of steps that overlap
  std::unique_ptr<Ended[]> ended_;     // by rank; none of rank 0
  std::vector<CollectiveTimes> times_;
  TraceSpan sampling_;
  std::vector<NamedThread> threads_;  // ranks 1 and up
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_RANK_GROUP_H_
