#include "services/expert/expert_server.h"

#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <utility>

#include "common/base/build_info.h"
#include "common/base/log.h"
#include "common/concurrency/named_thread.h"
#include "common/experts/host/expert_heat.h"
#include "common/experts/host/expert_loop.h"
#include "common/experts/host/expert_metrics.h"
#include "common/experts/host/expert_service.h"
#include "common/experts/host/expert_session.h"
#include "common/http/probe_server.h"
#include "common/metrics/metrics.h"
#include "common/metrics/watched_gpus.h"
#include "common/model_config/model_config.h"
#include "common/model_config/open_model.h"
#include "common/rpc/transport.h"
#include "common/service/loading_server.h"
#include "common/weights/model_file.h"

namespace sluice::expert {
namespace {

// Between two looks at whether the loop makes progress.
constexpr auto kWatch = std::chrono::milliseconds(100);

Status CheckNumber(const char* what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(what, " must be between ", low, " and ", high,
                         ", got ", value);
}

Status CheckOptions(const ExpertServerOptions& options) {
  SLUICE_RETURN_IF_ERROR(
      CheckNumber("max_rows", options.max_rows, 1, kMostRows));
  SLUICE_RETURN_IF_ERROR(CheckNumber("max_batches_in_flight",
                                     options.max_batches_in_flight, 1, 1024));
  SLUICE_RETURN_IF_ERROR(CheckNumber(
      "join window in microseconds",
      std::chrono::duration_cast<std::chrono::microseconds>(options.join_window)
          .count(),
      0, kMostJoinMicroseconds));
  return rpc::CheckAddress(options.listen, options.transport);
}

wire::ExpertModel ModelOf(const HostedExpertsInfo& info) {
  wire::ExpertModel model;
  model.model_digest = info.model_digest;
  model.numerics = info.numerics;
  model.weights = ToString(info.weights);
  model.num_layers = info.num_layers;
  model.hidden_size = info.hidden_size;
  model.num_experts = info.num_experts;
  model.experts_per_token = info.experts_per_token;
  return model;
}

wire::ExpertWelcome WelcomeOf(const HostedExpertsInfo& info,
                              const ExpertServerOptions& options) {
  wire::ExpertWelcome welcome;
  welcome.build = std::string(BuildVersion());
  welcome.model_name = info.model_name;
  welcome.model = ModelOf(info);
  welcome.weights_dtype = info.weights_dtype;
  for (const LayerRanges& layer : info.held) {
    wire::LayerExperts& held = welcome.held.emplace_back();
    held.layer = layer.layer;
    for (const ExpertRange& range : layer.ranges) {
      held.ranges.push_back({range.begin, range.end});
    }
  }
  welcome.weights_bytes = info.weights_bytes;
  welcome.threads = info.threads;
  welcome.isa = info.isa;
  welcome.limits = {options.max_rows, options.max_batches_in_flight};
  return welcome;
}

// Nodes that one layer's ranges are finished as, of the layer with the most.
int32_t MostNodes(const std::vector<LayerRanges>& held, int32_t num_experts) {
  size_t most = 0;
  for (const LayerRanges& layer : held) {
    size_t nodes = 0;
    for (const ExpertRange& range : layer.ranges) {
      nodes +=
          kernels::AlignedNodes(range.begin, range.end, num_experts).size();
    }
    most = std::max(most, nodes);
  }
  return static_cast<int32_t>(most);
}

// Limits of the messages, before the experts are loaded.
int64_t MaxMessageBytes(const ExpertServerOptions& options,
                        const ModelConfig& config) {
  wire::ExpertModel model;
  model.hidden_size = config.hidden_size;
  model.num_experts = config.moe().num_experts;
  model.experts_per_token = config.moe().experts_per_token;
  const wire::ExpertLimits limits = {options.max_rows,
                                     options.max_batches_in_flight};
  const int32_t nodes =
      MostNodes(options.experts.held, config.moe().num_experts);
  return std::max(wire::MaxExpertFrameBytes(model, limits),
                  wire::MaxExpertAnswerBytes(model, limits, nodes));
}

// One log line per quarter.
class Progress {
 public:
  std::string Report(uint64_t done, uint64_t total) {
    const uint64_t percent = total == 0 ? 100 : done * 100 / total;
    std::string text =
        Cat("loading, ", percent, " % of ", total / 1000000, " MB of experts");
    if (percent / 25 != shown_ / 25) LogInfo(text);
    shown_ = percent;
    return text;
  }

 private:
  uint64_t shown_ = 0;  // of the loading thread
};

}  // namespace

class ExpertServer::Impl {
 public:
  Impl(ExpertServerOptions options, int32_t num_experts)
      : options_(std::move(options)),
        metrics_(&registry_, options_.per_expert_series),
        heat_(num_experts, options_.experts.held),
        session_(std::make_shared<ExpertSession>(&metrics_)),
        service_(MakeExpertService(session_, &metrics_)) {}
  ~Impl() { Stop(); }

  Status Start() {
    SLUICE_ASSIGN_OR_RETURN(server_,
                            rpc::Listen(options_.listen, options_.transport,
                                        service_.get(), ExpertMethodRoles()));
    registry_.OnScrape([this] { CopyStats(); });
    LoadingServer::Options process;
    process.service = "expert";
    process.isa = options_.experts.isa;
    process.certificate = options_.transport.tls_cert;
    process.authority = options_.transport.tls_ca;
    process.listen = options_.metrics_listen;
    process.probes.readiness = [this] { return Readiness(); };
    process.probes.pages["/experts"] = [this] {
      return http::HttpResponse{200, "application/json", {}, heat_.Json()};
    };
    SLUICE_RETURN_IF_ERROR(process_.Open(std::move(process)));
    loader_ = NamedThread("expert-load", [this] { Load(); });
    return OkStatus();
  }

  Status WaitLoaded(TimePoint deadline) {
    return process_.WaitLoaded(deadline, "the experts are");
  }

  const HostedExpertsInfo* info() {
    return process_.loaded() ? &experts_->info() : nullptr;
  }

  void Drain(TimePoint deadline) {
    {
      MutexLock lock(mutex_);
      ending_ = true;
      metrics_.SetState(ExpertMetrics::State::kDraining);
      if (server_.server != nullptr) rpc::SetReady(*server_.server, false);
    }
    wake_watch_.NotifyAll();
    session_->Drain(deadline);
  }

  void Stop() {
    {
      MutexLock lock(mutex_);
      ending_ = true;
    }
    wake_watch_.NotifyAll();
    session_->Shutdown();
    if (server_.server != nullptr) {
      // Streams have ended with a reason; what still lives is cut off soon.
      server_.server->Shutdown(std::chrono::system_clock::now() +
                               std::chrono::milliseconds(500));
    }
    loader_.Join();
    watch_.Join();
    process_.Close();
    if (loop_ != nullptr) loop_->Stop();
  }

  const std::string& address() const { return server_.address; }
  int metrics_port() const { return process_.metrics_port(); }
  std::string HeatJson() { return heat_.Json(); }

 private:
  void Load() {
    HostedExpertsOptions options = options_.experts;
    options.progress = [this](uint64_t done, uint64_t total) {
      session_->SetLoading(progress_.Report(done, total));
    };
    auto experts = HostedExperts::Load(options);
    if (experts.ok()) {
      experts_ = *std::move(experts);
      const std::string& gpu = experts_->info().gpu;
      if (!gpu.empty()) gpus_.Start({gpu});
      StartLoop();
      metrics_.OnLoaded(experts_->info());
      session_->SetLoaded(WelcomeOf(experts_->info(), options_), loop_.get());
      SetReady(true);
      watch_ = NamedThread("expert-watch", [this] { Watch(); });
      LogLoaded();
    } else {
      metrics_.SetState(ExpertMetrics::State::kFailed);
      session_->SetLoading(Cat("loading failed: ", Message(experts.status())));
    }
    process_.SetOutcome(experts.status());
  }

  void StartLoop() {
    ExpertLoopOptions loop;
    loop.max_rows = options_.max_rows;
    loop.join_window = options_.join_window;
    loop.stalled_after = options_.stalled_after;
    loop.debug_delay = options_.debug_batch_delay;
    loop.metrics = &metrics_;
    loop.heat = &heat_;
    loop_ = std::make_unique<ExpertLoop>(experts_.get(), loop);
    loop_->Start();
  }

  // Not after the end has begun. Startup is over once loaded, whatever stalls.
  void SetReady(bool ready) {
    using State = ExpertMetrics::State;
    MutexLock lock(mutex_);
    if (ending_) return;
    metrics_.SetState(ready ? State::kReady : State::kStalled);
    if (ready) {
      rpc::SetReady(*server_.server, true);
    } else {
      server_.server->GetHealthCheckService()->SetServingStatus("readiness",
                                                                false);
    }
  }

  // Tells the health service whether batches are computed.
  void Watch() {
    bool stalled = false;
    while (true) {
      {
        MutexLock lock(mutex_);
        const TimePoint until = Clock::now() + kWatch;
        while (!ending_ && wake_watch_.WaitUntil(mutex_, until)) {
        }
        if (ending_) return;
      }
      if (loop_->Stalled() == stalled) continue;
      stalled = !stalled;
      if (stalled) {
        LogWarning("no batch has moved for ", Seconds(options_.stalled_after),
                   " s: not ready");
      } else {
        LogInfo("batches move again: ready");
      }
      SetReady(!stalled);
    }
  }

  void LogLoaded() const {
    const HostedExpertsInfo& info = experts_->info();
    int64_t count = 0;
    for (const LayerRanges& layer : info.held) {
      for (const ExpertRange& range : layer.ranges) count += range.size();
    }
    LogInfo("loaded ", count, " experts of ", info.held.size(), " layers of ",
            info.model_name, " in ", info.load_seconds,
            " s: ", info.weights_bytes / 1000000, " MB as ", info.weights_dtype,
            ", ", info.threads, " threads, ", info.isa);
  }

  void CopyStats() {
    gpus_.OnScrape();
    if (process_.loaded()) {
      metrics_.OnScrape(loop_->Stats(), session_->clients(), heat_);
    }
  }

  http::Readiness Readiness() {
    const bool draining = session_->draining();
    const bool loaded = info() != nullptr;
    const bool stalled = loaded && loop_->Stalled();
    const bool ready = loaded && !draining && !stalled;
    const char* state = ready      ? "ready"
                        : draining ? "draining"
                        : stalled  ? "stalled"
                                   : "loading";
    return {ready, Cat("{\"ready\":", ready ? "true" : "false", ",\"state\":\"",
                       state, "\",\"askers\":", session_->clients(), "}")};
  }

  ExpertServerOptions options_;
  Progress progress_;
  metrics::Registry registry_;
  ExpertMetrics metrics_;
  LoadingServer process_{&registry_};
  ExpertHeat heat_;
  // Destroyed from the end: the server before the service, the loop before
  // the experts.
  const std::shared_ptr<ExpertSession> session_;
  std::unique_ptr<HostedExperts> experts_;
  std::unique_ptr<ExpertLoop> loop_;
  const std::unique_ptr<grpc::Service> service_;
  rpc::ListeningServer server_;
  Mutex mutex_;
  CondVar wake_watch_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  metrics::WatchedGpus gpus_{&registry_, metrics::kExpertGpuSeries};
  NamedThread watch_;
  NamedThread loader_;
};

StatusOr<std::unique_ptr<ExpertServer>> ExpertServer::Start(
    ExpertServerOptions options) {
  SLUICE_RETURN_IF_ERROR(CheckOptions(options));
  SLUICE_ASSIGN_OR_RETURN(const auto model,
                          OpenModel(options.experts.model_path));
  SLUICE_ASSIGN_OR_RETURN(const ModelConfig config,
                          ParseModelConfig(model->config()));
  SLUICE_ASSIGN_OR_RETURN(options.experts.held,
                          ChooseExperts(options.choice, config));
  options.transport.max_message_bytes = MaxMessageBytes(options, config);
  auto impl =
      std::make_unique<Impl>(std::move(options), config.moe().num_experts);
  SLUICE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<ExpertServer>(new ExpertServer(std::move(impl)));
}

ExpertServer::ExpertServer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
ExpertServer::~ExpertServer() = default;
const std::string& ExpertServer::address() const { return impl_->address(); }
int ExpertServer::metrics_port() const { return impl_->metrics_port(); }
Status ExpertServer::WaitLoaded(TimePoint deadline) {
  return impl_->WaitLoaded(deadline);
}
const HostedExpertsInfo* ExpertServer::info() const { return impl_->info(); }
std::string ExpertServer::HeatJson() const { return impl_->HeatJson(); }
void ExpertServer::Drain(TimePoint deadline) { impl_->Drain(deadline); }
void ExpertServer::Stop() { impl_->Stop(); }

}  // namespace sluice::expert
