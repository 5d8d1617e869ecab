#include "common/experts/client/host_connection.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/experts/client/expert_dispatcher.h"
#include "common/rpc/transport.h"

namespace sluice {
namespace {

// After this silence a host does not count for readiness.
constexpr int64_t kLongSilentNs = 2'000'000'000;
// An unanswered ping is repeated after this time.
constexpr int64_t kPingAgainNs = 1'000'000'000;

}  // namespace

HostConnection::HostConnection(int32_t index, const DispatchOptions& options)
    : index_(index),
      options_(options),
      host_(options.placement.hosts[static_cast<size_t>(index)]),
      metrics_(options.metrics),
      backoff_(options.first_backoff) {
  for (int32_t l = options.layers.first; l < options.layers.last; ++l) {
    wire::LayerExperts wanted = {l, {}};
    for (const ExpertRange& range : options.placement.On(index, l)) {
      wanted.ranges.push_back({range.begin, range.end});
    }
    if (!wanted.ranges.empty()) wanted_.push_back(std::move(wanted));
  }
}

Status HostConnection::MakeChannel(const rpc::TransportOptions& transport) {
  if (host_.address.empty()) {
    return InvalidArgument("placement: host '", host_.name, "' has no address");
  }
  auto channel = rpc::Connect(host_.address, transport, rpc::kExpertRole);
  if (!channel.ok()) {
    return Annotate(channel.status(), "placement: host '", host_.name, "'");
  }
  channel_ = *std::move(channel);
  return OkStatus();
}

bool HostConnection::ConnectDue() const {
  return stream_ == nullptr && Clock::now() >= next_attempt_;
}

void HostConnection::Open(uint64_t generation, wire::ExpertHello hello,
                          ExpertStreamEvents events) {
  generation_ = generation;
  hello.wanted = wanted_;
  stream_ = ExpertStream::Open(channel_, hello, std::move(events));
}

std::optional<uint64_t> HostConnection::Tick(int64_t now_ns) {
  if (!up_) return std::nullopt;
  const auto nanos = [](Duration duration) {
    return std::chrono::nanoseconds(duration).count();
  };
  const bool silent = now_ns - heard_ns_ > nanos(options_.silent_after);
  if (silent != silent_) {
    silent_ = silent;
    if (metrics_ != nullptr) metrics_->OnSilent(index_, silent);
    if (silent) {
      LogWarning("expert host ", host_.name, ": silent for ",
                 (now_ns - heard_ns_) / 1'000'000, " ms");
    }
  }
  const int64_t since = now_ns - pinged_ns_;
  if ((ping_open_ && since <= kPingAgainNs) ||
      since <= nanos(options_.ping_every)) {
    return std::nullopt;
  }
  pinged_ns_ = now_ns;
  ping_open_ = true;
  return ++pings_;
}

Status HostConnection::OnWelcome(const wire::ExpertWelcome& welcome,
                                 const wire::ExpertModel& model) {
  if (welcome.protocol_version != wire::kExpertProtocolVersion) {
    return FailedPrecondition("protocol version differs: this stage has ",
                              wire::kExpertProtocolVersion, ", the host has ",
                              welcome.protocol_version);
  }
  SLUICE_RETURN_IF_ERROR(wire::CheckSameModel(model, welcome.model));
  SLUICE_RETURN_IF_ERROR(wire::CheckHolds(welcome.held, wanted_));
  limits_ = welcome.limits;
  backoff_ = options_.first_backoff;
  why_ = OkStatus();
  SetUp(true);
  Heard();
  batches_done_ = 0;
  progress_ns_ = heard_ns_;
  LogInfo("expert host ", host_.name, " (", host_.address, ") is up");
  return OkStatus();
}

bool HostConnection::OnPong(const v1::ExpertPong& pong) {
  // A stopped process has to go on first.
  const bool moves =
      in_flight_ == 0 || silent_ || batches_done_ != pong.batches_done();
  bool news = silent_;
  Heard();
  ping_open_ = ping_open_ && pong.sequence() != pings_;
  batches_done_ = pong.batches_done();
  if (moves) progress_ns_ = heard_ns_;
  if (pong.draining() && !draining_) {
    news = draining_ = true;
    why_ = Unavailable("it is shutting down");
    LogInfo("expert host ", host_.name, " drains");
  }
  return news;
}

void HostConnection::OnEnd(const Status& status, bool stopping) {
  const bool news = up_ || Message(why_) != Message(status);
  if (news && !stopping) {
    LogWarning("expert host ", host_.name, " (", host_.address,
               "): ", Message(status));
  }
  SetUp(false);
  stream_ = nullptr;
  why_ = status;
  next_attempt_ = Clock::now() + backoff_;
  backoff_ = std::min(2 * backoff_, options_.last_backoff);
}

void HostConnection::Heard() {
  heard_ns_ = MonotonicNanos();
  if (!std::exchange(silent_, false)) return;
  if (metrics_ != nullptr) metrics_->OnSilent(index_, false);
  LogInfo("expert host ", host_.name, ": heard of again");
}

void HostConnection::SetUp(bool up) {
  up_ = up;
  silent_ = draining_ = ping_open_ = false;
  if (metrics_ == nullptr) return;
  metrics_->OnUp(index_, up);
  metrics_->OnSilent(index_, false);
}

bool HostConnection::Counts() const {
  return usable() && (!silent_ || MonotonicNanos() - heard_ns_ < kLongSilentNs);
}

std::string HostConnection::WhyNot() const {
  return usable() ? "silent" : Message(why_);
}

}  // namespace sluice
