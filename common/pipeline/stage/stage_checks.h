#ifndef SLUICE_COMMON_PIPELINE_STAGE_STAGE_CHECKS_H_
#define SLUICE_COMMON_PIPELINE_STAGE_STAGE_CHECKS_H_

#include "common/base/status.h"
#include "common/stage/stage.h"
#include "common/wire/stage.h"

// What a stage compares before it believes a peer. Every refusal names both
// sides' values.
namespace sluice {

// What this stage takes, with `max_steps_in_flight` of its own.
PipelineLimits LimitsOf(const StageInfo& info, int32_t max_steps_in_flight);

// FAILED_PRECONDITION unless the peer speaks our protocol version.
Status CheckVersion(uint32_t version);

// Whether a stage with `info` and `own` limits can take its place in a
// pipeline with `limits` and the successor that `assign` names.
// FAILED_PRECONDITION otherwise.
Status CheckAssignment(const v1::Assign& assign, const PipelineLimits& limits,
                       const StageInfo& info, const PipelineLimits& own);

// Whether the predecessor's hello is about `pipeline`, and the model, layer and
// sizes that this stage serves. FAILED_PRECONDITION otherwise.
Status CheckStepsHello(const v1::StepsHello& hello,
                       const wire::PipelineName& pipeline,
                       const StageInfo& info);

// Whether the results of `pipeline` (null: there is no epoch) may be read from
// this stage. FAILED_PRECONDITION otherwise.
Status CheckResultsRequest(const v1::ResultsRequest& request,
                           const wire::PipelineName* pipeline,
                           const StageInfo& info);

// What is left of a step's round trip without the time that the successor's
// ack says it computed and waited, which is believed as far as it fits.
int64_t HopNanos(const v1::StepAck& ack, int64_t round_trip_ns);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_STAGE_CHECKS_H_
