#ifndef SLUICE_COMMON_WIRE_STAGE_H_
#define SLUICE_COMMON_WIRE_STAGE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/core/stage_identity.h"
#include "common/core/step_plan.h"
#include "common/tensor/hidden_states.h"
#include "sluice/v1/stage.pb.h"

// stage.proto as values. As in types.h, FromProto checks every field.
namespace sluice::wire {

// Of Hello, Welcome and StepsHello. Raised when older peers would misread a
// message.
inline constexpr uint32_t kProtocolVersion = 8;

// Bytes of Hello's and Assign's secrets.
inline constexpr size_t kSecretBytes = 32;

// Field number of StepFrame.hidden_states, which travels beside the rest.
inline constexpr int kHiddenStatesField = 15;

// An epoch's pipeline, as its data streams name it.
struct PipelineName {
  ReplicaId replica;
  Epoch epoch;
  std::string secret;  // a peer that names it belongs to the pipeline
};
// The hello of Steps, serialised: to the stage with first layer `layer`, about
// the model of `identity`.
std::string StepsHello(const PipelineName& pipeline,
                       const StageIdentity& identity, int32_t layer);

v1::StageIdentity ToProto(const StageIdentity& identity);
StatusOr<StageIdentity> FromProto(const v1::StageIdentity& proto);

v1::PipelineLimits ToProto(const PipelineLimits& limits);
StatusOr<PipelineLimits> FromProto(const v1::PipelineLimits& proto);

// A frame of Steps without its hidden states. `failed`: sequences that failed
// on a stage before.
v1::StepFrame StepFrameHead(const StepPlan& plan, int64_t sent_ns,
                            std::span<const SequenceResult> failed = {});
// The same with `proto`, the plan as it came from the stage before.
v1::StepFrame StepFrameHead(const StepPlan& plan, v1::StepPlan proto,
                            int64_t sent_ns,
                            std::span<const SequenceResult> failed);
// The failed ones of a step with `plan`. INVALID_ARGUMENT for more than it has
// chunks, or with more than a status.
StatusOr<std::vector<SequenceResult>> FailedFromProto(const v1::Step& proto,
                                                      const StepPlan& plan,
                                                      const PlanLimits& limits);

// What a sender adds behind a frame of Steps whose plan is traced.
v1::StepFrame StepFrameTrace(const StepTrace& trace);

// A trace on the wire has the stages' parts alone. INVALID_ARGUMENT for one of
// more than 1024 stages, or with times that no host's clock shows: outside
// [0, 2^60), running backwards, or of more than an hour on one stage.
v1::StepTrace ToProto(const StepTrace& trace);
StatusOr<StepTrace> FromProto(const v1::StepTrace& proto);

// The hidden states of a plan of `tokens` tokens, from a frame's payload.
// INVALID_ARGUMENT unless it is [tokens, hidden_size] F32; hidden_size 0:
// unless it is empty.
StatusOr<HiddenStates> HiddenFromPayload(Buffer payload, int32_t tokens,
                                         int32_t hidden_size);

// Without the trace, which ToProto of its own adds when this is done.
v1::StepResult ToProto(const StepResult& result);
// What the first stage is told of a result: of each sequence the status, or the
// last sampled token, if there is one.
v1::StepResult SampledToProto(const StepResult& result);
StatusOr<StepResult> FromProto(const v1::StepResult& proto,
                               const PlanLimits& limits);

// Bytes that no valid frame or result exceeds, for the channels' limits:
// every sequence of a step started anew, and the payload beside it. Below
// 2 GiB, which is gRPC's own limit.
int64_t MaxFrameBytes(const PlanLimits& limits, int32_t hidden_size);
int64_t MaxResultBytes(const PlanLimits& limits);

}  // namespace sluice::wire

#endif  // SLUICE_COMMON_WIRE_STAGE_H_
