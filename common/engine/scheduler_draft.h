#ifndef SLUICE_COMMON_ENGINE_SCHEDULER_DRAFT_H_
#define SLUICE_COMMON_ENGINE_SCHEDULER_DRAFT_H_

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
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_SCHEDULER_DRAFT_H_
