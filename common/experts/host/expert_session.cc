#include "common/experts/host/expert_session.h"

#include <utility>

#include "common/base/log.h"
#include "common/experts/host/batches_stream.h"
#include "common/experts/host/expert_loop.h"

namespace sluice {

void ExpertSession::SetLoading(std::string progress) {
  MutexLock lock(mutex_);
  loading_ = std::move(progress);
}

void ExpertSession::SetLoaded(const wire::ExpertWelcome& welcome,
                              ExpertLoop* loop) {
  auto terms = std::make_shared<const Terms>(Terms{welcome, loop});
  MutexLock lock(mutex_);
  terms_ = std::move(terms);
}

StatusOr<std::shared_ptr<const ExpertSession::Terms>> ExpertSession::OnHello(
    const wire::ExpertHello& hello, std::shared_ptr<BatchesStream> stream) {
  MutexLock lock(mutex_);
  if (draining_) return Unavailable("this host of experts is shutting down");
  if (terms_ == nullptr) return Unavailable(loading_);
  if (hello.protocol_version != wire::kExpertProtocolVersion) {
    return FailedPrecondition("protocol version differs: this host has ",
                              wire::kExpertProtocolVersion, ", ", hello.client,
                              " has ", hello.protocol_version);
  }
  SLUICE_RETURN_IF_ERROR(
      wire::CheckSameModel(terms_->welcome.model, hello.model));
  SLUICE_RETURN_IF_ERROR(wire::CheckHolds(terms_->welcome.held, hello.wanted));
  streams_.insert(std::move(stream));
  visits_.Write(LogLevel::kInfo, "asked by ", hello.client);
  return terms_;
}

void ExpertSession::OnStreamEnd(const std::shared_ptr<BatchesStream>& stream) {
  MutexLock lock(mutex_);
  streams_.erase(stream);
}

v1::ExpertPong ExpertSession::Pong(const v1::ExpertPing& ping) const {
  v1::ExpertPong pong;
  pong.set_sequence(ping.sequence());
  pong.set_sender_clock_ns(ping.sender_clock_ns());
  pong.set_clock_ns(MonotonicNanos());
  MutexLock lock(mutex_);
  pong.set_draining(draining_);
  if (terms_ == nullptr) return pong;
  const ExpertLoopStats stats = terms_->loop->Stats();
  pong.set_batches_done(stats.batches_done);
  pong.set_queue_depth(stats.queue_depth);
  pong.set_busy_ns(stats.busy_ns);
  return pong;
}

std::set<std::shared_ptr<BatchesStream>> ExpertSession::streams() const {
  MutexLock lock(mutex_);
  return streams_;
}

void ExpertSession::Drain(TimePoint deadline) {
  ExpertLoop* loop = nullptr;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    if (terms_ != nullptr) loop = terms_->loop;
  }
  for (const auto& stream : streams()) stream->SendPong(Pong({}));
  if (loop != nullptr && !loop->WaitIdle(deadline)) {
    LogWarning("ending with batches that are not computed");
  }
}

void ExpertSession::Shutdown() {
  {
    MutexLock lock(mutex_);
    draining_ = true;
  }
  for (const auto& stream : streams()) {
    stream->End(Unavailable("this host of experts is shutting down"));
  }
}

bool ExpertSession::draining() const {
  MutexLock lock(mutex_);
  return draining_;
}

int32_t ExpertSession::clients() const {
  MutexLock lock(mutex_);
  return static_cast<int32_t>(streams_.size());
}

}  // namespace sluice
