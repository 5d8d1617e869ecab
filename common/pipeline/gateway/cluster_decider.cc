#include "common/pipeline/gateway/cluster_decider.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "common/core/epochs.h"

namespace sluice {
namespace {

// What a copy of keys and values may take: the stage ends it before.
constexpr Duration kMostCopy = std::chrono::seconds(30);

// Stages that are told to end within this time end together: then there is no
// stage for the layers, and sequences end before the stages do.
constexpr Duration kLeavesTogether = std::chrono::seconds(1);

// Returns the stage at fault for a failure that stage `index` reports.
size_t Blamed(size_t index, v1::FailureSide side, size_t num_stages) {
  if (side == v1::FAILURE_SIDE_SUCCESSOR && index + 1 < num_stages) {
    return index + 1;
  }
  if (side == v1::FAILURE_SIDE_LAST) return num_stages - 1;
  return side == v1::FAILURE_SIDE_PREDECESSOR && index > 0 ? index - 1 : index;
}

StageProcesses ProcessesOf(const PipelineOptions& options, TimePoint now) {
  StageProcesses processes;
  for (const auto* addresses : {&options.stages, &options.spares}) {
    for (const std::string& address : *addresses) {
      processes.push_back(
          std::make_shared<StageProcess>(processes.size(), address, now));
    }
  }
  return processes;
}

}  // namespace

ClusterDecider::ClusterDecider(const PipelineOptions& options, TimePoint now)
    : options_(options),
      places_(ProcessesOf(options, now), options.stages.size(), options.places,
              out_, options.check_model),
      resplit_(places_, options.resplit, out_),
      stages_(places_.stages()),
      leadership_(options.lease),
      down_since_(now) {}

// Time -----------------------------------------------------------------------

void ClusterDecider::Tick(TimePoint now, TimePoint passed,
                          const OwnerSigns& owner) {
  const bool beat = now >= heartbeat_at_;
  if (beat) heartbeat_at_ = now + options_.heartbeat;
  const Duration limit = options_.transport.peer_timeout;
  const Duration lost_after = std::min(options_.lost_after, limit);
  if (!up()) passed = TimePoint();
  TakeStages(now);
  for (size_t i = 0; i < stages_.size(); ++i) {
    StageProcess& stage = *stages_[i];
    const Duration silence =
        stage.Silence(now, places_.has(i) ? passed : TimePoint());
    const Duration most = stage.welcomed() ? lost_after : limit;
    if (stage.linked() && silence >= most) {
      // The stream's own end comes later and belongs to an older link then.
      Release(i,
              Unavailable("silent for ", Seconds(silence), " s, limit ",
                          Seconds(most)),
              act::Ending::kCancel, std::nullopt, now);
    }
    if (stage.leaving()) ReleaseLeaving(i, owner, now);
    if (beat && stage.welcomed()) {
      out_.Add(act::SendHeartbeat{stage.id(), ++heartbeats_});
    }
  }
  if (up()) return WatchUp(owner, now);
  if (draining_) return;
  if (phase_ == Phase::kGathering) {
    Gather(now, !places_.first_held().has_value());
  } else if (now >= phase_deadline_) {
    Lose(assigning_,
         DeadlineExceeded("no answer to the assignment within ", Seconds(limit),
                          " s"),
         now);
  }
}

void ClusterDecider::TakeStages(TimePoint now) {
  bool waits = false;  // for the answer of an earlier place
  for (size_t i = 0; i < stages_.size(); ++i) {
    StageProcess& stage = *stages_[i];
    if (!leadership_.MayHold(i)) {
      if (stage.linked()) {
        Release(i, Unavailable("waits: another gateway holds or leads"),
                act::Ending::kHalfClose, Absence::kNotReached, now);
      }
      stage.NotTried(now);
    } else if (waits) {
      if (!stage.linked()) stage.NotTried(now);
    } else if (!stage.linked() && now >= stage.connect_at() && !draining_) {
      holds_.Take(stage, places_.epoch().term(), now, out_);
    }
    waits = waits || (leadership_.takes_in_order() && places_.has(i) &&
                      stage.linked() && !stage.welcomed());
  }
}

void ClusterDecider::WatchUp(const OwnerSigns& owner, TimePoint now) {
  if (owner.is_stuck) {
    return Release(places_.Slowest(), Unavailable("answers and does no step"),
                   act::Ending::kCancel, std::nullopt, now);
  }
  if (draining_ || !resplit_.Grow(now, owner.pause_cost)) return;
  message_ = "the layers are split anew: a process joins";
  EndEpoch(/*is_planned=*/true, now);
  SetHolders();
  Gather(now, !places_.first_held().has_value());
}

void ClusterDecider::Raise(TimePoint now) {
  if (holds_.IsDue(now) && phase_ == Phase::kGathering && !draining_) {
    Gather(now, false);
  }
}

bool ClusterDecider::Lead(TimePoint now, PeerLead peers) {
  const Duration down = up() ? Duration::zero() : now - down_since_;
  const bool superseded = leadership_.Update(
      {now, up(), down, places_.first_held(), places_.all_held(), peers});
  return superseded && options_.lease > Duration::zero();
}

// Places and epochs ----------------------------------------------------------

void ClusterDecider::Gather(TimePoint now, bool may_fill) {
  bool changed = false;
  if (may_fill) {
    const Duration patience = options_.transport.peer_timeout;
    changed = places_.Fill(now, patience, message_);
    changed = resplit_.Shrink(now, patience, message_) || changed;
  }
  changed = resplit_.Align(now, message_) || changed;
  if (changed) {
    SetHolders();
    assign_at_ = std::min(assign_at_, now + assign_backoff_);
  }
  if (now >= assign_at_ && places_.filled()) BeginAssigning(now);
}

void ClusterDecider::SetHolders() {
  act::SetHolders holders;
  for (const auto& stage : places_.holders()) {
    holders.processes.push_back(stage->id());
  }
  out_.Add(std::move(holders));
}

void ClusterDecider::BeginAssigning(TimePoint now) {
  auto joined = places_.Join(model_);
  if (!joined.ok()) {
    message_ = Message(joined.status());
    out_.Warn("the stages are no pipeline: ", message_);
    assign_at_ = TimePoint::max();  // until a stage has changed
    return;
  }
  const Epoch next = places_.NextEpoch();
  if (const StageProcess* const low =
          holds_.Raise(places_.holders(), next.term(), now, out_)) {
    message_ = Cat(low->Describe(), ": its term rises from ", low->facts().term,
                   " to the others', ", next.term());
    return;
  }
  model_ = joined_ = *std::move(joined);
  if (places_.moves().is_planned()) KeepLimits();
  phase_ = Phase::kAssigning;
  places_.SetEpoch(next);
  assigning_ = places_.count() - 1;
  phase_deadline_ = now + options_.transport.peer_timeout;
  AssignNext(now);
}

void ClusterDecider::KeepLimits() {
  PlanLimits kept = joined_.limits.plan;
  for (const auto limit :
       {&PlanLimits::num_blocks, &PlanLimits::num_state_blocks,
        &PlanLimits::max_context}) {
    kept.*limit = std::min(kept.*limit, up_limits_.*limit);
  }
  if (kept == up_limits_) {
    joined_.limits.plan = std::move(kept);
  } else {
    places_.moves().OnFailed();
  }
}

void ClusterDecider::AssignNext(TimePoint now) {
  const bool reads_tokens =
      assigning_ == 0 && places_.count() > 1 && options_.steps_ahead;
  const bool copies = places_.Assign(
      assigning_, joined_.limits,
      reads_tokens ? stages_[places_.count() - 1].get() : nullptr);
  phase_deadline_ = now + options_.transport.peer_timeout +
                    (copies ? kMostCopy : Duration::zero());
}

void ClusterDecider::OnAssigned(size_t index, Epoch epoch, const KvAnswer& kv,
                                const Status& status, TimePoint now) {
  StageProcess& stage = *stages_[index];
  stage.OnAssigned(epoch, kv, out_);
  if (places_.has(index) && phase_ == Phase::kGathering && !status.ok() &&
      stage.load_sent()) {
    message_ = Cat(stage.Describe(), ": ", Message(status));
    out_.Warn(message_);
    return stage.SetConflict(Message(status));
  }
  if (phase_ != Phase::kAssigning || index != assigning_ ||
      epoch != places_.epoch()) {
    return;
  }
  if (!status.ok()) return Lose(index, status, now);
  if (assigning_ > 0) {
    --assigning_;
    return AssignNext(now);
  }
  phase_ = Phase::kOpening;
  out_.Add(act::OpenPlans{places_.epoch(), joined_});
}

void ClusterDecider::OnPlansOpen(Epoch epoch, TimePoint now) {
  if (phase_ != Phase::kOpening || epoch != places_.epoch()) return;
  phase_ = Phase::kUp;
  told_leaving_ = false;
  message_.clear();
  assign_backoff_ = Duration::zero();
  if (std::exchange(was_up_, true)) last_recovery_ = now - down_since_;
  out_.Add(act::LetPlansPass());
  resplit_.OnUp(now);
  up_limits_ = joined_.limits.plan;
  const LostStages lost = places_.OnUp(epoch, now);
  out_.Info("pipeline of ", places_.count(), " stages is up, epoch ", epoch,
            lost ? Cat(", ", places_.count() - lost->size(),
                       " of which have their KV cache")
                 : "");
  out_.Add(act::TellUp{epoch, joined_.limits.plan,
                       static_cast<int>(places_.count()), lost});
}

void ClusterDecider::OnPlansEnd(Epoch epoch, size_t index, const Status& why,
                                TimePoint now) {
  if (epoch == places_.epoch()) Lose(index, why, now, "");
}

void ClusterDecider::Lose(size_t index, const Status& why, TimePoint now,
                          const std::optional<std::string>& peer) {
  if (phase_ == Phase::kGathering) return;
  const bool by_stream = peer && up() && !draining_;
  message_ = Cat(stages_[index]->Describe(), ": ", Message(why));
  EndEpoch(/*is_planned=*/false, now);
  if (by_stream) places_.OnStreamBroken(index, *peer, now);
}

void ClusterDecider::EndEpoch(bool is_planned, TimePoint now) {
  const bool was_up = up();
  was_up ? places_.moves().OnEnd(is_planned && options_.resplit.moves_kv)
         : places_.moves().OnFailed();
  phase_ = Phase::kGathering;
  if (was_up) down_since_ = now;
  out_.Add(act::ClosePlans{Cancelled("epoch ", places_.epoch(), " has ended")});
  // At once, unless the last try failed too.
  assign_backoff_ = was_up ? Duration::zero() : NextBackoff(assign_backoff_);
  assign_at_ = now + assign_backoff_;
  out_.Warn(is_planned ? "pipeline ends: "
            : was_up   ? "pipeline lost: "
                       : "pipeline not built: ",
            message_);
  if (was_up) out_.Add(act::TellLost{Unavailable(message_), is_planned});
}

// Messages -------------------------------------------------------------------

void ClusterDecider::OnWelcome(size_t index, StatusOr<StageWelcome> welcome,
                               TimePoint now) {
  StageProcess& stage = *stages_[index];
  stage.OnHeard(now);
  if (!welcome.ok()) {
    return Release(index, welcome.status(), act::Ending::kCancel, std::nullopt,
                   now);
  }
  stage.OnWelcome(*std::move(welcome));
  if (!holds_.next_raise()) out_.Info(stage.Describe(), " is there");
  places_.OnWelcome(index, up());
  assign_at_ = std::min(assign_at_, now + assign_backoff_);
  if (phase_ == Phase::kGathering && !draining_) Gather(now, false);
}

void ClusterDecider::OnFailure(size_t index, Epoch epoch, v1::FailureSide side,
                               const Status& why, TimePoint now) {
  if (!places_.has(index) || epoch != places_.epoch()) return;
  const size_t blamed = Blamed(index, side, places_.count());
  Lose(blamed,
       blamed == index ? why
                       : Annotate(why, stages_[index]->Describe(), " reports"),
       now, stages_[index]->address());
}

void ClusterDecider::OnDraining(size_t index, Duration remaining,
                                TimePoint now) {
  StageProcess& stage = *stages_[index];
  stage.OnDraining(remaining, now, out_);
  told_to_end_ = now;
  if (places_.has(index) && up() && !places_.Prepare(index) &&
      !CanMoveAway(index)) {
    TellLeaving(index);
  }
}

void ClusterDecider::ReleaseLeaving(size_t index, const OwnerSigns& owner,
                                    TimePoint now) {
  if (places_.has(index) && up()) {
    if (MoveAway(index, owner, now)) return;
    const bool is_prepared = places_.Prepare(index);
    const bool may_move = owner.pause_cost < INT64_MAX && CanMoveAway(index);
    if (!is_prepared && !may_move) TellLeaving(index);
    // A spare loads, or the others' split is not due yet.
    if (!owner.is_idle && (!is_prepared || may_move)) return;
  } else if (!places_.has(index) && places_.moves().IsDonor(*stages_[index])) {
    // One that has a place loads no other layers any more: its place is vacant
    // once it is released.
    return;
  }
  Release(index, Unavailable("it was told to end; nothing needs it any more"),
          act::Ending::kHalfClose, Absence::kReleased, now);
}

void ClusterDecider::TellLeaving(size_t index) {
  if (std::exchange(told_leaving_, true)) return;
  out_.Add(act::TellLeaving{
      Unavailable(stages_[index]->Describe(), " is draining")});
}

bool ClusterDecider::CanMoveAway(size_t index) const {
  if (!options_.resplit.moves_kv || draining_) return false;
  for (size_t i = 0; i < places_.count(); ++i) {
    if (i != index && !stages_[i]->available()) return false;
  }
  return places_.has_spare(index) || resplit_.CanLeave(index);
}

bool ClusterDecider::MoveAway(size_t index, const OwnerSigns& owner,
                              TimePoint now) {
  if (now - told_to_end_ < kLeavesTogether || owner.is_idle ||
      owner.pause_cost == INT64_MAX || !CanMoveAway(index)) {
    return false;
  }
  const std::string why =
      Cat("the layers move: ", stages_[index]->Describe(), " was told to end");
  const bool moved =
      places_.has_spare(index)
          ? places_.Prepare(index) && places_.Give(index, message_)
          : resplit_.Leave(index);
  if (!moved) return false;
  message_ = why;
  EndEpoch(/*is_planned=*/true, now);
  SetHolders();
  return true;
}

void ClusterDecider::EndStage(size_t index, const Status& why,
                              std::optional<Absence> absence, TimePoint now) {
  if (places_.has(index)) Lose(index, why, now);
  stages_[index]->OnEnd(why, absence, now, out_);
}

void ClusterDecider::Release(size_t index, const Status& why, act::Ending how,
                             std::optional<Absence> absence, TimePoint now) {
  EndStage(index, why, absence, now);
  out_.Add(act::EndControl{stages_[index]->id(), why, how,
                           absence == Absence::kReleased});
}

// The end --------------------------------------------------------------------

void ClusterDecider::BeginDrain() {
  if (!std::exchange(draining_, true)) places_.Drain();
}

void ClusterDecider::Stop(TimePoint now) {
  phase_ = Phase::kGathering;
  message_ = "stopped";
  out_.Add(act::ClosePlans{Cancelled("the gateway is shutting down")});
  for (const auto& stage : stages_) {
    if (!stage->linked()) continue;
    const Status why = Cancelled(message_);
    stage->OnEnd(why, std::nullopt, now, out_);
    out_.Add(act::EndControl{stage->id(), why, act::Ending::kHalfClose});
  }
}

PipelineStatus ClusterDecider::Report(TimePoint now, TimePoint passed) const {
  PipelineStatus status = places_.Report(now, up() ? passed : TimePoint(),
                                         options_.suspect_after, up());
  status.epoch = places_.epoch();
  if (status.message.empty()) status.message = message_;
  if (!up()) status.down = now - down_since_;
  status.last_recovery = last_recovery_;
  status.model = model_;
  resplit_.Report(status);
  status.role = leadership_.role();
  status.takeovers = leadership_.takeovers();
  return status;
}

}  // namespace sluice
