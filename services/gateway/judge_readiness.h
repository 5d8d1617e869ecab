#ifndef SLUICE_SERVICES_GATEWAY_JUDGE_READINESS_H_
#define SLUICE_SERVICES_GATEWAY_JUDGE_READINESS_H_

#include "common/base/clock.h"
#include "common/engine/engine_stats.h"
#include "services/gateway/pipeline/pipeline_status.h"
#include "services/gateway/readiness.h"

namespace sluice::gateway {

// How long a plan may stay unanswered: far beyond what one of its size should
// take (zero: nobody knows yet), never so short that a moment's hiccup counts.
Duration StuckAfter(Duration expected_step);

// Readiness is progress: ready means that the pipeline is up, every stage was
// heard of lately, and plans that are in flight come back; an idle pipeline
// gets empty ones; and that every stage can ask somebody for each of its
// experts. A queue, however long, is no reason. A stage that answers heartbeats
// and does no steps is named: the first that has done the fewest.
GatewayReadiness JudgeReadiness(const PipelineStatus& pipeline,
                                const EngineProgress& progress, bool draining);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_JUDGE_READINESS_H_
