#include "common/pipeline/stage/stage_session.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/base/build_info.h"
#include "common/base/log.h"
#include "common/base/random_bytes.h"
#include "common/pipeline/stage/control_stream.h"
#include "common/pipeline/stage/stage_checks.h"
#include "common/pipeline/stage/stage_metrics.h"
#include "common/rpc/status.h"
#include "common/wire/types.h"

namespace sluice {
namespace {

// The least silence after which a gateway is replaced: some heartbeats.
constexpr Duration kMinSilence = std::chrono::seconds(1);

// Streams of Blocks at once: stages copy one after another.
constexpr size_t kMaxReaders = 16;

// Returns `status` with the reason that the gateway acts on.
Status Refused(Status status, v1::Refusal::Reason reason) {
  v1::Refusal refusal;
  refusal.set_reason(reason);
  return rpc::WithDetails(std::move(status), refusal.SerializeAsString());
}

v1::Refusal::Reason ReasonOf(const Status& status) {
  v1::Refusal refusal;
  const bool parsed = refusal.ParseFromString(rpc::DetailsOf(status));
  return parsed ? refusal.reason() : v1::Refusal::REASON_UNSPECIFIED;
}

// Returns the lease that `hello` asks for, within bounds.
Duration LeaseOf(const v1::Hello& hello, Duration peer_timeout) {
  const Duration longest = std::max(peer_timeout, kMinSilence);
  if (hello.lease_ms() == 0) return longest;
  return std::clamp<Duration>(std::chrono::milliseconds(hello.lease_ms()),
                              kMinSilence, longest);
}

// What a gateway is told whose stage another one has, after `silence`.
Status Taken(Duration silence) {
  return Refused(FailedPrecondition("another gateway has this stage: this one "
                                    "was silent for ",
                                    Seconds(silence), " s"),
                 v1::Refusal::REASON_HELD);
}

Status ShuttingDown() { return Unavailable("this stage is shutting down"); }

Epoch KeepOf(const v1::Assign& assign) {
  return {assign.keep_term(), assign.keep_epoch()};
}

}  // namespace

StageSession::StageSession(StageSessionOptions options)
    : options_(std::move(options)),
      run_(RandomBytes(wire::kRunBytes)),
      links_(options_, LinkEvents()) {}

StageSession::~StageSession() = default;

EpochLinks::Events StageSession::LinkEvents() {
  EpochLinks::Events events;
  events.on_assigned = [this](Epoch epoch, const Status& status) {
    if (status.ok()) {
      LogInfo("epoch ", epoch, " assigned");
    } else {
      LogWarning("epoch ", epoch, " refused: ", Message(status));
    }
    std::shared_ptr<ControlStream> to;
    KvOutcome kv;
    {
      MutexLock lock(mutex_);
      to = control_;
      kv = kv_;
    }
    if (to != nullptr) to->SendAssigned(epoch, status, kv);
  };
  events.on_failure = [this](Epoch epoch, v1::FailureSide side,
                             const Status& why) {
    if (const auto to = control()) to->SendFailure(epoch, side, why);
  };
  events.on_drained = [this] {
    if (const auto to = control()) to->SendDrained();
  };
  return events;
}

std::shared_ptr<ControlStream> StageSession::control() const {
  MutexLock lock(mutex_);
  return control_;
}

void StageSession::SetLoading(std::string progress) {
  MutexLock lock(mutex_);
  loading_ = std::move(progress);
}

void StageSession::SetLoaded(const StageInfo& info, StepRunner* runner) {
  links_.SetLoaded(info, runner);
  MutexLock lock(mutex_);
  info_ = info;
  info_.assignable = options_.load != nullptr;
  if (!info_.assignable) info_.room = StageRoom();
  runner_ = runner;
  loaded_ = true;
}

void StageSession::SetLoadFailed(const StageInfo& info, const Status& why) {
  {
    MutexLock lock(mutex_);
    load_failure_ = why;
  }
  SetLoaded(info, nullptr);
}

// Control --------------------------------------------------------------------

StatusOr<v1::Welcome> StageSession::OnHello(
    const v1::Hello& hello, std::shared_ptr<ControlStream> control) {
  SLUICE_RETURN_IF_ERROR(CheckHello(hello));
  const TimePoint now = Clock::now();
  std::shared_ptr<ControlStream> replaced;
  EndedEpoch ended;
  v1::Welcome welcome;
  Duration silence{};  // of the gateway that held the stage
  bool is_holder = false;
  {
    MutexLock lock(mutex_);
    if (leaving_ || links_.draining()) {
      return ShuttingDown();
    }
    if (standing_) return Unavailable("this stage stands still");
    is_holder = EqualSecrets(holder_.secret, hello.secret()) &&
                CountOn(hello, holder_.hellos);
    if (!is_holder) {
      const Status free = holder_.CheckFree(control_ != nullptr, now);
      if (!free.ok()) return Refused(free, v1::Refusal::REASON_HELD);
      SLUICE_RETURN_IF_ERROR(terms_.CheckHold());
    }
    if (!loaded_) {
      if (is_holder) holder_.heard = now;
      return Refused(Unavailable(loading_), v1::Refusal::REASON_LOADING);
    }
    const auto failure = std::exchange(load_failure_, std::nullopt);
    if (failure.has_value() && is_holder) {
      holder_.awaited = false;
      return Refused(*failure, v1::Refusal::REASON_LOAD_FAILED);
    }
    replaced = std::exchange(control_, std::move(control));
    if (replaced != nullptr) ended = Release(/*draining=*/false);
    terms_.BeginHold(hello.term(), is_holder, now);
    if (!is_holder) kv_epoch_ = Epoch();
    if (!is_holder) offers_.Clear();
    silence = now - holder_.heard;
    holder_ = {hello.gateway_id(),
               control_->peer(),
               hello.secret(),
               hello.count(),
               now,
               now,
               LeaseOf(hello, options_.transport.peer_timeout)};
    welcome = MakeWelcome();
  }
  visits_.Write(LogLevel::kInfo, "gateway ", hello.gateway_id(),
                " holds this stage");
  if (replaced != nullptr) {
    End(std::move(ended), Cancelled("the gateway opened a new Control stream"));
    replaced->End(is_holder ? Cancelled("replaced by a new Control stream")
                            : Taken(silence));
  }
  return welcome;
}

v1::Welcome StageSession::MakeWelcome() const {
  v1::Welcome welcome;
  welcome.set_protocol_version(wire::kProtocolVersion);
  welcome.set_build(std::string(BuildVersion()));
  welcome.set_clock_ns(MonotonicNanos());
  welcome.set_highest_term(terms_.highest().term());
  welcome.set_highest_epoch(terms_.highest().count());
  welcome.set_run(run_);
  *welcome.mutable_identity() = wire::ToProto(info_);
  *welcome.mutable_limits() =
      wire::ToProto(LimitsOf(info_, options_.max_steps_in_flight));
  return welcome;
}

void StageSession::OnRefused(const std::string& peer, const Status& why,
                             bool waits) {
  // A gateway that waits for the stage tries again and again.
  if (why.code() == StatusCode::kUnavailable) return;
  if (waits && ReasonOf(why) == v1::Refusal::REASON_HELD) return;
  refusals_.Write(LogLevel::kWarning, "a gateway",
                  peer.empty() ? "" : Cat(" at ", peer),
                  " is refused: ", Message(why));
}

Status StageSession::CheckAssign(const v1::Assign& assign,
                                 const PipelineLimits& limits) const {
  if (leaving_ || links_.draining()) {
    return ShuttingDown();
  }
  SLUICE_RETURN_IF_ERROR(
      terms_.CheckEpoch(wire::EpochOf(assign), Clock::now()));
  return CheckAssignment(assign, limits, info_,
                         LimitsOf(info_, options_.max_steps_in_flight));
}

StageSession::EndedEpoch StageSession::Release(bool draining) {
  return {links_.Release(draining), std::exchange(copy_, nullptr)};
}

void StageSession::End(EndedEpoch ended, const Status& why) {
  if (ended.copy != nullptr) ended.copy->Cancel();
  links_.EndStreams(std::move(ended.streams), why);
}

StageSession::EndedEpoch StageSession::Unload(std::string told) {
  auto ended = Release(/*draining=*/shutting_down_);
  runner_ = nullptr;
  kv_epoch_ = Epoch();
  loaded_ = false;
  loading_ = std::move(told);
  load_failure_.reset();
  control_ = nullptr;
  holder_.awaited = true;
  return ended;
}

void StageSession::OnAssign(const v1::Assign& assign,
                            const ControlStream* control) {
  const Epoch epoch = wire::EpochOf(assign);
  const StagePlace place = {assign.first_layer(), assign.last_layer()};
  const auto limits = wire::FromProto(assign.limits());
  Status status = limits.status();
  bool load = false, stands = false;
  std::shared_ptr<KvCopy> copy;
  const Assignment assignment{
      {ReplicaId(assign.replica()), epoch, assign.secret()},
      limits.value_or(PipelineLimits()),
      assign.next_address(),
      assign.last_address()};
  std::shared_ptr<ControlStream> asker;
  EndedEpoch ended;
  const Status loads =
      Unavailable("this stage loads layers ", place.first_layer, " to ",
                  int64_t{place.last_layer} - 1);
  {
    MutexLock lock(mutex_);
    if (control_.get() != control) return;
    asker = control_;
    stands = standing_;
    holder_.heard = Clock::now();
    load = !stands && info_.assignable &&
           (runner_ == nullptr || info_.place() != place);
    if (load) {
      status = leaving_ || links_.draining()
                   ? ShuttingDown()
                   : CheckLoadable(place, info_.num_layers);
      if (status.ok()) ended = Unload(Message(loads));
    } else if (!stands) {
      if (status.ok()) status = CheckAssign(assign, *limits);
      if (status.ok()) {
        terms_.BeginEpoch(epoch, Clock::now());
        kv_ = {kv_epoch_ != Epoch() && KeepOf(assign) == kv_epoch_};
        kv_epoch_ = epoch;
        copy = MakeCopy(assign, assignment);
        ended.copy = std::exchange(copy_, copy);
        offers_.Begin(epoch, assign.secret(), kv_.kept,
                      Epoch(assign.donors_term(), assign.donors_epoch()));
        ended.streams = links_.Begin(assignment);
      }
    }
  }
  if (stands) OnControlEnd(control);
  if (stands) return asker->End(Unavailable("this stage stands still"));
  if (!status.ok()) {
    LogWarning("epoch ", epoch, " refused: ", Message(status));
    return asker->SendAssigned(epoch, status, KvOutcome());
  }
  if (load) {
    LogInfo(Message(loads));
    End(std::move(ended), loads);
    asker->End(Refused(loads, v1::Refusal::REASON_LOADING));
    released_.NotifyAll();
    return ShelveAndLoad(place, assign.shelve());
  }
  End(std::move(ended), FailedPrecondition("epoch ", epoch, " begins"));
  if (copy != nullptr) return copy->Start();
  links_.Connect(assignment, weak_from_this());
}

void StageSession::ShelveAndLoad(const StagePlace& place, bool shelves) {
  // To load frees the runner: it waits for the runner's last work and for this
  // thread, whichever comes last.
  struct Arrivals {
    std::atomic<int> left{2};
    std::shared_ptr<const KvShelf> shelf;
  };
  const auto arrivals = std::make_shared<Arrivals>();
  StagePlace held;
  {
    MutexLock lock(mutex_);
    held = info_.place();
  }
  const auto arrive = [self = shared_from_this(), place, arrivals] {
    if (arrivals->left.fetch_sub(1) > 1) return;
    {
      MutexLock lock(self->mutex_);
      self->offers_.Unload(std::move(arrivals->shelf));
    }
    self->options_.load(place);
  };
  const bool comes =
      shelves && links_.Between([arrivals, arrive, held](KvStore* store) {
        if (store != nullptr) {
          const auto shelf = KvShelf::Of(*store, held);
          if (!shelf.ok()) LogWarning("no shelf: ", Message(shelf.status()));
          arrivals->shelf = shelf.value_or(nullptr);
        }
        arrive();
      });
  // Nothing uses the runner from here on.
  links_.SetLoaded(StageInfo(), nullptr);
  { MutexLock until_the_stats_are_taken(stats_mutex_); }
  if (!comes) arrive();
  arrive();
}

std::shared_ptr<KvCopy> StageSession::MakeCopy(const v1::Assign& assign,
                                               const Assignment& assignment) {
  KvDonors donors;
  donors.epoch = Epoch(assign.donors_term(), assign.donors_epoch());
  donors.secret = assign.donors_secret();
  for (const v1::KvDonor& donor : assign.donors()) {
    donors.donors.push_back(
        {donor.address(), {donor.first_layer(), donor.last_layer()}});
  }
  if (donors.donors.empty()) return nullptr;
  const auto own = offers_.Find(donors.epoch, donors.secret);
  KvCopy::Target target;
  target.links = &links_;
  target.owner = weak_from_this();
  target.identity = info_;
  target.shelf = own.ok() ? own->shelf : nullptr;
  target.transport = options_.transport;
  return std::make_shared<KvCopy>(
      std::move(target), std::move(donors),
      [owner = weak_from_this(), assignment,
       begin = MonotonicNanos()](const KvCopied& copied) {
        const auto self = owner.lock();
        if (self == nullptr) return;
        if (self->options_.metrics != nullptr) {
          self->options_.metrics->OnCopied(copied.status.ok(), copied.bytes,
                                           MonotonicNanos() - begin);
        }
        self->OnCopied(assignment, copied);
      });
}

void StageSession::OnCopied(const Assignment& assignment,
                            const KvCopied& copied) {
  {
    MutexLock lock(mutex_);
    if (copy_ == nullptr || kv_epoch_ != assignment.epoch) return;
    kv_.copied = copied;
    copy_ = nullptr;
  }
  if (copied.status.ok()) {
    LogInfo("keys and values are copied: ", copied.bytes, " bytes");
  } else {
    LogWarning("keys and values are not copied: ", Message(copied.status));
  }
  links_.Connect(assignment, weak_from_this());
}

StatusOr<std::shared_ptr<KvSource>> StageSession::OnBlocks(
    const v1::BlocksHello& hello) {
  const StagePlace place = {hello.first_layer(), hello.last_layer()};
  KvOffer offer;
  {
    MutexLock lock(mutex_);
    if (shutting_down_) return ShuttingDown();
    SLUICE_RETURN_IF_ERROR(CheckBlocksHello(hello, info_));
    SLUICE_ASSIGN_OR_RETURN(offer,
                            offers_.Find(wire::EpochOf(hello), hello.secret()));
    SLUICE_RETURN_IF_ERROR(CheckLayers(
        offer.shelf != nullptr ? offer.shelf->place() : info_.place(), place));
  }
  auto source = offer.shelf != nullptr
                    ? MakeKvSource(offer.shelf, place)
                    : MakeKvSource(&links_, weak_from_this(), place);
  MutexLock lock(mutex_);
  std::erase_if(readers_, [](const auto& reader) { return reader.expired(); });
  if (readers_.size() >= kMaxReaders) {
    return ResourceExhausted("this stage has ", readers_.size(),
                             " streams of Blocks, limit ", kMaxReaders);
  }
  readers_.push_back(source);
  return source;
}

v1::HeartbeatReply StageSession::OnHeartbeat(const v1::Heartbeat& heartbeat,
                                             const ControlStream* control) {
  v1::HeartbeatReply reply;
  reply.set_sequence(heartbeat.sequence());
  reply.set_sender_clock_ns(heartbeat.sender_clock_ns());
  reply.set_clock_ns(MonotonicNanos());
  std::shared_ptr<KvCopy> copy;
  {
    MutexLock lock(mutex_);
    copy = copy_;
  }
  if (copy != nullptr) copy->Watch(Clock::now());
  MutexLock asking(stats_mutex_);
  const StepRunner* runner = nullptr;
  {
    MutexLock lock(mutex_);
    if (control_.get() == control) holder_.heard = Clock::now();
    reply.set_experts_missing(experts_missing_);
    runner = runner_;
  }
  const EpochLinks::Progress progress = links_.progress();
  wire::SetEpoch(progress.epoch, &reply);
  reply.set_steps_done(progress.steps_done);
  reply.set_hop_ns(progress.hop_ns);
  if (progress.steps_done > 0) {
    MutexLock lock(mutex_);
    offers_.OnSteps();
  }
  if (runner == nullptr) return reply;
  const StageLoopStats stats = runner->Stats();
  reply.set_queue_depth(stats.queue_depth);
  reply.set_busy_ns(static_cast<int64_t>(stats.compute_seconds * 1e9));
  return reply;
}

void StageSession::SetExpertsMissing(bool missing) {
  MutexLock lock(mutex_);
  experts_missing_ = missing;
}

void StageSession::SetStanding(bool standing) {
  MutexLock lock(mutex_);
  standing_ = standing;
}

void StageSession::OnDrain(const ControlStream* control) {
  const auto to = this->control();
  if (to.get() != control || !links_.Drain(/*is_asked=*/true)) return;
  to->SendDrained();
}

void StageSession::OnControlEnd(const ControlStream* control) {
  std::string gateway;
  EndedEpoch ended;
  {
    MutexLock lock(mutex_);
    if (control_.get() != control) return;
    gateway = holder_.id;
    control_ = nullptr;
    offers_.OnSteps();
    // All at once: from here on another gateway may begin an epoch.
    ended = Release(/*draining=*/shutting_down_);
  }
  released_.NotifyAll();
  visits_.Write(LogLevel::kInfo, "gateway ", gateway, " let go of this stage");
  End(std::move(ended), Cancelled("the gateway let go of this stage"));
}

StatusOr<uint64_t> StageSession::ResetTerm(const std::string& peer) {
  uint64_t term = 0;
  std::shared_ptr<ControlStream> to;
  EndedEpoch ended;
  {
    MutexLock lock(mutex_);
    if (leaving_ || links_.draining()) {
      return ShuttingDown();
    }
    if (const Epoch epoch = links_.progress().epoch; epoch != Epoch()) {
      return FailedPrecondition("this stage serves in epoch ", epoch,
                                ": its term is reset when no gateway uses it");
    }
    term = terms_.Reset();
    kv_epoch_ = Epoch();
    offers_.Clear();
    // A gateway for whose layers the stage loads keeps its hold.
    if (!holder_.awaited) holder_ = {};
    to = std::exchange(control_, nullptr);
    if (to != nullptr) ended = Release(/*draining=*/shutting_down_);
  }
  LogWarning("the term is reset from ", term,
             peer.empty() ? "" : Cat(", by ", peer));
  if (to == nullptr) return term;
  released_.NotifyAll();
  const Status why = Unavailable("the term of this stage was reset");
  End(std::move(ended), why);
  to->End(why);
  return term;
}

// Ends -----------------------------------------------------------------------

void StageSession::Leave(TimePoint deadline) {
  std::shared_ptr<ControlStream> to;
  {
    MutexLock lock(mutex_);
    leaving_ = true;
    to = control_;
  }
  if (to == nullptr) return;
  to->SendDraining(std::max(deadline - Clock::now(), Duration::zero()));
  MutexLock lock(mutex_);
  while (control_ != nullptr && released_.WaitUntil(mutex_, deadline)) {
  }
}

void StageSession::Drain(TimePoint deadline) {
  {
    MutexLock lock(mutex_);
    shutting_down_ = true;
    links_.Drain(/*is_asked=*/false);
  }
  links_.WaitIdle(deadline);
}

void StageSession::Shutdown() {
  const Status why = ShuttingDown();
  std::shared_ptr<ControlStream> to;
  EndedEpoch ended;
  {
    MutexLock lock(mutex_);
    shutting_down_ = true;
    to = control_;
    ended = Release(/*draining=*/true);
  }
  End(std::move(ended), why);
  if (to != nullptr) to->End(why);
}

bool StageSession::draining() const {
  MutexLock lock(mutex_);
  return leaving_ || links_.draining();
}

bool StageSession::held() const {
  MutexLock lock(mutex_);
  return control_ != nullptr &&
         Clock::now() - holder_.heard <
             std::max(options_.transport.peer_timeout, kMinSilence);
}

}  // namespace sluice
