#ifndef SLUICE_COMMON_ENGINE_SCHEDULER_DRAFT_H_
#define SLUICE_COMMON_ENGINE_SCHEDULER_DRAFT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/engine/scheduler.h"

namespace sluice {

// A plan being built: what the scheduler's two files about plans share.
struct Scheduler::Draft {
  TimePoint now;
  StepPlan plan;
  int32_t budget = 0;  // tokens that still fit
  std::vector<SequenceId> decodes;
  bool preempted = false;  // for want of blocks
  bool Starts(const Sequence& sequence) const {
    return std::any_of(plan.started.begin(), plan.started.end(),
                       [&](const StartedSequence& started) {
                         return started.sequence == sequence.id;
                       });
  }
  // Of the computing time, what is due to prompts that are owed; zero: there
  // are none.
  double owed_share = 0;
  enum class Prompts { kAll, kOwed, kOthers } prompts = Prompts::kAll;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_SCHEDULER_DRAFT_H_
