#ifndef SLUICE_COMMON_WIRE_TYPES_H_
#define SLUICE_COMMON_WIRE_TYPES_H_

#include <algorithm>
#include <cstdint>

#include "common/base/status.h"
#include "common/core/sampling_params.h"
#include "common/core/step_plan.h"
#include "common/wire/limits.h"
#include "sluice/v1/types.pb.h"

// types.proto to common/core and back. FromProto trusts no peer: it checks
// sizes before it copies, then core's Validate checks the value as a whole.
// INVALID_ARGUMENT names what, which, limit and value.
namespace sluice::wire {

// The epoch of a message: its fields `term`, and `epoch`, the count within the
// term.
template <typename Message>
Epoch EpochOf(const Message& message) {
  return {message.term(), message.epoch()};
}
template <typename Message>
void SetEpoch(Epoch epoch, Message* message) {
  message->set_term(epoch.term());
  message->set_epoch(epoch.count());
}

v1::StepHeader ToProto(ReplicaId replica, Epoch epoch, StepId step);

v1::SamplingParams ToProto(const SamplingParams& params);
StatusOr<SamplingParams> FromProto(const v1::SamplingParams& proto,
                                   int vocab_size);

// Without the header.
v1::StepPlan ToProto(const StepPlan& plan);
StatusOr<StepPlan> FromProto(const v1::StepHeader& header,
                             const v1::StepPlan& proto,
                             const PlanLimits& limits);

// Returns the most values of a result's raw row: logits, or hidden states.
inline int64_t MaxRawRowValues(const PlanLimits& limits) {
  return std::max(limits.vocab_size, kMaxResultHidden);
}

v1::SequenceResult ToProto(const SequenceResult& result);
StatusOr<SequenceResult> FromProto(const v1::SequenceResult& proto,
                                   const PlanLimits& limits);

// A status in two fields. Unknown codes become UNKNOWN; messages have 4 KiB at
// most.
Status StatusFromProto(int code, const std::string& message);

}  // namespace sluice::wire

#endif  // SLUICE_COMMON_WIRE_TYPES_H_
