#ifndef SLUICE_SERVICES_GATEWAY_JUDGE_READINESS_H_
#define SLUICE_SERVICES_GATEWAY_JUDGE_READINESS_H_

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/engine_stats.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "common/standby/standing.h"
#include "services/gateway/audience.h"

namespace sluice::gateway {

// Returns how long a plan may stay unanswered: far beyond the time
// `expected_step` (zero: unknown), never so short that a hiccup counts.
Duration StuckAfter(Duration expected_step);

// Readiness is progress. Ready: the pipeline is up, every stage was heard of
// lately, plans in flight come back (an idle pipeline gets empty ones), and
// every stage reaches a host for each remote expert. A queue of any length is
// no reason. A stage that answers heartbeats and does no steps is named: the
// first with the fewest steps. `draining`: the gateway was told to end.
serving::Readiness JudgeReadiness(const PipelineStatus& pipeline,
                                  const EngineProgress& progress,
                                  bool draining);

// Returns the readiness of a gateway beside others of the same `stages`, which
// by itself has `own`: a leader is as ready as its pipeline, any other gateway
// as its standing says.
serving::Readiness JudgeBesidePeers(serving::Readiness own,
                                    const standby::Standing& standing,
                                    const std::vector<std::string>& stages);

// Returns when to retry, in whole seconds of 1 to 30: the rest of a stage's
// drain; for a lost pipeline, the rest of its latest recovery's time, else the
// time that it has been down. 1, the time between two probes, for a pipeline
// that stands without progress or is unknown, and while the gateway drains:
// another gateway may answer at once.
int RetryAfter(const PipelineStatus& pipeline, bool draining);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_JUDGE_READINESS_H_
