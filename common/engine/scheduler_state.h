#ifndef SLUICE_COMMON_ENGINE_SCHEDULER_STATE_H_
#define SLUICE_COMMON_ENGINE_SCHEDULER_STATE_H_

#include <algorithm>
#include <cstdint>
#include <deque>

#include "common/core/step_plan.h"
#include "common/engine/engine_options.h"
#include "common/engine/engine_stats.h"
#include "common/engine/plan_in_flight.h"
#include "common/engine/retries.h"
#include "common/engine/sequence_store.h"
#include "common/engine/step_pace.h"

namespace sluice {

// Scheduler's state: all that a plan depends on. BatchPolicy reads it,
// BatchBuilder fills a plan from it.
struct SchedulerState {
  SchedulerState(const EngineOptions& given, EngineCounters* counts)
      : options(given),
        counters(counts),
        pace(given.target_itl),
        retries(given.recovery_timeout) {}

  const EngineOptions options;
  EngineCounters* const counters;
  PlanLimits limits;  // of the attached pipeline; all 0 without one
  int max_plans = 1;  // in flight, without one that goes ahead
  StepId next_step;
  SequenceStore sequences;
  std::deque<PlanInFlight> in_flight;
  StepPace pace;
  Retries retries;
  // Whether queued sequences wait for the next pipeline.
  bool holds_starts = false;
  // Whether the latest plan had no room for a sequence that wanted to start.
  bool admission_blocked = false;

  int32_t max_running() const {
    return limits.max_sequences > 0
               ? std::min(options.max_running, limits.max_sequences)
               : options.max_running;
  }
  int32_t max_step_tokens() const {
    return std::min(options.max_step_tokens, limits.max_step_tokens);
  }
  // The most tokens of one prompt in a plan; 0: no cap.
  int32_t prompt_chunk() const {
    if (options.prefill_chunk != EngineOptions::kHalfStep) {
      return options.prefill_chunk;
    }
    return std::max(max_step_tokens() / 2, EngineOptions::kLeastChunk);
  }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_SCHEDULER_STATE_H_
