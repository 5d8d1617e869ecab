#include "common/pipeline/gateway/stage_connection.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/rpc/status.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

// The rest of the queue is for streams' ends.
constexpr size_t kMaxMessageEvents = PipelineEvents::kMaxEvents / 2;
constexpr Duration kLoadingPause = std::chrono::milliseconds(300);
// The wait for another gateway's stage is part of a takeover.
constexpr Duration kHeldPause = std::chrono::milliseconds(500);
// A failed load is tried again: the file may have been replaced.
constexpr Duration kLoadFailedPause = std::chrono::seconds(5);
constexpr int64_t kMaxLeavingMs = int64_t{24} * 3600 * 1000;

StageLoad LoadOf(const v1::HeartbeatReply& reply) {
  const auto duration = [](int64_t nanos) {
    return std::chrono::nanoseconds(std::max<int64_t>(nanos, 0));
  };
  return {reply.steps_done(), std::max(reply.queue_depth(), 0),
          duration(reply.busy_ns()), duration(reply.hop_ns()),
          reply.experts_missing()};
}

// Returns the stage's reason to end Control.
v1::Refusal::Reason ReasonOf(const Status& status) {
  v1::Refusal refusal;
  const bool parsed = refusal.ParseFromString(rpc::DetailsOf(status));
  return parsed ? refusal.reason() : v1::Refusal::REASON_UNSPECIFIED;
}

bool IsRefusal(StatusCode code) {
  return code == StatusCode::kFailedPrecondition ||
         code == StatusCode::kInvalidArgument ||
         code == StatusCode::kUnimplemented;
}

// Returns the meaning of a stream's end. `known`: the process has sent Welcome
// before.
Absence AbsenceAfter(const Status& why, v1::Refusal::Reason reason,
                     bool known) {
  if (reason == v1::Refusal::REASON_HELD) return Absence::kHeld;
  if (reason == v1::Refusal::REASON_LOADING) return Absence::kLoading;
  if (IsRefusal(why.code())) return Absence::kRefusing;
  if (rpc::IsConnectionRefused(why)) {
    return known ? Absence::kGone : Absence::kNotStarted;
  }
  return known ? Absence::kBroken : Absence::kNotReached;
}

}  // namespace

const char* ToString(StageState state) {
  static constexpr const char* kNames[] = {
      "connecting", "loading",  "handshaking", "ready",
      "suspect",    "draining", "lost",        "refused"};
  return kNames[static_cast<size_t>(state)];
}

Duration NextBackoff(Duration last) {
  return std::clamp<Duration>(2 * last, std::chrono::milliseconds(100),
                              std::chrono::seconds(1));
}

StageConnection::StageConnection(std::string address,
                                 std::shared_ptr<grpc::Channel> control)
    : address_(std::move(address)), channel_(std::move(control)) {
  facts_.address = address_;
}

void StageConnection::Connect(
    const v1::Hello& hello, uint64_t term, uint64_t link_id,
    const std::shared_ptr<PipelineEvents>& events,
    std::function<void(const v1::ControlResponse&, int64_t)> on_message,
    std::function<void(const Status&)> on_end) {
  link_id_ = link_id;
  Apply(life_, LifeEvent::kHello);
  linked_at_ = Clock::now();
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
  v1::Hello counted = hello;
  counted.set_count(link_id);
  counted.set_term(term);
  link_ = OpenControl(channel_, counted, std::move(on));
}

std::shared_ptr<ControlLink> StageConnection::End(
    const Status& why, std::optional<Absence> absence) {
  message_ = Message(why);
  const v1::Refusal::Reason reason = ReasonOf(why);
  if (reason != v1::Refusal::REASON_UNSPECIFIED) alive_at_ = Clock::now();
  if (!absence) absence = AbsenceAfter(why, reason, run_.has_value());
  const Absence* const before = AbsenceOf(life_);
  const bool was_refused =
      before != nullptr && ShownAs(*before) == StageState::kRefused;
  Apply(life_, LifeEvent::kEnd, {.why = *absence});
  backoff_ = NextBackoff(backoff_);
  if (absence == Absence::kHeld) backoff_ = kHeldPause;
  if (absence == Absence::kLoading) backoff_ = kLoadingPause;
  if (reason == v1::Refusal::REASON_LOAD_FAILED) backoff_ = kLoadFailedPause;
  if (ShownAs(*absence) == StageState::kRefused && !was_refused) {
    LogWarning(Describe(), " refuses: ", message_);
  }
  connect_at_ = Clock::now() + backoff_;
  return std::exchange(link_, nullptr);
}

Status StageConnection::OnMessage(const v1::ControlResponse& response,
                                  int64_t received_ns) {
  heard_ = alive_at_ = Clock::now();
  switch (response.kind_case()) {
    case v1::ControlResponse::kWelcome: {
      AddRoundTrip(ToNanos(linked_at_), response.welcome().clock_ns(),
                   received_ns);
      SLUICE_ASSIGN_OR_RETURN(facts_,
                              CheckWelcome(address_, response.welcome()));
      Apply(life_, LifeEvent::kWelcome);
      highest_epoch_ = HighestOf(response.welcome());
      // Assigned.kept is not enough: who says this gateway's bytes again at a
      // stage that has just started leaves them there as the gateway's.
      const std::string& run = response.welcome().run();
      if (run.empty() || run_ != run) kv_epoch_ = Epoch(0);
      run_ = run;
      load_ = {};
      backoff_ = Duration::zero();
      message_.clear();
      return OkStatus();
    }
    case v1::ControlResponse::kHeartbeat: {
      const v1::HeartbeatReply& reply = response.heartbeat();
      const auto sent_ns = heartbeats_.Answered(reply.sequence());
      if (!sent_ns.has_value()) return OkStatus();  // not outstanding
      load_ = LoadOf(reply);
      rtt_ = std::chrono::nanoseconds(
          std::max<int64_t>(0, received_ns - *sent_ns));
      AddRoundTrip(*sent_ns, reply.clock_ns(), received_ns);
      return OkStatus();
    }
    case v1::ControlResponse::kDrained:
      Apply(life_, LifeEvent::kDrained);
      return OkStatus();
    case v1::ControlResponse::kDraining: {
      const auto remaining = std::chrono::milliseconds(std::clamp<int64_t>(
          response.draining().remaining_ms(), 0, kMaxLeavingMs));
      Apply(life_, LifeEvent::kDraining, {.by = Clock::now() + remaining});
      LogInfo(Describe(), " is told to end, within ", Seconds(remaining), " s");
      return OkStatus();
    }
    default:
      return OkStatus();  // the assembler's, or of a newer version
  }
}

void StageConnection::AddRoundTrip(int64_t sent_ns, int64_t stage_ns,
                                   int64_t received_ns) {
  MutexLock lock(clock_mutex_);
  clock_.Add(sent_ns, stage_ns, received_ns);
}

void StageConnection::Send(v1::ControlRequest request) {
  link_->Send(std::move(request));
}

void StageConnection::SendHeartbeat(uint64_t sequence) {
  v1::ControlRequest request;
  request.mutable_heartbeat()->set_sequence(sequence);
  const int64_t now_ns = MonotonicNanos();
  request.mutable_heartbeat()->set_sender_clock_ns(now_ns);
  heartbeats_.Sent(sequence, now_ns);
  Send(std::move(request));
}

void StageConnection::SendAssign(const wire::PipelineName& name,
                                 const PipelineLimits& limits,
                                 const StageConnection* next,
                                 const StageConnection* last) {
  v1::ControlRequest request;
  v1::Assign* assign = request.mutable_assign();
  assign->set_replica(name.replica.value());
  wire::SetEpoch(name.epoch, assign);
  assign->set_secret(name.secret);
  assign->set_first_layer(facts_.first_layer);
  assign->set_last_layer(facts_.last_layer);
  *assign->mutable_limits() = wire::ToProto(limits);
  if (next != nullptr) {
    assign->set_next_address(next->address_);
    assign->set_next_model_digest(next->facts_.model_digest);
    assign->set_next_first_layer(next->facts_.first_layer);
  }
  if (last != nullptr) assign->set_last_address(last->address_);
  assign->set_keep_term(kv_epoch_.term());
  assign->set_keep_epoch(kv_epoch_.count());
  assigned_epoch_ = name.epoch;
  Send(std::move(request));
}

void StageConnection::OnAssigned(const v1::Assigned& assigned) {
  const Epoch epoch = wire::EpochOf(assigned);
  if (epoch != assigned_epoch_) return;
  kv_epoch_ = assigned.kept() && kv_epoch_ != Epoch(0) ? epoch : Epoch(0);
}

void StageConnection::GiveUp() {
  const Status why =
      Unavailable("answers, but its streams break time and again");
  LogWarning(Describe(), " is given up: ", Message(why));
  End(why, Absence::kGivenUp)->Cancel(why);
  connect_at_ = Clock::now() + kGivenUpPause;
}

void StageConnection::EndPause() {
  if (kind() != LifeKind::kAway || !absent_as(Absence::kGivenUp)) return;
  connect_at_ = std::min(connect_at_, Clock::now());
}

void StageConnection::SendLoad(const wire::PipelineName& name,
                               const StagePlace& place) {
  if (!Apply(life_, LifeEvent::kAskToLoad)) return;
  v1::ControlRequest request;
  v1::Assign* assign = request.mutable_assign();
  assign->set_replica(name.replica.value());
  wire::SetEpoch(name.epoch, assign);
  assign->set_first_layer(place.first_layer);
  assign->set_last_layer(place.last_layer);
  Send(std::move(request));
}

bool StageConnection::vacant(TimePoint now, Duration patience) const {
  const Absence* const absence = AbsenceOf(life_);
  if (absence == nullptr) return refused();
  const Duration silence = now - alive_at_;
  switch (*absence) {
    case Absence::kHeld:
    case Absence::kLoading:
      return false;
    case Absence::kNotReached:
    case Absence::kNotStarted:
      return silence >= patience;
    case Absence::kBroken:
      return silence >= kReturnGrace;
    case Absence::kGone:
    case Absence::kGivenUp:
    case Absence::kRefusing:
    case Absence::kReleased:
      break;
  }
  return true;
}

void StageConnection::SetConflict(std::string message) {
  if (message.empty() && !refused()) return;
  conflict_ = message;
  if (!refused()) Apply(life_, LifeEvent::kAskAgain);
  message_ = std::move(message);
}

Duration StageConnection::Silence(TimePoint now, TimePoint passed) const {
  return now - (welcomed() ? std::max(heard_, passed) : linked_at_);
}

StageStatus StageConnection::Report(TimePoint now, TimePoint passed,
                                    Duration suspect_after,
                                    bool pipeline_up) const {
  StageStatus status{facts_};
  status.load = load_;
  status.message = message_;
  status.rtt = rtt_;
  if (const Absence* const absence = AbsenceOf(life_)) {
    status.state = ShownAs(*absence);
    return status;
  }
  const Duration silence = Silence(now, passed);
  if (silence >= suspect_after) {
    status.state = StageState::kSuspect;
    status.message = Cat("silent for ", Seconds(silence), " s");
  } else if (const TimePoint* const by = LeavesBy(life_)) {
    status.state = StageState::kDraining;
    status.drain_left = std::max(*by - now, Duration::zero());
  } else if (refused()) {
    status.state = StageState::kRefused;
  } else {
    status.state = pipeline_up ? StageState::kReady : StageState::kHandshaking;
  }
  return status;
}

std::string StageConnection::Describe() const {
  const std::string name =
      index_.has_value() ? Cat("stage ", *index_) : std::string("spare");
  if (!welcomed() || facts_.place().empty()) {
    return Cat(name, " (", address_, ")");
  }
  return Cat(name, " (", address_, ", layers ", facts_.first_layer, " to ",
             facts_.last_layer - 1, ")");
}

ClockEstimate StageConnection::clock(int64_t now_ns) const {
  MutexLock lock(clock_mutex_);
  return clock_.At(now_ns);
}

}  // namespace sluice
