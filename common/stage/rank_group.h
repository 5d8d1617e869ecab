#ifndef SLUICE_COMMON_STAGE_RANK_GROUP_H_
#define SLUICE_COMMON_STAGE_RANK_GROUP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/concurrency/meeting_point.h"
#include "common/concurrency/named_thread.h"
#include "common/device/backend.h"
#include "common/model/stage_model.h"

namespace sluice {

// The tensor-parallel ranks of one stage: threads of this process, each with
// its own backend and slice of the model. The thread that calls Begin is rank
// 0; the others sleep between steps.
class RankGroup {
 public:
  struct Rank {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<StageModel> model;
  };

  // Takes the ranks, in order, and starts their threads.
  explicit RankGroup(std::vector<Rank> ranks);
  ~RankGroup();  // joins the ranks' threads
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Whether a step may begin before the one before it has ended.
  bool overlaps_steps() const {
    return threads_.empty() && ranks_[0].model->overlaps_steps();
  }
  // Begins one step on all ranks: if they do not overlap steps, runs it.
  void Begin(const StepInputs& step, const StepIo& io);
  // Whether End does not wait.
  bool IsDone() { return !overlaps_steps() || ranks_[0].model->IsDone(); }
  // Returns when the oldest step that was begun is done on all ranks.
  void End();

  // Failed rows of the last step: see StageModel. Rank 0 reports for all.
  const std::vector<RowFailure>& failed_rows() const {
    return ranks_[0].model->failed_rows();
  }

  // The ranks' times in collectives in the last step; empty with one rank.
  const std::vector<CollectiveTimes>& collective_times() const {
    return times_;
  }
  // The time of rank 0's sampling in the last step.
  const TraceSpan& sampling() const { return sampling_; }

 private:
  void RunRank(size_t rank);
  void EndRank(size_t rank);
  // Waits for all ranks; a single rank goes on.
  void Meet() {
    if (!threads_.empty()) meeting_.Arrive();
  }

  std::vector<Rank> ranks_;
  MeetingPoint meeting_;
  // The present step, which rank 0 sets before the meeting that starts it.
  const StepInputs* step_ = nullptr;  // null: stop
  StepIo io_;
  // Written by each rank until the meeting that ends a step.
  std::vector<CollectiveTimes> times_;
  TraceSpan sampling_;
  std::vector<NamedThread> threads_;  // ranks 1 and up
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_RANK_GROUP_H_
