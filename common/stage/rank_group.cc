#include "common/stage/rank_group.h"

#include <utility>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/collective/self_communicator.h"

namespace sluice {

RankGroup::RankGroup(int32_t num_ranks) {
  if (num_ranks == 1) {
    self_ = std::make_unique<SelfCommunicator>();
  } else {
    group_ = std::make_unique<ThreadCommunicatorGroup>(num_ranks);
  }
}

RankGroup::~RankGroup() {
  if (threads_.empty()) return;
  job_ = {};
  communicator(0)->Barrier();
  threads_.clear();
}

Communicator* RankGroup::communicator(int32_t rank) {
  return self_ != nullptr ? self_.get() : group_->rank(rank);
}

void RankGroup::Start(std::vector<Rank> ranks) {
  SLUICE_CHECK(ranks_.empty() && !ranks.empty());
  ranks_ = std::move(ranks);
  if (group_ != nullptr) times_.resize(ranks_.size());
  for (size_t i = 1; i < ranks_.size(); ++i) {
    const auto rank = static_cast<int32_t>(i);
    threads_.emplace_back(Cat("rank-", rank), [this, rank] {
      while (true) {
        communicator(rank)->Barrier();  // a step begins
        if (job_.step == nullptr) return;
        RunRank(rank);
      }
    });
  }
}

void RankGroup::RunStep(const StepInputs& step, const float* hidden_in,
                        float* hidden_out, const LogitsConsumer& consume) {
  job_ = {&step, hidden_in, hidden_out, &consume};
  communicator(0)->Barrier();
  RunRank(0);
}

void RankGroup::RunRank(int32_t rank) {
  ranks_[rank].team->AdoptCaller();
  StageModel& model = *ranks_[rank].model;
  const StepInputs& step = *job_.step;
  model.Forward(step, job_.hidden_in, rank == 0 ? job_.hidden_out : nullptr);
  for (int32_t begin = 0; begin < step.num_logits_rows;
       begin += model.max_logits_rows()) {
    const kernels::ConstMatrix rows = model.Logits(step, begin);
    if (rank == 0) (*job_.consume)(begin, rows);
  }
  if (!times_.empty()) times_[rank] = communicator(rank)->TakeTimes();
  communicator(rank)->Barrier();  // nobody reads the job any more
}

}  // namespace sluice
