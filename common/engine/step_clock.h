#ifndef SLUICE_COMMON_ENGINE_STEP_CLOCK_H_
#define SLUICE_COMMON_ENGINE_STEP_CLOCK_H_

#include <algorithm>

#include "common/base/clock.h"
#include "common/engine/engine_stats.h"
#include "common/engine/plan_in_flight.h"
#include "common/engine/step_pace.h"

namespace sluice {

// When results came, and how long their plans took.
struct StepClock {
  Duration last_step{};     // of the latest plan that computed something
  TimePoint last_result{};  // of any plan

  // Counts the times of `plan`, whose result comes at `now`.
  void OnResult(const PlanInFlight& plan, TimePoint now,
                EngineCounters& counters, StepPace& pace) {
    last_step = now - plan.submitted;
    // The time of the plan alone, without its overlap with the plans before it.
    const Duration interval = now - std::max(plan.submitted, last_result);
    last_result = now;
    ++counters.steps;
    counters.step_time += last_step;
    counters.step_interval += interval;
    if (plan.chunks.size() > 1) ++counters.steps_with_several_sequences;
    // A replay takes the time of the stages that were replaced alone.
    if (std::ranges::any_of(plan.chunks, &PlannedChunk::replay)) return;
    pace.OnResult({plan.num_decodes, plan.prompt_tokens,
                   plan.concurrent_prefill, last_step, interval});
  }

  // Since when `plan`, the oldest one, is awaited.
  TimePoint awaited_since(const PlanInFlight& plan) const {
    return std::max(plan.submitted, last_result);
  }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_STEP_CLOCK_H_
