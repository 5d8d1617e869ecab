#ifndef SLUICE_SERVICES_GATEWAY_JUDGE_READINESS_H_
#define SLUICE_SERVICES_GATEWAY_JUDGE_READINESS_H_

#include "common/base/clock.h"
#include "common/engine/engine_stats.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "services/gateway/readiness.h"

namespace sluice::gateway {

// How long a plan may stay unanswered: far beyond what one of its size should
// take (zero: not known yet), never so short that a moment's hiccup counts.
Duration StuckAfter(Duration expected_step);

// Readiness is progress: ready means that the pipeline is up, every stage was
// heard of lately, and plans that are in flight come back; an idle pipeline
// gets empty ones; and that every stage can ask somebody for each of its
// experts. A queue, however long, is no reason. A stage that answers heartbeats
// and does no steps is named: the first that has done the fewest.
// `draining`: the gateway itself was told to end.
GatewayReadiness JudgeReadiness(const PipelineStatus& pipeline,
                                const EngineProgress& progress, bool draining);

// When to try again, in whole seconds of 1 to 30: what is left of a stage's
// drain; of a pipeline that is down what its latest recovery would still take,
// else as long as it has been down already. 1, the time between two probes,
// while a pipeline stands and does not move, or nothing is known; and while
// the gateway itself drains: another one may answer at once.
int RetryAfter(const PipelineStatus& pipeline, bool draining);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_JUDGE_READINESS_H_
