// The owner's thread: one stage and its Control stream, from connecting to the
// last drain.
#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/pipeline/gateway/pipeline_impl.h"
#include "common/rpc/status.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

constexpr Duration kLoadingPause = std::chrono::milliseconds(300);
constexpr int64_t kMaxLeavingMs = int64_t{24} * 3600 * 1000;

StageLoad LoadOf(const v1::HeartbeatReply& reply) {
  const auto duration = [](int64_t nanos) {
    return std::chrono::nanoseconds(std::max<int64_t>(nanos, 0));
  };
  return {reply.steps_done(), std::max(reply.queue_depth(), 0),
          duration(reply.busy_ns()), duration(reply.hop_ns()),
          reply.experts_missing()};
}

// What the stage gave as its reason to end Control.
v1::Refusal::Reason ReasonOf(const Status& status) {
  v1::Refusal refusal;
  const bool parsed = refusal.ParseFromString(rpc::DetailsOf(status));
  return parsed ? refusal.reason() : v1::Refusal::REASON_UNSPECIFIED;
}

}  // namespace

std::string PipelineClient::Impl::Describe(size_t index) const {
  const Stage& stage = stages_[index];
  if (!stage.welcome.has_value()) {
    return Cat("stage ", index, " (", stage.address, ")");
  }
  const wire::StageIdentity& identity = stage.welcome->identity;
  return Cat("stage ", index, " (", stage.address, ", layers ",
             identity.first_layer, " to ", identity.last_layer - 1, ")");
}

void PipelineClient::Impl::Tick(TimePoint now) {
  const bool beat = now >= heartbeat_at_;
  if (beat) heartbeat_at_ = now + options_.heartbeat;
  bool all_welcome = true;
  // Two gateways that each hold a stage of the other would wait forever: so
  // nobody keeps one behind a stage that another holds.
  bool behind_held = false;
  for (size_t i = 0; i < stages_.size(); ++i) {
    Stage& stage = stages_[i];
    if (behind_held) {
      LetGo(i);
    } else if (stage.link == nullptr && now >= stage.connect_at && !draining_) {
      ConnectStage(i, now);
    }
    behind_held = behind_held || stage.held;
    if (stage.link != nullptr) CheckSilence(i, now);
    if (stage.link != nullptr && stage.leaves_at) ReleaseLeaving(i);
    if (beat && stage.welcome.has_value() && stage.link != nullptr) {
      v1::ControlRequest request;
      request.mutable_heartbeat()->set_sequence(++heartbeats_);
      const int64_t now_ns = MonotonicNanos();
      request.mutable_heartbeat()->set_sender_clock_ns(now_ns);
      stage.heartbeats.Sent(heartbeats_, now_ns);
      stage.link->Send(std::move(request));
    }
    all_welcome = all_welcome && stage.welcome.has_value();
  }
  if (draining_) return;
  if (phase_ == Phase::kGathering) {
    if (all_welcome && now >= assign_at_) BeginAssigning(now);
  } else if (phase_ != Phase::kUp && now >= phase_deadline_) {
    Lose(assigning_,
         DeadlineExceeded("no answer to the assignment within ",
                          Seconds(options_.transport.peer_timeout), " s"));
  }
}

// One stage ------------------------------------------------------------------

void PipelineClient::Impl::ConnectStage(size_t index, TimePoint now) {
  Stage& stage = stages_[index];
  stage.link_id = ++links_;
  stage.linked_at = now;
  stage.heartbeats.Reset();
  {
    MutexLock lock(trace_mutex_);
    clocks_[index].Reset();
  }
  v1::Hello hello;
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_gateway_id(options_.gateway_id);
  hello.set_build(options_.build);
  hello.set_secret(secret_);
  stage.link =
      OpenControl(stage.channel, hello, ControlEvents(index, stage.link_id));
}

void PipelineClient::Impl::CheckSilence(size_t index, TimePoint now) {
  Stage& stage = stages_[index];
  const TimePoint since =
      stage.welcome.has_value() ? HeardOf(stage) : stage.linked_at;
  if (now - since < options_.transport.peer_timeout) return;
  const Status why =
      Unavailable("silent for ", Seconds(now - since), " s, limit ",
                  Seconds(options_.transport.peer_timeout));
  // Its own end comes later and is of an older link then.
  const auto link = stage.link;
  OnControlEnd(index, stage.link_id, why);
  link->Cancel(why);
}

void PipelineClient::Impl::LetGo(size_t index) {
  Stage& stage = stages_[index];
  const auto link = stage.link;
  if (link == nullptr) return;
  OnControlEnd(index, stage.link_id,
               Unavailable("waits for a stage that another gateway holds"));
  stage.down_state = StageState::kConnecting;
  link->HalfClose();
}

void PipelineClient::Impl::OnControl(size_t index, uint64_t link_id,
                                     v1::ControlResponse response,
                                     int64_t received_ns) {
  Stage& stage = stages_[index];
  if (stage.link == nullptr || stage.link_id != link_id) return;
  stage.heard = Clock::now();
  switch (response.kind_case()) {
    case v1::ControlResponse::kWelcome:
      OnRoundTrip(index, ToNanos(stage.linked_at),
                  response.welcome().clock_ns(), received_ns);
      OnWelcome(index, response.welcome());
      return;
    case v1::ControlResponse::kAssigned:
      OnAssigned(index, response.assigned());
      return;
    case v1::ControlResponse::kHeartbeat:
      OnHeartbeat(index, response.heartbeat(), received_ns);
      return;
    case v1::ControlResponse::kDrained:
      stage.drained = true;
      CheckDrained();
      return;
    case v1::ControlResponse::kFailure:
      OnFailure(index, response.failure());
      return;
    case v1::ControlResponse::kDraining:
      OnDraining(index, response.draining());
      return;
    default:
      return;  // of a newer version; nothing of ours waits for it
  }
}

void PipelineClient::Impl::OnHeartbeat(size_t index,
                                       const v1::HeartbeatReply& reply,
                                       int64_t received_ns) {
  Stage& stage = stages_[index];
  const auto sent_ns = stage.heartbeats.Answered(reply.sequence());
  if (!sent_ns.has_value()) return;  // answers nothing of ours
  stage.load = LoadOf(reply);
  stage.rtt =
      std::chrono::nanoseconds(std::max<int64_t>(0, received_ns - *sent_ns));
  OnRoundTrip(index, *sent_ns, reply.clock_ns(), received_ns);
}

void PipelineClient::Impl::OnRoundTrip(size_t index, int64_t sent_ns,
                                       int64_t stage_ns, int64_t received_ns) {
  MutexLock lock(trace_mutex_);
  clocks_[index].Add(sent_ns, stage_ns, received_ns);
}

void PipelineClient::Impl::OnWelcome(size_t index, const v1::Welcome& proto) {
  Stage& stage = stages_[index];
  auto welcome = CheckWelcome(stage.address, proto);
  if (!welcome.ok()) {
    const auto link = stage.link;
    OnControlEnd(index, stage.link_id, welcome.status());
    link->Cancel(welcome.status());
    return;
  }
  stage.welcome = *std::move(welcome);
  stage.identity = stage.welcome->identity;
  stage.load = {};
  stage.seen = true;
  stage.held = false;
  stage.backoff = Duration::zero();
  // What did not fit before may fit now.
  for (Stage& any : stages_) {
    if (std::exchange(any.refused, false)) any.message.clear();
  }
  stage.message.clear();
  assign_at_ = std::min(assign_at_, Clock::now() + assign_backoff_);
  LogInfo(Describe(index), " is there");
  bool all = phase_ == Phase::kGathering && !draining_;
  for (const Stage& any : stages_) all = all && any.welcome.has_value();
  if (all && Clock::now() >= assign_at_) BeginAssigning(Clock::now());
}

void PipelineClient::Impl::OnControlEnd(size_t index, uint64_t link_id,
                                        const Status& status) {
  Stage& stage = stages_[index];
  if (stage.link == nullptr || stage.link_id != link_id) return;
  const Status why =
      status.ok() ? Unavailable("the stage ended its Control stream") : status;
  if (phase_ != Phase::kGathering) Lose(index, why);
  stage.link = nullptr;
  stage.welcome.reset();
  stage.leaves_at.reset();
  stage.message = Message(why);
  const v1::Refusal::Reason reason = ReasonOf(why);
  stage.held = reason == v1::Refusal::REASON_HELD;
  stage.backoff = NextBackoff(stage.backoff);
  if (draining_) CheckDrained();
  if (reason == v1::Refusal::REASON_LOADING) {
    stage.down_state = StageState::kLoading;
    stage.backoff = kLoadingPause;
  } else if (why.code() == StatusCode::kFailedPrecondition ||
             why.code() == StatusCode::kInvalidArgument ||
             why.code() == StatusCode::kUnimplemented) {
    if (stage.down_state != StageState::kRefused) {
      LogWarning(Describe(index), " refuses: ", stage.message);
    }
    stage.down_state = StageState::kRefused;
  } else {
    stage.down_state = stage.seen ? StageState::kLost : StageState::kConnecting;
  }
  stage.connect_at = Clock::now() + stage.backoff;
}

TimePoint PipelineClient::Impl::HeardOf(const Stage& stage) const {
  if (phase_ != Phase::kUp) return stage.heard;
  const std::chrono::nanoseconds result(last_result_ns_.load());
  return std::max(stage.heard,
                  TimePoint(std::chrono::duration_cast<Duration>(result)));
}

// Drain ----------------------------------------------------------------------

void PipelineClient::Impl::SendDrain() {
  const bool sent = std::exchange(draining_, true);
  v1::ControlRequest request;
  request.mutable_drain();
  for (Stage& stage : stages_) {
    if (!sent && stage.link != nullptr && stage.welcome.has_value()) {
      stage.link->Send(request);
    }
  }
  CheckDrained();
}

void PipelineClient::Impl::CheckDrained() {
  for (const Stage& stage : stages_) {
    const bool held = stage.link != nullptr && stage.welcome.has_value();
    if (held && !stage.drained) return;
  }
  LogInfo("all stages have drained");
  MutexLock lock(status_mutex_);
  drained_ = true;
  drained_changed_.NotifyAll();
}

void PipelineClient::Impl::OnFailure(size_t index, const v1::Failure& failure) {
  if (phase_ == Phase::kGathering || failure.epoch() != epoch_.value()) return;
  const Status why =
      wire::StatusFromProto(failure.status_code(), failure.status_message());
  size_t blamed = index;
  if (failure.side() == v1::FAILURE_SIDE_SUCCESSOR &&
      index + 1 < stages_.size()) {
    blamed = index + 1;
  } else if (failure.side() == v1::FAILURE_SIDE_PREDECESSOR && index > 0) {
    blamed = index - 1;
  }
  Lose(blamed,
       blamed == index ? why : Annotate(why, Describe(index), " reports"));
}

void PipelineClient::Impl::OnDraining(size_t index,
                                      const v1::Draining& draining) {
  Stage& stage = stages_[index];
  const auto remaining = std::chrono::milliseconds(
      std::clamp<int64_t>(draining.remaining_ms(), 0, kMaxLeavingMs));
  stage.leaves_at = Clock::now() + remaining;
  LogInfo(Describe(index), " is told to end, within ", Seconds(remaining),
          " s");
  if (phase_ == Phase::kUp && callbacks_.on_leaving) {
    callbacks_.on_leaving(Unavailable(Describe(index), " is draining"));
  }
  ReleaseLeaving(index);
}

void PipelineClient::Impl::ReleaseLeaving(size_t index) {
  if (phase_ == Phase::kUp && callbacks_.idle && !callbacks_.idle()) return;
  Stage& stage = stages_[index];
  const auto link = stage.link;
  OnControlEnd(index, stage.link_id,
               Unavailable("it was told to end; nothing needs it any more"));
  stage.down_state = StageState::kDraining;
  link->HalfClose();
}

}  // namespace sluice
