// The owner's thread: how a pipeline comes up and is lost.
#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/pipeline/gateway/pipeline_impl.h"
#include "common/rpc/transport.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

// Above every epoch of this gateway, and of those before it on the same
// stages as far as clocks go.
Epoch EpochAfter(Epoch last) {
  const auto unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  return Epoch(std::max(static_cast<uint64_t>(unix_ms), last.value() + 1));
}

}  // namespace

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
  epoch_secret_ = RandomBytes(wire::kSecretBytes);
  phase_deadline_ = now + options_.transport.peer_timeout;
  assigning_ = stages_.size() - 1;
  AssignStage();
}

void PipelineClient::Impl::AssignStage() {
  v1::ControlRequest request;
  v1::Assign* assign = request.mutable_assign();
  assign->set_replica(options_.replica.value());
  assign->set_epoch(epoch_.value());
  assign->set_secret(epoch_secret_);
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
  const PipelineName name = {options_.replica, epoch_, epoch_secret_};
  results_ =
      OpenResults(std::move(from_last), name, ResultsEvents(epoch_, limits));
  // The engine keeps about one plan per stage under way; more than fit into
  // the credits wait here.
  const size_t credits =
      static_cast<size_t>(joined_.limits.max_steps_in_flight);
  steps_ = rpc::CreditedSender::Open(
      {std::move(to_first), kStepsMethod,
       FirstStepsHello(name, first.welcome->identity), credits, credits + 1024},
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

Duration PipelineClient::Impl::NextBackoff(Duration last) {
  return std::clamp<Duration>(2 * last, std::chrono::milliseconds(100),
                              std::chrono::seconds(1));
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
