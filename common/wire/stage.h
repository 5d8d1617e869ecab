#ifndef SLUICE_COMMON_WIRE_STAGE_H_
#define SLUICE_COMMON_WIRE_STAGE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/core/kv_entry.h"
#include "common/core/stage_identity.h"
#include "common/core/step_plan.h"
#include "common/tensor/hidden_states.h"
#include "common/wire/protocol_versions.h"
#include "sluice/v1/stage.pb.h"

// stage.proto as values. As in types.h, FromProto checks every field.
namespace sluice::wire {

// Bytes of Hello's and Assign's secrets.
inline constexpr size_t kSecretBytes = 32;
inline constexpr size_t kRunBytes = 16;  // of Welcome.run

// Field number of StepFrame.hidden_states, which travels beside the rest.
inline constexpr int kHiddenStatesField = 15;

// The names of an epoch's pipeline in its data streams.
struct PipelineName {
  ReplicaId replica;
  Epoch epoch;
  std::string secret;  // proves that a peer belongs to the pipeline
};
// Returns the serialised hello of Steps, to the stage with first layer `layer`,
// for the model of `identity`.
std::string StepsHello(const PipelineName& pipeline,
                       const StageIdentity& identity, int32_t layer);

v1::StageIdentity ToProto(const StageIdentity& identity);
StatusOr<StageIdentity> FromProto(const v1::StageIdentity& proto);

v1::PipelineLimits ToProto(const PipelineLimits& limits);
StatusOr<PipelineLimits> FromProto(const v1::PipelineLimits& proto);

// Returns a frame of Steps without its hidden states. `failed`: sequences that
// failed on an earlier stage.
v1::StepFrame StepFrameHead(const StepPlan& plan, int64_t sent_ns,
                            std::span<const SequenceResult> failed = {});
// The same with `proto`, the plan as received from the stage before.
v1::StepFrame StepFrameHead(const StepPlan& plan, v1::StepPlan proto,
                            int64_t sent_ns,
                            std::span<const SequenceResult> failed);
// Returns the failed sequences of a step with `plan`. INVALID_ARGUMENT for more
// of them than chunks, or for more than a status.
StatusOr<std::vector<SequenceResult>> FailedFromProto(const v1::Step& proto,
                                                      const StepPlan& plan,
                                                      const PlanLimits& limits);

// Returns what a sender adds behind a frame of Steps with a traced plan.
v1::StepFrame StepFrameTrace(const StepTrace& trace);

// A trace on the wire has the stages' parts alone. INVALID_ARGUMENT for more
// than 1024 stages or impossible times: outside [0, 2^60), backwards, or above
// an hour on one stage.
v1::StepTrace ToProto(const StepTrace& trace);
StatusOr<StepTrace> FromProto(const v1::StepTrace& proto);

// Returns the hidden states of a plan of which the stage computes `rows`
// tokens, from a frame's payload. INVALID_ARGUMENT unless the payload is [rows,
// hidden_size] F32; for hidden_size 0 unless it is empty.
StatusOr<HiddenStates> HiddenFromPayload(Buffer payload, int32_t rows,
                                         int32_t hidden_size);

// Without the trace, which the caller adds with its own ToProto.
v1::StepResult ToProto(const StepResult& result);
// Returns a result for the first stage: each sequence's status, or its last
// sampled token, if there is one.
v1::StepResult SampledToProto(const StepResult& result);
StatusOr<StepResult> FromProto(const v1::StepResult& proto,
                               const PlanLimits& limits);

v1::KvEntry ToProto(KvEntry entry);
// INVALID_ARGUMENT for a negative layer, group or block.
StatusOr<KvEntry> FromProto(v1::KvEntry proto);

// Bytes of the entries of one BlocksResponse, but for the last one, which may
// begin below; the most of a response; and the most requests of Blocks without
// an answer.
inline constexpr size_t kBlocksBytes = size_t{1} << 20;
inline constexpr int64_t kMaxBlocksBytes = int64_t{256} << 20;
inline constexpr int kMaxBlocksAsked = 8;

// Upper bounds of the bytes of a frame and a result, for the channels: a step
// that starts all its sequences, and the payload. Below gRPC's own 2 GiB.
int64_t MaxFrameBytes(const PlanLimits& limits, int32_t hidden_size);
int64_t MaxResultBytes(const PlanLimits& limits);

}  // namespace sluice::wire

#endif  // SLUICE_COMMON_WIRE_STAGE_H_
