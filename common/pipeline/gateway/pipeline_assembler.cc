// Size: one thread's state machine: links, drain, epochs and status go through
// the same phases.
#include "common/pipeline/gateway/pipeline_assembler.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/base/random_bytes.h"
#include "common/core/epochs.h"
#include "common/rpc/transport.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

// A tick waits at most this long for earlier events.
constexpr Duration kLate = std::chrono::milliseconds(500);
constexpr int64_t kMaxControlMessage = int64_t{1} << 20;

Status CheckOptions(const PipelineOptions& options) {
  if (options.stages.empty()) {
    return InvalidArgument("a pipeline needs at least one stage");
  }
  if (!options.places.empty() &&
      options.places.size() != options.stages.size()) {
    return InvalidArgument("layers are given for ", options.places.size(),
                           " places, there are ", options.stages.size(),
                           " stages");
  }
  if (options.heartbeat <= Duration::zero() ||
      options.suspect_after < options.heartbeat ||
      options.transport.peer_timeout < options.suspect_after) {
    return InvalidArgument(
        "heartbeat, time to suspicion and peer timeout must rise, got ",
        Seconds(options.heartbeat), " s, ", Seconds(options.suspect_after),
        " s, ", Seconds(options.transport.peer_timeout), " s");
  }
  if (options.lease != Duration::zero() &&
      (options.lease < 4 * options.heartbeat ||
       options.lease > options.transport.peer_timeout)) {
    return InvalidArgument(
        "the lease must be ", Seconds(4 * options.heartbeat),
        " s (four heartbeats) to ", Seconds(options.transport.peer_timeout),
        " s (the peer timeout), got ", Seconds(options.lease), " s");
  }
  return OkStatus();
}

// Returns the stage at fault for a failure that stage `index` reports.
size_t Blamed(size_t index, v1::FailureSide side, size_t num_stages) {
  if (side == v1::FAILURE_SIDE_SUCCESSOR && index + 1 < num_stages) {
    return index + 1;
  }
  if (side == v1::FAILURE_SIDE_LAST) return num_stages - 1;
  return side == v1::FAILURE_SIDE_PREDECESSOR && index > 0 ? index - 1 : index;
}

v1::Hello HelloOf(const PipelineOptions& options) {
  v1::Hello hello;
  hello.set_protocol_version(wire::kProtocolVersion);
  hello.set_gateway_id(options.gateway_id.empty()
                           ? Cat(RandomHex(16), "-", getpid())
                           : options.gateway_id);
  hello.set_build(options.build);
  hello.set_secret(RandomBytes(wire::kSecretBytes));
  hello.set_lease_ms(static_cast<uint32_t>(
      std::chrono::ceil<std::chrono::milliseconds>(options.lease).count()));
  return hello;
}

}  // namespace

StatusOr<std::unique_ptr<PipelineAssembler>> PipelineAssembler::Create(
    PipelineOptions options) {
  SLUICE_RETURN_IF_ERROR(CheckOptions(options));
  rpc::TransportOptions transport = options.transport;
  transport.max_message_bytes = kMaxControlMessage;
  StageConnections stages;
  for (const auto* addresses : {&options.stages, &options.spares}) {
    for (const std::string& address : *addresses) {
      SLUICE_ASSIGN_OR_RETURN(
          auto channel, rpc::Connect(address, transport, rpc::kStageRole));
      stages.push_back(
          std::make_shared<StageConnection>(address, std::move(channel)));
    }
  }
  return std::unique_ptr<PipelineAssembler>(
      new PipelineAssembler(std::move(options), std::move(stages)));
}

PipelineAssembler::PipelineAssembler(PipelineOptions options,
                                     StageConnections stages)
    : options_(std::move(options)),
      events_(std::make_shared<PipelineEvents>()),
      holds_(HelloOf(options_), events_,
             {[this](uint64_t link_id, const v1::ControlResponse& response,
                     int64_t received_ns) {
                const auto at = places_.IndexOf(link_id);
                if (at.has_value()) OnControl(*at, response, received_ns);
              },
              [this](uint64_t link_id, const Status& why) {
                const auto at = places_.IndexOf(link_id);
                if (at.has_value()) EndStage(*at, why);
              }}),
      places_(std::move(stages), options_.stages.size(), options_.places,
              options_.check_model),
      resplit_(places_, options_.resplit),
      stages_(places_.stages()),
      plans_(std::make_shared<PlanChannel>(options_.replica, places_.holders(),
                                           events_)),
      leadership_(options_.lease) {
  name_.replica = options_.replica;
  Publish();
}

PipelineAssembler::~PipelineAssembler() { Stop(); }

void PipelineAssembler::Start(PipelineObserver* observer) {
  observer_ = observer;
  plans_->Start(
      {[this](Epoch epoch) { OnUp(epoch); },
       [this](Epoch epoch, size_t index, const Status& why) {
         if (epoch == name_.epoch) Lose(index, why, "");
       }},
      [this](StepResult result) { observer_->OnResult(std::move(result)); });
  thread_ = NamedThread("pipeline", [this] { Run(); });
}

void PipelineAssembler::Drain(TimePoint deadline) {
  events_->Post([this] {
    if (!std::exchange(draining_, true)) places_.SendDrain();
    if (places_.drained()) board_.SetDrained();
  });
  board_.WaitDrained(deadline);
}

void PipelineAssembler::Stop() {
  // A flag beside the event, for a full queue.
  stopping_ = true;
  events_->Post([] {});
  thread_.Join();
}

void PipelineAssembler::Run() {
  const Duration interval =
      std::min<Duration>(options_.heartbeat, std::chrono::milliseconds(100));
  TimePoint next_tick = Clock::now();
  while (!stopping_) {
    const Status done = CatchExceptions("pipeline", [&] {
      const TimePoint wake = holds_.next_raise().value_or(next_tick);
      if (auto event = events_->Pop(std::min(wake, next_tick))) (*event)();
      if (const auto broken = events_->TakeBreak()) {
        if (broken->thrown) OnException(broken->why);
        Lose(0, broken->why);
      }
      const TimePoint now = Clock::now();
      if (holds_.IsDue(now) && phase_ == Phase::kGathering && !draining_) {
        Gather(now, false);
      }
      // After the earlier events: an unread message is no silence.
      if (now >= next_tick &&
          (events_->size() == 0 || now >= next_tick + kLate)) {
        next_tick = now + interval;  // even if the tick throws
        Tick(now);
      }
      Publish();
    });
    if (done.ok()) continue;
    OnException(done);
    const Status lost = CatchExceptions("pipeline", [&] { Lose(0, done); });
    if (!lost.ok()) OnException(lost);
  }
  events_->Close();
  phase_ = Phase::kGathering;
  message_ = "stopped";
  plans_->Close(Cancelled("the gateway is shutting down"));
  for (const auto& stage : stages_) {
    if (stage->linked()) stage->End(Cancelled(message_))->HalfClose();
  }
  Publish();
}

void PipelineAssembler::Tick(TimePoint now) {
  const bool beat = now >= heartbeat_at_;
  if (beat) heartbeat_at_ = now + options_.heartbeat;
  const Duration limit = options_.transport.peer_timeout;
  const Duration lost_after = std::min(options_.lost_after, limit);
  const TimePoint passed =
      phase_ == Phase::kUp ? plans_->last_result() : TimePoint();
  TakeStages(now);
  for (size_t i = 0; i < stages_.size(); ++i) {
    StageConnection& stage = *stages_[i];
    const Duration silence =
        stage.Silence(now, places_.has(i) ? passed : TimePoint());
    const Duration most = stage.welcomed() ? lost_after : limit;
    if (stage.linked() && silence >= most) {
      // The stream's own end comes later and belongs to an older link then.
      const Status why = Unavailable("silent for ", Seconds(silence),
                                     " s, limit ", Seconds(most));
      EndStage(i, why)->Cancel(why);
    }
    if (stage.linked() && stage.leaving()) ReleaseLeaving(i);
    if (beat && stage.linked() && stage.welcomed()) {
      stage.SendHeartbeat(++heartbeats_);
    }
  }
  if (phase_ == Phase::kUp) return WatchUp(now);
  if (draining_) return;
  if (phase_ == Phase::kGathering) {
    Gather(now, !places_.first_held().has_value());
  } else if (now >= phase_deadline_) {
    Lose(assigning_, DeadlineExceeded("no answer to the assignment within ",
                                      Seconds(limit), " s"));
  }
}

void PipelineAssembler::TakeStages(TimePoint now) {
  bool waits = false;  // for the answer of an earlier place
  for (size_t i = 0; i < stages_.size(); ++i) {
    StageConnection& stage = *stages_[i];
    if (!leadership_.MayHold(i)) {
      if (stage.linked()) {
        EndStage(i, Unavailable("waits: another gateway holds or leads"),
                 Absence::kNotReached)
            ->HalfClose();
      }
      stage.NotTried(now);
    } else if (waits) {
      if (!stage.linked()) stage.NotTried(now);
    } else if (!stage.linked() && now >= stage.connect_at() && !draining_) {
      holds_.Take(stage, name_.epoch.term());
    }
    waits = waits || (leadership_.takes_in_order() && places_.has(i) &&
                      stage.linked() && !stage.welcomed());
  }
}

void PipelineAssembler::Gather(TimePoint now, bool may_fill) {
  bool changed = false;
  if (may_fill) {
    const Duration patience = options_.transport.peer_timeout;
    changed = places_.Fill(now, patience, name_, message_);
    changed = resplit_.Shrink(now, patience, message_) || changed;
  }
  changed = resplit_.Align(now, message_) || changed;
  if (changed) {
    plans_->SetStages(places_.holders());
    assign_at_ = std::min(assign_at_, now + assign_backoff_);
  }
  if (now >= assign_at_ && places_.filled()) BeginAssigning(now);
}

void PipelineAssembler::OnControl(size_t index,
                                  const v1::ControlResponse& response,
                                  int64_t received_ns) {
  StageConnection& stage = *stages_[index];
  const Status status = stage.OnMessage(response, received_ns);
  if (!status.ok()) {
    EndStage(index, status)->Cancel(status);
    return;
  }
  switch (response.kind_case()) {
    case v1::ControlResponse::kWelcome:
      return OnWelcome(index);
    case v1::ControlResponse::kAssigned:
      return OnAssigned(index, response.assigned());
    case v1::ControlResponse::kDrained:
      if (draining_ && places_.drained()) board_.SetDrained();
      return;
    case v1::ControlResponse::kFailure:
      return OnFailure(index, response.failure());
    case v1::ControlResponse::kDraining:
      if (places_.has(index) && phase_ == Phase::kUp &&
          !places_.Prepare(index, name_)) {
        observer_->OnLeaving(Unavailable(stage.Describe(), " is draining"));
      }
      return ReleaseLeaving(index);
    default:
      return;  // the connection's, or of a newer version
  }
}

void PipelineAssembler::OnWelcome(size_t index) {
  if (!holds_.next_raise()) LogInfo(stages_[index]->Describe(), " is there");
  places_.OnWelcome(index, phase_ == Phase::kUp);
  const TimePoint now = Clock::now();
  assign_at_ = std::min(assign_at_, now + assign_backoff_);
  if (phase_ == Phase::kGathering && !draining_) Gather(now, false);
}

std::shared_ptr<ControlLink> PipelineAssembler::EndStage(
    size_t index, const Status& why, std::optional<Absence> absence) {
  if (places_.has(index)) Lose(index, why);
  auto link = stages_[index]->End(why, absence);
  if (draining_ && places_.drained()) board_.SetDrained();
  return link;
}

void PipelineAssembler::ReleaseLeaving(size_t index) {
  if (places_.has(index) && phase_ == Phase::kUp &&
      !places_.Prepare(index, name_) && !observer_->IsIdle()) {
    return;
  }
  EndStage(index, Unavailable("it was told to end; nothing needs it any more"),
           Absence::kReleased)
      ->HalfClose();
}

void PipelineAssembler::WatchUp(TimePoint now) {
  if (observer_->IsStuck()) {
    const size_t slowest = places_.Slowest();
    const Status why = Unavailable("answers and does no step");
    EndStage(slowest, why)->Cancel(why);
    return;
  }
  if (draining_ || !resplit_.Grow(now, observer_->PauseCost(), name_)) return;
  message_ = "the layers are split anew: a process joins";
  EndEpoch(/*is_planned=*/true);
  plans_->SetStages(places_.holders());
}

// Epochs ---------------------------------------------------------------------

void PipelineAssembler::BeginAssigning(TimePoint now) {
  auto joined = places_.Join(model_);
  if (!joined.ok()) {
    message_ = Message(joined.status());
    LogWarning("the stages are no pipeline: ", message_);
    assign_at_ = TimePoint::max();  // until a stage has changed
    return;
  }
  const Epoch next = places_.NextEpoch(name_.epoch);
  if (const StageConnection* const low =
          holds_.Raise(places_.holders(), next.term(), now)) {
    message_ = Cat(low->Describe(), ": its term rises from ", low->facts().term,
                   " to the others', ", next.term());
    return;
  }
  model_ = joined_ = *std::move(joined);
  phase_ = Phase::kAssigning;
  name_.epoch = next;
  name_.secret = RandomBytes(wire::kSecretBytes);
  phase_deadline_ = now + options_.transport.peer_timeout;
  assigning_ = places_.count() - 1;
  stages_[assigning_]->SendAssign(name_, joined_.limits, nullptr);
}

void PipelineAssembler::OnAssigned(size_t index, const v1::Assigned& assigned) {
  const Status status =
      wire::StatusFromProto(assigned.status_code(), assigned.status_message());
  stages_[index]->OnAssigned(assigned);
  if (places_.has(index) && phase_ == Phase::kGathering && !status.ok() &&
      stages_[index]->load_sent()) {
    message_ = Cat(stages_[index]->Describe(), ": ", Message(status));
    LogWarning(message_);
    return stages_[index]->SetConflict(Message(status));
  }
  if (phase_ != Phase::kAssigning || index != assigning_ ||
      wire::EpochOf(assigned) != name_.epoch) {
    return;
  }
  if (!status.ok()) return Lose(index, status);
  if (assigning_ > 0) {
    --assigning_;
    const bool reads_tokens = assigning_ == 0 && options_.steps_ahead;
    return stages_[assigning_]->SendAssign(
        name_, joined_.limits, stages_[index].get(),
        reads_tokens ? stages_[places_.count() - 1].get() : nullptr);
  }
  phase_ = Phase::kOpening;
  const Status opened = plans_->Open(name_, joined_, options_.transport);
  if (!opened.ok()) Lose(0, opened);
}

void PipelineAssembler::OnUp(Epoch epoch) {
  if (phase_ != Phase::kOpening || epoch != name_.epoch) return;
  phase_ = Phase::kUp;
  message_.clear();
  assign_backoff_ = Duration::zero();
  if (std::exchange(was_up_, true)) {
    last_recovery_ = Clock::now() - down_since_;
  }
  plans_->GoLive();
  resplit_.OnUp(Clock::now());
  const LostStages lost = places_.OnUp(epoch);
  LogInfo("pipeline of ", places_.count(), " stages is up, epoch ", epoch,
          lost ? Cat(", ", places_.count() - lost->size(),
                     " of which have their KV cache")
               : "");
  Publish();
  observer_->OnUp(epoch, joined_.limits.plan, static_cast<int>(places_.count()),
                  lost);
}

void PipelineAssembler::OnFailure(size_t index, const v1::Failure& failure) {
  if (!places_.has(index) || wire::EpochOf(failure) != name_.epoch) return;
  const Status why =
      wire::StatusFromProto(failure.status_code(), failure.status_message());
  const size_t blamed = Blamed(index, failure.side(), places_.count());
  Lose(blamed,
       blamed == index ? why
                       : Annotate(why, stages_[index]->Describe(), " reports"),
       stages_[index]->address());
}

void PipelineAssembler::Lose(size_t index, const Status& why,
                             const std::optional<std::string>& peer) {
  if (phase_ == Phase::kGathering) return;
  const bool by_stream = peer && phase_ == Phase::kUp && !draining_;
  message_ = Cat(stages_[index]->Describe(), ": ", Message(why));
  EndEpoch(/*is_planned=*/false);
  if (by_stream) places_.OnStreamBroken(index, *peer, name_);
}

void PipelineAssembler::EndEpoch(bool is_planned) {
  const bool was_up = phase_ == Phase::kUp;
  phase_ = Phase::kGathering;
  if (was_up) down_since_ = Clock::now();
  plans_->Close(Cancelled("epoch ", name_.epoch, " has ended"));
  // At once, unless the last try failed too.
  assign_backoff_ = was_up ? Duration::zero() : NextBackoff(assign_backoff_);
  assign_at_ = Clock::now() + assign_backoff_;
  LogWarning(is_planned ? "pipeline ends: "
             : was_up   ? "pipeline lost: "
                        : "pipeline not built: ",
             message_);
  Publish();
  if (!was_up) return;
  const Status why = Unavailable(message_);
  is_planned ? observer_->OnResplit(why) : observer_->OnLost(why);
}

void PipelineAssembler::OnException(const Status& what) {
  exceptions_log_.Write(LogLevel::kError, "caught: ", Message(what));
  observer_->OnException(what);
}

// Status ---------------------------------------------------------------------

void PipelineAssembler::Publish() {
  const TimePoint now = Clock::now();
  const bool up = phase_ == Phase::kUp;
  PipelineStatus status =
      places_.Report(now, up ? plans_->last_result() : TimePoint(),
                     options_.suspect_after, up);
  status.epoch = name_.epoch;
  if (status.message.empty()) status.message = message_;
  if (!up) status.down = now - down_since_;
  status.last_recovery = last_recovery_;
  status.model = model_;
  resplit_.Report(status);
  const bool superseded = leadership_.Update(
      {now, up, status.down, places_.first_held(), places_.all_held(),
       observer_ != nullptr ? observer_->LeadOfPeers() : PeerLead::kNone},
      status);
  board_.Publish(std::move(status), now);
  if (!superseded || options_.lease == Duration::zero()) return;
  const Status why = Unavailable("another gateway has taken the stages");
  LogWarning(Message(why), ": this one stands by");
  observer_->OnSuperseded(why);
}

}  // namespace sluice
