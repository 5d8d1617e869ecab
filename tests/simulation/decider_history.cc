// One class holds a whole history: the parts of a cluster, the faults and the
// calm behind them share one queue of events and one stream of random numbers,
// so a part of its own would get both and most of the state handed in.
#include "tests/simulation/decider_history.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <utility>
#include <variant>
#include <vector>

#include "common/core/epochs.h"
#include "common/rpc/status.h"
#include "tests/simulation/decider_parts.h"

namespace sluice::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int32_t kLayers = 12;
constexpr Duration kTick = milliseconds(250);
constexpr Duration kLateTick = milliseconds(30);
constexpr Duration kHeartbeat = milliseconds(500);
constexpr Duration kLease = seconds(3);
constexpr Duration kRecovering = 3 * kLease;
// A whole cluster has a pipeline so long after the last fault.
constexpr Duration kCalm = seconds(120);

class History {
 public:
  explicit History(uint64_t seed) : random_(seed), seed_(seed) {}

  HistoryOutcome Run() {
    Draw();
    while (outcome_.failure.empty() && !done_) {
      Event event = queue_.top();
      queue_.pop();
      now_ = std::max(now_, event.at);
      ++outcome_.totals.events;
      Handle(event);
      if (is_calm_ && now_ - calm_at_ > kCalm) Fail("no pipeline: ", Why());
    }
    for (Gateway& gateway : gateways_) {
      if (outcome_.failure.empty() && gateway.decider) StopGateway(gateway);
      if (gateway.decider) Count(gateway);
    }
    outcome_.totals.histories = 1;
    return std::move(outcome_);
  }

 private:
  template <typename... Parts>
  void Fail(const Parts&... parts) {
    if (outcome_.failure.empty()) outcome_.failure = Cat(parts...);
  }
  void Note(uint64_t value) {
    outcome_.digest = (outcome_.digest ^ value) * 0x100000001b3;
  }

  // The cluster ---------------------------------------------------------------

  void Draw() {
    places_ = 1 + random_.Below(4);
    const size_t spares = random_.Below(3);
    const bool assignable = !random_.OneIn(4);
    names_ = assignable && random_.OneIn(2);
    const uint64_t memory = random_.OneOf<uint64_t>({0, 1000, 2000});
    const uint64_t term = random_.OneOf<uint64_t>(
        {0, 0, 7, uint64_t{1} << 40, kMaxTerm - 30, kMaxTerm - 5000});
    for (size_t i = 0; i < places_ + spares; ++i) {
      Stage stage;
      StageFacts& facts = stage.facts;
      facts.address = Cat("s", i);
      facts.model_digest = "d";
      facts.num_layers = kLayers;
      facts.limits.max_steps_in_flight = 4;
      // Without --layers a gateway that starts anew may not find its way among
      // stages of both kinds.
      facts.assignable = assignable && !(names_ && random_.OneIn(6));
      facts.replay_log = random_.OneIn(2);
      SetLayers(stage, i % places_);
      if (facts.assignable) {
        facts.room.memory = memory;
        facts.room.layers.assign(kLayers, 100);
        if (i >= places_) facts.last_layer = facts.first_layer = 0;
      } else if (i >= places_ && random_.OneIn(4)) {
        facts.model_digest = "e";
      }
      stage.base = term + random_.OneOf<uint64_t>({0, 0, 1, 3000});
      stages_.push_back(std::move(stage));
    }
    // A stage that lies of its term, or a rogue has had for long.
    if (random_.OneIn(8)) {
      stages_[random_.Below(stages_.size())].base = kMaxTerm - 1000;
    }
    gateways_.resize(random_.OneIn(2) ? 2 : 1);
    blocked_.assign(hosts() * hosts(), 0);
    resplits_ = random_.OneIn(3) ? Duration::zero() : seconds(2);
    latency_ = milliseconds(random_.OneOf({1, 20}));
    fault_every_ = milliseconds(random_.OneOf({300, 1000, 4000}));
    for (size_t g = 0; g < gateways_.size(); ++g) StartGateway(g);
    Push(fault_every_, {.what = What::kFault});
    Push(seconds(random_.OneOf({5, 15, 30})), {.what = What::kCalm});
  }
  // As the operator cut the model.
  void SetLayers(Stage& stage, size_t place) const {
    stage.facts.first_layer = static_cast<int32_t>(place * kLayers / places_);
    stage.facts.last_layer =
        static_cast<int32_t>((place + 1) * kLayers / places_);
  }
  size_t hosts() const { return gateways_.size() + stages_.size(); }
  size_t HostOf(const Stage& stage) const {
    return gateways_.size() + static_cast<size_t>(&stage - stages_.data());
  }
  bool IsOpen(size_t from, size_t to) const {
    return blocked_[from * hosts() + to] == 0;
  }

  PipelineOptions OptionsOf() const {
    PipelineOptions options;
    for (size_t i = 0; i < stages_.size(); ++i) {
      (i < places_ ? options.stages : options.spares)
          .push_back(stages_[i].facts.address);
    }
    if (names_) {
      for (size_t i = 0; i < places_; ++i) {
        options.places.push_back(
            {static_cast<int32_t>(i * kLayers / places_),
             static_cast<int32_t>((i + 1) * kLayers / places_)});
      }
    }
    options.heartbeat = kHeartbeat;
    options.suspect_after = seconds(1);
    options.steps_ahead = seed_ % 2 == 0;
    options.resplit = {resplits_, seconds(2)};
    options.check_model = [](const StageFacts& facts) {
      return facts.model_digest == "d"
                 ? OkStatus()
                 : FailedPrecondition("the stages serve another model");
    };
    if (gateways_.size() > 1) options.lease = kLease;
    return options;
  }

  void StartGateway(size_t index) {
    Gateway& gateway = gateways_[index];
    const PipelineOptions options = OptionsOf();
    const size_t run = ++runs_;
    gateway = Gateway();
    gateway.run = run;
    gateway.down_since = now_;
    gateway.decider = std::make_unique<ClusterDecider>(options, now_);
    gateway.laws = std::make_unique<DeciderLaws>(options, stages_.size());
    gateway.kinds.assign(stages_.size(), LifeKind::kAway);
    if (gateways_.size() > 1) gateway.peers = PeerLead::kUnknown;
    Push(random_.Between(milliseconds(0), kTick),
         {.what = What::kTick, .gateway = index, .run = run});
  }
  void Count(const Gateway& gateway) {
    const PipelineStatus status = gateway.decider->Report(now_, now_);
    outcome_.totals.shrinks += status.shrinks;
    outcome_.totals.growths += status.growths;
    outcome_.totals.takeovers += status.takeovers;
  }
  void EndGateway(Gateway& gateway, Duration back) {
    Count(gateway);
    gateway.decider.reset();
    gateway.open = Epoch();
    Push(back, {.what = What::kStart, .gateway = IndexOf(gateway)});
  }
  void Drain(Gateway& gateway) {
    gateway.is_draining = true;
    gateway.laws->OnDrain();
    gateway.decider->BeginDrain();
    Settle(gateway, false);
    Push(
        seconds(1),
        {.what = What::kStop, .gateway = IndexOf(gateway), .run = gateway.run});
  }
  void StopGateway(Gateway& gateway) {
    gateway.decider->Stop(now_);
    CarryOut(gateway);
    for (const auto& stage : gateway.decider->places().stages()) {
      if (stage->linked()) Fail("law 6: a stage is kept at the end");
    }
  }

  // Events --------------------------------------------------------------------

  void Push(Duration in, Event event) {
    event.at = now_ + in;
    event.order = ++order_;
    queue_.push(std::move(event));
  }

  void Handle(Event& event) {
    if (event.what >= What::kFault) return HandleWorld(event);
    if (event.what >= What::kWelcome || event.what <= What::kRaise) {
      Gateway& gateway = gateways_[event.gateway];
      if (event.what == What::kStart) return StartGateway(event.gateway);
      if (!gateway.decider || gateway.run != event.run) return;
      if (gateway.frozen > now_) return Later(event, gateway.frozen);
      return HandleGateway(gateway, event);
    }
    Stage& stage = stages_[event.stage];
    if (stage.frozen > now_) return Later(event, stage.frozen);
    HandleStage(stage, event);
  }
  void Later(Event& event, TimePoint at) {
    event.at = at;
    queue_.push(std::move(event));
  }

  // Streams -------------------------------------------------------------------

  // A message on a Control stream. What a blocked way has swallowed keeps what
  // follows from coming, as on a connection that is half open.
  void Send(size_t gateway, size_t stage, bool to_stage, Event event) {
    const size_t from = to_stage ? gateway : gateways_.size() + stage;
    const size_t to = to_stage ? gateways_.size() + stage : gateway;
    Way& way = ways_[{event.run, event.stage, event.link, to_stage}];
    if (!IsOpen(from, to)) way.is_cut = true;
    if (way.is_cut) return;
    const TimePoint at =
        std::max(way.last, now_ + random_.Between(latency_ / 2, latency_));
    way.last = at;
    Push(at - now_, std::move(event));
  }
  Event ToGateway(const Stage& stage, What what) const {
    return {.what = what,
            .gateway = stage.gateway,
            .run = *stage.holder,
            .stage = IndexOf(stage),
            .link = stage.link};
  }
  size_t IndexOf(const Stage& stage) const {
    return static_cast<size_t>(&stage - stages_.data());
  }
  void Answer(const Stage& stage, Event event) {
    const size_t gateway = event.gateway;
    Send(gateway, IndexOf(stage), false, std::move(event));
  }
  void EndStream(Stage& stage, What what, Reason reason = Reason::kHeld) {
    BreakEpoch(stage);
    if (!std::exchange(stage.has_stream, false)) return;
    Event end = ToGateway(stage, what);
    end.reason = reason;
    Answer(stage, std::move(end));
  }

  // The stage's epoch is over: its neighbours may tell.
  void BreakEpoch(Stage& stage) {
    const Epoch epoch = std::exchange(stage.epoch, Epoch());
    if (epoch == Epoch()) return;
    for (size_t g = 0; g < gateways_.size(); ++g) {
      Gateway& gateway = gateways_[g];
      if (!gateway.decider || gateway.open != epoch) continue;
      const auto at = std::ranges::find(gateway.holders, IndexOf(stage));
      if (at == gateway.holders.end()) continue;
      const auto place = static_cast<size_t>(at - gateway.holders.begin());
      if (place == 0 || place + 1 == gateway.holders.size()) {
        Push(latency_, {.what = What::kPlansEnd,
                        .gateway = g,
                        .run = gateway.run,
                        .epoch = epoch,
                        .number = place});
      }
      for (const bool before : {true, false}) {
        if (before ? place == 0 : place + 1 == gateway.holders.size()) continue;
        Stage& teller =
            stages_[gateway.holders[before ? place - 1 : place + 1]];
        if (!teller.has_stream || teller.epoch != epoch) continue;
        Event failure = ToGateway(teller, What::kFailure);
        failure.epoch = epoch;
        failure.number =
            before ? v1::FAILURE_SIDE_SUCCESSOR : v1::FAILURE_SIDE_PREDECESSOR;
        Answer(teller, std::move(failure));
      }
    }
  }

  // A stage -------------------------------------------------------------------

  void HandleStage(Stage& stage, const Event& event) {
    if (event.what == What::kLoaded || event.what == What::kBack) {
      if (event.run == stage.run) Return(stage, event);
      return;
    }
    if (event.what == What::kHello) return OnHello(stage, event);
    const bool is_holders = stage.is_there && stage.has_stream &&
                            stage.holder == event.run &&
                            stage.link == event.link;
    if (!is_holders) return;
    stage.heard = now_;
    Event answer = ToGateway(stage, What::kEcho);
    switch (event.what) {
      case What::kBeat:
        return Answer(stage, std::move(answer));
      case What::kDrain:
        answer.what = What::kDrained;
        return Answer(stage, std::move(answer));
      case What::kClose:
        BreakEpoch(stage);
        stage.has_stream = false;
        if (stage.is_leaving) Leave(stage);
        return;
      case What::kLoad:
      case What::kAssign:
        return OnAssign(stage, event, std::move(answer));
      default:
        return;
    }
  }

  void OnHello(Stage& stage, const Event& event) {
    Event answer{.what = What::kRefusal,
                 .gateway = event.gateway,
                 .run = event.run,
                 .stage = event.stage,
                 .link = event.link};
    if (!stage.is_there) {
      if (stage.loses_power) return;
      answer.what = What::kNobody;
      return Answer(stage, std::move(answer));
    }
    if (stage.is_leaving) {
      answer.what = What::kBroken;
      return Answer(stage, std::move(answer));
    }
    const bool is_holder = stage.holder == event.run && event.link > stage.link;
    if (!is_holder) {
      const bool is_free = (!stage.has_stream && !stage.is_awaited) ||
                           now_ - stage.heard >= lease();
      answer.reason = is_free ? Reason::kTerms : Reason::kHeld;
      if (!is_free || !stage.has_term()) {
        return Answer(stage, std::move(answer));
      }
    }
    if (stage.is_loading || (is_holder && stage.has_failed)) {
      if (is_holder) stage.heard = now_;
      answer.reason = stage.is_loading ? Reason::kLoading : Reason::kLoadFailed;
      if (!stage.is_loading) stage.has_failed = stage.is_awaited = false;
      return Answer(stage, std::move(answer));
    }
    if (is_holder) {
      BreakEpoch(stage);
    } else {
      EndStream(stage, What::kRefusal);
      stage.kv_epoch = Epoch();
    }
    stage.terms.BeginHold(stage.Since(event.epoch.term()), is_holder, now_);
    stage.holder = event.run;
    stage.gateway = event.gateway;
    stage.link = event.link;
    stage.heard = now_;
    stage.has_stream = true;
    stage.is_awaited = false;
    answer.what = What::kWelcome;
    answer.epoch = stage.highest();
    answer.place = stage.facts.place();
    answer.number = stage.run;
    Answer(stage, std::move(answer));
  }
  Duration lease() const {
    return gateways_.size() > 1 ? kLease : Duration(seconds(10));
  }

  void OnAssign(Stage& stage, const Event& event, Event answer) {
    answer.what = What::kAssigned;
    answer.epoch = event.epoch;
    if (stage.facts.assignable && stage.facts.place() != event.place) {
      if (stage.is_leaving || (!is_calm_ && random_.OneIn(10))) {
        return Answer(stage, std::move(answer));  // refuses
      }
      stage.kv_epoch = Epoch();
      stage.facts.first_layer = stage.facts.last_layer = 0;
      EndStream(stage, What::kRefusal, Reason::kLoading);
      stage.is_loading = stage.is_awaited = true;
      stage.has_failed = false;
      return Push(random_.Between(milliseconds(100), seconds(3)),
                  {.what = What::kLoaded,
                   .run = stage.run,
                   .stage = event.stage,
                   .place = event.place,
                   .flag = !is_calm_ && random_.OneIn(10)});
    }
    if (stage.is_leaving || stage.facts.place() != event.place ||
        !stage.Accepts(event.epoch, now_)) {
      return Answer(stage, std::move(answer));
    }
    BreakEpoch(stage);
    const uint64_t term = event.epoch.term();
    stage.terms.BeginEpoch({stage.Since(term), event.epoch.count()}, now_);
    stage.epoch = event.epoch;
    answer.flag = true;
    answer.number = stage.kv_epoch != Epoch() && event.keep == stage.kv_epoch;
    stage.kv_epoch = event.epoch;
    const auto [owner, is_new] = stage.owners.insert({term, event.run});
    if (owner->second != event.run) {
      Fail("law 1: two gateways assign in term ", term);
    }
    Answer(stage, std::move(answer));
  }

  void Return(Stage& stage, const Event& event) {
    if (event.what == What::kLoaded) {
      stage.is_loading = false;
      stage.has_failed = event.flag && !is_calm_;
      if (stage.has_failed) return;
      stage.facts.first_layer = event.place.first_layer;
      stage.facts.last_layer = event.place.last_layer;
      return;
    }
    stage.is_there = true;
    stage.loses_power = false;
  }

  // The process is gone; it comes again, as a new run.
  void Crash(Stage& stage, bool power, Duration back) {
    if (!stage.is_there) return;
    if (power) {
      stage.has_stream = false;
    }
    EndStream(stage, What::kBroken);
    stage.is_there = stage.is_leaving = stage.is_loading = false;
    stage.has_failed = stage.is_awaited = false;
    stage.loses_power = power;
    stage.holder.reset();
    stage.link = 0;
    ++stage.run;
    stage.frozen = now_;
    stage.kv_epoch = Epoch();
    stage.ForgetTerms();
    if (stage.facts.assignable && random_.OneIn(2)) {
      stage.facts.first_layer = stage.facts.last_layer = 0;
    }
    Push(back,
         {.what = What::kBack, .run = stage.run, .stage = IndexOf(stage)});
  }
  void Leave(Stage& stage) {
    Crash(stage, false, random_.Between(milliseconds(200), seconds(6)));
  }

  // A gateway -----------------------------------------------------------------

  OwnerSigns Owner() {
    if (is_calm_) return {};
    return {random_.OneIn(2), random_.OneIn(400),
            random_.OneOf<int64_t>({0, 5, INT64_MAX})};
  }

  void HandleGateway(Gateway& gateway, const Event& event) {
    ClusterDecider& decider = *gateway.decider;
    DeciderLaws& laws = *gateway.laws;
    if (event.what == What::kStop) {
      StopGateway(gateway);
      return EndGateway(gateway, seconds(1));
    }
    if (event.what == What::kTick) {
      const OwnerSigns owner = decider.up() ? Owner() : OwnerSigns();
      if (decider.up() && IsWhole(gateway)) gateway.passed = now_;
      laws.BeforeTick(owner, gateway.passed);
      decider.Tick(now_, gateway.passed, owner);
      // A thread wakes late by more or less: gateways do not go in step.
      Push(random_.Between(kTick, kTick + kLateTick),
           {.what = What::kTick, .gateway = event.gateway, .run = event.run});
    } else if (event.what == What::kRaise) {
      gateway.raise_at.reset();
      decider.Raise(now_);
    } else if (event.what == What::kPlansOpen) {
      decider.OnPlansOpen(event.epoch, now_);
    } else if (event.what == What::kPlansEnd) {
      decider.OnPlansEnd(event.epoch,
                         std::min(event.number, decider.places().count() - 1),
                         Unavailable("stream of plans: broken"), now_);
    } else if (const auto at = decider.IndexOf(event.link)) {
      OnMessage(gateway, event, *at);
    }
    Settle(gateway, event.what == What::kTick);
  }

  void OnMessage(Gateway& gateway, const Event& event, size_t at) {
    ClusterDecider& decider = *gateway.decider;
    DeciderLaws& laws = *gateway.laws;
    const size_t process = decider.places().stages()[at]->id();
    if (process != event.stage) return Fail("a stream is another stage's");
    const bool is_end = event.what == What::kRefusal ||
                        event.what == What::kBroken ||
                        event.what == What::kNobody;
    if (is_end) {
      laws.OnEnd(process, now_);
      return decider.OnEnd(at, EndOf(event), now_);
    }
    laws.OnHeard(process, now_);
    decider.OnHeard(at, now_);
    switch (event.what) {
      case What::kWelcome: {
        laws.OnWelcome(process, event.link, event.epoch, event.place, now_);
        StageFacts facts = stages_[process].facts;
        facts.first_layer = event.place.first_layer;
        facts.last_layer = event.place.last_layer;
        facts.term = event.epoch.term();
        if (facts.term >= kMaxTerm) {  // as CheckWelcome
          return decider.OnWelcome(at, FailedPrecondition("no term is left"),
                                   now_);
        }
        return decider.OnWelcome(
            at, StageWelcome{std::move(facts), event.epoch, Cat(event.number)},
            now_);
      }
      case What::kEcho:
        return decider.OnHeartbeat(at, {}, latency_);
      case What::kAssigned:
        laws.OnAssigned(process, event.epoch, event.flag);
        return decider.OnAssigned(
            at, event.epoch,
            KvAnswer{.kept = event.number != 0,
                     .copied = event.epoch.count() % 2 == 0},
            event.flag ? OkStatus() : FailedPrecondition("it refuses"), now_);
      case What::kDrained:
        return decider.OnDrained(at);
      case What::kDraining: {
        laws.OnDraining(process);
        decider.OnDraining(at, seconds(5), now_);
        CarryOut(gateway);
        LookAtChanges(gateway);
        const OwnerSigns owner = decider.up() ? Owner() : OwnerSigns();
        laws.BeforeRelease(owner);
        return decider.ReleaseLeaving(at, owner, now_);
      }
      case What::kFailure:
        return decider.OnFailure(at, event.epoch,
                                 static_cast<v1::FailureSide>(event.number),
                                 Unavailable("stream of steps: broken"), now_);
      default:
        return;
    }
  }

  static Status EndOf(const Event& event) {
    if (event.what == What::kBroken) return Unavailable("Socket closed");
    if (event.what == What::kNobody) {
      return Unavailable(
          "failed to connect to all addresses: Connection refused");
    }
    const auto refused = [](Status status, v1::Refusal::Reason reason) {
      v1::Refusal refusal;
      refusal.set_reason(reason);
      return rpc::WithDetails(std::move(status), refusal.SerializeAsString());
    };
    switch (event.reason) {
      case Reason::kHeld:
        return refused(FailedPrecondition("held by another gateway"),
                       v1::Refusal::REASON_HELD);
      case Reason::kLoading:
        return refused(Unavailable("this stage loads layers"),
                       v1::Refusal::REASON_LOADING);
      case Reason::kLoadFailed:
        return refused(FailedPrecondition("it could not load"),
                       v1::Refusal::REASON_LOAD_FAILED);
      case Reason::kTerms:
        break;
    }
    return FailedPrecondition("this stage has no term left");
  }

  // Does what is decided, and looks at the laws.
  void Settle(Gateway& gateway, bool is_tick) {
    CarryOut(gateway);
    ClusterDecider& decider = *gateway.decider;
    if (gateways_.size() > 1 && is_tick) AskPeer(gateway);
    gateway.laws->OnPeers(gateway.peers);
    if (decider.Lead(now_, gateway.peers) && decider.up()) {
      Fail("law 6: superseded, and up");
    }
    gateway.laws->After(decider, now_, is_tick);
    LookAtChanges(gateway);
    if (!gateway.laws->failure().empty()) Fail(gateway.laws->failure());
    const auto raise = decider.next_raise();
    if (raise && !gateway.raise_at) {
      gateway.raise_at = raise;
      Push(std::max(*raise - now_, Duration::zero()),
           {.what = What::kRaise,
            .gateway = IndexOf(gateway),
            .run = gateway.run});
    }
    if (is_calm_ && decider.up() && IsWhole(gateway)) {
      done_ = true;
      outcome_.totals.calm_ms = static_cast<uint64_t>(
          std::chrono::duration_cast<milliseconds>(now_ - calm_at_).count());
    }
  }
  void LookAtChanges(Gateway& gateway) {
    for (const auto& stage : gateway.decider->places().stages()) {
      LifeKind& before = gateway.kinds[stage->id()];
      if (stage->kind() == before) continue;
      outcome_.totals.changes.insert({before, stage->kind()});
      before = stage->kind();
    }
  }
  size_t IndexOf(const Gateway& gateway) const {
    return static_cast<size_t>(&gateway - gateways_.data());
  }

  // What the other gateway says, as services/gateway has it.
  void AskPeer(Gateway& gateway) {
    const size_t self = IndexOf(gateway);
    const Gateway& peer = gateways_[1 - self];
    gateway.peers = PeerLead::kNone;
    if (!peer.decider || peer.frozen > now_ || !IsOpen(self, 1 - self) ||
        !IsOpen(1 - self, self) ||
        peer.decider->role() != GatewayRole::kLeader) {
      return;
    }
    if (peer.decider->up()) {
      gateway.peers = PeerLead::kUp;
    } else if (now_ - peer.down_since < kRecovering) {
      gateway.peers = PeerLead::kRecovering;
    }
  }

  // Whether every stage of the gateway's epoch works on it.
  bool IsWhole(const Gateway& gateway) const {
    return std::ranges::all_of(gateway.holders, [&](size_t process) {
      const Stage& stage = stages_[process];
      return stage.is_there && stage.frozen <= now_ &&
             stage.epoch == gateway.open;
    });
  }

  // Actions -------------------------------------------------------------------

  void CarryOut(Gateway& gateway) {
    while (const auto action = gateway.decider->Next()) {
      ++outcome_.totals.actions;
      Note(action->index());
      gateway.laws->On(*action, *gateway.decider, now_);
      std::visit([&](const auto& what) { Do(gateway, what); }, *action);
    }
  }
  // A message to the stage on the latest stream.
  void Tell(Gateway& gateway, size_t process, What what, Event event = {}) {
    const StageProcesses& all = gateway.decider->places().stages();
    const auto stage = std::ranges::find_if(
        all, [&](const auto& one) { return one->id() == process; });
    event.what = what;
    event.gateway = IndexOf(gateway);
    event.run = gateway.run;
    event.stage = process;
    if (event.link == 0) event.link = (*stage)->link_id();
    Send(event.gateway, process, true, std::move(event));
  }
  void Do(Gateway& gateway, const act::OpenControl& open) {
    Tell(gateway, open.process, What::kHello,
         {.link = open.link_id, .epoch = Epoch(open.term, 0)});
  }
  void Do(Gateway& gateway, const act::EndControl& end) {
    Tell(gateway, end.process, What::kClose);
  }
  void Do(Gateway& gateway, const act::SendHeartbeat& beat) {
    Tell(gateway, beat.process, What::kBeat);
  }
  void Do(Gateway& gateway, const act::SendLoad& load) {
    Tell(gateway, load.process, What::kLoad,
         {.epoch = load.epoch, .place = load.place});
  }
  void Do(Gateway& gateway, const act::SendAssign& assign) {
    const StageProcesses& all = gateway.decider->places().stages();
    const auto stage = std::ranges::find_if(
        all, [&](const auto& one) { return one->id() == assign.process; });
    Note(assign.epoch.term());
    Tell(gateway, assign.process, What::kAssign,
         {.epoch = assign.epoch,
          .keep = assign.keep,
          .place = (*stage)->facts().place()});
  }
  void Do(Gateway& gateway, const act::SendDrain& drain) {
    Tell(gateway, drain.process, What::kDrain);
  }
  void Do(Gateway&, const act::SetHolders&) {}
  void Do(Gateway& gateway, const act::OpenPlans& open) {
    gateway.open = open.epoch;
    gateway.holders.clear();
    for (const auto& stage : gateway.decider->places().holders()) {
      gateway.holders.push_back(stage->id());
    }
    // Its streams cannot be opened at all.
    if (seed_ % 8 == 5 && !is_calm_ && random_.OneIn(4)) {
      ++outcome_.totals.failed_opens;
      return gateway.decider->OnPlansEnd(open.epoch, 0,
                                         InvalidArgument("no address"), now_);
    }
    const size_t self = IndexOf(gateway);
    Event event{.what = What::kPlansOpen,
                .gateway = self,
                .run = gateway.run,
                .epoch = open.epoch};
    const size_t base = gateways_.size();
    bool joins = IsWhole(gateway) && IsOpen(self, base + gateway.holders[0]) &&
                 IsOpen(base + gateway.holders.back(), self);
    for (size_t i = 1; i < gateway.holders.size(); ++i) {
      joins &= IsOpen(base + gateway.holders[i - 1], base + gateway.holders[i]);
    }
    if (!joins) {
      event.what = What::kPlansEnd;
      event.number = random_.OneIn(2) ? 0 : gateway.holders.size() - 1;
      if (!is_calm_ && random_.OneIn(4)) return;  // no word
    }
    // The news may come late, or twice, while the epoch is over.
    const bool is_late = !is_calm_ && random_.OneIn(4);
    Push(is_late ? random_.Between(latency_, milliseconds(500)) : latency_,
         event);
    if (!is_calm_) Push(random_.Between(latency_, seconds(3)), event);
  }
  void Do(Gateway&, const act::LetPlansPass&) {}
  void Do(Gateway& gateway, const act::ClosePlans&) { gateway.open = Epoch(); }
  void Do(Gateway&, const act::TellUp& up) {
    ++outcome_.totals.ups;
    Note(up.epoch.count());
  }
  void Do(Gateway& gateway, const act::TellLost&) { gateway.down_since = now_; }
  void Do(Gateway&, const act::TellLeaving&) {}
  void Do(Gateway&, const act::WriteLog&) {}

  // Faults --------------------------------------------------------------------

  void HandleWorld(const Event& event) {
    if (event.what == What::kHeal) {
      --blocked_[event.number];
    } else if (event.what == What::kCalm) {
      Calm();
    } else if (!is_calm_) {
      ++outcome_.totals.faults;
      Fault();
      Push(random_.Between(fault_every_ / 2, fault_every_ * 2),
           {.what = What::kFault});
    }
  }

  void Fault() {
    Stage& stage = stages_[random_.Below(stages_.size())];
    const size_t g = random_.Below(gateways_.size());
    Gateway& gateway = gateways_[g];
    const Duration time = random_.Between(milliseconds(100), seconds(8));
    switch (random_.Below(12)) {
      case 0:
        return Crash(stage, false, time);
      case 1:
        return Crash(stage, true, time);
      case 2:
        stage.frozen = now_ + time;
        return;
      case 3:
        if (!stage.is_there || std::exchange(stage.is_leaving, true)) return;
        if (!stage.has_stream) return Leave(stage);
        return Answer(stage, ToGateway(stage, What::kDraining));
      case 4:
      case 5: {  // one way
        return Block(random_.Below(hosts()), random_.Below(hosts()), time);
      }
      case 6: {  // both
        const size_t a = random_.Below(hosts());
        const size_t b = random_.Below(hosts());
        Block(a, b, time);
        return Block(b, a, time);
      }
      case 7:
        return EndStream(stage, What::kBroken);
      case 8:
        if (gateway.decider) gateway.frozen = now_ + time;
        return;
      case 9:
        if (!gateway.decider || gateway.is_draining) return;
        if (random_.OneIn(2)) return Drain(gateway);
        for (Stage& held : stages_) {
          if (held.holder == gateway.run) EndStream(held, What::kBroken);
        }
        return EndGateway(gateway, time);
      case 10:  // a rogue
        if (!stage.is_there || stage.is_loading || stage.has_stream) return;
        if (!stage.has_term()) return;
        stage.holder = ++runs_;
        stage.link = 1;
        stage.is_awaited = true;
        stage.heard = now_;
        return stage.terms.BeginHold(
            stage.Since(random_.OneOf<uint64_t>({0, 10000, kMaxTerm})), false,
            now_);
      default: {  // a stream breaks in a pipeline that is up
        if (gateway.decider && gateway.open != Epoch()) {
          BreakEpoch(
              stages_[gateway.holders[random_.Below(gateway.holders.size())]]);
        }
        return;
      }
    }
  }
  void Block(size_t from, size_t to, Duration time) {
    if (from == to) return;
    ++blocked_[from * hosts() + to];
    Push(time, {.what = What::kHeal, .number = from * hosts() + to});
    // Steps and results may have used it.
    if (from >= gateways_.size() && random_.OneIn(2)) {
      BreakEpoch(stages_[from - gateways_.size()]);
    }
  }

  // Nothing goes wrong from here on; an operator resets terms.
  void Calm() {
    is_calm_ = true;
    calm_at_ = now_;
    for (Stage& stage : stages_) {
      if (stage.is_leaving) Leave(stage);
      if (!stage.is_there) {
        stage.is_there = true;
        stage.loses_power = false;
        ++stage.run;
      }
      stage.frozen = now_;
      stage.has_failed = false;
      EndStream(stage, What::kBroken);
      stage.ForgetTerms();
      stage.kv_epoch = Epoch();
      // No gateway may know the layers any more.
      const size_t index = IndexOf(stage);
      if (!stage.is_loading && stage.facts.place().empty() && index < places_) {
        SetLayers(stage, index);
      }
    }
    for (size_t g = 0; g < gateways_.size(); ++g) {
      gateways_[g].frozen = now_;
      if (!gateways_[g].decider) StartGateway(g);
    }
    std::ranges::fill(blocked_, 0);
    // Heals on their way count for nothing.
    std::priority_queue<Event> rest;
    for (; !queue_.empty(); queue_.pop()) {
      if (queue_.top().what != What::kHeal) rest.push(queue_.top());
    }
    queue_ = std::move(rest);
  }

  std::string Why() const {
    std::string text;
    for (const Gateway& gateway : gateways_) {
      if (!gateway.decider) continue;
      const PipelineStatus status = gateway.decider->Report(now_, now_);
      text += Cat(ToString(status.role), ": ", status.message, "; ");
      for (const auto* parts : {&status.stages, &status.spares}) {
        for (const StageStatus& part : *parts) {
          text += Cat(part.address, " ", part.first_layer, "-", part.last_layer,
                      " ", ToString(part.state), " ", part.message, "; ");
        }
      }
    }
    return text;
  }

  struct WayId {
    size_t run;
    size_t stage;
    uint64_t link;
    bool to_stage;
    auto operator<=>(const WayId&) const = default;
  };
  struct Way {
    bool is_cut = false;
    TimePoint last{};
  };

  Dice random_;
  const uint64_t seed_;
  HistoryOutcome outcome_;
  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  uint64_t order_ = 0;
  std::priority_queue<Event> queue_;
  size_t places_ = 0;
  std::vector<Stage> stages_;
  std::vector<Gateway> gateways_;
  size_t runs_ = 0;           // of gateways and rogues
  std::vector<int> blocked_;  // [from][to]: gateways, then stages
  std::map<WayId, Way> ways_;
  bool names_ = false;
  Duration resplits_{}, latency_{}, fault_every_{};
  bool is_calm_ = false, done_ = false;
  TimePoint calm_at_{};
};

}  // namespace

HistoryOutcome RunHistory(uint64_t seed) { return History(seed).Run(); }

void HistoryTotals::Add(const HistoryTotals& other) {
  histories += other.histories;
  events += other.events;
  actions += other.actions;
  faults += other.faults;
  ups += other.ups;
  takeovers += other.takeovers;
  shrinks += other.shrinks;
  growths += other.growths;
  failed_opens += other.failed_opens;
  calm_ms = std::max(calm_ms, other.calm_ms);
  changes.insert(other.changes.begin(), other.changes.end());
}

std::string HistoryTotals::Text() const {
  return Cat(histories, " histories: ", events, " events, ", actions,
             " actions, ", faults, " faults, ", ups, " pipelines, ", takeovers,
             " takeovers, ", shrinks, " shrinks, ", growths,
             " growths; a pipeline at most ", calm_ms,
             " ms after the last fault");
}

}  // namespace sluice::simulation
