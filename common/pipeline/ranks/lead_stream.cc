#include "common/pipeline/ranks/lead_stream.h"

#include <utility>

#include "common/base/check.h"
#include "common/pipeline/ranks/lead_connection.h"
#include "common/rpc/payload_frame.h"

namespace sluice {
namespace {

constexpr char kFollowMethod[] = "/sluice.v1.Ranks/Follow";
constexpr size_t kMaxQueuedFrames = 64;
constexpr size_t kMaxFailureBytes = 4096;

// Returns a stream's end with none of the codes that mean something else here:
// that the lead ended in order, that there is nothing yet, that the lead
// dropped a load.
Status EndOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kCancelled:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kAborted:
      return Unavailable(Message(status));
    default:
      return status;
  }
}

}  // namespace

LeadStream::LeadStream(std::shared_ptr<grpc::Channel> channel,
                       OnEndCallback on_end)
    : ClientStream(std::move(channel), kFollowMethod, kMaxQueuedFrames),
      on_end_(std::move(on_end)) {}

// The lead's frames ----------------------------------------------------------

void LeadStream::OnMessage(grpc::ByteBuffer& frame) {
  const Status status = OnFrame(frame);
  frame.Clear();
  if (!status.ok()) Cancel(status);
}

Status LeadStream::OnFrame(const grpc::ByteBuffer& frame) {
  SLUICE_ASSIGN_OR_RETURN(
      rpc::SplitFrame split,
      rpc::SplitPayload(frame, kRankHiddenField, frame.Length()));
  SLUICE_ASSIGN_OR_RETURN(v1::LeadFrame head,
                          rpc::ParseHead<v1::LeadFrame>(split.head));
  Status status;
  {
    MutexLock lock(mutex_);
    switch (head.kind_case()) {
      case v1::LeadFrame::kOrder:
        status = OnOrder(head.order());
        break;
      case v1::LeadFrame::kFacts:
        status = OnFacts(head.facts());
        break;
      case v1::LeadFrame::kStep:
        status =
            OnStep(std::move(*head.mutable_step()), std::move(split.payload));
        break;
      case v1::LeadFrame::kDrop:
        status = OnDrop();
        break;
      default:
        status = InvalidArgument("a frame of the lead has no known kind");
    }
    broken_ |= !status.ok();
  }
  changed_.NotifyAll();
  return status;
}

Status LeadStream::OnOrder(const v1::RankOrder& proto) {
  if (next_.has_value() || (load_.has_value() && !load_->dropped)) {
    return InvalidArgument(
        "the lead sent an order before it dropped load ",
        next_.has_value() ? next_->sent.load : load_->sent.load);
  }
  SLUICE_ASSIGN_OR_RETURN(SentOrder sent, FromProto(proto));
  Load load;
  load.sent = std::move(sent);
  next_ = std::move(load);
  return OkStatus();
}

Status LeadStream::CheckGoesOn(const char* what) const {
  if (load_.has_value() && !load_->dropped) return OkStatus();
  return InvalidArgument("the lead sent ", what,
                         " without a load that this follower has agreed to");
}

Status LeadStream::OnFacts(const v1::RankFacts& proto) {
  SLUICE_RETURN_IF_ERROR(CheckGoesOn("facts"));
  SLUICE_ASSIGN_OR_RETURN(RankFacts facts, FromProto(proto));
  if (!std::exchange(load_->asks, false)) {
    return InvalidArgument("the lead sent facts without being asked");
  }
  load_->facts = std::move(facts);
  return OkStatus();
}

Status LeadStream::OnStep(v1::RankStep proto, Buffer hidden) {
  SLUICE_RETURN_IF_ERROR(CheckGoesOn("a step"));
  if (runner_ != nullptr) {
    return PushStep(proto, std::move(hidden), *runner_);
  }
  if (load_->steps.size() == LeadConnection::kMaxEarlySteps) {
    return ResourceExhausted("step ", proto.header().step_id(), " comes with ",
                             load_->steps.size(),
                             " steps before this follower is ready, limit ",
                             LeadConnection::kMaxEarlySteps);
  }
  load_->steps.push_back({std::move(proto), std::move(hidden)});
  return OkStatus();
}

Status LeadStream::PushStep(const v1::RankStep& proto, Buffer hidden,
                            RankStepRunner& runner) {
  RankStep* const into = runner.Free();
  if (into == nullptr) {
    return ResourceExhausted("step ", proto.header().step_id(),
                             " comes while as many steps as there can be are "
                             "under way");
  }
  SLUICE_RETURN_IF_ERROR(
      ReadStep(proto, std::move(hidden), runner.bounds(), *into));
  runner.Push();
  return OkStatus();
}

Status LeadStream::OnDrop() {
  runner_ = nullptr;
  if (next_.has_value()) {
    next_.reset();  // before anyone has seen it
    return OkStatus();
  }
  SLUICE_RETURN_IF_ERROR(CheckGoesOn("a drop"));
  load_->dropped = true;
  return OkStatus();
}

void LeadStream::OnEnd(const Status& status) {
  OnEndCallback on_end;
  {
    MutexLock lock(mutex_);
    broken_ = true;
    runner_ = nullptr;
    on_end = std::exchange(on_end_, nullptr);
  }
  const Status end = EndOf(status);
  if (on_end != nullptr) on_end(end);
  MutexLock lock(mutex_);
  end_ = end;
  changed_.NotifyAll();
}

// The follower ---------------------------------------------------------------

Status LeadStream::Ended() const {
  return end_->ok() ? Cancelled("the lead ended the stage in order") : *end_;
}

Status LeadStream::LoadOver() const {
  if (load_->dropped) return Aborted("the lead dropped this load");
  return end_.has_value() ? Ended() : OkStatus();
}

StatusOr<RankOrder> LeadStream::WaitOrder(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (true) {
    if (end_.has_value()) return Ended();
    if (next_.has_value()) {
      load_ = std::move(next_);
      next_.reset();
      return load_->sent.order;
    }
    if (!changed_.WaitUntil(mutex_, deadline)) {
      return DeadlineExceeded("no order of the lead yet");
    }
  }
}

StatusOr<std::string> LeadStream::Connect(const RankOrder& order) {
  std::string id;
  {
    MutexLock lock(mutex_);
    SLUICE_CHECK(load_.has_value());
    SLUICE_RETURN_IF_ERROR(LoadOver());
    SLUICE_RETURN_IF_ERROR(CheckSameOrder(order, load_->sent.order));
    id = load_->sent.connect_id;
  }
  SLUICE_RETURN_IF_ERROR(Agree(ReadyFacts()).status());
  return id;
}

StatusOr<RankFacts> LeadStream::Agree(const RankFacts& own) {
  v1::FollowerFrame frame;
  {
    MutexLock lock(mutex_);
    SLUICE_CHECK(load_.has_value());
    SLUICE_RETURN_IF_ERROR(LoadOver());
    *frame.mutable_facts() = ToProto(own, load_->sent.load);
    load_->asks = true;
  }
  SendHead(frame);
  MutexLock lock(mutex_);
  while (true) {
    if (load_->facts.has_value()) {
      return *std::exchange(load_->facts, std::nullopt);
    }
    SLUICE_RETURN_IF_ERROR(LoadOver());
    changed_.Wait(mutex_);
  }
}

void LeadStream::Follow(RankStepRunner* runner) {
  Status status;
  {
    MutexLock lock(mutex_);
    SLUICE_CHECK(load_.has_value());
    if (broken_) return;
    while (status.ok() && !load_->steps.empty()) {
      EarlyStep step = std::move(load_->steps.front());
      load_->steps.pop_front();
      status = PushStep(step.proto, std::move(step.hidden), *runner);
    }
    broken_ = !status.ok();
    if (status.ok() && !load_->dropped) runner_ = runner;
  }
  if (!status.ok()) Cancel(status);
}

Status LeadStream::WaitDropped(TimePoint deadline) {
  MutexLock lock(mutex_);
  SLUICE_CHECK(load_.has_value());
  while (true) {
    if (load_->dropped) return OkStatus();
    if (end_.has_value()) return Ended();
    if (!changed_.WaitUntil(mutex_, deadline)) {
      return DeadlineExceeded("the lead goes on with this load");
    }
  }
}

bool LeadStream::SendHead(const v1::FollowerFrame& frame) {
  return Send(rpc::JoinPayload(frame, 0, Buffer()));
}

void LeadStream::Leave() {
  v1::FollowerFrame frame;
  frame.mutable_leaving();
  SendHead(frame);
}

void LeadStream::GiveUp(const Status& why) {
  SLUICE_CHECK(!why.ok());
  v1::FollowerFrame frame;
  v1::RankFailure& failed = *frame.mutable_failed();
  {
    MutexLock lock(mutex_);
    if (broken_ || (load_.has_value() && load_->dropped)) return;
    bool& sent = load_.has_value() ? load_->given_up : failed_early_;
    if (std::exchange(sent, true)) return;
    if (load_.has_value()) failed.set_load(load_->sent.load);
  }
  failed.set_status_code(static_cast<int>(why.code()));
  failed.set_status_message(Message(why).substr(0, kMaxFailureBytes));
  SendHead(frame);
}

void LeadStream::Close() {
  {
    MutexLock lock(mutex_);
    on_end_ = nullptr;
  }
  Cancel(Cancelled("this follower has closed its stream"));
  MutexLock lock(mutex_);
  while (!end_.has_value()) changed_.Wait(mutex_);
}

}  // namespace sluice
