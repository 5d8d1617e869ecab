#include "common/pipeline/stage/stage_session.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/base/random_bytes.h"
#include "common/metrics/process_metrics.h"
#include "common/pipeline/stage/session_live.h"
#include "common/pipeline/stage/stage_checks.h"
#include "common/rpc/status.h"

namespace sluice {
namespace {

constexpr size_t kMaxGatewayId = 256;
// A gateway that says nothing for less than this is never replaced: its
// heartbeats are a quarter second apart.
constexpr Duration kLeastSilence = std::chrono::seconds(1);

// `status` with the reason that the gateway acts on.
Status Refused(Status status, v1::Refusal::Reason reason) {
  v1::Refusal refusal;
  refusal.set_reason(reason);
  return rpc::WithDetails(std::move(status), refusal.SerializeAsString());
}

}  // namespace

StageSession::StageSession(StageSessionOptions options)
    : options_(std::move(options)) {}

StageSession::~StageSession() = default;

void StageSession::SetLoading(std::string progress) {
  MutexLock lock(mutex_);
  loading_ = std::move(progress);
}

void StageSession::SetLoaded(const StageInfo& info, StepRunner* runner) {
  MutexLock lock(mutex_);
  info_ = info;
  runner_ = runner;
}

// Control --------------------------------------------------------------------

StatusOr<v1::Welcome> StageSession::OnHello(
    const v1::Hello& hello, std::shared_ptr<ControlStream> control) {
  SLUICE_RETURN_IF_ERROR(CheckVersion(hello.protocol_version()));
  if (hello.gateway_id().empty() || hello.gateway_id().size() > kMaxGatewayId) {
    return InvalidArgument("gateway_id has ", hello.gateway_id().size(),
                           " bytes, limit [1, ", kMaxGatewayId, "]");
  }
  if (hello.secret().size() != wire::kSecretBytes) {
    return InvalidArgument("the secret has ", hello.secret().size(),
                           " bytes, it must have ", wire::kSecretBytes);
  }
  const TimePoint now = Clock::now();
  std::shared_ptr<ControlStream> replaced;
  std::unique_ptr<Live> ended;
  v1::Welcome welcome;
  {
    MutexLock lock(mutex_);
    if (draining_ || leaving_) {
      return Unavailable("this stage is shutting down");
    }
    if (runner_ == nullptr) {
      return Refused(Unavailable(loading_), v1::Refusal::REASON_LOADING);
    }
    SLUICE_RETURN_IF_ERROR(CheckHold(hello.secret(), now));
    replaced = std::exchange(control_, std::move(control));
    if (replaced != nullptr) ended = std::move(live_);
    // Another run of the gateway may have another clock.
    if (!EqualSecrets(holder_.secret, hello.secret())) highest_epoch_ = 0;
    holder_ = {hello.gateway_id(), hello.secret(), now, now};
    welcome = MakeWelcome();
  }
  visits_.Write(LogLevel::kInfo, "gateway ", hello.gateway_id(),
                " holds this stage");
  if (replaced != nullptr) {
    EndEpoch(std::move(ended),
             Cancelled("the gateway opened a new Control stream"));
    replaced->End(Cancelled("replaced by a new Control stream"));
  }
  return welcome;
}

Status StageSession::CheckHold(const std::string& secret, TimePoint now) const {
  if (control_ == nullptr || EqualSecrets(holder_.secret, secret)) {
    return OkStatus();
  }
  if (now - holder_.heard >=
      std::max(options_.transport.peer_timeout, kLeastSilence)) {
    return OkStatus();
  }
  const std::string& peer = control_->peer();
  return Refused(FailedPrecondition(
                     "this stage is held by another gateway",
                     peer.empty() ? "" : Cat(", at ", peer), ", for ",
                     static_cast<int64_t>(Seconds(now - holder_.since)), " s"),
                 v1::Refusal::REASON_HELD);
}

v1::Welcome StageSession::MakeWelcome() const {
  v1::Welcome welcome;
  welcome.set_protocol_version(wire::kProtocolVersion);
  welcome.set_build(std::string(metrics::BuildVersion()));
  welcome.set_clock_ns(MonotonicNanos());
  *welcome.mutable_identity() = wire::ToProto(IdentityOf(info_));
  *welcome.mutable_limits() =
      wire::ToProto(LimitsOf(info_, options_.max_steps_in_flight));
  return welcome;
}

void StageSession::OnRefused(const std::string& peer, const Status& why) {
  // A gateway that waits for us comes again and again.
  if (why.code() == StatusCode::kUnavailable) return;
  refusals_.Write(LogLevel::kWarning, "a gateway",
                  peer.empty() ? "" : Cat(" at ", peer),
                  " is refused: ", Message(why));
}

Status StageSession::CheckAssign(const v1::Assign& assign,
                                 const wire::PipelineLimits& limits) const {
  if (draining_ || leaving_) {
    return Unavailable("this stage is shutting down");
  }
  if (assign.epoch() <= highest_epoch_) {
    return FailedPrecondition("epoch ", assign.epoch(), " is not above ",
                              highest_epoch_, ", which this stage has seen");
  }
  return CheckAssignment(assign, limits, info_,
                         LimitsOf(info_, options_.max_steps_in_flight));
}

void StageSession::OnAssign(const v1::Assign& assign,
                            const ControlStream* control) {
  const Epoch epoch(assign.epoch());
  const auto limits = wire::FromProto(assign.limits());
  Status status = limits.status();
  Assignment assignment{ReplicaId(assign.replica()), epoch,
                        limits.value_or(wire::PipelineLimits()),
                        assign.next_address(), assign.secret()};
  std::shared_ptr<ControlStream> refused;  // who asked, if it is refused
  std::unique_ptr<Live> ended;
  {
    MutexLock lock(mutex_);
    if (control_.get() != control) return;
    holder_.heard = Clock::now();
    if (status.ok()) status = CheckAssign(assign, *limits);
    if (!status.ok()) {
      refused = control_;
    } else {
      highest_epoch_ = assign.epoch();
      ended = std::exchange(live_, std::make_unique<Live>());
      live_->assignment = assignment;
      runner_->Reset(epoch);
    }
  }
  if (refused != nullptr) {
    LogWarning("epoch ", epoch, " refused: ", Message(status));
    refused->SendAssigned(epoch, status);
    return;
  }
  EndEpoch(std::move(ended), FailedPrecondition("epoch ", epoch, " begins"));
  if (assignment.next_address.empty()) {
    AnswerAssign(epoch, OkStatus());
  } else {
    OpenNext(assignment);
  }
}

void StageSession::AnswerAssign(Epoch epoch, const Status& status) {
  std::shared_ptr<ControlStream> control;
  {
    MutexLock lock(mutex_);
    // The gateway that let go of it waits for no answer, the next one neither.
    if (live_ == nullptr || live_->assignment.epoch != epoch) return;
    live_->assigned = status.ok();
    control = control_;
  }
  if (status.ok()) {
    LogInfo("epoch ", epoch, " assigned");
  } else {
    LogWarning("epoch ", epoch, " refused: ", Message(status));
  }
  if (control != nullptr) control->SendAssigned(epoch, status);
}

v1::HeartbeatReply StageSession::OnHeartbeat(const v1::Heartbeat& heartbeat,
                                             const ControlStream* control) {
  v1::HeartbeatReply reply;
  reply.set_sequence(heartbeat.sequence());
  reply.set_sender_clock_ns(heartbeat.sender_clock_ns());
  reply.set_clock_ns(MonotonicNanos());
  const StepRunner* runner = nullptr;
  {
    MutexLock lock(mutex_);
    if (control_.get() == control) holder_.heard = Clock::now();
    runner = runner_;
    reply.set_experts_missing(experts_missing_);
    if (live_ != nullptr) {
      reply.set_epoch(live_->assignment.epoch.value());
      reply.set_steps_done(live_->done);
      reply.set_hop_ns(live_->hop_ns);
    }
  }
  const StageLoopStats stats = runner->Stats();
  reply.set_queue_depth(stats.queue_depth);
  reply.set_busy_ns(static_cast<int64_t>(stats.compute_seconds * 1e9));
  return reply;
}

void StageSession::SetExpertsMissing(bool missing) {
  MutexLock lock(mutex_);
  experts_missing_ = missing;
}

void StageSession::OnDrain() {
  std::shared_ptr<ControlStream> control;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    drain_asked_ = !idle();
    if (!drain_asked_) control = control_;
  }
  if (control != nullptr) control->SendDrained();
}

void StageSession::OnControlEnd(const ControlStream* control) {
  std::string gateway;
  std::unique_ptr<Live> ended;
  {
    MutexLock lock(mutex_);
    if (control_.get() != control) return;
    gateway = holder_.id;
    control_ = nullptr;
    draining_ = shutting_down_;
    drain_asked_ = false;
    // All at once: from here on another gateway may begin an epoch.
    ended = std::move(live_);
    runner_->Reset(Epoch(0));
  }
  visits_.Write(LogLevel::kInfo, "gateway ", gateway, " let go of this stage");
  EndEpoch(std::move(ended), Cancelled("the gateway let go of this stage"));
}

// Ends -----------------------------------------------------------------------

void StageSession::NoteStepDone(Epoch epoch) {
  std::shared_ptr<ControlStream> control;
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch) return;
    ++live_->done;
    control = TakeDrained();
  }
  step_done_.NotifyAll();
  if (control != nullptr) control->SendDrained();
}

void StageSession::Fail(Epoch epoch, v1::FailureSide side, const Status& why) {
  std::shared_ptr<ControlStream> control;
  std::shared_ptr<ControlStream> drained;
  {
    MutexLock lock(mutex_);
    if (live_ == nullptr || live_->assignment.epoch != epoch || live_->broken) {
      return;
    }
    live_->broken = true;
    control = control_;
    drained = TakeDrained();
  }
  step_done_.NotifyAll();
  LogWarning("epoch ", epoch, " failed: ", Message(why));
  if (control != nullptr) control->SendFailure(epoch, side, why);
  if (drained != nullptr) drained->SendDrained();
}

void StageSession::EndEpoch(std::unique_ptr<Live> ended, const Status& why) {
  step_done_.NotifyAll();
  if (ended == nullptr) return;
  if (ended->input != nullptr) ended->input->End(why);
  if (ended->next != nullptr) ended->next->Cancel(why);
  if (ended->results != nullptr) ended->results->End(why);
}

void StageSession::Leave(TimePoint deadline) {
  std::shared_ptr<ControlStream> control;
  {
    MutexLock lock(mutex_);
    leaving_ = true;
    control = control_;
  }
  if (control == nullptr) return;
  control->SendDraining(std::max(deadline - Clock::now(), Duration::zero()));
  MutexLock lock(mutex_);
  while (control_ != nullptr) {
    if (!step_done_.WaitUntil(mutex_, deadline)) break;
  }
}

void StageSession::Drain(TimePoint deadline) {
  MutexLock lock(mutex_);
  draining_ = shutting_down_ = true;
  while (!idle()) {
    if (!step_done_.WaitUntil(mutex_, deadline)) break;
  }
}

void StageSession::Shutdown() {
  const Status why = Unavailable("this stage is shutting down");
  std::shared_ptr<ControlStream> control;
  std::unique_ptr<Live> ended;
  {
    MutexLock lock(mutex_);
    draining_ = shutting_down_ = true;
    control = control_;
    ended = std::move(live_);
  }
  EndEpoch(std::move(ended), why);
  if (control != nullptr) control->End(why);
}

bool StageSession::idle() const {
  return live_ == nullptr || live_->broken || live_->accepted == live_->done;
}

std::shared_ptr<ControlStream> StageSession::TakeDrained() {
  if (!idle() || !std::exchange(drain_asked_, false)) return nullptr;
  return control_;
}

bool StageSession::draining() const {
  MutexLock lock(mutex_);
  return draining_ || leaving_;
}

bool StageSession::held() const {
  MutexLock lock(mutex_);
  return control_ != nullptr;
}

Epoch StageSession::epoch() const {
  MutexLock lock(mutex_);
  return live_ == nullptr ? Epoch(0) : live_->assignment.epoch;
}

}  // namespace sluice
