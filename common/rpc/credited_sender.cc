#include "common/rpc/credited_sender.h"

#include <utility>

#include "common/base/clock.h"

namespace sluice::rpc {

std::shared_ptr<CreditedSender> CreditedSender::Open(
    CreditedSenderOptions options, CreditedSenderEvents events) {
  const std::string hello = options.hello;
  auto sender =
      std::make_shared<CreditedSender>(std::move(options), std::move(events));
  sender->ClientStream::Open(hello);
  return sender;
}

CreditedSender::CreditedSender(CreditedSenderOptions options,
                               CreditedSenderEvents events)
    : ClientStream(std::move(options.channel), std::move(options.method),
                   options.credits + 1),
      max_waiting_(options.max_waiting),
      events_(std::move(events)),
      credits_(options.credits) {}

Status CreditedSender::SendFrame(grpc::ByteBuffer frame) {
  SLUICE_RETURN_IF_ERROR(EnqueueFrame(std::move(frame)));
  Pump();
  return OkStatus();
}

Status CreditedSender::EnqueueFrame(grpc::ByteBuffer frame) {
  std::vector<int64_t> waits;
  {
    MutexLock lock(mutex_);
    if (ended_) return Unavailable("the stream has ended");
    if (waiting_.size() >= max_waiting_) {
      return ResourceExhausted(
          waiting_.size(), " frames wait for credits, limit ", max_waiting_);
    }
    waiting_.push_back({std::move(frame), MonotonicNanos()});
    waits = Advance();
  }
  Tell(waits);
  return OkStatus();
}

size_t CreditedSender::waiting() const {
  MutexLock lock(mutex_);
  return waiting_.size();
}

void CreditedSender::OnMessage(grpc::ByteBuffer& message) {
  bool first = false;
  bool surplus = false;
  std::vector<int64_t> waits;
  {
    MutexLock lock(mutex_);
    first = !ready_;
    ready_ = true;
    surplus = !first && unanswered_ == 0;
    if (!first && !surplus) {
      --unanswered_;
      ++credits_;
    }
    waits = Advance();
  }
  Pump();
  Tell(waits);
  if (surplus) {
    Cancel(InvalidArgument("the peer acknowledged a frame that was not sent"));
    return;
  }
  if (first) {
    events_.on_ready();
  } else {
    events_.on_ack(message);
  }
}

void CreditedSender::OnEnd(const Status& status) {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    waiting_.clear();
  }
  events_.on_end(status);
}

std::vector<int64_t> CreditedSender::Advance() {
  std::vector<int64_t> waits;
  while (ready_ && credits_ > 0 && !waiting_.empty()) {
    Waiting& first = waiting_.front();
    if (!Enqueue(std::move(first.frame))) break;
    waits.push_back(MonotonicNanos() - first.since_ns);
    waiting_.pop_front();
    --credits_;
    ++unanswered_;
  }
  return waits;
}

void CreditedSender::Tell(const std::vector<int64_t>& waits) const {
  if (!events_.on_credit) return;
  for (const int64_t waited_ns : waits) events_.on_credit(waited_ns);
}

}  // namespace sluice::rpc
