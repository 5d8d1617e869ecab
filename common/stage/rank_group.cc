#include "common/stage/rank_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/base/cat.h"
#include "common/base/check.h"
#include "common/concurrency/await_change.h"

namespace sluice {
namespace {

bool Overlap(const std::vector<RankGroup::Rank>& ranks) {
  return std::ranges::all_of(ranks, [](const RankGroup::Rank& rank) {
    return rank.model->overlaps_steps();
  });
}

}  // namespace

RankGroup::RankGroup(std::vector<Rank> ranks, int32_t all_ranks, Duration spin)
    : ranks_(std::move(ranks)),
      overlaps_steps_(Overlap(ranks_)),
      spin_(std::max(
          kShortSpin,
          std::chrono::duration_cast<std::chrono::microseconds>(spin))),
      meeting_(static_cast<int>(ranks_.size())),
      ended_(std::make_unique<Ended[]>(ranks_.size())) {
  SLUICE_CHECK(!ranks_.empty());
  if (all_ranks > 1) times_.resize(ranks_.size());
  for (size_t rank = 1; rank < ranks_.size(); ++rank) {
    threads_.emplace_back(Cat("rank-", rank), [this, rank] {
      overlaps_steps_ ? RunAhead(rank) : RunSteps(rank);
    });
  }
}

RankGroup::~RankGroup() {
  while (overlaps_steps_ && finished_ != begun_) End();
  Tell({});
  threads_.clear();
}

// A single rank goes on.
void RankGroup::Tell(const Step& step) {
  StepOf(begun_) = step;
  ++begun_;
  if (threads_.empty()) return;
  overlaps_steps_ ? WakeSleepers(begun_, sleepers_) : meeting_.Arrive();
}

void RankGroup::Begin(const StepInputs& step, const StepIo& io) {
  SLUICE_CHECK(begun_ - finished_ < (overlaps_steps_ ? kSteps : 1));
  Tell({&step, io});
  if (overlaps_steps_) return ranks_[0].model->Begin(step, io);
  RunRank(0);
  if (!threads_.empty()) meeting_.Arrive();
}

bool RankGroup::IsDone() {
  if (!overlaps_steps_) return true;
  if (!ranks_[0].model->IsDone()) return false;
  for (size_t rank = 1; rank < ranks_.size(); ++rank) {
    if (ended_[rank].steps == finished_) return false;
  }
  return true;
}

void RankGroup::End() {
  if (overlaps_steps_) {
    Note(0, ranks_[0].model->End());
    for (size_t rank = 1; rank < ranks_.size(); ++rank) {
      Ended& ended = ended_[rank];
      AwaitChange(ended.steps, finished_, sleepers_);
      times_[rank] = ended.times[finished_ % kSteps];
    }
    NoteDeviceWaits(times_);
  }
  ++finished_;
}

void RankGroup::RunSteps(size_t rank) {
  while (true) {
    meeting_.Arrive();  // a step begins
    if (StepOf(begun_ - 1).inputs == nullptr) return;
    RunRank(rank);
    meeting_.Arrive();  // no rank reads the step any more
  }
}

void RankGroup::RunAhead(size_t rank) {
  StageModel& model = *ranks_[rank].model;
  Ended& own = ended_[rank];
  uint32_t begun = 0;
  uint32_t ended = 0;
  while (true) {
    if (begun_ != begun) {
      const Step& step = StepOf(begun++);
      if (step.inputs == nullptr) return;
      model.Begin(*step.inputs, {.hidden = step.io.hidden});
    } else if (ended == begun) {
      AwaitChange(begun_, begun, sleepers_, spin_);
    } else if (model.IsDone()) {
      own.times[ended % kSteps] = model.End().collectives;
      own.steps = ++ended;
      WakeSleepers(own.steps, sleepers_);
    } else {
      // Neither a device's end nor a step wakes a thread that waits for both.
      std::this_thread::yield();
    }
  }
}

void RankGroup::RunRank(size_t rank) {
  const Step& step = StepOf(begun_ - 1);
  const StepIo io = rank == 0 ? step.io : StepIo{.hidden = step.io.hidden};
  ranks_[rank].model->Begin(*step.inputs, io);
  Note(rank, ranks_[rank].model->End());
}

void RankGroup::Note(size_t rank, const StepTimes& times) {
  if (!times_.empty()) times_[rank] = times.collectives;
  if (rank == 0) sampling_ = times.sampling;
}

size_t RankGroup::KvBytes(int32_t index, int32_t group) const {
  size_t bytes = 0;
  for (const Rank& rank : ranks_) bytes += rank.model->KvBytes(index, group);
  return bytes;
}

void RankGroup::ReadKv(int32_t index, int32_t group, BlockId block,
                       std::byte* out) {
  for (Rank& rank : ranks_) {
    rank.model->ReadKv(index, group, block, out);
    out += rank.model->KvBytes(index, group);
  }
}

void RankGroup::WriteKv(int32_t index, int32_t group, BlockId block,
                        const std::byte* in) {
  for (Rank& rank : ranks_) {
    rank.model->WriteKv(index, group, block, in);
    in += rank.model->KvBytes(index, group);
  }
}

bool RankGroup::can_copy_kv() const {
  return ranks_.size() == 1 ||
         std::ranges::all_of(ranks_, [](const Rank& rank) {
           return rank.backend->info().shares_host_memory;
         });
}

}  // namespace sluice
