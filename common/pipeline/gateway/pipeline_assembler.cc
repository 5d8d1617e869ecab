#include "common/pipeline/gateway/pipeline_assembler.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/base/random_bytes.h"
#include "common/pipeline/gateway/handshake.h"
#include "common/rpc/transport.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

// A tick waits at most this long for earlier events.
constexpr Duration kLate = std::chrono::milliseconds(500);
constexpr int64_t kMaxControlMessage = int64_t{1} << 20;
constexpr int64_t kMaxLeavingMs = int64_t{24} * 3600 * 1000;

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

StatusOr<StageWelcome> WelcomeOf(const std::string& address,
                                 const v1::Welcome& welcome) {
  SLUICE_ASSIGN_OR_RETURN(StageFacts facts, CheckWelcome(address, welcome));
  return StageWelcome{std::move(facts), HighestOf(welcome), welcome.run()};
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
                                     StageConnections connections)
    : options_(std::move(options)),
      hello_(HelloOf(options_)),
      events_(std::make_shared<PipelineEvents>()),
      connections_(std::move(connections)),
      plans_(std::make_shared<PlanChannel>(
          options_.replica,
          StageConnections(connections_.begin(),
                           connections_.begin() + std::ssize(options_.stages)),
          events_)),
      decider_(options_, Clock::now()) {
  name_.replica = options_.replica;
  Lead();
}

PipelineAssembler::~PipelineAssembler() { Stop(); }

void PipelineAssembler::Start(PipelineObserver* observer) {
  observer_ = observer;
  plans_->Start(
      {[this](Epoch epoch) { decider_.OnPlansOpen(epoch, Clock::now()); },
       [this](Epoch epoch, size_t index, const Status& why) {
         decider_.OnPlansEnd(epoch, index, why, Clock::now());
       }},
      [this](StepResult result) { observer_->OnResult(std::move(result)); });
  thread_ = NamedThread("pipeline", [this] { Run(); });
}

void PipelineAssembler::Drain(TimePoint deadline) {
  events_->Post([this] { decider_.BeginDrain(); });
  board_.WaitDrained(deadline);
}

void PipelineAssembler::Stop() {
  // A flag beside the event, for a full queue.
  stopping_ = true;
  events_->Post([] {});
  thread_.Join();
}

// The thread "pipeline" ------------------------------------------------------

void PipelineAssembler::Run() {
  TimePoint next_tick = Clock::now();
  while (!stopping_) {
    const Status done =
        CatchExceptions("pipeline", [&] { RunOnce(next_tick); });
    if (done.ok()) continue;
    OnException(done);
    const Status lost = CatchExceptions("pipeline", [&] { OnBreak(done); });
    if (!lost.ok()) OnException(lost);
  }
  events_->Close();
  decider_.Stop(Clock::now());
  CarryOut();
  Lead();
}

void PipelineAssembler::RunOnce(TimePoint& next_tick) {
  const Duration interval =
      std::min<Duration>(options_.heartbeat, std::chrono::milliseconds(100));
  const TimePoint wake = decider_.next_raise().value_or(next_tick);
  if (auto event = events_->Pop(std::min(wake, next_tick))) (*event)();
  CarryOut();
  if (const auto broken = events_->TakeBreak()) {
    if (broken->thrown) OnException(broken->why);
    OnBreak(broken->why);
  }
  const TimePoint now = Clock::now();
  decider_.Raise(now);
  CarryOut();
  // After the earlier events: an unread message is no silence.
  if (now >= next_tick && (events_->size() == 0 || now >= next_tick + kLate)) {
    next_tick = now + interval;  // even if the tick throws
    decider_.Tick(now, plans_->last_result(), AskOwner());
  }
  CarryOut();
  Lead();
}

OwnerSigns PipelineAssembler::AskOwner() {
  if (!decider_.up()) return {};
  return {observer_->IsIdle(), observer_->IsStuck(), observer_->PauseCost()};
}

void PipelineAssembler::OnBreak(const Status& why) {
  decider_.OnBreak(why, Clock::now());
  CarryOut();
}

void PipelineAssembler::OnException(const Status& what) {
  exceptions_log_.Write(LogLevel::kError, "caught: ", Message(what));
  observer_->OnException(what);
}

void PipelineAssembler::OnControl(uint64_t link_id,
                                  const v1::ControlResponse& response,
                                  int64_t received_ns) {
  const auto at = decider_.IndexOf(link_id);
  if (!at.has_value()) return;
  const StageProcess& stage = *decider_.places().stages()[*at];
  StageConnection& connection = *connections_[stage.id()];
  const TimePoint now = Clock::now();
  decider_.OnHeard(*at, now);
  switch (response.kind_case()) {
    case v1::ControlResponse::kWelcome:
      connection.OnWelcome(response.welcome().clock_ns(), received_ns);
      return decider_.OnWelcome(
          *at, WelcomeOf(connection.address(), response.welcome()), now);
    case v1::ControlResponse::kHeartbeat: {
      const v1::HeartbeatReply& reply = response.heartbeat();
      const auto rtt = connection.OnHeartbeat(reply, received_ns);
      if (rtt) decider_.OnHeartbeat(*at, LoadOf(reply), *rtt);
      return;
    }
    case v1::ControlResponse::kAssigned: {
      const v1::Assigned& assigned = response.assigned();
      return decider_.OnAssigned(
          *at, wire::EpochOf(assigned),
          {assigned.kept(), assigned.copied(), assigned.not_copied(),
           assigned.copied_bytes()},
          wire::StatusFromProto(assigned.status_code(),
                                assigned.status_message()),
          now);
    }
    case v1::ControlResponse::kDrained:
      return decider_.OnDrained(*at);
    case v1::ControlResponse::kFailure: {
      const v1::Failure& failure = response.failure();
      return decider_.OnFailure(*at, wire::EpochOf(failure), failure.side(),
                                wire::StatusFromProto(failure.status_code(),
                                                      failure.status_message()),
                                now);
    }
    case v1::ControlResponse::kDraining:
      decider_.OnDraining(
          *at,
          std::chrono::milliseconds(std::clamp<int64_t>(
              response.draining().remaining_ms(), 0, kMaxLeavingMs)),
          now);
      CarryOut();  // the owner may rest from here on
      return decider_.ReleaseLeaving(*at, AskOwner(), now);
    default:
      return;  // of a newer version
  }
}

// Actions --------------------------------------------------------------------

void PipelineAssembler::CarryOut() {
  while (const auto action = decider_.Next()) {
    std::visit([this](const auto& what) { Do(what); }, *action);
  }
  if (decider_.drained()) board_.SetDrained();
}

const StageProcess& PipelineAssembler::process(size_t id) const {
  const StageProcesses& all = decider_.places().stages();
  return **std::ranges::find_if(
      all, [id](const auto& stage) { return stage->id() == id; });
}

void PipelineAssembler::Do(const act::OpenControl& open) {
  v1::Hello hello = hello_;
  hello.set_count(open.link_id);
  hello.set_term(open.term);
  connections_[open.process]->Open(
      hello, events_,
      [this, id = open.link_id](const v1::ControlResponse& response,
                                int64_t received_ns) {
        OnControl(id, response, received_ns);
      },
      [this, id = open.link_id](const Status& why) {
        const auto at = decider_.IndexOf(id);
        if (!at.has_value()) return;
        const size_t process = decider_.places().stages()[*at]->id();
        // If this throws, the stream is still there for what is sent.
        decider_.OnEnd(*at, why, Clock::now());
        connections_[process]->Forget();
      });
}

void PipelineAssembler::Do(const act::EndControl& end) {
  const auto link = connections_[end.process]->Forget();
  if (link == nullptr) return;  // an exception kept it from being opened
  end.how == act::Ending::kHalfClose ? link->HalfClose()
                                     : link->Cancel(end.why);
}

void PipelineAssembler::Do(const act::SendHeartbeat& heartbeat) {
  connections_[heartbeat.process]->SendHeartbeat(heartbeat.sequence);
}

void PipelineAssembler::Do(const act::SendLoad& load) {
  v1::ControlRequest request;
  v1::Assign* const assign = request.mutable_assign();
  assign->set_replica(name_.replica.value());
  wire::SetEpoch(load.epoch, assign);
  assign->set_first_layer(load.place.first_layer);
  assign->set_last_layer(load.place.last_layer);
  assign->set_shelve(load.shelves);
  connections_[load.process]->Send(std::move(request));
}

void PipelineAssembler::Do(const act::SendAssign& what) {
  if (name_.epoch != what.epoch) {
    name_.epoch = what.epoch;
    name_.secret = RandomBytes(wire::kSecretBytes);
  }
  const StageFacts& facts = process(what.process).facts();
  v1::ControlRequest request;
  v1::Assign* const assign = request.mutable_assign();
  assign->set_replica(name_.replica.value());
  wire::SetEpoch(name_.epoch, assign);
  assign->set_secret(name_.secret);
  assign->set_first_layer(facts.first_layer);
  assign->set_last_layer(facts.last_layer);
  *assign->mutable_limits() = wire::ToProto(what.limits);
  if (what.next.has_value()) {
    const StageFacts& next = process(*what.next).facts();
    assign->set_next_address(next.address);
    assign->set_next_model_digest(next.model_digest);
    assign->set_next_first_layer(next.first_layer);
  }
  if (what.last.has_value()) {
    assign->set_last_address(process(*what.last).address());
  }
  assign->set_keep_term(what.keep.term());
  assign->set_keep_epoch(what.keep.count());
  AddDonors(what, assign);
  connections_[what.process]->Send(std::move(request));
}

void PipelineAssembler::AddDonors(const act::SendAssign& what,
                                  v1::Assign* assign) const {
  if (what.donors.empty() || what.donors_epoch != up_.epoch) return;
  assign->set_donors_term(up_.epoch.term());
  assign->set_donors_epoch(up_.epoch.count());
  assign->set_donors_secret(up_.secret);
  for (const act::KvDonor& donor : what.donors) {
    v1::KvDonor* const proto = assign->add_donors();
    if (!donor.is_self) proto->set_address(process(donor.process).address());
    proto->set_first_layer(donor.layers.first_layer);
    proto->set_last_layer(donor.layers.last_layer);
  }
}

void PipelineAssembler::Do(const act::SendDrain& drain) {
  v1::ControlRequest request;
  request.mutable_drain();
  connections_[drain.process]->Send(std::move(request));
}

void PipelineAssembler::Do(const act::SetHolders& holders) {
  StageConnections connections;
  for (const size_t id : holders.processes) {
    connections.push_back(connections_[id]);
  }
  plans_->SetStages(std::move(connections));
}

void PipelineAssembler::Do(const act::OpenPlans& open) {
  const Status opened = plans_->Open(
      name_, open.joined, decider_.places().stages().front()->facts(),
      options_.transport);
  if (!opened.ok()) decider_.OnPlansEnd(open.epoch, 0, opened, Clock::now());
}

void PipelineAssembler::Do(const act::LetPlansPass&) { plans_->GoLive(); }

void PipelineAssembler::Do(const act::ClosePlans& close) {
  plans_->Close(close.why);
}

void PipelineAssembler::Do(const act::TellUp& up) {
  up_ = name_;
  Lead();
  observer_->OnUp(up.epoch, up.limits, up.num_stages, up.lost);
}

void PipelineAssembler::Do(const act::TellLost& lost) {
  Publish();
  lost.is_planned ? observer_->OnResplit(lost.why)
                  : observer_->OnLost(lost.why);
}

void PipelineAssembler::Do(const act::TellLeaving& leaving) {
  observer_->OnLeaving(leaving.why);
}

void PipelineAssembler::Do(const act::WriteLog& line) {
  Log(line.level, line.text);
}

// Status ---------------------------------------------------------------------

void PipelineAssembler::Publish() {
  const TimePoint now = Clock::now();
  board_.Publish(decider_.Report(now, plans_->last_result()), now);
}

void PipelineAssembler::Lead() {
  const PeerLead peers =
      observer_ != nullptr ? observer_->LeadOfPeers() : PeerLead::kNone;
  const bool superseded = decider_.Lead(Clock::now(), peers);
  Publish();
  if (!superseded) return;
  const Status why = Unavailable("another gateway has taken the stages");
  LogWarning(Message(why), ": this one stands by");
  observer_->OnSuperseded(why);
}

}  // namespace sluice
