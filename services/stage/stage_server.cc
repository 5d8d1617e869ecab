#include "services/stage/stage_server.h"

#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/build_info.h"
#include "common/base/catch_exceptions.h"
#include "common/base/log.h"
#include "common/concurrency/named_thread.h"
#include "common/experts/client/client_metrics.h"
#include "common/experts/client/expert_dispatcher.h"
#include "common/http/probe_server.h"
#include "common/metrics/metrics.h"
#include "common/metrics/watched_gpus.h"
#include "common/model_config/expert_placement.h"
#include "common/model_config/kv_layout.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/pipeline/ranks/lead_ranks.h"
#include "common/pipeline/ranks/rank_frames.h"
#include "common/pipeline/ranks/ranks_service.h"
#include "common/pipeline/stage/stage_metrics.h"
#include "common/pipeline/stage/stage_service.h"
#include "common/pipeline/stage/stage_session.h"
#include "common/rpc/transport.h"
#include "common/service/loading_server.h"
#include "common/stage/stage_loop.h"
#include "common/weights/model_file.h"
#include "services/stage/load_progress.h"
#include "services/stage/stall_watch.h"

namespace sluice::stage {
namespace {

// Between two looks at whether the stage is stopped.
constexpr auto kExpertWait = std::chrono::milliseconds(200);
// For the steps under way when the time to drain is over.
constexpr auto kLastSteps = std::chrono::seconds(5);

// Limits of the messages, before the model is loaded.
int64_t MaxMessageBytes(const StageOptions& options,
                        const ModelConfig& config) {
  PlanLimits limits;
  limits.max_step_tokens = options.max_step_tokens;
  limits.max_sequences = options.max_sequences;
  limits.max_context =
      options.max_context != 0
          ? options.max_context
          : std::min(config.max_position_embeddings, kMaxContext);
  limits.vocab_size = config.vocab_size;
  int64_t bytes = std::max(wire::MaxFrameBytes(limits, config.hidden_size),
                           wire::MaxResultBytes(limits));
  if (options.all_ranks == 0) return bytes;
  RankStepBounds bounds;
  bounds.limits = {limits.max_step_tokens, limits.max_sequences,
                   limits.max_context,
                   static_cast<int32_t>(KvWindows(config).size())};
  bounds.hidden_size = config.hidden_size;
  return std::max(bytes, MaxStepFrameBytes(bounds));
}

Status CheckOptions(const StageServerOptions& options) {
  if (options.stage.max_step_tokens < 1 || options.stage.max_sequences < 1) {
    return InvalidArgument(
        "max_step_tokens and max_sequences must be positive, got ",
        options.stage.max_step_tokens, " and ", options.stage.max_sequences);
  }
  if (options.max_steps_in_flight < 1 || options.max_steps_in_flight > 1024) {
    return InvalidArgument("max_steps_in_flight must be between 1 and 1024, ",
                           "got ", options.max_steps_in_flight);
  }
  return rpc::CheckAddress(options.listen, options.transport);
}

// Gateways are told which ranks are missing; a follower that ends asks for the
// stage's end.
LeadRanksOptions FollowersOf(const StageServerOptions& options,
                             StageSession* session) {
  LeadRanksOptions followers;
  followers.own_ranks = options.stage.ranks;
  followers.all_ranks = options.stage.all_ranks;
  followers.build = std::string(BuildVersion());
  followers.on_waiting = [session](const std::string& text) {
    session->SetLoading(text.empty() ? "loading" : text);
    if (!text.empty()) LogInfo(text);
  };
  followers.on_leaving = [ask = options.ask_to_end](const std::string& why) {
    LogInfo(why);
    if (ask) ask();
  };
  return followers;
}

}  // namespace

StatusOr<LayerRange> ResolveLayers(const LayerChoice& choice,
                                   const LayerLoads& loads) {
  const int32_t num_layers = loads.num_layers();
  LayerRange layers = {choice.first,
                       choice.last == -1 ? num_layers : choice.last};
  if (choice.parts != 0) {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<LayerRange> parts,
                            SplitLayers(loads, choice.parts, choice.memory));
    if (choice.index < 0 || choice.index >= choice.parts) {
      return InvalidArgument("stage ", choice.index, ": there are stages 0 to ",
                             choice.parts - 1);
    }
    layers = parts[static_cast<size_t>(choice.index)];
  }
  if (layers.first < 0 || layers.first >= layers.last ||
      layers.last > num_layers) {
    return InvalidArgument("layers ", layers.first, " to ", layers.last - 1,
                           ": the model has layers 0 to ", num_layers - 1);
  }
  return layers;
}

class StageServer::Impl {
 public:
  Impl(StageServerOptions options, const LayerRange& layers)
      : options_(std::move(options)),
        registry_({{"stage", options_.layers.assigned
                                 ? "assigned"
                                 : Cat(layers.first, "-", layers.last - 1)},
                   {"replica", "0"}}),
        metrics_(&registry_),
        session_(std::make_shared<StageSession>(StageSessionOptions{
            options_.transport, options_.max_steps_in_flight, &metrics_,
            OnAssigned()})),
        service_(MakeStageService(session_, &metrics_)) {
    options_.stage.first_layer = layers.first;
    options_.stage.last_layer = layers.last;
    if (options_.stage.all_ranks == 0) return;
    followers_ =
        std::make_shared<LeadRanks>(FollowersOf(options_, session_.get()));
    options_.stage.rank_link = followers_.get();
    ranks_service_ = MakeRanksService(followers_, &metrics_);
  }
  ~Impl() { Stop(); }

  // Before Start; `placement` is `config`'s.
  Status LeaveExperts(const ModelConfig& config, ExpertPlacement placement) {
    StageOptions& stage = options_.stage;
    stage.placement = std::move(placement);
    if (!stage.placement.IsRemote(stage.first_layer, stage.last_layer)) {
      return OkStatus();
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < stage.placement.hosts.size(); ++i) {
      bool asked = false;
      for (int32_t l = stage.first_layer; l < stage.last_layer; ++l) {
        asked |= !stage.placement.On(static_cast<int32_t>(i), l).empty();
      }
      names.push_back(asked ? stage.placement.hosts[i].name : "");
    }
    expert_metrics_ = std::make_unique<ExpertClientMetrics>(&registry_, names);
    DispatchOptions options;
    options.placement = stage.placement;
    options.layers = {stage.first_layer, stage.last_layer};
    options.max_step_tokens = stage.max_step_tokens;
    options.weights = stage.weights;
    options.transport = options_.transport;
    options.metrics = expert_metrics_.get();
    options.on_ready = [this](bool ready) { OnExperts(ready); };
    SLUICE_ASSIGN_OR_RETURN(experts_,
                            ExpertDispatcher::Make(config, std::move(options)));
    stage.expert_transport = experts_.get();
    return OkStatus();
  }

  Status Start() {
    std::vector<grpc::Service*> services = {service_.get()};
    rpc::MethodRoles roles = StageMethodRoles();
    if (ranks_service_ != nullptr) {
      services.push_back(ranks_service_.get());
      roles.merge(RanksMethodRoles());
    }
    SLUICE_ASSIGN_OR_RETURN(
        server_, rpc::Listen(options_.listen, options_.transport, services,
                             std::move(roles)));
    registry_.OnScrape([this] { CopyStats(); });
    LoadingServer::Options process;
    process.service = "stage";
    process.isa = options_.stage.isa;
    process.certificate = options_.transport.tls_cert;
    process.authority = options_.transport.tls_ca;
    process.listen = options_.metrics_listen;
    process.probes.readiness = [this] { return Readiness(); };
    SLUICE_RETURN_IF_ERROR(process_.Open(std::move(process)));
    loader_ = NamedThread("stage-load", [this] {
      if (may_change()) {
        LoadAssigned();
      } else {
        (void)Load();
      }
    });
    watch_.emplace([this] { return ReadLoop(); },
                   [this](bool standing) { session_->SetStanding(standing); });
    return OkStatus();
  }

  Status WaitLoaded(TimePoint deadline) {
    return process_.WaitLoaded(deadline, "the model is");
  }

  void Drain(TimePoint deadline) {
    {
      MutexLock lock(mutex_);
      leaving_ = true;
      TellState();
    }
    session_->Leave(deadline);
    session_->Drain(Clock::now() + kLastSteps);
  }

  void Stop() {
    session_->Shutdown();
    {
      MutexLock lock(mutex_);
      leaving_ = stopping_ = true;
    }
    wake_.NotifyAll();
    if (followers_ != nullptr) {
      // Steps are over before followers drop their ranks, and they have dropped
      // them before their streams end.
      followers_->StopLoads();
      loader_.Join();
      if (loop_ != nullptr) loop_->Stop();
      followers_->Drop();
      followers_->Stop();
    }
    if (server_.server != nullptr) {
      // Streams have ended with a reason; what still lives is cut off soon.
      server_.server->Shutdown(std::chrono::system_clock::now() +
                               std::chrono::milliseconds(500));
    }
    if (experts_ != nullptr) experts_->Stop();
    loader_.Join();
    process_.Close();
    if (loop_ != nullptr) loop_->Stop();
    watch_.reset();  // after the loop, which may stand still
  }

  const std::string& address() const { return server_.address; }
  int metrics_port() const { return process_.metrics_port(); }

 private:
  // Whether a gateway may name other layers.
  bool may_change() const {
    return options_.layers.assigned || options_.layers.assignable;
  }

  // What the session calls when a gateway names other layers than those held.
  std::function<void(const StagePlace&)> OnAssigned() {
    if (!may_change()) return nullptr;
    return [this](const StagePlace& place) {
      {
        MutexLock lock(mutex_);
        wanted_ = place;
        TellState();
      }
      wake_.NotifyAll();
    };
  }

  // The layers of the start.
  Status Load() {
    const Status loaded = LoadLayers();
    if (!loaded.ok()) {
      session_->SetLoading(Cat("loading failed: ", Message(loaded)));
    }
    SetOutcome(loaded);
    return loaded;
  }

  // Until the stage is stopped, whatever gateways name.
  void LoadAssigned() {
    const auto unloaded = Stage::Describe(options_.stage);
    if (!unloaded.ok()) return SetOutcome(unloaded.status());
    if (options_.layers.assigned) {
      session_->SetLoaded(*unloaded, nullptr);
      EndLoad();
      LogInfo("waits to be assigned layers of ", unloaded->model_name);
      SetOutcome(OkStatus());
    } else if (!Load().ok()) {
      return;
    }
    while (TakeWanted()) {
      Unload();
      Status loaded;
      const Status caught = CatchExceptions(
          "stage-load", [this, &loaded] { loaded = LoadLayers(); });
      if (!caught.ok()) loaded = caught;
      if (loaded.ok()) continue;
      Unload();
      const Status why = FailedPrecondition(
          "layers ", options_.stage.first_layer, " to ",
          options_.stage.last_layer - 1, " were not loaded: ", Message(loaded));
      LogError(Message(why));
      session_->SetLoadFailed(*unloaded, why);
      EndLoad();
    }
  }

  // Waits for layers to load; false when stopping.
  bool TakeWanted() {
    MutexLock lock(mutex_);
    while (!stopping_ && !wanted_.has_value()) wake_.Wait(mutex_);
    if (stopping_) return false;
    options_.stage.first_layer = wanted_->first_layer;
    options_.stage.last_layer = wanted_->last_layer;
    wanted_.reset();
    loading_ = true;
    return true;
  }

  // Frees the layers, before others are loaded. The session has let go of them.
  void Unload() {
    std::unique_ptr<Stage> stage;  // first: the loop ends before it
    std::unique_ptr<StageLoop> loop;
    {
      MutexLock lock(mutex_);
      loop = std::move(loop_);
      stage = std::move(stage_);
      if (loop != nullptr) {
        const StageLoopStats stats = loop->Stats();
        past_.steps += stats.steps;
        past_.tokens += stats.tokens;
      }
    }
    if (loop != nullptr) loop->Stop();
    metrics_.OnLoaded(StageInfo());
  }

  void SetOutcome(const Status& outcome) {
    {
      MutexLock lock(mutex_);
      failed_ = !outcome.ok();
      TellState();
    }
    process_.SetOutcome(outcome);
  }

  Status LoadLayers() {
    StageOptions options = options_.stage;
    options.progress = [this](uint64_t done, uint64_t total) {
      session_->SetLoading(progress_.Report(done, total));
    };
    SLUICE_ASSIGN_OR_RETURN(auto stage, Stage::Load(options));
    auto loop = std::make_unique<StageLoop>(stage.get(), &session_->links(),
                                            2 * options_.max_steps_in_flight);
    loop->Start();
    {
      MutexLock lock(mutex_);
      stage_ = std::move(stage);
      loop_ = std::move(loop);
    }
    metrics_.OnLoaded(stage_->info());
    gpus_.Start(stage_->info().gpus);
    WaitForExperts();
    session_->SetLoaded(stage_->info(), loop_.get());
    EndLoad();
    LogLoaded();
    return OkStatus();
  }

  // Waits until every remote expert has a host, or the stage is stopped;
  // meanwhile it tells gateways what is missing.
  void WaitForExperts() {
    if (experts_ == nullptr) return;
    experts_->Connect(stage_->info());
    std::string told;
    while (!session_->draining()) {
      const Status ready = experts_->WaitReady(Clock::now() + kExpertWait);
      if (ready.ok()) return;
      session_->SetLoading(Message(ready));
      if (told != Message(ready)) LogInfo("waiting: ", Message(ready));
      told = Message(ready);
    }
  }

  void EndLoad() {
    MutexLock lock(mutex_);
    loading_ = false;
    TellState();
  }

  // Tells probes and metrics what the process can do now. A load that ends
  // while an Assign waits leaves the state at loading.
  void TellState() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    using State = StageMetrics::State;
    state_ = leaving_                          ? State::kDraining
             : failed_                         ? State::kFailed
             : loading_ || wanted_.has_value() ? State::kLoading
                                               : State::kReady;
    metrics_.SetState(state_);
    if (server_.server == nullptr) return;
    // Startup is over with the first load, whatever becomes of the experts.
    if (state_ != State::kLoading) {
      rpc::SetReady(*server_.server, state_ == State::kReady);
    }
    server_.server->GetHealthCheckService()->SetServingStatus(
        "readiness", state_ == State::kReady && experts_ready_);
  }

  // Called by the thread of experts_ when the set of experts without a host
  // changes.
  void OnExperts(bool ready) {
    session_->SetExpertsMissing(!ready);
    MutexLock lock(mutex_);
    experts_ready_ = ready;
    TellState();
  }

  void LogLoaded() const {
    const StageInfo& info = stage_->info();
    LogInfo("loaded ", info.model_name, " layers ", info.first_layer, " to ",
            info.last_layer - 1, " of ", info.num_layers, " in ",
            info.load_seconds, " s: ", info.weights_bytes / 1000000,
            " MB of weights as ", info.weights_dtype, ", ",
            info.limits.num_blocks, " KV blocks (", info.kv_bytes / 1000000,
            " MB), context ", info.context, " (", info.context_limit, "), ",
            info.ranks, " ranks, ", info.threads, " threads, ", info.isa);
  }

  LoopReading ReadLoop() {
    const bool held = session_->held();
    MutexLock lock(mutex_);
    if (loop_ == nullptr) return {++looks_, held};
    return {loop_->Stats().progress, held};
  }

  void CopyStats() {
    MutexLock lock(mutex_);
    StageLoopStats stats = loop_ != nullptr ? loop_->Stats() : StageLoopStats();
    stats.steps += past_.steps;
    stats.tokens += past_.tokens;
    metrics_.OnStats(stats);
    gpus_.OnScrape();
  }

  http::Readiness Readiness() {
    const bool draining = session_->draining();
    bool loaded = false;
    bool spare = false;
    {
      MutexLock lock(mutex_);
      loaded = state_ == StageMetrics::State::kReady && !draining;
      spare = stage_ == nullptr;
    }
    const char* state = loaded     ? spare ? "spare" : "ready"
                        : draining ? "draining"
                                   : "loading";
    // Every remote expert has a host.
    const bool experts = experts_ == nullptr || experts_->Ready().ok();
    const bool ready = loaded && experts;
    const Epoch epoch = session_->links().progress().epoch;
    return {ready,
            Cat("{\"ready\":", ready ? "true" : "false", ",\"state\":\"", state,
                "\",\"experts\":", experts ? "true" : "false",
                ",\"held\":", session_->held() ? "true" : "false",
                ",\"epoch\":", epoch.count(), ",\"term\":", epoch.term(), "}")};
  }

  StageServerOptions options_;
  LoadProgress progress_;
  metrics::Registry registry_;
  StageMetrics metrics_;
  LoadingServer process_{&registry_};
  // Destroyed from the end: the loop before the session that it reports to,
  // the server before the service.
  const std::shared_ptr<StageSession> session_;
  std::unique_ptr<ExpertClientMetrics> expert_metrics_;
  std::shared_ptr<ExpertDispatcher> experts_;  // null: every expert is here
  std::shared_ptr<LeadRanks> followers_;       // null: all ranks are here
  // Null: no layers. "stage-load" changes them, under mutex_.
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<StageLoop> loop_;
  const std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Service> ranks_service_;  // of followers_
  rpc::ListeningServer server_;
  Mutex mutex_;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;  // the load of the start
  bool loading_ ABSL_GUARDED_BY(mutex_) = true;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;  // told to end
  StageMetrics::State state_ ABSL_GUARDED_BY(mutex_) =
      StageMetrics::State::kLoading;
  bool experts_ready_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar wake_;
  std::optional<StagePlace> wanted_ ABSL_GUARDED_BY(mutex_);
  StageLoopStats past_ ABSL_GUARDED_BY(mutex_);  // of loops that are gone
  NamedThread loader_;
  uint64_t looks_ = 0;  // of watch_, without a loop
  metrics::WatchedGpus gpus_{&registry_, metrics::kStageGpuSeries};
  std::optional<StallWatch> watch_;
};

StatusOr<std::unique_ptr<StageServer>> StageServer::Start(
    StageServerOptions options) {
  SLUICE_RETURN_IF_ERROR(CheckOptions(options));
  SLUICE_ASSIGN_OR_RETURN(const auto model,
                          OpenModel(options.stage.model_path));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  options.transport.max_message_bytes = MaxMessageBytes(options.stage, config);
  ExpertPlacement placement;
  if (!options.placement.empty()) {
    SLUICE_ASSIGN_OR_RETURN(placement,
                            ReadExpertPlacement(options.placement, config));
  }
  const LayerLoads loads =
      LoadsOf(config, *model,
              {options.stage.weights, &placement, options.stage.kv_blocks,
               options.stage.max_context, options.layers.step_tokens,
               options.stage.total_ranks(), options.stage.kv_type});
  if ((options.layers.assigned || options.layers.assignable) &&
      !options.placement.empty()) {
    return InvalidArgument(
        "a placement of experts goes with layers that are chosen at the start, "
        "not with assigned ones");
  }
  if (options.stage.all_ranks != 0 && !options.placement.empty()) {
    return InvalidArgument(
        "a placement of experts goes with ranks of one process, not of "
        "several");
  }
  SLUICE_ASSIGN_OR_RETURN(const LayerRange layers,
                          ResolveLayers(options.layers, loads));
  if (options.layers.parts != 0 && !options.layers.memory.empty()) {
    options.stage.memory =
        options.layers.memory[static_cast<size_t>(options.layers.index)];
  }
  auto impl = std::make_unique<Impl>(std::move(options), layers);
  SLUICE_RETURN_IF_ERROR(impl->LeaveExperts(config, std::move(placement)));
  SLUICE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<StageServer>(new StageServer(std::move(impl)));
}

StageServer::StageServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StageServer::~StageServer() = default;
const std::string& StageServer::address() const { return impl_->address(); }
int StageServer::metrics_port() const { return impl_->metrics_port(); }
Status StageServer::WaitLoaded(TimePoint deadline) {
  return impl_->WaitLoaded(deadline);
}
void StageServer::Drain(TimePoint deadline) { impl_->Drain(deadline); }
void StageServer::Stop() { impl_->Stop(); }

}  // namespace sluice::stage
