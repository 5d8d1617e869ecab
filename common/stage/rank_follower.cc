#include "common/stage/rank_follower.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/concurrency/await_change.h"
#include "common/core/kv_groups.h"

namespace sluice {

StatusOr<std::unique_ptr<RankFollower>> RankFollower::Load(
    const StageOptions& options) {
  SLUICE_CHECK(options.rank_link != nullptr && options.first_rank > 0);
  StageInfo info;
  SLUICE_ASSIGN_OR_RETURN(const OpenedModel model, OpenChecked(options, info));
  SLUICE_ASSIGN_OR_RETURN(LoadedRanks loaded, LoadRanks(options, model, info));
  return std::unique_ptr<RankFollower>(
      new RankFollower(std::move(info), std::move(loaded)));
}

RankFollower::RankFollower(StageInfo info, LoadedRanks loaded)
    : info_(std::move(info)),
      bounds_{loaded.limits,
              info_.limits.num_blocks,
              info_.limits.vocab_size,
              info_.is_first() ? 0 : info_.hidden_size,
              IsState(info_.limits.kv_window(info_.limits.num_kv_groups - 1))
                  ? info_.limits.num_kv_groups - 1
                  : 0,
              info_.limits.num_state_blocks},
      ranks_(std::move(loaded.ranks)),
      spin_(std::max(
          kShortSpin,
          std::chrono::duration_cast<std::chrono::microseconds>(loaded.spin))) {
  for (uint32_t i = 0; i < kSteps; ++i) {
    steps_.push_back(std::make_unique<RankStep>(bounds_.limits));
  }
  thread_ = NamedThread("rank-loop", [this] { Loop(); });
}

RankFollower::~RankFollower() {
  stop_ = true;
  Tell();
  thread_.Join();
}

RankStep* RankFollower::Free() {
  if (pushed_ - ended_ >= kSteps) return nullptr;
  return &StepOf(pushed_);
}

void RankFollower::Push() {
  ++pushed_;
  Tell();
}

void RankFollower::Tell() {
  ++told_;
  WakeSleepers(told_, sleepers_);
}

void RankFollower::Loop() {
  const uint32_t most = ranks_->overlaps_steps() ? 2 : 1;
  uint32_t begun = 0;
  while (true) {
    const uint32_t told = told_;  // before what it tells of is read
    const uint32_t ended = ended_;
    if (begun != pushed_ && begun - ended < most) {
      RankStep& step = StepOf(begun++);
      ranks_->Begin(step.inputs, {.hidden = step.hidden.values()});
    } else if (begun == ended) {
      if (stop_ && begun == pushed_) return;
      AwaitChange(told_, told, sleepers_, spin_);
    } else if (begun - ended == most || ranks_->IsDone()) {
      ranks_->End();
      // Its memory is the next messages'.
      StepOf(ended).hidden = HiddenStates();
      ended_ = ended + 1;
    } else {
      // Neither a device's end nor a step wakes a thread that waits for both.
      std::this_thread::yield();
    }
  }
}

}  // namespace sluice
