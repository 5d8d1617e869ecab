#include "common/experts/client/expert_dispatcher.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/build_info.h"
#include "common/base/log.h"
#include "common/model_config/model_config.h"

namespace sluice {
namespace {

constexpr auto kTick = std::chrono::milliseconds(25);
// The time limit of one batch of one layer.
constexpr Duration kStuckAfter = std::chrono::seconds(60);
// The most unanswered batches of one stream before the host's welcome, for the
// size of messages alone.
constexpr int32_t kAssumedInFlight = 1;
constexpr auto kShortestWait = std::chrono::milliseconds(1);

int64_t MaxMessageBytes(const wire::ExpertModel& model, int32_t max_rows,
                        int32_t max_nodes) {
  const wire::ExpertLimits limits = {max_rows, kAssumedInFlight};
  return std::max(wire::MaxExpertFrameBytes(model, limits),
                  wire::MaxExpertAnswerBytes(model, limits, max_nodes));
}

wire::ExpertModel ModelOf(const ModelConfig& config) {
  wire::ExpertModel model;
  model.num_layers = config.num_layers();
  model.hidden_size = config.hidden_size;
  model.num_experts = config.moe().num_experts;
  model.experts_per_token = config.moe().experts_per_token;
  return model;
}

// Returns the streams of hosts that answer pings but no batch. Breaking such a
// stream off loses its batches like any other loss.
std::vector<std::shared_ptr<ExpertStream>> StuckStreams(
    const std::unordered_map<uint64_t, ExpertCall>& calls,
    const HostConnections& hosts, int64_t now) {
  std::vector<std::shared_ptr<ExpertStream>> stuck;
  const int64_t before = now - std::chrono::nanoseconds(kStuckAfter).count();
  for (const auto& [id, call] : calls) {
    const auto& stream = hosts.at(call.host).stream();
    if (call.sent_ns < before && stream != nullptr) stuck.push_back(stream);
  }
  return stuck;
}

// UNAVAILABLE names the first experts without a counting host, and the reason.
Status CheckReachable(const ShardMap& map, const HostConnections& hosts) {
  for (int32_t l = map.layers().first; l < map.layers().last; ++l) {
    for (const ExpertShard& shard : map.shards(l)) {
      const bool counts =
          std::any_of(shard.hosts.begin(), shard.hosts.end(),
                      [&](int32_t index) { return hosts.at(index).Counts(); });
      if (counts) continue;
      std::string whys;
      for (const int32_t index : shard.hosts) {
        const HostConnection& host = hosts.at(index);
        whys += Cat("; host ", host.name(), ": ", host.WhyNot());
      }
      return Unavailable(ToString(shard), " cannot be asked", whys);
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<ExpertDispatcher>> ExpertDispatcher::Make(
    const ModelConfig& config, DispatchOptions options) {
  std::shared_ptr<ExpertDispatcher> made(
      new ExpertDispatcher(config, std::move(options)));
  rpc::TransportOptions transport = made->options_.transport;
  transport.max_message_bytes =
      MaxMessageBytes(made->hello_.model, made->options_.max_step_tokens,
                      made->map_.max_nodes());
  MutexLock lock(made->mutex_);
  for (auto& [index, host] : made->hosts_) {
    SLUICE_RETURN_IF_ERROR(host.MakeChannel(transport));
  }
  return made;
}

ExpertDispatcher::ExpertDispatcher(const ModelConfig& config,
                                   DispatchOptions options)
    : options_(std::move(options)),
      map_(options_.placement, options_.layers, config.moe().num_experts),
      planner_(options_.most_hedges) {
  hello_.build = std::string(BuildVersion());
  hello_.model = ModelOf(config);
  MutexLock lock(mutex_);
  const auto num_hosts = static_cast<int32_t>(options_.placement.hosts.size());
  for (int32_t i = 0; i < num_hosts; ++i) {
    const auto at = hosts_.try_emplace(i, i, options_).first;
    if (!at->second.needed()) hosts_.erase(at);
  }
}

ExpertDispatcher::~ExpertDispatcher() { Stop(); }

void ExpertDispatcher::Connect(const StageInfo& info) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  hello_.client = Cat("stage ", info.first_layer, "-", info.last_layer - 1);
  hello_.model.model_digest = info.model_digest;
  hello_.model.numerics = info.product_numerics;
  hello_.model.weights = ToString(options_.weights);
  watch_ = NamedThread("expert-watch", [this] { Watch(); });
}

void ExpertDispatcher::Stop() {
  std::vector<std::shared_ptr<ExpertStream>> streams;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (auto& [index, host] : hosts_) {
      host.Detach();
      if (host.stream() != nullptr) streams.push_back(host.stream());
    }
  }
  changed_.NotifyAll();
  wake_watch_.NotifyAll();
  watch_.Join();
  for (const auto& stream : streams) {
    stream->Cancel(Unavailable("this stage is shutting down"));
  }
}

Status ExpertDispatcher::Ready() const {
  MutexLock lock(mutex_);
  return ReadyLocked();
}

Status ExpertDispatcher::WaitReady(TimePoint deadline) const {
  MutexLock lock(mutex_);
  while (!stopping_ && !ReadyLocked().ok()) {
    if (!changed_.WaitUntil(mutex_, deadline)) break;
  }
  return ReadyLocked();
}

Status ExpertDispatcher::ReadyLocked() const {
  if (stopping_) return Unavailable("this stage is shutting down");
  return CheckReachable(map_, hosts_);
}

// The hosts' streams
// -----------------------------------------------------------

void ExpertDispatcher::Watch() {
  std::vector<std::pair<std::shared_ptr<ExpertStream>, uint64_t>> pings;
  std::optional<bool> told;
  while (true) {
    std::vector<std::shared_ptr<ExpertStream>> stuck;
    bool ready = false;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      const int64_t now = MonotonicNanos();
      for (auto& [index, host] : hosts_) {
        if (host.ConnectDue()) Open(index);
        const auto ping = host.Tick(now);
        if (ping.has_value()) pings.emplace_back(host.stream(), *ping);
      }
      stuck = StuckStreams(calls_, hosts_, now);
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
  }
}

void ExpertDispatcher::Open(int32_t index) {
  HostConnection& host = hosts_.at(index);
  const uint64_t generation = host.generation() + 1;
  const auto weak = weak_from_this();
  const auto tell = [weak, index, generation](auto method) {
    return [=](auto&&... message) {
      const auto self = weak.lock();
      if (self == nullptr) return;
      (self.get()->*method)(index, generation,
                            std::forward<decltype(message)>(message)...);
    };
  };
  // The callbacks come from other threads and wait for the lock.
  host.Open(
      generation, hello_,
      {tell(&ExpertDispatcher::OnWelcome), tell(&ExpertDispatcher::OnResult),
       tell(&ExpertDispatcher::OnPong), tell(&ExpertDispatcher::OnEnd)});
}

void ExpertDispatcher::OnWelcome(int32_t index, uint64_t generation,
                                 const wire::ExpertWelcome& welcome) {
  std::shared_ptr<ExpertStream> refused;
  Status checked;
  {
    MutexLock lock(mutex_);
    HostConnection& host = hosts_.at(index);
    if (host.generation() != generation || stopping_) return;
    checked = host.OnWelcome(welcome, hello_.model);
    if (!checked.ok()) refused = host.stream();
  }
  changed_.NotifyAll();
  if (refused != nullptr) refused->Cancel(checked);
}

void ExpertDispatcher::OnPong(int32_t index, uint64_t generation,
                              const v1::ExpertPong& pong) {
  std::shared_ptr<ExpertStream> wedged;
  bool news = false;
  {
    MutexLock lock(mutex_);
    HostConnection& host = hosts_.at(index);
    if (host.generation() != generation || !host.up()) return;
    news = host.OnPong(pong);
    if (host.wedged()) wedged = host.stream();
  }
  if (news) changed_.NotifyAll();
  if (wedged != nullptr) {
    wedged->Cancel(Unavailable("it answers pings and has done no batch for ",
                               HostConnection::kNoProgressSeconds, " s"));
  }
}

void ExpertDispatcher::OnEnd(int32_t index, uint64_t generation,
                             const Status& status) {
  {
    MutexLock lock(mutex_);
    HostConnection& host = hosts_.at(index);
    if (host.generation() != generation) return;
    host.OnEnd(status, stopping_);
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

void ExpertDispatcher::OnResult(int32_t index, uint64_t generation,
                                const v1::ExpertResult& proto, Buffer sums) {
  wire::SentBatch asked;
  {
    MutexLock lock(mutex_);
    HostConnection& host = hosts_.at(index);
    if (host.generation() != generation) return;
    host.Heard();
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
      broken = hosts_.at(index).stream();
    }
  }
  changed_.NotifyAll();
  if (broken != nullptr) broken->Cancel(result.status());
}

ExpertCall ExpertDispatcher::TakeCall(Calls::iterator at) {
  ExpertCall call = std::move(at->second);
  calls_.erase(at);
  hosts_.at(call.host).AddWork(-1, -call.pairs);
  return call;
}

void ExpertDispatcher::Settle(ExpertCall call, wire::ExpertResult result) {
  using Outcome = ExpertClientMetrics::Outcome;
  const HostConnection& host = hosts_.at(call.host);
  ExpertClientMetrics* const seen = host.metrics();
  if (!result.status.ok()) {
    LogWarning("expert host ", host.name(), " refuses a batch of layer ",
               result.layer, ": ", Message(result.status));
    if (seen != nullptr) seen->OnOutcome(call.host, Outcome::kRefused);
    return Lose(call, /*refused=*/true, result.status);
  }
  const int64_t trip = MonotonicNanos() - call.sent_ns;
  planner_.OnAnswered(call.pairs, trip);
  if (seen != nullptr) seen->OnTrip(call.host, trip, result.times);
  bool used = false;
  if (call.dispatch == dispatch_ && dispatch_ != 0) {
    const auto& units = layer_->units();
    used = std::any_of(call.units.begin(), call.units.end(),
                       [&](size_t unit) { return units[unit].open(); });
    auto reply = std::make_shared<HostReply>();
    reply->result = std::move(result);
    reply->rows = std::move(call.rows);
    layer_->Take(call.units, std::move(reply));
  }
  if (seen == nullptr) return;
  seen->OnOutcome(call.host, used ? Outcome::kUsed : Outcome::kLate);
}

void ExpertDispatcher::Lose(const ExpertCall& call, bool refused,
                            const Status& why) {
  ExpertClientMetrics* const seen = hosts_.at(call.host).metrics();
  if (!refused && seen != nullptr) {
    seen->OnOutcome(call.host, ExpertClientMetrics::Outcome::kLost);
  }
  if (call.dispatch != dispatch_ || dispatch_ == 0) return;
  for (const size_t index : call.units) {
    DispatchUnit& unit = layer_->units()[index];
    std::erase(unit.sent_to, call.host);
    if (refused) unit.refused_by.push_back(call.host);
    if (!unit.open() || !unit.sent_to.empty()) continue;
    unit.state = DispatchUnit::State::kToSend;
    unit.why = why;
  }
}

// The stage's thread
// -----------------------------------------------------------

void ExpertDispatcher::Dispatch(const RoutedRows& routed) {
  {
    MutexLock lock(mutex_);
    // The least that a host takes; it would refuse a batch of more rows.
    int32_t max_rows = options_.max_step_tokens;
    for (const auto& [index, host] : hosts_) {
      if (host.up()) max_rows = std::min(max_rows, host.limits().max_rows);
    }
    layer_ = std::make_unique<LayerDispatch>(routed, map_, max_rows);
    dispatch_ = ++last_dispatch_;
    // A stream's epochs never fall; another gateway's may.
    wire_epoch_ = std::max(wire_epoch_, routed.step.epoch);
  }
  SendAll();
}

std::vector<RowFailure> ExpertDispatcher::Combine(
    const RoutedRows&, std::span<const kernels::Matrix> parts) {
  const int64_t begin = MonotonicNanos();
  while (true) {
    SendAll();
    MutexLock lock(mutex_);
    auto& units = layer_->units();
    if (stopping_) {
      for (DispatchUnit& unit : units) {
        if (!unit.open()) continue;
        unit.state = DispatchUnit::State::kFailed;
        unit.why = Unavailable("this stage is shutting down");
      }
    }
    if (!layer_->open()) {
      dispatch_ = 0;
      break;
    }
    const bool all_sent =
        std::none_of(units.begin(), units.end(), [](const DispatchUnit& unit) {
          return unit.state == DispatchUnit::State::kToSend;
        });
    // If woken between SendAll and here, there is something to send at once.
    changed_.WaitUntil(mutex_,
                       all_sent ? planner_.NextLook(MonotonicNanos(), *layer_)
                                : Clock::now() + kShortestWait);
  }
  const auto failures = layer_->Combine(parts);
  if (options_.metrics != nullptr) {
    options_.metrics->OnLayer(MonotonicNanos() - begin, failures.size());
  }
  return failures;
}

void ExpertDispatcher::SendAll() {
  std::vector<HostBatch> sends;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;  // Finish reports it
    sends = planner_.Plan(MonotonicNanos(), *layer_, hosts_);
  }
  for (const HostBatch& outgoing : sends) Send(outgoing);
}

void ExpertDispatcher::Send(const HostBatch& outgoing) {
  const int64_t begin = MonotonicNanos();
  ExpertCall call;
  call.host = outgoing.host;
  call.units = outgoing.units;
  call.pairs = outgoing.pairs;
  wire::ExpertBatch batch = layer_->MakeBatch(outgoing.units, call.rows);
  batch.epoch = wire_epoch_;
  batch.sent_ns = begin;
  const uint64_t id = batch.batch_id = next_batch_++;
  const int32_t rows = batch.rows();
  call.asked = wire::SentOf(batch);
  grpc::ByteBuffer frame = ExpertStream::FrameOf(std::move(batch));
  // The trip begins at the end of making the batch: the parts do not overlap.
  const int64_t sent = MonotonicNanos();
  call.sent_ns = sent;
  std::shared_ptr<ExpertStream> stream;
  {
    MutexLock lock(mutex_);
    call.dispatch = dispatch_;
    for (const size_t unit : call.units) {
      layer_->units()[unit].sent_ns = sent;
      layer_->units()[unit].batch_pairs = call.pairs;
    }
    const HostConnection& host = hosts_.at(call.host);
    // The host may have gone, or have come back with another limit.
    if (host.up() && rows <= host.limits().max_rows) stream = host.stream();
    calls_.emplace(id, std::move(call));
    planner_.OnSent();
  }
  if (stream != nullptr && stream->SendFrame(std::move(frame))) {
    if (options_.metrics != nullptr) options_.metrics->OnSent(sent - begin);
    return;
  }
  const Status over = Unavailable("its stream takes no more");
  {
    MutexLock lock(mutex_);
    // No new work before the host is back; its stream's end is yet to come.
    HostConnection& host = hosts_.at(outgoing.host);
    if (host.stream() == stream && host.up()) host.SetUp(false);
    const auto at = calls_.find(id);  // its end may have come already
    if (at != calls_.end()) Lose(TakeCall(at), /*refused=*/false, over);
  }
  if (stream != nullptr) stream->Cancel(over);
}

}  // namespace sluice
