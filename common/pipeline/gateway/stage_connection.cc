#include "common/pipeline/gateway/stage_connection.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sluice {
namespace {

// The rest of the queue is for streams' ends.
constexpr size_t kMaxMessageEvents = PipelineEvents::kMaxEvents / 2;

}  // namespace

StageLoad LoadOf(const v1::HeartbeatReply& reply) {
  const auto duration = [](int64_t nanos) {
    return std::chrono::nanoseconds(std::max<int64_t>(nanos, 0));
  };
  return {reply.steps_done(), std::max(reply.queue_depth(), 0),
          duration(reply.busy_ns()), duration(reply.hop_ns()),
          reply.experts_missing()};
}

StageConnection::StageConnection(std::string address,
                                 std::shared_ptr<grpc::Channel> control)
    : address_(std::move(address)), channel_(std::move(control)) {}

void StageConnection::Open(
    const v1::Hello& hello, const std::shared_ptr<PipelineEvents>& events,
    std::function<void(const v1::ControlResponse&, int64_t)> on_message,
    std::function<void(const Status&)> on_end) {
  opened_ns_ = MonotonicNanos();
  heartbeats_.Reset();
  {
    MutexLock lock(clock_mutex_);
    clock_.Reset();
  }
  ControlLink::Events on;
  on.on_message = [events, on_message](v1::ControlResponse& response) {
    // A stage that floods the gateway loses messages, and then its heartbeats.
    if (events->size() >= kMaxMessageEvents) return;
    events->Guard([&] {
      events->Post([on_message, message = std::move(response),
                    now = MonotonicNanos()] { on_message(message, now); });
    });
  };
  on.on_end = [events, on_end](const Status& status) {
    events->Guard([&] {
      events->Post(
          [on_end, why = status.ok()
                             ? Unavailable("the stage ended its Control "
                                           "stream")
                             : status] { on_end(why); });
    });
  };
  link_ = OpenControl(channel_, hello, std::move(on));
}

std::shared_ptr<ControlLink> StageConnection::Forget() {
  return std::exchange(link_, nullptr);
}

void StageConnection::Send(v1::ControlRequest request) {
  if (link_ != nullptr) link_->Send(std::move(request));
}

void StageConnection::SendHeartbeat(uint64_t sequence) {
  if (link_ == nullptr) return;
  v1::ControlRequest request;
  request.mutable_heartbeat()->set_sequence(sequence);
  const int64_t now_ns = MonotonicNanos();
  request.mutable_heartbeat()->set_sender_clock_ns(now_ns);
  heartbeats_.Sent(sequence, now_ns);
  Send(std::move(request));
}

void StageConnection::OnWelcome(int64_t stage_ns, int64_t received_ns) {
  AddRoundTrip(opened_ns_, stage_ns, received_ns);
}

std::optional<Duration> StageConnection::OnHeartbeat(
    const v1::HeartbeatReply& reply, int64_t received_ns) {
  const auto sent_ns = heartbeats_.Answered(reply.sequence());
  if (!sent_ns.has_value()) return std::nullopt;
  AddRoundTrip(*sent_ns, reply.clock_ns(), received_ns);
  return std::chrono::nanoseconds(std::max<int64_t>(0, received_ns - *sent_ns));
}

void StageConnection::AddRoundTrip(int64_t sent_ns, int64_t stage_ns,
                                   int64_t received_ns) {
  MutexLock lock(clock_mutex_);
  clock_.Add(sent_ns, stage_ns, received_ns);
}

ClockEstimate StageConnection::clock(int64_t now_ns) const {
  MutexLock lock(clock_mutex_);
  return clock_.At(now_ns);
}

}  // namespace sluice
