// Which host is asked, and again; what the streams say is in client_hosts.cc.
#include "common/experts/client/client_core.h"

#include <algorithm>
#include <utility>

#include "common/model_config/model_config.h"

namespace sluice {
namespace {

constexpr auto kLongestWait = std::chrono::milliseconds(50);
constexpr auto kShortestWait = std::chrono::milliseconds(1);
// Hedges: at most one of ten batches in the long run.
constexpr double kHedgeShare = 0.1;

// A batch that ends the process of every host that gets it must end, too.
int32_t MostAttempts(const ExpertShard& shard) {
  return 4 * static_cast<int32_t>(shard.hosts.size()) + 4;
}

bool Contains(const std::vector<int32_t>& list, int32_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// The batch that units of `chunk` for `host` go with.
template <typename Sends>
auto FindSend(Sends& sends, int32_t host, int32_t chunk) {
  return std::find_if(sends.begin(), sends.end(), [=](const auto& send) {
    return send.host == host && send.chunk == chunk;
  });
}

}  // namespace

ExpertClient::Core::Core(const ModelConfig& config, ExpertClientOptions options)
    : options_(std::move(options)),
      map_(options_.placement, options_.layers, config.moe.num_experts) {
  model_.num_layers = config.num_layers;
  model_.hidden_size = config.hidden_size;
  model_.num_experts = config.moe.num_experts;
  model_.experts_per_token = config.moe.experts_per_token;
  MutexLock lock(mutex_);
  hedge_budget_ = options_.most_hedges;
  for (size_t i = 0; i < options_.placement.hosts.size(); ++i) {
    Host& host = hosts_.emplace_back();
    host.name = options_.placement.hosts[i];
    host.backoff = options_.first_backoff;
    const auto index = static_cast<int32_t>(i);
    for (int32_t l = options_.layers.first; l < options_.layers.last; ++l) {
      wire::LayerExperts wanted = {l, {}};
      for (const ExpertRange& range : options_.placement.On(index, l)) {
        wanted.ranges.push_back({range.begin, range.end});
      }
      if (!wanted.ranges.empty()) host.wanted.push_back(std::move(wanted));
    }
    host.needed = !host.wanted.empty();
  }
}

void ExpertClient::Core::Begin(const ExpertAsk& ask) {
  {
    MutexLock lock(mutex_);
    // The least of what hosts take; a batch of more rows would be refused.
    int32_t max_rows = options_.max_step_tokens;
    for (const Host& host : hosts_) {
      if (host.up) max_rows = std::min(max_rows, host.limits.max_rows);
    }
    question_ = std::make_unique<Question>(ask, map_, max_rows);
    question_id_ = ++last_question_;
    // A stream's epochs never fall; another gateway's may.
    wire_epoch_ = std::max(wire_epoch_, ask.step.epoch.value());
  }
  SendAll();
}

std::vector<RowFailure> ExpertClient::Core::Finish(
    std::span<const kernels::Matrix> parts) {
  const int64_t begin = MonotonicNanos();
  while (true) {
    SendAll();
    MutexLock lock(mutex_);
    if (stopping_) {
      for (AskUnit& unit : question_->units()) {
        if (!unit.open()) continue;
        unit.state = AskUnit::State::kFailed;
        unit.why = Unavailable("this stage is shutting down");
      }
    }
    if (!question_->open()) {
      question_id_ = 0;
      break;
    }
    const auto& units = question_->units();
    const bool all_asked =
        std::none_of(units.begin(), units.end(), [](const AskUnit& unit) {
          return unit.state == AskUnit::State::kToAsk;
        });
    // Woken between SendAll and here: something is to be asked at once.
    if (!all_asked) {
      changed_.WaitUntil(mutex_, Clock::now() + kShortestWait);
    } else {
      changed_.WaitUntil(mutex_, NextLook(MonotonicNanos()));
    }
  }
  const auto failures = question_->Join(parts);
  if (options_.metrics != nullptr) {
    options_.metrics->OnLayer(MonotonicNanos() - begin, failures.size());
  }
  return failures;
}

ExpertClient::Core::Choice ExpertClient::Core::Choose(const AskUnit& unit,
                                                      bool whole) const {
  const std::vector<int32_t>& replicas = question_->shard(unit).hosts;
  const Host* best = nullptr;
  bool heard_of = false;
  Choice choice;
  for (size_t i = 0; i < replicas.size(); ++i) {
    const int32_t index =
        replicas[(i + static_cast<size_t>(rotation_)) % replicas.size()];
    const Host& host = hosts_[static_cast<size_t>(index)];
    if (!Usable(host) || Contains(unit.refused, index)) continue;
    if (choice.pick == Pick::kNobody) choice.pick = Pick::kWait;
    heard_of |= !host.silent;
    if (Contains(unit.asked, index) ||
        host.in_flight >= host.limits.max_batches_in_flight ||
        (whole && host.limits.max_rows < unit.chunk_rows)) {
      continue;
    }
    const bool better =
        best == nullptr ||
        std::pair(host.silent, host.asks) < std::pair(best->silent, best->asks);
    if (!better) continue;
    best = &host;
    choice = {Pick::kHost, index};
  }
  // Full is better than silent.
  if (best != nullptr && best->silent && heard_of) return {Pick::kWait, 0};
  return choice;
}

bool ExpertClient::Core::AskedInVain(const AskUnit& unit) const {
  for (const int32_t host : unit.asked) {
    if (!hosts_[static_cast<size_t>(host)].silent) return false;
  }
  return true;
}

ExpertClient::Core::Outgoing& ExpertClient::Core::AddTo(
    std::vector<Outgoing>& sends, int32_t host, size_t index) {
  AskUnit& unit = question_->units()[index];
  auto found = FindSend(sends, host, unit.chunk);
  Host& to = hosts_[static_cast<size_t>(host)];
  if (found == sends.end()) {
    Outgoing& fresh = sends.emplace_back();
    fresh.host = host;
    fresh.chunk = unit.chunk;
    found = std::prev(sends.end());
    ++to.in_flight;
  }
  to.asks += unit.asks;
  found->units.push_back(index);
  found->asks += unit.asks;
  unit.state = AskUnit::State::kAsked;
  unit.asked.push_back(host);
  ++unit.attempts;
  return *found;
}

void ExpertClient::Core::CountSends(const std::vector<Outgoing>& sends) const {
  if (metrics() == nullptr) return;
  for (const Outgoing& send : sends) {
    if (send.hedge) metrics()->OnHedge(send.host);
    if (send.retry) metrics()->OnRetry(send.host);
  }
}

std::vector<ExpertClient::Core::Outgoing> ExpertClient::Core::PlanSends(
    int64_t now) {
  std::vector<Outgoing> sends;
  if (stopping_) return sends;  // Finish says so
  std::vector<AskUnit>& units = question_->units();
  for (size_t i = 0; i < units.size(); ++i) {
    AskUnit& unit = units[i];
    const bool asked = unit.state == AskUnit::State::kAsked;
    const bool in_vain = asked && AskedInVain(unit);
    // Late by its size's own measure.
    const bool late =
        asked && now - unit.asked_ns > latencies_.LateNanos(unit.batch_asks);
    const bool hedge = in_vain || late;
    if (unit.state != AskUnit::State::kToAsk && !hedge) continue;
    // What is late alone may be answered yet: it is not cut for another host.
    const Choice choice = Choose(unit, /*whole=*/late && !in_vain);
    if (!hedge && (choice.pick == Pick::kNobody ||
                   unit.attempts > MostAttempts(question_->shard(unit)))) {
      unit.why = NoHostLeft(unit);
      unit.state = AskUnit::State::kFailed;
    }
    if (!unit.open() || choice.pick != Pick::kHost) continue;
    const Host& to = hosts_[static_cast<size_t>(choice.host)];
    if (hedge && to.silent) continue;  // no better than whom it waits for
    // One of the budget for a batch, whatever is in it; none where nothing
    // else can help.
    const bool costs = hedge && !in_vain;
    const bool retry = !hedge && unit.attempts > 0;
    if (unit.chunk_rows > to.limits.max_rows) {
      // It came up, or welcomed us anew, after this was cut.
      question_->Split(i, to.limits.max_rows);  // `unit` is no more
    }
    const auto with = FindSend(sends, choice.host, units[i].chunk);
    const bool charged = with != sends.end() && with->charged;
    if (costs && !charged && hedge_budget_ < 1) continue;
    Outgoing& send = AddTo(sends, choice.host, i);
    send.hedge |= hedge;
    send.retry |= retry;
    if (!costs || charged) continue;
    send.charged = true;
    hedge_budget_ -= 1;
  }
  CountSends(sends);
  if (!sends.empty()) ++rotation_;
  return sends;
}

void ExpertClient::Core::SendAll() {
  std::vector<Outgoing> sends;
  {
    MutexLock lock(mutex_);
    sends = PlanSends(MonotonicNanos());
  }
  for (const Outgoing& outgoing : sends) Send(outgoing);
}

void ExpertClient::Core::Send(const Outgoing& outgoing) {
  const int64_t begin = MonotonicNanos();
  Call call;
  call.host = outgoing.host;
  call.units = outgoing.units;
  call.asks = outgoing.asks;
  wire::ExpertBatch batch = question_->MakeBatch(outgoing.units, call.rows);
  batch.epoch = Epoch(wire_epoch_);
  batch.sent_ns = begin;
  const uint64_t id = batch.batch_id = next_batch_++;
  const int32_t rows = batch.rows();
  call.asked = wire::AskedBy(batch);
  grpc::ByteBuffer frame = ExpertStream::FrameOf(std::move(batch));
  // The trip begins where making it ends: the parts do not overlap.
  const int64_t sent = MonotonicNanos();
  call.sent_ns = sent;
  std::shared_ptr<ExpertStream> stream;
  {
    MutexLock lock(mutex_);
    call.question = question_id_;
    for (const size_t unit : call.units) {
      question_->units()[unit].asked_ns = sent;
      question_->units()[unit].batch_asks = call.asks;
    }
    const Host& host = hosts_[static_cast<size_t>(call.host)];
    // It may have gone, or come back with another limit, a moment ago.
    if (host.up && rows <= host.limits.max_rows) stream = host.stream;
    calls_.emplace(id, std::move(call));
    hedge_budget_ = std::min(options_.most_hedges, hedge_budget_ + kHedgeShare);
  }
  if (stream != nullptr && stream->SendFrame(std::move(frame))) {
    if (options_.metrics != nullptr) options_.metrics->OnSent(sent - begin);
    return;
  }
  const Status over = Unavailable("its stream takes no more");
  {
    MutexLock lock(mutex_);
    // Nothing more is asked of it before it is back; its end is yet to come.
    Host& host = hosts_[static_cast<size_t>(outgoing.host)];
    if (host.stream == stream && host.up) SetUp(outgoing.host, false);
    const auto at = calls_.find(id);  // its end may have been told already
    if (at != calls_.end()) Lose(TakeCall(at), /*refused=*/false, over);
  }
  if (stream != nullptr) stream->Cancel(over);
}

TimePoint ExpertClient::Core::NextLook(int64_t now) const {
  int64_t wait = std::chrono::nanoseconds(kLongestWait).count();
  for (const AskUnit& unit : question_->units()) {
    if (unit.state != AskUnit::State::kAsked || unit.asked.size() > 1) continue;
    if (question_->shard(unit).hosts.size() < 2) continue;
    const int64_t late =
        unit.asked_ns + latencies_.LateNanos(unit.batch_asks) - now;
    // What is late already waits for budget or for a host.
    if (late > 0) wait = std::min(wait, late);
  }
  return Clock::now() + std::chrono::nanoseconds(wait);
}

// Names what is missing; why is in the log, as it names addresses.
Status ExpertClient::Core::NoHostLeft(const AskUnit& unit) const {
  const ExpertShard& shard = question_->shard(unit);
  std::string names;
  for (const int32_t host : shard.hosts) {
    names += Cat(names.empty() ? "" : ", ",
                 hosts_[static_cast<size_t>(host)].name.name);
  }
  const std::string why =
      unit.refused.empty() ? "" : Cat("; ", Message(unit.why));
  return Unavailable(ToString(shard), " have no host left of: ", names, why);
}

}  // namespace sluice
