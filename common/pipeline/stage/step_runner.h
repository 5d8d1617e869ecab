#ifndef SLUICE_COMMON_PIPELINE_STAGE_STEP_RUNNER_H_
#define SLUICE_COMMON_PIPELINE_STAGE_STEP_RUNNER_H_

#include "common/base/status.h"
#include "common/core/ids.h"
#include "common/stage/stage_loop.h"

namespace sluice {

// What computes steps: a StageLoop, or a test's stand-in. Answers go to the
// StageSession as StepOutputSink. Any thread, never blocks.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // As StageLoop's.
  virtual Status Push(StepInput input) = 0;
  // Called with the session's mutex held: calls nothing of the session's.
  virtual void Reset(Epoch epoch) = 0;
  virtual StageLoopStats Stats() const = 0;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_STEP_RUNNER_H_
