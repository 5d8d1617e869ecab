#include "common/pipeline/gateway/stage_process.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/rpc/status.h"
#include "common/wire/stage.h"

namespace sluice {
namespace {

constexpr Duration kLoadingPause = std::chrono::milliseconds(100);
// The wait for another gateway's stage is part of a takeover.
constexpr Duration kHeldPause = std::chrono::milliseconds(500);
// A failed load is tried again: the file may have been replaced.
constexpr Duration kLoadFailedPause = std::chrono::seconds(5);

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

StageProcess::StageProcess(size_t id, std::string address, TimePoint now)
    : id_(id), alive_at_(now) {
  facts_.address = std::move(address);
}

void StageProcess::Hello(uint64_t link_id, uint64_t term, TimePoint now,
                         act::Outbox& out) {
  if (!Apply(life_, LifeEvent::kHello)) return;
  link_id_ = link_id;
  linked_at_ = now;
  out.Add(act::OpenControl{id_, link_id, term});
}

void StageProcess::Assign(Epoch epoch, const PipelineLimits& limits,
                          const StageProcess* next, const StageProcess* last,
                          std::vector<act::KvDonor> donors, Epoch donors_epoch,
                          act::Outbox& out) {
  assigned_epoch_ = epoch;
  asked_to_copy_ = !donors.empty();
  const auto id_of = [](const StageProcess* process) {
    return process == nullptr ? std::nullopt : std::optional(process->id_);
  };
  out.Add(act::SendAssign{id_, epoch, limits, kv_epoch_, id_of(next),
                          id_of(last), std::move(donors), donors_epoch});
}

void StageProcess::AskToLoad(const StagePlace& place, Epoch epoch,
                             act::Outbox& out, bool shelves) {
  if (!Apply(life_, LifeEvent::kAskToLoad)) return;
  out.Add(act::SendLoad{id_, epoch, place, shelves});
}

void StageProcess::GiveUp(TimePoint now, act::Outbox& out) {
  const Status why =
      Unavailable("answers, but its streams break time and again");
  out.Warn(Describe(), " is given up: ", Message(why));
  OnEnd(why, Absence::kGivenUp, now, out);
  out.Add(act::EndControl{id_, why, act::Ending::kCancel});
  connect_at_ = now + kGivenUpPause;
}

void StageProcess::EndPause(TimePoint now) {
  if (linked() || !absent_as(Absence::kGivenUp)) return;
  connect_at_ = std::min(connect_at_, now);
}

void StageProcess::SetConflict(std::string message) {
  if (message.empty() && !refused()) return;
  conflict_ = message;
  if (!refused()) Apply(life_, LifeEvent::kAskAgain);
  message_ = std::move(message);
}

void StageProcess::OnEnd(const Status& why, std::optional<Absence> absence,
                         TimePoint now, act::Outbox& out) {
  const v1::Refusal::Reason reason = ReasonOf(why);
  if (!absence) absence = AbsenceAfter(why, reason, run_.has_value());
  const Absence* const before = AbsenceOf(life_);
  const bool was_refused =
      before != nullptr && ShownAs(*before) == StageState::kRefused;
  if (!Apply(life_, LifeEvent::kEnd, {.why = *absence})) return;
  message_ = Message(why);
  if (reason != v1::Refusal::REASON_UNSPECIFIED) alive_at_ = now;
  backoff_ = NextBackoff(backoff_);
  if (absence == Absence::kHeld) backoff_ = kHeldPause;
  if (absence == Absence::kLoading) backoff_ = kLoadingPause;
  if (reason == v1::Refusal::REASON_LOAD_FAILED) {
    backoff_ = kLoadFailedPause;
    load_failed_ = true;
  }
  if (ShownAs(*absence) == StageState::kRefused && !was_refused) {
    out.Warn(Describe(), " refuses: ", message_);
  }
  connect_at_ = now + backoff_;
}

void StageProcess::OnWelcome(StageWelcome welcome) {
  Apply(life_, LifeEvent::kWelcome);
  facts_ = std::move(welcome.facts);
  highest_epoch_ = welcome.highest;
  // Assigned.kept is not enough: who says this gateway's bytes again at a stage
  // that has just started leaves them there as the gateway's.
  if (welcome.run.empty() || run_ != welcome.run) kv_epoch_ = Epoch(0);
  run_ = std::move(welcome.run);
  load_ = {};
  backoff_ = Duration::zero();
  message_.clear();
}

void StageProcess::OnHeartbeat(const StageLoad& load, Duration rtt) {
  load_ = load;
  rtt_ = rtt;
}

void StageProcess::OnDraining(Duration remaining, TimePoint now,
                              act::Outbox& out) {
  if (!Apply(life_, LifeEvent::kDraining, {.by = now + remaining})) return;
  out.Info(Describe(), " is told to end, within ", Seconds(remaining), " s");
}

void StageProcess::OnAssigned(Epoch epoch, const KvAnswer& kv,
                              act::Outbox& out) {
  if (epoch != assigned_epoch_) return;
  const bool kept = kv.kept && kv_epoch_ != Epoch(0);
  const bool copied = kv.copied && asked_to_copy_;
  if (asked_to_copy_ && !copied) {
    out.Warn(Describe(), " computes keys and values again: ", kv.not_copied);
  }
  if (copied) {
    out.Info(Describe(), " has copied ", kv.bytes, " bytes of keys and values");
    log_is_whole_ = false;
  }
  kv_epoch_ = kept || copied ? epoch : Epoch(0);
}

bool StageProcess::vacant(TimePoint now, Duration patience) const {
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

Duration StageProcess::Silence(TimePoint now, TimePoint passed) const {
  return now - (welcomed() ? std::max(heard_, passed) : linked_at_);
}

StageStatus StageProcess::Report(TimePoint now, TimePoint passed,
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

std::string StageProcess::Describe() const {
  const std::string name =
      index_.has_value() ? Cat("stage ", *index_) : std::string("spare");
  if (!welcomed() || facts_.place().empty()) {
    return Cat(name, " (", address(), ")");
  }
  return Cat(name, " (", address(), ", layers ", facts_.first_layer, " to ",
             facts_.last_layer - 1, ")");
}

}  // namespace sluice
