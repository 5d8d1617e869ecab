#include "common/experts/host/batches_stream.h"

#include "common/experts/host/expert_metrics.h"
#include "common/rpc/hello.h"
#include "common/rpc/payload_frame.h"
#include "common/wire/types.h"

namespace sluice {

void BatchesStream::OnMessage(grpc::ByteBuffer& frame) {
  const int64_t received_ns = MonotonicNanos();
  if (session_->metrics() != nullptr) {
    session_->metrics()->OnWire(true, static_cast<int64_t>(frame.Length()));
  }
  const Status status = OnFrame(frame, received_ns);
  frame.Clear();
  if (!status.ok()) End(status);
}

void BatchesStream::OnHalfClose() {
  {
    MutexLock lock(mutex_);
    half_closed_ = true;
  }
  EndIfDone();
}

void BatchesStream::EndIfDone() {
  {
    MutexLock lock(mutex_);
    if (!half_closed_ || in_flight_ > 0) return;
  }
  End(OkStatus());
}

void BatchesStream::OnEnd(const Status& status) {
  session_->OnStreamEnd(self());
}

bool BatchesStream::Post(grpc::ByteBuffer answer, bool counted) {
  bool queued = false;
  {
    MutexLock lock(mutex_);
    queued = Enqueue(std::move(answer));
    if (queued) queued_.push_back(counted);
  }
  if (queued) {
    Pump();
  } else if (!has_ended()) {
    Abort(ResourceExhausted("the client reads no answers"));
  }
  return queued;
}

void BatchesStream::OnSent() {
  {
    MutexLock lock(mutex_);
    if (queued_.front()) --in_flight_;
    queued_.pop_front();
  }
  EndIfDone();
}

Status BatchesStream::OnFrame(const grpc::ByteBuffer& frame,
                              int64_t received_ns) {
  SLUICE_ASSIGN_OR_RETURN(
      rpc::SplitFrame split,
      rpc::SplitPayload(frame, wire::kExpertPayloadField, frame.Length()));
  SLUICE_ASSIGN_OR_RETURN(const v1::ExpertFrame head,
                          rpc::ParseHead<v1::ExpertFrame>(split.head));
  switch (head.kind_case()) {
    case v1::ExpertFrame::kBatch:
      OnBatch(head.batch(), std::move(split.payload), received_ns);
      return OkStatus();
    case v1::ExpertFrame::kPing:
      SendPong(session_->Pong(head.ping()));
      return OkStatus();
    default:
      return InvalidArgument("a frame of Batches is of unknown kind ",
                             static_cast<int>(head.kind_case()));
  }
}

Status BatchesStream::OnHello(const std::string& bytes) {
  SLUICE_ASSIGN_OR_RETURN(const v1::ExpertHello proto,
                          rpc::ParseHello<v1::ExpertHello>(bytes, "Batches"));
  SLUICE_ASSIGN_OR_RETURN(const wire::ExpertHello hello,
                          wire::FromProto(proto));
  SLUICE_ASSIGN_OR_RETURN(terms_, session_->OnHello(hello, self()));
  wire::ExpertWelcome welcome = terms_->welcome;
  welcome.clock_ns = MonotonicNanos();
  v1::ExpertAnswer answer;
  *answer.mutable_welcome() = wire::ToProto(welcome);
  Post(rpc::JoinPayload(answer, 0, Buffer()), false);
  return OkStatus();
}

Status BatchesStream::Admit(const v1::ExpertBatch& proto) {
  const Epoch epoch = wire::EpochOf(proto.header());
  if (epoch < highest_epoch_) {
    return FailedPrecondition("epoch ", epoch, " is below ", highest_epoch_,
                              ", which this stream has seen");
  }
  highest_epoch_ = epoch;
  if (session_->draining()) {
    return Unavailable("this host of experts is shutting down");
  }
  const int32_t limit = terms_->welcome.limits.max_batches_in_flight;
  MutexLock lock(mutex_);
  // The client may have read the answer that is being written.
  const bool leaving = !queued_.empty() && queued_.front();
  const int32_t unanswered = in_flight_ - (leaving ? 1 : 0);
  if (unanswered >= limit) {
    return ResourceExhausted("batch ", proto.batch_id(), " comes with ",
                             unanswered, " unanswered, limit ", limit);
  }
  ++in_flight_;
  return OkStatus();
}

void BatchesStream::OnBatch(const v1::ExpertBatch& proto, Buffer payload,
                            int64_t received_ns) {
  auto batch = wire::FromProto(proto, std::move(payload), terms_->welcome);
  if (!batch.ok()) return Refuse(proto, batch.status());
  const Status admitted = Admit(proto);
  if (!admitted.ok()) return Refuse(proto, admitted);
  QueuedBatch queued = {*std::move(batch), received_ns, MonotonicNanos(),
                        self()};
  if (session_->metrics() != nullptr) {
    session_->metrics()->OnSerialized(queued.queued_ns - received_ns);
  }
  const Status pushed = terms_->loop->Push(std::move(queued));
  if (pushed.ok()) return;
  {
    MutexLock lock(mutex_);
    --in_flight_;
  }
  Refuse(proto, pushed);
}

void BatchesStream::Refuse(const v1::ExpertBatch& proto, const Status& why) {
  if (session_->metrics() != nullptr) session_->metrics()->OnRefused();
  wire::ExpertResult result;
  result.replica = ReplicaId(proto.header().replica());
  result.epoch = wire::EpochOf(proto.header());
  result.step = StepId(proto.header().step_id());
  result.batch_id = proto.batch_id();
  result.layer = proto.layer();
  result.sent_ns = proto.sent_ns();
  result.status = Annotate(why, "batch ", proto.batch_id(), " of step ",
                           proto.header().step_id());
  Post(rpc::JoinPayload(wire::ExpertAnswerHead(result), 0, Buffer()), false);
}

void BatchesStream::OnResult(wire::ExpertResult result, int64_t received_ns) {
  const int64_t begin_ns = MonotonicNanos();
  result.times.total_ns = begin_ns - received_ns;
  Buffer sums = std::move(result.sums);
  grpc::ByteBuffer answer =
      rpc::JoinPayload(wire::ExpertAnswerHead(result),
                       wire::kExpertPayloadField, std::move(sums));
  const auto bytes = static_cast<int64_t>(answer.Length());
  const bool sent = Post(std::move(answer), true);
  if (ExpertMetrics* const metrics = session_->metrics(); metrics != nullptr) {
    metrics->OnSerialized(MonotonicNanos() - begin_ns);
    if (sent) metrics->OnWire(false, bytes);
    if (!sent) metrics->OnDropped();
  }
}

void BatchesStream::SendPong(const v1::ExpertPong& pong) {
  v1::ExpertAnswer answer;
  *answer.mutable_pong() = pong;
  Post(rpc::JoinPayload(answer, 0, Buffer()), false);
}

}  // namespace sluice
