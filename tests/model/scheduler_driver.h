#ifndef SLUICE_TESTS_MODEL_SCHEDULER_DRIVER_H_
#define SLUICE_TESTS_MODEL_SCHEDULER_DRIVER_H_

#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/scheduler.h"
#include "tests/model/pipeline.h"

namespace sluice::testing {

// Runs requests on a pipeline under the gateway's scheduler to their ends, one
// plan at a time.
class SchedulerDriver {
 public:
  // Blocks that the scheduler gives out: of keys and values, of states.
  struct Pools {
    int32_t blocks = 0;
    int32_t state_blocks = 0;
  };

  SchedulerDriver(Pipeline& pipeline, const EngineOptions& options,
                  Pools pools);

  void Add(const Ask& ask);
  // Runs at most `steps`. Returns whether there is more to do.
  bool Go(int steps);
  // Another process takes the last stage's place; the stages before it have a
  // log of their outputs.
  void LoseLast();

  // In the order of Add.
  std::vector<Answer>& answers() { return answers_; }
  const EngineCounters& counters() const { return counters_; }
  int drafts() const { return drafts_; }

 private:
  void Take(SequenceEvents events);

  Pipeline& pipeline_;
  EngineCounters counters_;
  Scheduler scheduler_;
  PlanLimits limits_;
  std::vector<Answer> answers_;
  int drafts_ = 0;
  TimePoint now_{};
};

}  // namespace sluice::testing

#endif  // SLUICE_TESTS_MODEL_SCHEDULER_DRIVER_H_
