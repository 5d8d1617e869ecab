#include "common/pipeline/stage/steps_stream.h"

#include <utility>

#include "common/rpc/hello.h"
#include "common/rpc/payload_frame.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

grpc::ByteBuffer AckFrame(v1::StepHeader header, int64_t received_ns,
                          const StepTiming& timing) {
  v1::StepAck ack;
  *ack.mutable_header() = std::move(header);
  ack.set_received_ns(received_ns);
  ack.set_compute_ns(timing.compute_ns);
  ack.set_wait_ns(timing.wait_ns);
  return rpc::JoinPayload(ack, 0, Buffer());
}

}  // namespace

void StepsStream::OnMessage(grpc::ByteBuffer& frame) {
  const Status status = OnFrame(frame, MonotonicNanos());
  frame.Clear();
  if (!status.ok()) End(status);
}

void StepsStream::OnEnd(const Status& status) {
  session_->links().OnStepsEnd(this, status);
}

Status StepsStream::OnFrame(const grpc::ByteBuffer& frame,
                            int64_t received_ns) {
  SLUICE_ASSIGN_OR_RETURN(
      rpc::SplitFrame split,
      rpc::SplitPayload(frame, wire::kHiddenStatesField, frame.Length()));
  SLUICE_ASSIGN_OR_RETURN(v1::StepFrame head,
                          rpc::ParseHead<v1::StepFrame>(split.head));
  if (!head.has_step()) return InvalidArgument("a frame of Steps has no step");
  return OnStep(std::move(*head.mutable_step()), std::move(split.payload),
                {received_ns, static_cast<int64_t>(frame.Length())});
}

Status StepsStream::OnHello(const std::string& bytes) {
  SLUICE_ASSIGN_OR_RETURN(const v1::StepsHello hello,
                          rpc::ParseHello<v1::StepsHello>(bytes, "Steps"));
  auto self = std::static_pointer_cast<StepsStream>(shared_from_this());
  SLUICE_ASSIGN_OR_RETURN(
      terms_, session_->links().OnStepsHello(hello, std::move(self)));
  v1::StepHeader header;
  header.set_replica(terms_->assignment.replica.value());
  wire::SetEpoch(terms_->assignment.epoch, &header);
  Send(AckFrame(std::move(header), MonotonicNanos(), StepTiming()));
  return OkStatus();
}

Status StepsStream::OnStep(v1::Step step, Buffer payload,
                           const Arrival& arrival) {
  const Assignment& assignment = terms_->assignment;
  // Stale, or another pipeline's: dropped, as the protocol says.
  if (wire::EpochOf(step.header()) != assignment.epoch ||
      step.header().replica() != assignment.replica.value()) {
    return OkStatus();
  }
  StepInput input;
  SLUICE_ASSIGN_OR_RETURN(
      input.plan,
      wire::FromProto(step.header(), step.plan(), assignment.limits.plan));
  input.validated = true;  // the pipeline's limits are within the stage's
  SLUICE_ASSIGN_OR_RETURN(
      input.failed,
      wire::FailedFromProto(step, input.plan, assignment.limits.plan));
  auto hidden = wire::HiddenFromPayload(
      std::move(payload), input.plan.num_rows(terms_->first_layer),
      terms_->hidden_size);
  if (!hidden.ok()) {
    return Annotate(hidden.status(), "step ", input.plan.step_id);
  }
  input.hidden = *std::move(hidden);
  {
    MutexLock lock(mutex_);
    const size_t limit =
        static_cast<size_t>(assignment.limits.max_steps_in_flight);
    if (received_ns_.size() >= limit) {
      return ResourceExhausted("step ", input.plan.step_id, " comes with ",
                               received_ns_.size(),
                               " steps unacknowledged, limit ", limit);
    }
    received_ns_.push_back(arrival.received_ns);
  }
  if (step.has_trace()) {
    SLUICE_ASSIGN_OR_RETURN(input.plan.trace, wire::FromProto(step.trace()));
    input.plan.trace->stages.emplace_back().receive = {arrival.received_ns,
                                                       MonotonicNanos()};
  }
  return session_->links().OnStepInput(
      std::move(input), std::move(*step.mutable_plan()), arrival.bytes);
}

void StepsStream::QueueAck(StepId step, const StepTiming& timing) {
  int64_t received_ns = 0;
  {
    MutexLock lock(mutex_);
    if (received_ns_.empty()) return;
    received_ns = received_ns_.front();
    received_ns_.pop_front();
  }
  const Assignment& assignment = terms_->assignment;
  Enqueue(AckFrame(wire::ToProto(assignment.replica, assignment.epoch, step),
                   received_ns, timing));
}

}  // namespace sluice
