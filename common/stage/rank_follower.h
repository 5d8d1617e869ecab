#ifndef SLUICE_COMMON_STAGE_RANK_FOLLOWER_H_
#define SLUICE_COMMON_STAGE_RANK_FOLLOWER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/concurrency/named_thread.h"
#include "common/stage/load_ranks.h"
#include "common/stage/rank_link.h"
#include "common/stage/stage.h"

namespace sluice {

// The ranks of a stage in a process that does not have rank 0. A thread,
// "rank-loop", begins and ends the lead's steps in the order in which they
// come. The lead has checked them against its sequences.
class RankFollower final : public RankStepRunner {
 public:
  // Steps between Free and their end. The lead has begun two at most that it
  // has not ended. It ends a step when the ranks' devices have, of which this
  // process's thread may not have taken note: of two steps at most, since it
  // begins no third one before. So four: more are the lead's fault.
  static constexpr uint32_t kSteps = 4;

  // Loads ranks [first_rank, first_rank + ranks) of `options`, whose rank_link
  // reaches the lead. Errors as LoadRanks'.
  static StatusOr<std::unique_ptr<RankFollower>> Load(
      const StageOptions& options);
  // Ends the steps that were pushed.
  ~RankFollower() override;
  RankFollower(const RankFollower&) = delete;
  RankFollower& operator=(const RankFollower&) = delete;

  // The stage's facts; `gpus` and `threads` are this process's.
  const StageInfo& info() const { return info_; }
  // Steps that have ended, modulo 2^32. Any thread.
  uint32_t steps() const { return ended_; }

  const RankStepBounds& bounds() const override { return bounds_; }
  RankStep* Free() override;
  void Push() override;

 private:
  RankFollower(StageInfo info, LoadedRanks loaded);
  RankStep& StepOf(uint32_t number) { return *steps_[number % kSteps]; }
  void Tell();  // wakes the thread
  void Loop();

  const StageInfo info_;
  const RankStepBounds bounds_;
  const std::unique_ptr<RankGroup> ranks_;
  const std::chrono::microseconds spin_;
  std::vector<std::unique_ptr<RankStep>> steps_;  // by number, modulo kSteps
  // Steps that were pushed, and that have ended, modulo 2^32.
  std::atomic<uint32_t> pushed_{0};
  std::atomic<uint32_t> ended_{0};
  std::atomic<uint32_t> told_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  NamedThread thread_;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_STAGE_RANK_FOLLOWER_H_
