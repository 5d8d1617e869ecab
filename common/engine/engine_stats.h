#ifndef SLUICE_COMMON_ENGINE_ENGINE_STATS_H_
#define SLUICE_COMMON_ENGINE_ENGINE_STATS_H_

#include <algorithm>
#include <cstdint>

#include "common/base/clock.h"

namespace sluice {

// Counters of one engine. They never fall, across epochs either.
struct EngineCounters {
  uint64_t submitted = 0;  // accepted requests
  uint64_t refused_queue_full = 0;
  uint64_t finished_stop = 0;  // submitted = the four finished_* + live
  uint64_t finished_length = 0;
  uint64_t finished_cancelled = 0;
  uint64_t finished_error = 0;  // deadlines, lost pipelines, failed sequences
  uint64_t prompt_tokens = 0;   // of started sequences, counted once each
  uint64_t generation_tokens = 0;  // delivered to sinks
  uint64_t computed_tokens = 0;    // in committed steps, recompute included
  uint64_t recoveries = 0;         // pipelines that took on suspended sequences
  uint64_t replayed_tokens = 0;    // of lost sequences, to be computed again
  uint64_t kept_tokens = 0;  // of them, not on stages that kept their KV cache
  uint64_t preemptions = 0;
  uint64_t yields = 0;               // of them, for a client below its share
  uint64_t prefix_query_tokens = 0;  // looked up in the prefix cache
  uint64_t prefix_hit_tokens = 0;    // of them, found
  uint64_t cache_evictions = 0;      // cached blocks that were handed out again
  uint64_t steps = 0;                // committed plans
  uint64_t steps_with_several_sequences = 0;
  uint64_t split_prefills = 0;   // prompts computed in more than one chunk
  uint64_t stale_results = 0;    // dropped: of an older epoch
  uint64_t exceptions = 0;       // caught, of the engine or a sink
  uint64_t refused_results = 0;  // results that did not answer their plan
  Duration step_time{};          // sum over committed steps, submit to result
  // The same sum, from the result before if that was later than submission.
  Duration step_interval{};
  Duration plan_time{};  // spent on planning, also when no plan came of it
};

// Read by the gateway's metrics and readiness. A copy, taken at one moment.
struct EngineStats : EngineCounters {
  int running = 0;     // sequences that hold blocks
  int waiting = 0;     // accepted, not running; preempted ones included
  int suspended = 0;   // of them, those that wait for a pipeline
  bool rests = false;  // the pipeline's sequences are held, and none runs
  int blocks_total = 0;
  int blocks_used = 0;  // held by sequences; free cached blocks do not count
  int plans_in_flight = 0;
  int max_plans_in_flight_seen = 0;
  Duration last_step_time{};   // submit to result of the latest step
  int64_t waiting_tokens = 0;  // prompt tokens of the waiting
  int64_t waiting_bytes = 0;   // of their token histories
  Duration promised_wait{};    // of a new request behind all of them
  int prompt_budget = 0;       // prompt tokens that a plan may carry at present
  // Of the pipeline, in steps like the latest; 0: unknown.
  double prompt_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  double kv_usage() const {  // 0 to 1
    return blocks_total == 0 ? 0.0 : double(blocks_used) / blocks_total;
  }
};

// Whether the pipeline moves. An idle pipeline gets an empty plan every second,
// so this covers it as well.
struct EngineProgress {
  bool pipeline_up = false;
  bool recovering = false;       // sequences wait for a pipeline that was lost
  int plans_in_flight = 0;       // without probes of an idle pipeline
  Duration since_last_result{};  // or since the pipeline came up
  // How long the oldest plan in flight, probes included, has been awaited since
  // the result before it. Zero without one.
  Duration oldest_plan_age{};
  // The time that this plan should take at the measured pace. Zero: unknown.
  Duration expected_step{};
};

// Returns the time after which an unanswered plan is given up: far beyond the
// time `expected_step`; never while that is unknown (zero). A stage that hangs
// then ends itself.
inline Duration GivenUpAfter(Duration expected_step) {
  constexpr int kFarBeyond = 10;  // times the expected time
  constexpr Duration kShortest = std::chrono::seconds(15);
  if (expected_step <= Duration::zero()) return Duration::max();
  return std::max(kFarBeyond * expected_step, kShortest);
}

// What EngineProgress tells in ages, in points of time.
struct ProgressTimes {
  TimePoint last_result;                     // or the pipeline came up
  TimePoint oldest_plan = TimePoint::max();  // awaited since; max(): none is
  Duration expected_step{};

  EngineProgress At(TimePoint now) const {
    EngineProgress progress;
    progress.since_last_result = now - last_result;
    progress.oldest_plan_age = std::max(now - oldest_plan, Duration::zero());
    progress.expected_step = expected_step;
    return progress;
  }
};

}  // namespace sluice

#endif  // SLUICE_COMMON_ENGINE_ENGINE_STATS_H_
