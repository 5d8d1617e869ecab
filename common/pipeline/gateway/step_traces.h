#ifndef SLUICE_COMMON_PIPELINE_GATEWAY_STEP_TRACES_H_
#define SLUICE_COMMON_PIPELINE_GATEWAY_STEP_TRACES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "common/core/ids.h"
#include "common/core/step_plan.h"
#include "common/core/step_trace.h"
#include "common/pipeline/gateway/stage_clock.h"

namespace sluice {

// The gateway's part of traces whose plans are under way, so that nothing of
// it travels through the stages. Not thread-safe.
class StepTraces {
 public:
  // From now on plans and results of `epoch` count, and of no other.
  void Begin(Epoch epoch) {
    epoch_ = epoch;
    under_way_.clear();
    by_steps_.clear();
  }

  // A traced plan is about to go out. Plans go out in step order. Its sender
  // may not know yet that its epoch is over: then it is no plan under way.
  void OnPlan(Epoch epoch, const StepTrace& trace) {
    if (epoch == epoch_) under_way_.push_back(trace);
  }

  // For every result, also one without a trace: its plan is under way no more.
  // Makes `result`'s trace, which has what the stages measured, whole: with
  // the plan's part, and all of it in the gateway's clock. `clocks` is what
  // heartbeats tell; a step is a round trip too, and often a shorter one.
  // Drops the trace if it is not plausible: no plan asked for it, or other
  // stages than `clocks` has took part.
  void Complete(std::span<const ClockEstimate> clocks, int64_t received_ns,
                StepResult& result);

  size_t num_under_way() const { return under_way_.size(); }

  // Of each stage the better one of `by_heartbeats` and what steps told.
  std::vector<ClockEstimate> Best(std::span<const ClockEstimate> by_heartbeats,
                                  int64_t now_ns) const;

 private:
  std::optional<StepTrace> Take(const StepResult& result);
  void Learn(const StepTrace& trace, int64_t received_ns);

  Epoch epoch_;
  std::deque<StepTrace> under_way_;   // of epoch_
  std::vector<StageClock> by_steps_;  // per stage, once a step was traced
};

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_GATEWAY_STEP_TRACES_H_
