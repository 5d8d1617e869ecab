#include "tests/simulation/call_end.h"

#include <utility>

#include "common/base/check.h"
#include "tests/simulation/world.h"

namespace sluice::simulation {
namespace {

// From an operation's end to its reaction.
constexpr Duration kReaction = std::chrono::microseconds(200);

std::shared_ptr<CallEnd>& HandledEnd() {
  static thread_local std::shared_ptr<CallEnd> end;
  return end;
}

}  // namespace

CallEnd::CallEnd(Process* process, Wire wire, Reactor* reactor)
    : process_(process),
      wire_(std::move(wire)),
      is_client_(reactor != nullptr),
      reactor_(reactor) {
  ++process_->calls;
}

std::shared_ptr<CallEnd> CallEnd::Handled() {
  SLUICE_CHECK(HandledEnd() != nullptr);
  return std::move(HandledEnd());
}

void CallEnd::Start() {
  bound_ = true;
  wire_.start();
  Advance();
}

void CallEnd::Read() {
  reads_ = true;
  Advance();
}

void CallEnd::Write(std::shared_ptr<void> message) {
  writes_ = true;
  if (!end_.has_value() && !broken_) wire_.send(std::move(message));
  Advance();
}

void CallEnd::EndWrites() {
  if (!end_.has_value()) wire_.end_writes();
}

void CallEnd::Finish(const grpc::Status& status) {
  SLUICE_CHECK(!finished_);
  finished_ = true;
  if (!broken_) wire_.finish(status);
  End(status);
}

void CallEnd::Cancel() {
  if (end_.has_value()) return;
  inbox_.clear();
  wire_.cancel();
  End(grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED"));
}

void CallEnd::RemoveHold() {
  --holds_;
  Advance();
}

void CallEnd::Handle(const std::function<Reactor*()>& handler) {
  const auto self = shared_from_this();
  React([self, handler] {
    HandledEnd() = self;
    self->reactor_ = handler();
    self->bound_ = true;
  });
}

void CallEnd::OnMessage(std::shared_ptr<void> message) {
  if (end_.has_value() || broken_) return;
  inbox_.push_back(std::move(message));
  Advance();
}

void CallEnd::OnWritten() {
  if (writes_) written_ = true;
  Advance();
}

void CallEnd::OnHalfClose() {
  no_more_ = true;
  Advance();
}

void CallEnd::OnTrailers(const grpc::Status& status) { End(status); }

void CallEnd::OnBroken(const grpc::Status& status) {
  if (done_ || broken_ || end_.has_value()) return;
  // What has come and is not read yet may be lost.
  if (World::Get().random().Chance(500)) inbox_.clear();
  if (is_client_) return End(status);
  broken_ = true;
  tell_cancel_ = true;
  Advance();
}

void CallEnd::End(const grpc::Status& status) {
  if (end_.has_value()) return;
  end_ = status;
  Advance();
}

void CallEnd::Advance() {
  if (!bound_ || done_) return;
  const bool over = end_.has_value() || broken_;
  if (std::exchange(tell_cancel_, false)) {
    React([this] { reactor_->TellCancel(); });
  }
  if (reads_ && !inbox_.empty()) {
    reads_ = false;
    React([this, message = std::move(inbox_.front())] {
      reactor_->Take(message.get());
      reactor_->TellRead(true);
    });
    inbox_.pop_front();
    wire_.consumed();
  } else if (reads_ && (over || no_more_)) {
    reads_ = false;
    React([this] { reactor_->TellRead(false); });
  }
  if (writes_ && (over || written_.has_value())) {
    writes_ = false;
    const bool ok = written_.has_value();
    written_.reset();
    React([this, ok] { reactor_->TellWrite(ok); });
  }
  if (!end_.has_value() || reactions_ > 0 || holds_ > 0 || reads_ || writes_) {
    return;
  }
  done_ = true;
  React([this] {
    reactor_->TellDone(*end_);
    --process_->calls;
  });
}

void CallEnd::React(std::function<void()> tell) {
  ++reactions_;
  World& world = World::Get();
  const auto self = shared_from_this();
  const Duration delay = world.random().Up(kReaction) * process_->slowness;
  world.After(delay, [self, tell = std::move(tell)] {
    World::Get().Spawn(self->process_, [self, tell] {
      tell();
      --self->reactions_;
      self->Advance();
    });
  });
}

}  // namespace sluice::simulation
