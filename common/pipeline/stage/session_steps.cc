// StageSession's way of a step: from the predecessor to the runner, and from
// there to the successor or the gateway.
#include <algorithm>
#include <string>
#include <utility>

#include "common/base/random_bytes.h"
#include "common/pipeline/stage/session_live.h"
#include "common/pipeline/stage/stage_checks.h"
#include "common/pipeline/stage/stage_metrics.h"
#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/payload_frame.h"
#include "common/rpc/transport.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

constexpr char kStepsMethod[] = "/sluice.v1.Stage/Steps";
constexpr size_t kMaxAckBytes = 4096;

std::string NextHello(const Assignment& assignment, const StageInfo& info) {
  v1::StepsHello hello;
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_replica(assignment.replica.value());
  hello.set_epoch(assignment.epoch.value());
  hello.set_model_digest(info.model_digest);
  hello.set_numerics(info.numerics);
  hello.set_layer(info.last_layer);
  hello.set_hidden_size(info.hidden_size);
  hello.set_secret(assignment.secret);
  return hello.SerializeAsString();
}

Status CheckEpochSecret(const Assignment& assignment,
                        const std::string& secret) {
  if (EqualSecrets(assignment.secret, secret)) return OkStatus();
  return FailedPrecondition("the secret is not that of epoch ",
                            assignment.epoch);
}

// This stage's part of a trace ends: what follows is the wire.
void EndSerialise(StepTrace& trace, int64_t begin_ns) {
  if (trace.stages.empty()) return;
  trace.stages.back().serialise = {begin_ns, MonotonicNanos()};
}

v1::StepResult ResultMessage(StepOutput& output, int64_t begin_ns) {
  v1::StepResult result = wire::ToProto(*output.result);
  if (output.plan.trace.has_value()) {
    EndSerialise(*output.plan.trace, begin_ns);
    *result.mutable_trace() = wire::ToProto(*output.plan.trace);
  }
  return result;
}

}  // namespace

// The successor --------------------------------------------------------------

void StageSession::OpenNext(const Assignment& assignment) {
  const Epoch epoch = assignment.epoch;
  const auto weak = weak_from_this();
  rpc::CreditedSenderEvents events;
  events.on_ready = [weak, epoch] {
    if (auto self = weak.lock()) self->OnNextReady(epoch);
  };
  events.on_ack = [weak](const grpc::ByteBuffer& frame) {
    auto split = rpc::SplitPayload(frame, 0, kMaxAckBytes);
    if (!split.ok()) return;
    auto ack = rpc::ParseHead<v1::StepAck>(split->head);
    if (!ack.ok()) return;
    if (auto self = weak.lock()) self->OnNextAck(*ack);
  };
  events.on_end = [weak, epoch](const Status& status) {
    if (auto self = weak.lock()) self->OnNextEnd(epoch, status);
  };
  events.on_credit = [weak](int64_t waited_ns) {
    const auto self = weak.lock();
    if (self != nullptr && self->options_.metrics != nullptr) {
      self->options_.metrics->OnWindow(waited_ns);
    }
  };
  Status status;
  {
    // The callbacks come from other threads and wait for this lock.
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch) return;
    rpc::TransportOptions transport = options_.transport;
    transport.max_message_bytes =
        wire::MaxFrameBytes(assignment.limits.plan, info_.hidden_size);
    auto channel = rpc::Connect(assignment.next_address, transport);
    status = channel.status();
    if (status.ok()) {
      const size_t credits =
          static_cast<size_t>(assignment.limits.max_steps_in_flight);
      live_->next = rpc::CreditedSender::Open(
          {*channel, kStepsMethod, NextHello(assignment, info_), credits,
           2 * credits},
          std::move(events));
    }
  }
  if (!status.ok()) AnswerAssign(epoch, status);
}

void StageSession::OnNextReady(Epoch epoch) {
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch) return;
  }
  AnswerAssign(epoch, OkStatus());
}

void StageSession::OnNextAck(const v1::StepAck& ack) {
  const Epoch epoch(ack.header().epoch());
  int64_t hop = 0;
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch ||
        live_->sent_ns.empty()) {
      return;
    }
    const int64_t round_trip = MonotonicNanos() - live_->sent_ns.front();
    live_->sent_ns.pop_front();
    hop = HopNanos(ack, round_trip);
    // One slow step says little.
    const int64_t mean = live_->hop_ns;
    live_->hop_ns =
        std::max<int64_t>(mean == 0 ? hop : mean + (hop - mean) / 8, 1);
  }
  if (options_.metrics != nullptr) options_.metrics->OnHop(hop);
  SendAcks(epoch);
}

void StageSession::OnNextEnd(Epoch epoch, const Status& status) {
  bool assigned = false;
  std::string address;
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch) return;
    assigned = live_->assigned;
    address = live_->assignment.next_address;
  }
  const Status why =
      status.ok() ? Unavailable("successor ", address, " ended the stream")
                  : Annotate(status, "successor ", address);
  if (assigned) {
    Fail(epoch, v1::FAILURE_SIDE_SUCCESSOR, why);
  } else {
    AnswerAssign(epoch, why);
  }
}

// Steps and results ----------------------------------------------------------

StatusOr<StageSession::InputTerms> StageSession::OnStepsHello(
    const v1::StepsHello& hello, std::shared_ptr<StepsStream> steps) {
  MutexLock lock(mutex_);
  if (draining_) return Unavailable("this stage is shutting down");
  if (live_ == nullptr) {
    return FailedPrecondition("this stage has no epoch, the hello names ",
                              hello.epoch());
  }
  const Assignment& assignment = live_->assignment;
  if (hello.epoch() != assignment.epoch.value() ||
      hello.replica() != assignment.replica.value()) {
    return FailedPrecondition("this stage is in epoch ", assignment.epoch,
                              " of replica ", assignment.replica,
                              ", the hello names epoch ", hello.epoch(),
                              " of replica ", hello.replica());
  }
  SLUICE_RETURN_IF_ERROR(CheckEpochSecret(assignment, hello.secret()));
  SLUICE_RETURN_IF_ERROR(CheckStepsHello(hello, info_));
  if (live_->input != nullptr) {
    return FailedPrecondition("this stage has a predecessor's stream already");
  }
  live_->input = std::move(steps);
  return InputTerms{assignment, info_.is_first() ? 0 : info_.hidden_size,
                    runner_};
}

Status StageSession::OnStepInput(StepInput input, int64_t wire_bytes) {
  StepRunner* runner = nullptr;
  {
    MutexLock lock(mutex_);
    if (draining_) return Unavailable("this stage is shutting down");
    if (live_ == nullptr || live_->assignment.epoch != input.plan.epoch) {
      return OkStatus();  // stale
    }
    ++live_->accepted;
    runner = runner_;
  }
  if (options_.metrics != nullptr) {
    options_.metrics->OnWire(StageMetrics::Peer::kPrevious, wire_bytes);
  }
  return runner->Push(std::move(input));
}

void StageSession::OnStepsEnd(const StepsStream* steps, const Status& status) {
  Epoch epoch;
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->input.get() != steps) return;
    live_->input = nullptr;
    if (draining_) return;
    epoch = live_->assignment.epoch;
  }
  Fail(epoch, v1::FAILURE_SIDE_PREDECESSOR,
       status.ok() ? Cancelled("the predecessor ended its stream")
                   : Annotate(status, "stream of steps"));
}

Status StageSession::OnResults(const v1::ResultsRequest& request,
                               std::shared_ptr<ResultsStream> results) {
  {
    MutexLock lock(mutex_);
    SLUICE_RETURN_IF_ERROR(CheckResults(request));
    live_->results = results;
    for (v1::StepResult& early : live_->early_results) {
      results->Enqueue(std::move(early));
    }
    live_->early_results.clear();
  }
  results->Pump();
  return OkStatus();
}

Status StageSession::CheckResults(const v1::ResultsRequest& request) const {
  if (live_ == nullptr || request.epoch() != live_->assignment.epoch.value() ||
      request.replica() != live_->assignment.replica.value()) {
    return FailedPrecondition(
        "this stage is in epoch ",
        live_ == nullptr ? Epoch(0) : live_->assignment.epoch,
        ", results were asked for of epoch ", request.epoch(), " of replica ",
        request.replica());
  }
  SLUICE_RETURN_IF_ERROR(CheckEpochSecret(live_->assignment, request.secret()));
  if (!info_.is_last()) {
    return FailedPrecondition("this stage ends at layer ", info_.last_layer,
                              " of ", info_.num_layers,
                              ": results come from the last stage");
  }
  if (live_->results != nullptr) {
    return FailedPrecondition("the results of this epoch are being read");
  }
  return OkStatus();
}

void StageSession::OnResultsEnd(const ResultsStream* results) {
  MutexLock lock(mutex_);
  if (live_ != nullptr && live_->results.get() == results) {
    live_->results = nullptr;
  }
}

void StageSession::OnStep(StepOutput output) {
  const int64_t begin = MonotonicNanos();
  if (options_.metrics != nullptr) options_.metrics->OnStep(output);
  const Epoch epoch = output.plan.epoch;
  const Live::Unacked done{output.plan.step_id, output.timing};
  std::shared_ptr<rpc::CreditedSender> next;
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch) return;
    next = live_->next;
    if (next != nullptr) live_->sent_ns.push_back(MonotonicNanos());
  }
  Status status;
  if (output.result.has_value()) {
    SendResult(ResultMessage(output, begin));
  } else if (next != nullptr) {
    status = SendOn(*next, std::move(output), begin);
  }
  {
    // Only now, so that the frame counts among those that wait.
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch) return;
    live_->unacked.push_back(done);
  }
  SendAcks(epoch);
  if (!status.ok()) Fail(epoch, v1::FAILURE_SIDE_SUCCESSOR, status);
  NoteStepDone(epoch);
}

void StageSession::SendAcks(Epoch epoch) {
  std::shared_ptr<StepsStream> input;
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch) return;
    input = live_->input;
    const size_t waiting = live_->next == nullptr ? 0 : live_->next->waiting();
    while (live_->unacked.size() > waiting) {
      const Live::Unacked step = live_->unacked.front();
      live_->unacked.pop_front();
      if (input != nullptr) input->QueueAck(step.step, step.timing);
    }
  }
  if (input != nullptr) input->Pump();
}

Status StageSession::SendOn(rpc::CreditedSender& next, StepOutput output,
                            int64_t begin) {
  grpc::ByteBuffer frame =
      rpc::JoinPayload(wire::StepFrameHead(output.plan, begin, output.failed),
                       wire::kHiddenStatesField, std::move(output.hidden.data));
  if (output.plan.trace.has_value()) {
    EndSerialise(*output.plan.trace, begin);
    rpc::AppendMessage(wire::StepFrameTrace(*output.plan.trace), &frame);
  }
  if (options_.metrics != nullptr) {
    options_.metrics->OnSerialized(MonotonicNanos() - begin);
    options_.metrics->OnWire(StageMetrics::Peer::kNext,
                             static_cast<int64_t>(frame.Length()));
  }
  return Annotate(next.SendFrame(std::move(frame)), "step ",
                  output.plan.step_id, " to the successor");
}

void StageSession::SendResult(v1::StepResult result) {
  if (options_.metrics != nullptr) {
    options_.metrics->OnWire(StageMetrics::Peer::kGateway,
                             static_cast<int64_t>(result.ByteSizeLong()));
  }
  const Epoch epoch(result.header().epoch());
  bool lost = false;
  std::shared_ptr<ResultsStream> results;
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch) return;
    const size_t limit =
        static_cast<size_t>(live_->assignment.limits.max_steps_in_flight);
    results = live_->results;
    if (results != nullptr) {
      lost = !results->Enqueue(std::move(result));
    } else if (live_->early_results.size() < limit) {
      live_->early_results.push_back(std::move(result));
    } else {
      lost = true;
    }
  }
  if (results != nullptr) results->Pump();
  if (lost) {
    Fail(epoch, v1::FAILURE_SIDE_SELF,
         ResourceExhausted("the gateway reads no results"));
  }
}

void StageSession::OnStepError(Epoch epoch, StepId step, Status why) {
  std::shared_ptr<StepsStream> input;
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch) return;
    input = live_->input;
  }
  const Status status = Annotate(why, "step ", step);
  Fail(epoch, v1::FAILURE_SIDE_SELF, status);
  if (input != nullptr) input->End(status);
}

}  // namespace sluice
