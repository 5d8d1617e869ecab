#include "common/experts/client/expert_stream.h"

#include <utility>

#include "common/base/clock.h"
#include "common/rpc/payload_frame.h"

namespace sluice {
namespace {

constexpr char kMethod[] = "/sluice.v1.Expert/Batches";
// Batches and pings that wait to be written.
constexpr size_t kMaxQueued = 256;

}  // namespace

std::shared_ptr<ExpertStream> ExpertStream::Open(
    std::shared_ptr<grpc::Channel> channel, const wire::ExpertHello& hello,
    ExpertStreamEvents events) {
  auto stream =
      std::make_shared<ExpertStream>(std::move(channel), std::move(events));
  stream->ClientStream::Open(wire::ToProto(hello).SerializeAsString());
  return stream;
}

ExpertStream::ExpertStream(std::shared_ptr<grpc::Channel> channel,
                           ExpertStreamEvents events)
    : ClientStream(std::move(channel), kMethod, kMaxQueued),
      events_(std::move(events)) {}

grpc::ByteBuffer ExpertStream::FrameOf(wire::ExpertBatch batch) {
  const v1::ExpertFrame head = wire::ExpertFrameHead(batch);
  return rpc::JoinPayload(head, wire::kExpertPayloadField,
                          std::move(batch.x.data));
}

bool ExpertStream::SendPing(uint64_t sequence) {
  v1::ExpertFrame frame;
  frame.mutable_ping()->set_sequence(sequence);
  frame.mutable_ping()->set_sender_clock_ns(MonotonicNanos());
  return Send(rpc::JoinPayload(frame, 0, Buffer()));
}

void ExpertStream::OnMessage(grpc::ByteBuffer& frame) {
  const Status status = OnAnswer(frame);
  frame.Clear();
  if (!status.ok()) Cancel(status);
}

Status ExpertStream::OnAnswer(const grpc::ByteBuffer& frame) {
  SLUICE_ASSIGN_OR_RETURN(
      rpc::SplitFrame split,
      rpc::SplitPayload(frame, wire::kExpertPayloadField, frame.Length()));
  SLUICE_ASSIGN_OR_RETURN(const v1::ExpertAnswer answer,
                          rpc::ParseHead<v1::ExpertAnswer>(split.head));
  if (answer.has_welcome() == welcomed_) {
    return InvalidArgument(welcomed_ ? "a second welcome"
                                     : "the first answer is no welcome");
  }
  if (answer.has_welcome()) {
    SLUICE_ASSIGN_OR_RETURN(const wire::ExpertWelcome welcome,
                            wire::FromProto(answer.welcome()));
    welcomed_ = true;
    events_.on_welcome(welcome);
    return OkStatus();
  }
  if (answer.has_result()) {
    events_.on_result(answer.result(), std::move(split.payload));
  } else if (answer.has_pong()) {
    events_.on_pong(answer.pong());
  }
  return OkStatus();
}

void ExpertStream::OnEnd(const Status& status) {
  events_.on_end(status.ok() ? Unavailable("the host ended the stream")
                             : status);
}

}  // namespace sluice
