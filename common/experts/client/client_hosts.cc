// The client's hosts: connecting, what their streams say, who is silent.
#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/log.h"
#include "common/experts/client/client_core.h"
#include "common/metrics/process_metrics.h"
#include "common/model/hosted_experts.h"

namespace sluice {
namespace {

constexpr auto kTick = std::chrono::milliseconds(25);
// The longest that one batch of one layer may take.
constexpr Duration kStuckAfter = std::chrono::seconds(60);
// No batch done for so long with one of ours open: it answers pings and
// computes nothing.
constexpr int64_t kNoProgressNs = 10'000'000'000;
// Silent for so long it does not count for readiness.
constexpr int64_t kLongSilentNs = 2'000'000'000;
// A ping that was not answered is sent again after so long.
constexpr int64_t kPingAgainNs = 1'000'000'000;
// Batches of one stream that may be unanswered are told by the host; before
// its welcome this is assumed for the size of messages alone.
constexpr int32_t kAssumedInFlight = 1;

}  // namespace

Status ExpertClient::Core::MakeChannels() {
  rpc::TransportOptions transport = options_.transport;
  const wire::ExpertLimits limits = {options_.max_step_tokens,
                                     kAssumedInFlight};
  transport.max_message_bytes =
      std::max(wire::MaxExpertFrameBytes(model_, limits),
               wire::MaxExpertAnswerBytes(model_, limits, map_.max_nodes()));
  MutexLock lock(mutex_);
  for (Host& host : hosts_) {
    if (!host.needed) continue;
    if (host.name.address.empty()) {
      return InvalidArgument("placement: host '", host.name.name,
                             "' has no address");
    }
    auto channel = rpc::Connect(host.name.address, transport);
    if (!channel.ok()) {
      return Annotate(channel.status(), "placement: host '", host.name.name,
                      "'");
    }
    host.channel = *std::move(channel);
  }
  return OkStatus();
}

void ExpertClient::Core::Connect(const StageInfo& info) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  model_.model_digest = info.model_digest;
  model_.numerics = info.numerics;
  model_.weights = ToString(options_.weights);
  asker_ = Cat("stage ", info.first_layer, "-", info.last_layer - 1);
  watch_ = NamedThread("expert-watch", [this] { Watch(); });
}

void ExpertClient::Core::Stop() {
  std::vector<std::shared_ptr<ExpertStream>> streams;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (const Host& host : hosts_) {
      if (host.stream != nullptr) streams.push_back(host.stream);
    }
  }
  changed_.NotifyAll();
  wake_watch_.NotifyAll();
  watch_.Join();
  for (const auto& stream : streams) {
    stream->Cancel(Unavailable("this stage is shutting down"));
  }
}

Status ExpertClient::Core::Ready() const {
  MutexLock lock(mutex_);
  return ReadyLocked();
}

Status ExpertClient::Core::WaitReady(TimePoint deadline) const {
  MutexLock lock(mutex_);
  while (!stopping_ && !ReadyLocked().ok()) {
    if (!changed_.WaitUntil(mutex_, deadline)) break;
  }
  return ReadyLocked();
}

Status ExpertClient::Core::ReadyLocked() const {
  if (stopping_) return Unavailable("this stage is shutting down");
  for (int32_t l = map_.layers().first; l < map_.layers().last; ++l) {
    for (const ExpertShard& shard : map_.shards(l)) {
      bool counts = false;
      for (const int32_t index : shard.hosts) {
        counts |= Counts(hosts_[static_cast<size_t>(index)]);
      }
      if (counts) continue;
      std::string whys;
      for (const int32_t index : shard.hosts) {
        const Host& host = hosts_[static_cast<size_t>(index)];
        const std::string why = Usable(host) ? "silent" : Message(host.why);
        whys += Cat("; host ", host.name.name, ": ", why);
      }
      return Unavailable(ToString(shard), " cannot be asked", whys);
    }
  }
  return OkStatus();
}

bool ExpertClient::Core::Counts(const Host& host) const {
  return Usable(host) &&
         (!host.silent || MonotonicNanos() - host.heard_ns < kLongSilentNs);
}

// The watch -------------------------------------------------------------------

void ExpertClient::Core::Watch() {
  std::vector<std::pair<std::shared_ptr<ExpertStream>, uint64_t>> pings;
  std::optional<bool> told;
  while (true) {
    std::vector<std::shared_ptr<ExpertStream>> stuck;
    bool ready = false;
    {
      MutexLock lock(mutex_);
      Tick(pings);
      stuck = StuckStreams();
      ready = ReadyLocked().ok();
    }
    if (options_.on_ready != nullptr && told != ready) options_.on_ready(ready);
    told = ready;
    for (const auto& [stream, sequence] : pings) stream->SendPing(sequence);
    pings.clear();
    for (const auto& stream : stuck) {
      stream->Cancel(Unavailable("a batch was not answered for ",
                                 Seconds(kStuckAfter), " s"));
    }
    MutexLock lock(mutex_);
    const TimePoint until = Clock::now() + kTick;
    while (!stopping_ && wake_watch_.WaitUntil(mutex_, until)) {
    }
    if (stopping_) return;
  }
}

void ExpertClient::Core::Tick(
    std::vector<std::pair<std::shared_ptr<ExpertStream>, uint64_t>>& pings) {
  if (stopping_) return;
  const int64_t now = MonotonicNanos();
  const int64_t silent_ns =
      std::chrono::nanoseconds(options_.silent_after).count();
  const int64_t ping_ns = std::chrono::nanoseconds(options_.ping_every).count();
  for (size_t i = 0; i < hosts_.size(); ++i) {
    Host& host = hosts_[i];
    if (!host.needed) continue;
    const auto index = static_cast<int32_t>(i);
    if (host.stream == nullptr && Clock::now() >= host.next_attempt) {
      OpenStream(index);
    }
    if (!host.up) continue;
    const bool again = !host.ping_open || now - host.pinged_ns > kPingAgainNs;
    if (again && now - host.pinged_ns > ping_ns) {
      host.pinged_ns = now;
      host.ping_open = true;
      pings.emplace_back(host.stream, ++host.pings);
    }
    const bool silent = now - host.heard_ns > silent_ns;
    if (silent == host.silent) continue;
    host.silent = silent;
    if (metrics() != nullptr) metrics()->OnSilent(index, silent);
    if (silent) {
      LogWarning("expert host ", host.name.name, ": silent for ",
                 (now - host.heard_ns) / 1'000'000, " ms");
    }
  }
}

// Hosts that answer pings and one batch no more: their streams are broken
// off, so that the batch is lost like any other.
std::vector<std::shared_ptr<ExpertStream>> ExpertClient::Core::StuckStreams()
    const {
  std::vector<std::shared_ptr<ExpertStream>> stuck;
  const int64_t before =
      MonotonicNanos() - std::chrono::nanoseconds(kStuckAfter).count();
  for (const auto& [id, call] : calls_) {
    if (call.sent_ns >= before) continue;
    const Host& host = hosts_[static_cast<size_t>(call.host)];
    if (host.stream != nullptr) stuck.push_back(host.stream);
  }
  return stuck;
}

void ExpertClient::Core::OpenStream(int32_t index) {
  Host& host = hosts_[static_cast<size_t>(index)];
  const uint64_t generation = ++host.generation;
  const std::weak_ptr<Core> weak = weak_from_this();
  ExpertStreamEvents events;
  events.on_welcome = [weak, index,
                       generation](const wire::ExpertWelcome& welcome) {
    if (auto self = weak.lock()) self->OnWelcome(index, generation, welcome);
  };
  events.on_result = [weak, index, generation](const v1::ExpertResult& result,
                                               Buffer sums) {
    if (auto self = weak.lock()) {
      self->OnResult(index, generation, result, std::move(sums));
    }
  };
  events.on_pong = [weak, index, generation](const v1::ExpertPong& pong) {
    if (auto self = weak.lock()) self->OnPong(index, generation, pong);
  };
  events.on_end = [weak, index, generation](const Status& status) {
    if (auto self = weak.lock()) self->OnEnd(index, generation, status);
  };
  wire::ExpertHello hello;
  hello.asker = asker_;
  hello.build = std::string(metrics::BuildVersion());
  hello.model = model_;
  hello.wanted = host.wanted;
  // The callbacks come from other threads and wait for the lock.
  host.stream = ExpertStream::Open(host.channel, hello, std::move(events));
}

// What streams say ------------------------------------------------------------

void ExpertClient::Core::Heard(Host& host) {
  host.heard_ns = MonotonicNanos();
  if (!host.silent) return;
  host.silent = false;
  const auto index = static_cast<int32_t>(&host - hosts_.data());
  if (metrics() != nullptr) metrics()->OnSilent(index, false);
  LogInfo("expert host ", host.name.name, ": heard of again");
}

void ExpertClient::Core::SetUp(int32_t index, bool up) {
  Host& host = hosts_[static_cast<size_t>(index)];
  host.up = up;
  host.silent = host.draining = host.ping_open = false;
  if (metrics() == nullptr) return;
  metrics()->OnUp(index, up);
  metrics()->OnSilent(index, false);
}

Status ExpertClient::Core::CheckWelcome(
    const Host& host, const wire::ExpertWelcome& welcome) const {
  if (welcome.protocol_version != wire::kExpertProtocolVersion) {
    return FailedPrecondition("protocol version differs: this stage has ",
                              wire::kExpertProtocolVersion, ", the host has ",
                              welcome.protocol_version);
  }
  SLUICE_RETURN_IF_ERROR(wire::CheckSameModel(model_, welcome.model));
  return wire::CheckHolds(welcome.held, host.wanted);
}

void ExpertClient::Core::OnWelcome(int32_t index, uint64_t generation,
                                   const wire::ExpertWelcome& welcome) {
  std::shared_ptr<ExpertStream> refused;
  Status checked;
  {
    MutexLock lock(mutex_);
    Host& host = hosts_[static_cast<size_t>(index)];
    if (host.generation != generation || stopping_) return;
    checked = CheckWelcome(host, welcome);
    if (checked.ok()) {
      host.limits = welcome.limits;
      host.backoff = options_.first_backoff;
      host.why = OkStatus();
      SetUp(index, true);
      Heard(host);
      host.batches_done = 0;
      host.progress_ns = host.heard_ns;
      LogInfo("expert host ", host.name.name, " (", host.name.address,
              ") is up");
    } else {
      refused = host.stream;
    }
  }
  changed_.NotifyAll();
  if (refused != nullptr) refused->Cancel(checked);
}

void ExpertClient::Core::OnPong(int32_t index, uint64_t generation,
                                const v1::ExpertPong& pong) {
  std::shared_ptr<ExpertStream> wedged;
  bool news = false;
  {
    MutexLock lock(mutex_);
    Host& host = hosts_[static_cast<size_t>(index)];
    if (host.generation != generation || !host.up) return;
    // A process that was stopped has to go on first.
    const bool moves = host.in_flight == 0 || host.silent ||
                       host.batches_done != pong.batches_done();
    news = host.silent;
    Heard(host);
    host.ping_open = host.ping_open && pong.sequence() != host.pings;
    host.batches_done = pong.batches_done();
    if (moves) host.progress_ns = host.heard_ns;
    if (host.heard_ns - host.progress_ns > kNoProgressNs) wedged = host.stream;
    if (pong.draining() && !host.draining) {
      news = host.draining = true;
      host.why = Unavailable("it is shutting down");
      LogInfo("expert host ", host.name.name, " drains");
    }
  }
  if (news) changed_.NotifyAll();
  if (wedged != nullptr) {
    wedged->Cancel(Unavailable("it answers pings and has done no batch for ",
                               kNoProgressNs / 1'000'000'000, " s"));
  }
}

void ExpertClient::Core::OnEnd(int32_t index, uint64_t generation,
                               const Status& status) {
  {
    MutexLock lock(mutex_);
    Host& host = hosts_[static_cast<size_t>(index)];
    if (host.generation != generation) return;
    const bool news = host.up || Message(host.why) != Message(status);
    if (news && !stopping_) {
      LogWarning("expert host ", host.name.name, " (", host.name.address,
                 "): ", Message(status));
    }
    SetUp(index, false);
    host.stream = nullptr;
    host.why = status;
    host.next_attempt = Clock::now() + host.backoff;
    host.backoff = std::min(2 * host.backoff, options_.last_backoff);
    for (auto at = calls_.begin(); at != calls_.end();) {
      const auto next = std::next(at);
      if (at->second.host == index) {
        Lose(TakeCall(at), /*refused=*/false, status);
      }
      at = next;
    }
  }
  changed_.NotifyAll();
}

void ExpertClient::Core::OnResult(int32_t index, uint64_t generation,
                                  const v1::ExpertResult& proto, Buffer sums) {
  wire::ExpertAsked asked;
  {
    MutexLock lock(mutex_);
    Host& host = hosts_[static_cast<size_t>(index)];
    if (host.generation != generation) return;
    Heard(host);
    const auto at = calls_.find(proto.batch_id());
    if (at == calls_.end() || at->second.host != index) return;
    asked = at->second.asked;
  }
  auto result = wire::FromProto(proto, std::move(sums), asked);
  std::shared_ptr<ExpertStream> broken;
  {
    MutexLock lock(mutex_);
    const auto at = calls_.find(proto.batch_id());
    if (at == calls_.end() || at->second.host != index) return;
    if (result.ok()) {
      Settle(TakeCall(at), *std::move(result));
    } else {
      broken = hosts_[static_cast<size_t>(index)].stream;
    }
  }
  changed_.NotifyAll();
  if (broken != nullptr) broken->Cancel(result.status());
}

// Calls -----------------------------------------------------------------------

ExpertClient::Core::Call ExpertClient::Core::TakeCall(
    std::unordered_map<uint64_t, Call>::iterator at) {
  Call call = std::move(at->second);
  calls_.erase(at);
  Host& host = hosts_[static_cast<size_t>(call.host)];
  --host.in_flight;
  host.asks -= call.asks;
  return call;
}

void ExpertClient::Core::Settle(Call call, wire::ExpertResult result) {
  using Outcome = ExpertClientMetrics::Outcome;
  ExpertClientMetrics* const seen = metrics();
  if (!result.status.ok()) {
    LogWarning("expert host ", hosts_[static_cast<size_t>(call.host)].name.name,
               " refuses a batch of layer ", result.layer, ": ",
               Message(result.status));
    if (seen != nullptr) seen->OnOutcome(call.host, Outcome::kRefused);
    return Lose(call, /*refused=*/true, result.status);
  }
  const int64_t trip = MonotonicNanos() - call.sent_ns;
  latencies_.Add(call.asks, trip);
  if (seen != nullptr) seen->OnTrip(call.host, trip, result.times);
  bool used = false;
  if (call.question == question_id_ && question_id_ != 0) {
    const auto& units = question_->units();
    used = std::any_of(call.units.begin(), call.units.end(),
                       [&](size_t unit) { return units[unit].open(); });
    auto reply = std::make_shared<ExpertReply>();
    reply->result = std::move(result);
    reply->rows = std::move(call.rows);
    question_->Answer(call.units, std::move(reply));
  }
  if (seen == nullptr) return;
  seen->OnOutcome(call.host, used ? Outcome::kUsed : Outcome::kLate);
}

void ExpertClient::Core::Lose(const Call& call, bool refused,
                              const Status& why) {
  if (!refused && metrics() != nullptr) {
    metrics()->OnOutcome(call.host, ExpertClientMetrics::Outcome::kLost);
  }
  if (call.question != question_id_ || question_id_ == 0) return;
  for (const size_t index : call.units) {
    AskUnit& unit = question_->units()[index];
    std::erase(unit.asked, call.host);
    if (refused) unit.refused.push_back(call.host);
    if (!unit.open() || !unit.asked.empty()) continue;
    unit.state = AskUnit::State::kToAsk;
    unit.why = why;
  }
}

}  // namespace sluice
