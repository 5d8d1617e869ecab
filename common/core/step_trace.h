#ifndef SLUICE_COMMON_CORE_STEP_TRACE_H_
#define SLUICE_COMMON_CORE_STEP_TRACE_H_

#include <cstdint>
#include <vector>

#include "common/core/ids.h"

namespace sluice {

// The start and stop of one activity, in nanoseconds of one process' monotonic
// clock. 0, 0: it did not happen.
struct TraceSpan {
  int64_t start_ns = 0;
  int64_t stop_ns = 0;
  int64_t duration_ns() const { return stop_ns - start_ns; }
  bool happened() const { return stop_ns != 0; }
  bool operator==(const TraceSpan&) const = default;
};

// The times of a step on one stage, by that stage's clock.
struct StageTrace {
  TraceSpan receive;    // parsing and checking the frame
  TraceSpan wait;       // in the queue, for the steps before it
  TraceSpan compute;    // the stage's layers; on the last one the logits too
  TraceSpan sample;     // last stage: tokens are drawn from the logits
  TraceSpan serialise;  // the frame for the successor, or the result
  bool operator==(const StageTrace&) const = default;
};

// What is known of the monotonic clock of a stage.
struct ClockEstimate {
  bool known = false;
  int64_t offset_ns = 0;  // the stage's clock less the gateway's
  int64_t error_ns = 0;   // the offset is wrong by at most this
  int64_t rtt_ns = 0;     // of the round trip behind the estimate
};

// A traced sequence's part of one step.
struct TracedChunk {
  SequenceId sequence;
  int32_t start = 0;  // position of its first token
  int32_t count = 0;
  bool samples = false;  // a token is drawn from its last position
  bool operator==(const TracedChunk&) const = default;
};

// One step's way through the pipeline and back. A plan with a traced sequence
// carries one out, and each stage adds its part; at the gateway all spans are
// in the gateway's clock. The wire between two spans is no span of its own,
// since two processes read its ends.
struct StepTrace {
  StepId step_id;
  int32_t num_sequences = 0;  // of the whole step, with other sequences
  int32_t num_tokens = 0;
  std::vector<TracedChunk> chunks;
  TraceSpan plan;                  // the scheduler makes the plan
  TraceSpan serialise;             // the plan's frame
  std::vector<StageTrace> stages;  // in their order
  TraceSpan receive;               // parsing and checking the result
  TraceSpan inbox;                 // until the engine looks at it
  TraceSpan commit;                // the scheduler takes it in
  bool operator==(const StepTrace&) const = default;
};

}  // namespace sluice

#endif  // SLUICE_COMMON_CORE_STEP_TRACE_H_
