#ifndef SLUICE_COMMON_STAGE_RANK_GROUP_H_
#define SLUICE_COMMON_STAGE_RANK_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/collective/communicator.h"
#include "common/collective/thread_communicator.h"
#include "common/concurrency/named_thread.h"
#include "common/concurrency/thread_team.h"
#include "common/device/backend.h"
#include "common/model/stage_model.h"

namespace sluice {

// The tensor-parallel ranks of one stage: threads of this process, each with
// its own team of compute threads, device backend and slice of the model.
// The thread that calls RunStep is rank 0; the others sleep between steps.
class RankGroup {
 public:
  struct Rank {
    std::unique_ptr<ThreadTeam> team;
    std::unique_ptr<Backend> backend;
    std::unique_ptr<StageModel> model;
  };
  // Rows [begin, begin + rows.rows) of the step's logits, [.., V], on the
  // calling thread; valid during the call.
  using LogitsConsumer =
      std::function<void(int32_t begin, kernels::ConstMatrix rows)>;

  explicit RankGroup(int32_t num_ranks);
  ~RankGroup();  // joins the ranks' threads
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // What rank `rank`'s model talks to its peers by.
  Communicator* communicator(int32_t rank);
  // Takes the ranks, in order, and starts their threads. Once.
  void Start(std::vector<Rank> ranks);

  // Runs one step on all ranks and returns when all are done. Arguments as
  // of StageModel::Forward; `consume` is called for every run of logits rows.
  void RunStep(const StepInputs& step, const float* hidden_in,
               float* hidden_out, const LogitsConsumer& consume);

  // Rows of the last step that failed: see StageModel. Rank 0 asks for all.
  const std::vector<RowFailure>& failed_rows() const {
    return ranks_[0].model->failed_rows();
  }

  // The ranks' times in collectives in the last step; empty with one rank.
  const std::vector<CollectiveTimes>& collective_times() const {
    return times_;
  }

  // Rank 0's team, free while `consume` runs.
  kernels::Executor* team() { return ranks_[0].team.get(); }

 private:
  // The step at hand, written by rank 0 before the barrier that starts it.
  struct Job {
    const StepInputs* step = nullptr;  // null: stop
    const float* hidden_in = nullptr;
    float* hidden_out = nullptr;
    const LogitsConsumer* consume = nullptr;
  };
  void RunRank(int32_t rank);

  std::unique_ptr<ThreadCommunicatorGroup> group_;  // null with one rank
  std::unique_ptr<Communicator> self_;              // with one rank
  std::vector<Rank> ranks_;
  Job job_;
  // Each rank's own until the barrier that ends a step.
  std::vector<CollectiveTimes> times_;
  std::vector<NamedThread> threads_;  // ranks 1 and up
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_RANK_GROUP_H_
