// The owner's thread: how a pipeline comes up and is lost.
#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/rpc/status.h"
#include "common/rpc/transport.h"
#include "common/wire/types.h"
#include "services/gateway/pipeline/pipeline_impl.h"

namespace sluice {
namespace {

constexpr Duration kFirstBackoff = std::chrono::milliseconds(100);
constexpr Duration kMaxBackoff = std::chrono::seconds(1);
constexpr Duration kLoadingPause = std::chrono::milliseconds(300);
constexpr int64_t kMaxLeavingMs = int64_t{24} * 3600 * 1000;

Duration NextBackoff(Duration last) {
  return std::clamp<Duration>(2 * last, kFirstBackoff, kMaxBackoff);
}

StageLoad LoadOf(const v1::HeartbeatReply& reply) {
  const auto duration = [](int64_t nanos) {
    return std::chrono::nanoseconds(std::max<int64_t>(nanos, 0));
  };
  return {reply.steps_done(), std::max(reply.queue_depth(), 0),
          duration(reply.busy_ns()), duration(reply.hop_ns()),
          reply.experts_missing()};
}

// Above every epoch of this gateway, and of those before it on the same
// stages as far as clocks go.
Epoch EpochAfter(Epoch last) {
  const auto unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  return Epoch(std::max(static_cast<uint64_t>(unix_ms), last.value() + 1));
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
  stage.link = OpenControl(stage.channel, options_.gateway_id, options_.build,
                           ControlEvents(index, stage.link_id));
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

// The pipeline ---------------------------------------------------------------

void PipelineClient::Impl::BeginAssigning(TimePoint now) {
  std::vector<StageWelcome> welcomes;
  for (const Stage& stage : stages_) welcomes.push_back(*stage.welcome);
  JoinResult join = JoinStages(welcomes);
  Status refusal;
  if (!join.ok()) {
    refusal = join.conflict().why;
    Stage& stage = stages_[static_cast<size_t>(join.conflict().stage)];
    stage.refused = true;
    stage.message = Message(refusal);
  } else {
    joined_ = join.joined();
    {
      MutexLock lock(status_mutex_);
      model_ = joined_.model;
    }
    if (options_.check_model) refusal = options_.check_model(joined_.model);
  }
  if (!refusal.ok()) {
    message_ = Message(refusal);
    LogWarning("the stages are no pipeline: ", message_);
    assign_at_ = TimePoint::max();  // until a stage has changed
    return;
  }
  phase_ = Phase::kAssigning;
  epoch_ = EpochAfter(epoch_);
  phase_deadline_ = now + options_.transport.peer_timeout;
  assigning_ = stages_.size() - 1;
  AssignStage();
}

void PipelineClient::Impl::AssignStage() {
  v1::ControlRequest request;
  v1::Assign* assign = request.mutable_assign();
  assign->set_replica(options_.replica.value());
  assign->set_epoch(epoch_.value());
  *assign->mutable_limits() = wire::ToProto(joined_.limits);
  if (assigning_ + 1 < stages_.size()) {
    const Stage& next = stages_[assigning_ + 1];
    assign->set_next_address(next.address);
    assign->set_next_model_digest(next.welcome->identity.model_digest);
    assign->set_next_first_layer(next.welcome->identity.first_layer);
  }
  stages_[assigning_].link->Send(std::move(request));
}

void PipelineClient::Impl::OnAssigned(size_t index,
                                      const v1::Assigned& assigned) {
  if (phase_ != Phase::kAssigning || index != assigning_ ||
      assigned.epoch() != epoch_.value()) {
    return;
  }
  const Status status =
      wire::StatusFromProto(assigned.status_code(), assigned.status_message());
  if (!status.ok()) {
    Lose(index, status);
  } else if (assigning_ > 0) {
    --assigning_;
    AssignStage();
  } else {
    OpenStreams();
  }
}

void PipelineClient::Impl::OpenStreams() {
  phase_ = Phase::kOpening;
  const Status status = OpenDataStreams();
  if (!status.ok()) Lose(0, status);
}

Status PipelineClient::Impl::OpenDataStreams() {
  const Stage& first = stages_.front();
  const Stage& last = stages_.back();
  const PlanLimits& limits = joined_.limits.plan;
  rpc::TransportOptions transport = options_.transport;
  transport.max_message_bytes = wire::MaxResultBytes(limits);
  SLUICE_ASSIGN_OR_RETURN(auto from_last,
                          rpc::Connect(last.address, transport));
  transport.max_message_bytes = wire::MaxFrameBytes(limits, 0);
  SLUICE_ASSIGN_OR_RETURN(auto to_first,
                          rpc::Connect(first.address, transport));
  results_ = OpenResults(std::move(from_last), options_.replica, epoch_,
                         ResultsEvents(epoch_, limits));
  // The engine keeps about one plan per stage under way; more than fit into
  // the credits wait here.
  const size_t credits =
      static_cast<size_t>(joined_.limits.max_steps_in_flight);
  steps_ = rpc::CreditedSender::Open(
      {std::move(to_first), kStepsMethod,
       FirstStepsHello(options_.replica, epoch_, first.welcome->identity),
       credits, credits + 1024},
      StepsEvents(epoch_));
  return OkStatus();
}

void PipelineClient::Impl::OnStepsReady(Epoch epoch) {
  if (phase_ != Phase::kOpening || epoch != epoch_) return;
  phase_ = Phase::kUp;
  message_.clear();
  assign_backoff_ = Duration::zero();
  if (std::exchange(was_up_, true)) {
    last_recovery_ = Clock::now() - down_since_;
  }
  SetLive(epoch_, steps_);
  LogInfo("pipeline of ", stages_.size(), " stages is up, epoch ", epoch_);
  Publish();
  callbacks_.on_up(epoch_, joined_.limits.plan,
                   static_cast<int>(stages_.size()));
}

void PipelineClient::Impl::OnStreamEnd(Epoch epoch, size_t index,
                                       const char* what, const Status& status) {
  if (epoch != epoch_) return;
  Lose(index, status.ok() ? Unavailable(what, " was ended by the stage")
                          : Annotate(status, what));
}

void PipelineClient::Impl::Lose(size_t index, const Status& why) {
  if (phase_ == Phase::kGathering) return;
  const bool was_up = phase_ == Phase::kUp;
  phase_ = Phase::kGathering;
  if (was_up) down_since_ = Clock::now();
  message_ = Cat(Describe(index), ": ", Message(why));
  CloseStreams(Cancelled("epoch ", epoch_, " has ended"));
  assign_backoff_ = NextBackoff(assign_backoff_);
  assign_at_ = Clock::now() + assign_backoff_;
  LogWarning(was_up ? "pipeline lost: " : "pipeline not built: ", message_);
  Publish();
  if (was_up) callbacks_.on_lost(Unavailable(message_));
}

void PipelineClient::Impl::CloseStreams(const Status& why) {
  SetLive(Epoch(0), nullptr);
  if (steps_ != nullptr) std::exchange(steps_, nullptr)->Cancel(why);
  if (results_ != nullptr) std::exchange(results_, nullptr)->Cancel(why);
}

void PipelineClient::Impl::Publish() {
  const TimePoint now = Clock::now();
  PipelineStatus status;
  status.epoch = epoch_;
  status.message = message_;
  status.ready = phase_ == Phase::kUp;
  if (!status.ready) status.down = now - down_since_;
  status.last_recovery = last_recovery_;
  std::vector<TimePoint> heard;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    StageStatus& out = status.stages.emplace_back();
    out.address = stage.address;
    out.message = stage.message;
    out.rtt = stage.rtt;
    out.state = stage.down_state;
    out.first_layer = stage.identity.first_layer;
    out.last_layer = stage.identity.last_layer;
    out.ranks = stage.identity.ranks;
    out.threads = stage.identity.threads;
    out.isa = stage.identity.isa;
    out.weights_bytes = stage.identity.weights_bytes;
    out.kv_bytes = stage.identity.kv_bytes;
    out.load = stage.load;
    heard.push_back(stage.heard);
    if (!stage.welcome.has_value()) continue;
    const Duration silence = now - HeardOf(stage);
    if (silence >= options_.suspect_after) {
      out.state = StageState::kSuspect;
      out.message = Cat("silent for ", Seconds(silence), " s");
      if (status.ready) status.message = Cat(Describe(i), ": ", out.message);
      status.ready = false;
    } else if (stage.leaves_at) {
      out.state = StageState::kDraining;
      out.drain_left = std::max(*stage.leaves_at - now, Duration::zero());
      if (status.ready) status.message = Cat(Describe(i), " is draining");
      status.ready = false;
    } else if (stage.refused) {
      out.state = StageState::kRefused;
    } else {
      out.state =
          phase_ == Phase::kUp ? StageState::kReady : StageState::kHandshaking;
    }
  }
  MutexLock lock(status_mutex_);
  published_ = std::move(status);
  heard_ = std::move(heard);
}

}  // namespace sluice
