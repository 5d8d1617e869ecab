#include "services/stage/follower_server.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "common/base/build_info.h"
#include "common/base/cat.h"
#include "common/base/catch_exceptions.h"
#include "common/base/end_process.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/concurrency/named_thread.h"
#include "common/http/probe_server.h"
#include "common/metrics/metrics.h"
#include "common/metrics/watched_gpus.h"
#include "common/pipeline/ranks/lead_connection.h"
#include "common/pipeline/stage/stage_metrics.h"
#include "common/service/loading_server.h"
#include "common/stage/rank_follower.h"

namespace sluice::stage {
namespace {

// Between two looks at whether the process is to end, and between two tries.
constexpr auto kLook = std::chrono::milliseconds(200);
constexpr auto kRetry = std::chrono::seconds(1);

// Whether another try to reach a lead may have another end.
bool MayPass(const Status& why) {
  return why.ok() || why.code() == StatusCode::kUnavailable;
}

// What the lead orders, beside what is of this process.
StageOptions Ordered(StageOptions options, const RankOrder& order) {
  options.first_layer = order.first_layer;
  options.last_layer = order.last_layer;
  options.all_ranks = order.all_ranks;
  options.weights = order.weights;
  options.kv_type = order.kv_type;
  options.numerics = order.numerics;
  options.memory = order.memory;
  options.kv_blocks = order.kv_blocks;
  options.max_context = order.max_context;
  options.max_step_tokens = order.max_step_tokens;
  options.max_sequences = order.max_sequences;
  return options;
}

// "rank-3", "ranks-4-7".
std::string NameOf(const StageOptions& own) {
  const int32_t first = own.first_rank;
  return own.ranks == 1 ? Cat("rank-", first)
                        : Cat("ranks-", first, "-", first + own.ranks - 1);
}

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) return "an unnamed host";
  return name;
}

}  // namespace

class FollowerServer::Impl {
 public:
  Impl(FollowerOptions options, StageInfo model)
      : options_(std::move(options)),
        model_(std::move(model)),
        name_(NameOf(options_.stage)),
        registry_({{"stage", name_}, {"replica", "0"}}),
        metrics_(&registry_) {}
  ~Impl() { Stop(); }

  Status Start() {
    registry_.OnScrape([this] { gpus_.OnScrape(); });
    SetState(State::kWaiting);
    LoadingServer::Options process;
    process.service = "stage";
    process.isa = options_.stage.isa;
    process.certificate = options_.transport.tls_cert;
    process.authority = options_.transport.tls_ca;
    process.listen = options_.metrics_listen;
    process.probes.readiness = [this] { return Readiness(); };
    SLUICE_RETURN_IF_ERROR(process_.Open(std::move(process)));
    thread_ = NamedThread("follow", [this] { Follow(); });
    return OkStatus();
  }

  int metrics_port() const { return process_.metrics_port(); }

  Status WaitLoaded(TimePoint deadline) {
    return process_.WaitLoaded(deadline, "the ranks are");
  }

  void Drain(TimePoint deadline) {
    MutexLock lock(mutex_);
    leaving_ = true;
    changed_.NotifyAll();
    if (connection_ == nullptr) return;
    connection_->Leave();
    while (connection_ != nullptr) {
      if (!changed_.WaitUntil(mutex_, deadline)) break;
    }
    if (connection_ == nullptr || !follows_) return;
    if (state_ == State::kLoading) std::_Exit(0);  // as in the first load
    // Devices of its ranks may wait for the lead's, and threads with them.
    EndToBeReplaced(Cat("the lead ", options_.lead,
                        " has not let go of this process, which was told to "
                        "end, in time"));
  }

  void Stop() {
    {
      MutexLock lock(mutex_);
      leaving_ = stopping_ = true;
    }
    changed_.NotifyAll();
    thread_.Join();
    process_.Close();
  }

 private:
  enum class State { kWaiting, kLoading, kReady };

  bool leaving() {
    MutexLock lock(mutex_);
    return leaving_;
  }
  bool stopping() {
    MutexLock lock(mutex_);
    return stopping_;
  }
  void SetState(State state) {
    state_ = state;
    using Shown = StageMetrics::State;
    metrics_.SetState(state == State::kReady ? Shown::kReady : Shown::kLoading);
  }
  void SetOutcome(const Status& outcome) {
    const bool is_first = process_.SetOutcome(outcome);
    if (!is_first && !outcome.ok()) options_.on_failed(outcome);
  }

  void Follow() {
    std::string told;
    while (!leaving()) {
      Status end;
      const Status caught =
          CatchExceptions("follow", [this, &end] { end = FollowLead(); });
      if (!caught.ok()) end = caught;
      if (leaving()) return;
      if (!MayPass(end)) {
        return SetOutcome(Annotate(end, "lead ", options_.lead));
      }
      const std::string why = end.ok() ? "ended" : Message(end);
      if (told != why) LogInfo("waits for the lead ", options_.lead, ": ", why);
      told = why;
      MutexLock lock(mutex_);
      const TimePoint next = Clock::now() + kRetry;
      while (!leaving_ && changed_.WaitUntil(mutex_, next)) {
      }
    }
  }

  // Follows a lead until its stream ends, and returns with which status; OK:
  // the lead ended in order, or this process does.
  Status FollowLead() {
    FollowerHello hello;
    hello.build = std::string(BuildVersion());
    hello.model_digest = model_.model_digest;
    hello.first_rank = options_.stage.first_rank;
    hello.num_ranks = options_.stage.ranks;
    hello.process = Cat("pid ", getpid(), " on ", HostName());
    SLUICE_ASSIGN_OR_RETURN(
        const auto lead,
        LeadConnection::Open(options_.lead, options_.transport, hello,
                             [this](const Status& end) { OnEnd(end); }));
    if (!SetConnection(lead.get())) return OkStatus();
    Status end;
    const Status caught =
        CatchExceptions("follow", [&] { end = FollowOrders(*lead); });
    follows_ = false;
    SetConnection(nullptr);
    SLUICE_RETURN_IF_ERROR(caught);
    if (end.code() == StatusCode::kUnimplemented) {
      return Unimplemented("that stage takes no followers; --follower-ranks ",
                           "says how many ranks it waits for");
    }
    return end;
  }

  // Returns false if this process was told to end before.
  bool SetConnection(LeadConnection* connection) {
    {
      MutexLock lock(mutex_);
      if (leaving_ && connection != nullptr) return false;
      connection_ = connection;
    }
    changed_.NotifyAll();
    return true;
  }

  // A lead whose ranks are gone leaves the devices here waiting, and threads
  // with them.
  void OnEnd(const Status& end) {
    if (!end.ok() && follows_) Lost(end);
  }
  [[noreturn]] void Lost(const Status& end) {
    const std::string why =
        Cat("the lead ", options_.lead, " is lost: ", Message(end));
    if (!leaving()) EndToBeReplaced(why);
    LogWarning(why, ": this process was told to end, and does");
    std::_Exit(0);
  }

  Status FollowOrders(LeadConnection& lead) {
    while (!stopping()) {
      const auto order = lead.WaitOrder(Clock::now() + kLook);
      if (order.status().code() == StatusCode::kDeadlineExceeded) continue;
      if (order.status().code() == StatusCode::kCancelled) return OkStatus();
      SLUICE_RETURN_IF_ERROR(order.status());
      follows_ = true;
      const Status followed = FollowOrder(*order, lead);
      follows_ = false;
      SetState(State::kWaiting);
      SLUICE_RETURN_IF_ERROR(followed);
    }
    return OkStatus();
  }

  // Loads ranks and runs the lead's steps, until the lead drops them. An error:
  // the ranks cannot be loaded, which the lead knows.
  Status FollowOrder(const RankOrder& order, LeadConnection& lead) {
    SetState(State::kLoading);
    StageOptions options = Ordered(options_.stage, order);
    options.rank_link = &lead;
    StatusOr<std::unique_ptr<RankFollower>> follower = nullptr;
    const Status caught = CatchExceptions(
        "follow", [&] { follower = RankFollower::Load(options); });
    if (!caught.ok()) follower = caught;
    if (!follower.ok()) {
      LogWarning(name_, " of layers ", order.first_layer, " to ",
                 order.last_layer - 1,
                 " not loaded: ", Message(follower.status()));
      lead.GiveUp(follower.status());  // as LoadRanks has, if it came so far
      AwaitDrop(lead);
      const StatusCode code = follower.status().code();
      // The lead, or another follower, could not load, or the lead ended.
      if (code == StatusCode::kAborted || code == StatusCode::kCancelled) {
        return OkStatus();
      }
      return FailedPrecondition(
          name_, " cannot be loaded: ", Message(follower.status()));
    }
    const StageInfo& info = (*follower)->info();
    metrics_.OnLoaded(info);
    gpus_.Start(info.gpus);
    lead.Follow(follower->get());
    SetState(State::kReady);
    LogInfo("loaded ", info.model_name, " layers ", info.first_layer, " to ",
            info.last_layer - 1, " of ", info.num_layers, ", ", name_, " of ",
            info.ranks, ", in ", info.load_seconds, " s");
    SetOutcome(OkStatus());
    AwaitDrop(lead);
    follower->reset();
    metrics_.OnLoaded(StageInfo());
    LogInfo("dropped ", name_, " of layers ", order.first_layer, " to ",
            order.last_layer - 1);
    return OkStatus();
  }

  // Returns when the lead has dropped the ranks, or has ended in order. Steps
  // may come until then, so the process does not return from here otherwise.
  void AwaitDrop(LeadConnection& lead) {
    while (true) {
      const Status dropped = lead.WaitDropped(Clock::now() + kLook);
      if (dropped.ok() || dropped.code() == StatusCode::kCancelled) return;
      if (dropped.code() != StatusCode::kDeadlineExceeded) Lost(dropped);
      if (stopping()) Lost(Unavailable("this process ends"));
    }
  }

  http::Readiness Readiness() const {
    const State state = state_;
    const char* const text = state == State::kReady     ? "ready"
                             : state == State::kLoading ? "loading"
                                                        : "waiting";
    const bool ready = state == State::kReady;
    return {ready, Cat("{\"ready\":", ready ? "true" : "false", ",\"state\":\"",
                       text, "\",\"ranks\":\"", name_, "\"}")};
  }

  const FollowerOptions options_;
  const StageInfo model_;
  const std::string name_;
  metrics::Registry registry_;
  StageMetrics metrics_;
  LoadingServer process_{&registry_};
  metrics::WatchedGpus gpus_{&registry_, metrics::kStageGpuSeries};
  std::atomic<State> state_{State::kWaiting};
  std::atomic<bool> follows_{false};  // between an order and its end
  Mutex mutex_;
  CondVar changed_;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  LeadConnection* connection_ ABSL_GUARDED_BY(mutex_) = nullptr;
  NamedThread thread_;
};

StatusOr<std::unique_ptr<FollowerServer>> FollowerServer::Start(
    FollowerOptions options) {
  SLUICE_RETURN_IF_ERROR(
      Annotate(rpc::CheckAddress(options.lead, options.transport), "--lead"));
  SLUICE_ASSIGN_OR_RETURN(StageInfo model, Stage::Describe(options.stage));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(model));
  SLUICE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<FollowerServer>(new FollowerServer(std::move(impl)));
}

FollowerServer::FollowerServer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
FollowerServer::~FollowerServer() = default;
int FollowerServer::metrics_port() const { return impl_->metrics_port(); }
Status FollowerServer::WaitLoaded(TimePoint deadline) {
  return impl_->WaitLoaded(deadline);
}
void FollowerServer::Drain(TimePoint deadline) { impl_->Drain(deadline); }
void FollowerServer::Stop() { impl_->Stop(); }

}  // namespace sluice::stage
