#ifndef SLUICE_COMMON_PIPELINE_STAGE_STAGE_CHECKS_H_
#define SLUICE_COMMON_PIPELINE_STAGE_STAGE_CHECKS_H_

#include "common/base/status.h"
#include "common/stage/stage.h"
#include "common/wire/stage.h"

// Checks of a peer before it is trusted. Refusals name both sides' values.
namespace sluice {

// Returns the limits of this stage, with its own `max_steps_in_flight`.
PipelineLimits LimitsOf(const StageInfo& info, int32_t max_steps_in_flight);

// FAILED_PRECONDITION unless the peer speaks our protocol version.
Status CheckVersion(uint32_t version);

// An error unless the gateway speaks our protocol version, and has an id and a
// secret of the right sizes.
Status CheckHello(const v1::Hello& hello);

// Returns whether the hello counts higher than the latest one with the same
// secret, and becomes the latest one; another one is late, or a copy. `latest`
// 0: that one had no count.
bool CountOn(const v1::Hello& hello, uint64_t& latest);

// FAILED_PRECONDITION unless a stage with `info` and `own` limits can take the
// place that `assign` names in a pipeline with `limits`.
Status CheckAssignment(const v1::Assign& assign, const PipelineLimits& limits,
                       const StageInfo& info, const PipelineLimits& own);

// FAILED_PRECONDITION unless a stage of a model with `num_layers` can load the
// layers of `place`.
Status CheckLoadable(const StagePlace& place, int32_t num_layers);

// FAILED_PRECONDITION unless the predecessor's hello names `pipeline`, and this
// stage's model, first layer and sizes.
Status CheckStepsHello(const v1::StepsHello& hello,
                       const wire::PipelineName& pipeline,
                       const StageInfo& info);

// FAILED_PRECONDITION unless the results of `pipeline` (null: there is no
// epoch) may be read from this stage.
Status CheckResultsRequest(const v1::ResultsRequest& request,
                           const wire::PipelineName* pipeline,
                           const StageInfo& info);

// An error unless a stage with `info` may give layers' keys and values to the
// reader of `hello`.
Status CheckBlocksHello(const v1::BlocksHello& hello, const StageInfo& info);

// Returns a step's round trip without the successor's time to wait and compute,
// as its ack gives it. The ack counts only within the round trip.
int64_t HopNanos(const v1::StepAck& ack, int64_t round_trip_ns);

}  // namespace sluice

#endif  // SLUICE_COMMON_PIPELINE_STAGE_STAGE_CHECKS_H_
