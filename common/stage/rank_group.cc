#include "common/stage/rank_group.h"

#include <utility>

#include "common/base/cat.h"
#include "common/base/check.h"

namespace sluice {

RankGroup::RankGroup(std::vector<Rank> ranks)
    : ranks_(std::move(ranks)), meeting_(static_cast<int>(ranks_.size())) {
  SLUICE_CHECK(!ranks_.empty());
  if (ranks_.size() > 1) times_.resize(ranks_.size());
  for (size_t rank = 1; rank < ranks_.size(); ++rank) {
    threads_.emplace_back(Cat("rank-", rank), [this, rank] {
      while (true) {
        meeting_.Arrive();  // a step begins
        if (step_ == nullptr) return;
        RunRank(rank);
        meeting_.Arrive();  // no rank reads the job any more
      }
    });
  }
}

RankGroup::~RankGroup() {
  step_ = nullptr;
  Meet();
  threads_.clear();
}

void RankGroup::Begin(const StepInputs& step, const StepIo& io) {
  if (overlaps_steps()) return ranks_[0].model->Begin(step, io);
  step_ = &step;
  io_ = io;
  Meet();
  RunRank(0);
  Meet();
}

void RankGroup::End() {
  if (overlaps_steps()) EndRank(0);
}

void RankGroup::RunRank(size_t rank) {
  const StepIo io = rank == 0 ? io_ : StepIo{.hidden = io_.hidden};
  ranks_[rank].model->Begin(*step_, io);
  EndRank(rank);
}

void RankGroup::EndRank(size_t rank) {
  const StepTimes times = ranks_[rank].model->End();
  if (!times_.empty()) times_[rank] = times.collectives;
  if (rank == 0) sampling_ = times.sampling;
}

}  // namespace sluice
