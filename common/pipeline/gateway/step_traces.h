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

// The gateway's part of the traces of plans under way, which need not travel
// through the stages. Not thread-safe.
class StepTraces {
 public:
  // Plans and results of `epoch` count from now on, and no others.
  void Begin(Epoch epoch) {
    epoch_ = epoch;
    under_way_.clear();
    by_steps_.clear();
  }

  // A traced plan is about to leave. Plans leave in step order. A plan of an
  // epoch that is over is ignored.
  void OnPlan(Epoch epoch, const StepTrace& trace) {
    if (epoch == epoch_) under_way_.push_back(trace);
  }

  // For every result, also one without a trace: its plan is no longer under
  // way. Completes `result`'s trace with the plan's part, all in the gateway's
  // clock. `clocks` comes from heartbeats; a step is a round trip too, and
  // often a shorter one. Drops an implausible trace: one that no plan asked
  // for, or one of other stages than `clocks` has.
  void Complete(std::span<const ClockEstimate> clocks, int64_t received_ns,
                StepResult& result);

  size_t num_under_way() const { return under_way_.size(); }

  // Returns, for each stage, the better estimate of `by_heartbeats` and of
  // traced steps.
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
