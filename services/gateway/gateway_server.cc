#include "services/gateway/gateway_server.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/base/build_info.h"
#include "common/base/control_group.h"
#include "common/base/exception_counts.h"
#include "common/base/json_difference.h"
#include "common/base/log.h"
#include "common/concurrency/turn_queue.h"
#include "common/core/epochs.h"
#include "common/http/probe_server.h"
#include "common/http/router.h"
#include "common/metrics/certificate_metrics.h"
#include "common/otlp/exporter.h"
#include "common/pipeline/gateway/pipeline_assembler.h"
#include "common/serving/error.h"
#include "common/serving/served_model.h"
#include "common/standby/handover_exchange.h"
#include "common/standby/peer_gateways.h"
#include "common/standby/stream_feed.h"
#include "common/trace/trace_store.h"
#include "services/gateway/access_log.h"
#include "services/gateway/dialects.h"
#include "services/gateway/doors.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/endpoints.h"
#include "services/gateway/judge_readiness.h"
#include "services/gateway/stream_record.h"

namespace sluice::gateway {
namespace {

// The niceness of the text threads, below the threads that serve tokens.
constexpr int kTextNice = 10;
// The time that Stop leaves for writing the last errors.
constexpr auto kLastWrites = std::chrono::seconds(2);
// The time that Stop leaves for those who connect at the last moment.
constexpr auto kLastConnections = std::chrono::seconds(2);
// The time that Stop waits for the stages to drain.
constexpr auto kStagesDrain = std::chrono::seconds(1);

TurnQueue::Options TextOptions(const GatewayOptions& options) {
  TurnQueue::Options text;
  text.name = "text";
  text.threads = options.text_threads;
  // With 0 a request starts at once, but parsing it takes a moment.
  text.max_wait = std::max<Duration>(options.engine.max_queue_wait,
                                     std::chrono::seconds(1));
  text.max_bytes = options.text_bytes;
  text.nice = kTextNice;
  return text;
}

// The first thread is for clients whose grammars were quick lately. No client
// has all of the others: another client's grammar does not wait for all of its
// own. Most of the time these threads wait for the process that tries a
// grammar.
TurnQueue::Options CompileOptions(const GatewayOptions& options) {
  TurnQueue::Options compiles = TextOptions(options);
  compiles.name = "compile";
  compiles.threads = std::clamp(UsableCpus() / 2, 3, 8);
  compiles.per_client = compiles.threads - 2;
  return compiles;
}

// The most KV blocks without --kv-blocks: the gateway keeps 128 bytes for each.
// 16 million tokens.
constexpr int kMaxBlocks = 1 << 20;

std::vector<trace::TraceRecord::Stage> TracedStages(
    const PipelineStatus& status) {
  std::vector<trace::TraceRecord::Stage> stages;
  for (const StageStatus& stage : status.stages) {
    stages.push_back({stage.address, stage.place(), stage.clock});
  }
  return stages;
}

trace::TraceExport ExportTo(otlp::Exporter* exporter) {
  if (exporter == nullptr) return {};
  return {
      [exporter](std::string_view traceparent) {
        return exporter->Wants(traceparent);
      },
      [exporter](std::shared_ptr<const trace::TraceRecord> record,
                 size_t bytes) { exporter->Take(std::move(record), bytes); }};
}

EngineOptions EngineOptionsOf(const GatewayOptions& options,
                              const GatewayMetrics& metrics) {
  EngineOptions engine = options.engine;
  engine.on_step = [&metrics](int32_t tokens) { metrics.OnStep(tokens); };
  return engine;
}

StatusOr<serving::ServedModel> LoadNamedModel(const GatewayOptions& options) {
  const std::vector<std::string>& names = options.model_names;
  SLUICE_ASSIGN_OR_RETURN(
      serving::ServedModel model,
      serving::LoadServedModel(
          options.model_path, names.empty() ? "" : names.front(),
          options.tool_format, options.reasoning_format, options.grammars));
  if (!names.empty()) model.aliases.assign(names.begin() + 1, names.end());
  model.any_name = options.any_model_name;
  return model;
}

// Returns what is known of the difference of two models' digests.
std::string WhyModelsDiffer(const std::string& config,
                            const StageFacts& stages) {
  const std::string keys = DifferenceOfObjects(config, stages.model_config);
  if (!keys.empty()) return Cat(": ", keys);
  const bool same = !config.empty() && config == stages.model_config;
  return same ? ": their tensors differ" : "";
}

}  // namespace

class GatewayServer::Impl {
 public:
  Impl(GatewayOptions options, serving::ServedModel model,
       std::unique_ptr<PipelineAssembler> pipeline,
       std::unique_ptr<Doors> doors, std::unique_ptr<otlp::Exporter> exporter)
      : options_(std::move(options)),
        model_(std::move(model)),
        metrics_({model_.name, model_.max_positions, options_.vllm_metrics,
                  options_.engine.prefix_cache, options_.metrics_key_names}),
        pipeline_(std::move(pipeline)),
        engine_(EngineOptionsOf(options_, metrics_), &pipeline_->plans()),
        exporter_(std::move(exporter)),
        traces_(
            options_.traces,
            [this] { return TracedStages(pipeline_->status()); },
            ExportTo(exporter_.get())),
        work_(TextOptions(options_)),
        compiles_(CompileOptions(options_)),
        streams_(
            options_.stream_journal,
            [this](const serving::StreamJournal::Entry&) { feed_.OnNew(); }),
        answers_(options_.response_store),
        feed_([this](uint64_t& after, size_t bytes) {
          return RecordsAfter(streams_, after, bytes);
        }),
        doors_(std::move(doors)) {}

  ~Impl() { Stop(); }

  Status Start() {
    AddRoutes();
    SLUICE_RETURN_IF_ERROR(engine_.Start());
    SLUICE_RETURN_IF_ERROR(StartPeers());
    SLUICE_ASSIGN_OR_RETURN(http_, http::HttpServer::Start(HttpOptions()));
    metrics_.Attach(
        {[this] { return engine_.Stats(); },
         [this] { return readiness().ready; },
         [this] { return EpochMetric(pipeline_->status().epoch); },
         &http_->stats(),
         [this] { return Seconds(pipeline_->status().last_recovery); },
         exporter_ ? &exporter_->stats() : nullptr,
         [this] { return pipeline_->status(); },
         peers_ ? &peers_->stats() : nullptr,
         model_.grammars ? model_.grammars->trial_failures() : nullptr});
    AddCertificates();
    serving::AddStreamJournalSeries(metrics_.registry(), streams_);
    SLUICE_RETURN_IF_ERROR(StartMetricsServer());
    pipeline_->Start(&observer_);
    return OkStatus();
  }

  std::string address() const {
    const std::string& listen = options_.listen;
    return Cat(listen.substr(0, listen.rfind(':')), ":", http_->port());
  }

  serving::Readiness readiness() const {
    serving::Readiness own =
        JudgeReadiness(pipeline_->status(), engine_.Progress(), draining_);
    if (!peers_) return own;
    const standby::Standing standing = peers_->Judge({own.is_up, own.missing});
    return JudgeBesidePeers(std::move(own), standing, options_.stages);
  }

  std::string arithmetic() const {
    const std::optional<StageFacts> joined = pipeline_->status().model;
    return joined ? Cat(joined->numerics, " ", joined->weights_dtype) : "";
  }

  EngineStats engine_stats() const { return engine_.Stats(); }

  void Tidy() { streams_.DropOld(); }

  void Drain(TimePoint deadline) {
    draining_ = true;
    if (model_.grammars) model_.grammars->StopTrials();
    feed_.Finish();
    engine_.BeginDrain();
    http_->BeginDrain();
    if (!http_->WaitIdle(deadline)) {
      LogWarning("drain timeout: ", http_->stats().exchanges.load(),
                 " requests end with an error");
    }
  }

  void Stop() {
    if (std::exchange(stopped_, true)) return;
    draining_ = true;
    if (model_.grammars) model_.grammars->StopTrials();
    feed_.EndAll();
    if (http_) http_->BeginDrain();
    engine_.Stop();  // every sequence ends: clean errors go out
    if (peers_) peers_->Stop();
    pipeline_->Drain(Clock::now() + kStagesDrain);
    pipeline_->Stop();
    work_.Stop();
    compiles_.Stop();
    if (http_) {
      http_->WaitIdle(Clock::now() + kLastWrites);
      http_->CloseListener(Clock::now() + kLastConnections);
      http_->Stop();
    }
    traces_.Stop();
    if (exporter_) exporter_->Stop();
    metrics_server_.reset();
    metrics_.Detach();
  }

 private:
  void AddRoutes() {
    const serving::ServingContext context{
        model_,
        engine_,
        metrics_,
        &work_,
        [this] { return readiness(); },
        &traces_,
        doors_->asks_for_keys(),
        options_.strict_fields,
        options_.limits,
        options_.rules,
        &streams_,
        [this] { return arithmetic(); },
        &compiles_,
        answers_.is_on() ? &answers_ : nullptr};
    AddEndpoints(router_, context, options_.debug_endpoints, [this] {
      return ClusterReading{readiness(), pipeline_->status(), max_context(),
                            engine_.Stats()};
    });
  }

  http::HttpServerOptions HttpOptions() {
    http::HttpServerOptions http;
    http.listen = options_.listen;
    http.threads = options_.http_threads;
    http.limits = options_.http_limits;
    http.tls = options_.http_tls;
    http.cors = doors_->cors();
    http.proxies = doors_->proxies();
    http.screen = [this](http::HttpRequest& request) {
      return Screen(request);
    };
    // Screen has made the path canonical.
    http.handler = [this](std::shared_ptr<http::Exchange> exchange) {
      if (peers_) return peers_->Route(std::move(exchange));
      router_.Route(std::move(exchange));
    };
    http.client_format = FormatOf;
    http.observer = [this](const http::ExchangeSummary& summary) {
      metrics_.OnExchange(summary);
      if (options_.access_log) LogAccess(summary);
    };
    return http;
  }

  // Makes the path canonical, as the peers, the router and FormatOf look at it
  // from here on. Refuses what a request's head shows to be refused.
  std::optional<http::HttpResponse> Screen(http::HttpRequest& request) const {
    request.path = router_.Canonical(std::move(request.path));
    auto refused = peers_ ? peers_->Screen(request) : doors_->Screen(request);
    // The path for other gateways is none of the router's.
    if (refused || request.path == standby::kStreamFeedPath) return refused;
    // Where no body is awaited, the router itself refuses, or the leader's.
    const std::string_view length = request.Header("content-length");
    const bool has_body = (!length.empty() && length != "0") ||
                          !request.Header("transfer-encoding").empty();
    return has_body ? router_.Refusal(request) : std::nullopt;
  }

  Status StartPeers() {
    if (options_.peers.addresses.empty()) return OkStatus();
    standby::PeerOptions options = options_.peers;
    options.stages = options_.stages;
    options.certificate = options_.http_tls.certificate;
    // All gateways have the same limits, and the questions need some room too.
    options.most_at_once =
        std::max(1, options_.http_limits.connections_per_client / 8 * 7);
    options.patience = std::max<Duration>(options_.engine.max_queue_wait,
                                          std::chrono::seconds(1));
    standby::PeerGateways::Parts parts;
    parts.role = [this] { return role(); };
    parts.draining = [this] { return draining_.load(); };
    parts.down = [this] { return pipeline_->status().down; };
    parts.screen = [this](http::HttpRequest& request) {
      return doors_->Screen(request);
    };
    parts.asks_for_keys = doors_->asks_for_keys();
    parts.serve = [this](std::shared_ptr<http::Exchange> exchange) {
      router_.Route(std::move(exchange));
    };
    parts.is_plain = IsPlainRequest;
    parts.feed = [this](std::shared_ptr<http::Exchange> exchange) {
      feed_.Serve(std::move(exchange));
    };
    parts.on_stream = [this](const std::string& record) { TakeStream(record); };
    SLUICE_ASSIGN_OR_RETURN(
        peers_, standby::PeerGateways::Start(options, std::move(parts)));
    return OkStatus();
  }

  // Keeps a stream that the leader has.
  void TakeStream(const std::string& record) {
    StatusOr<serving::StreamRequest> request = DecodeStreamRequest(record);
    if (!request.ok()) return LogWarning(Message(request.status()));
    streams_.Insert(
        std::make_shared<const serving::StreamRequest>(*std::move(request)));
  }

  void AddCertificates() {
    metrics::Registry& registry = metrics_.registry();
    metrics::AddPeerCertificates(registry, options_.transport.tls_cert,
                                 options_.transport.tls_ca);
    metrics::AddCertificateExpiry(registry, "http",
                                  options_.http_tls.certificate);
  }

  Status StartMetricsServer() {
    if (options_.metrics_listen.empty()) return OkStatus();
    http::ProbeOptions probes;
    probes.listen = options_.metrics_listen;
    probes.pages["/metrics"] = [this] {
      return http::HttpResponse{200,
                                std::string(metrics::kTextContentType),
                                {},
                                metrics_.registry().Text()};
    };
    probes.readiness = [this] {
      const serving::Readiness now = readiness();
      // The listener is the operator's own.
      return http::Readiness{now.ready,
                             ReadinessJson(now, Audience::kKeyHolder)};
    };
    SLUICE_ASSIGN_OR_RETURN(metrics_server_,
                            http::StartProbeServer(std::move(probes)));
    LogInfo("metrics on port ", metrics_server_->port());
    return OkStatus();
  }

  // Returns the role for requests: the engine of a leader takes them.
  GatewayRole role() const {
    const GatewayRole role = pipeline_->role();
    return role == GatewayRole::kLeader && !leads_ ? GatewayRole::kCandidate
                                                   : role;
  }

  // Returns the context in /v1/models; 0 before the first pipeline.
  int max_context() const {
    return std::min(engine_.max_context(), model_.max_positions);
  }

  // What the pipeline tells this process, beside its engine.
  class Observer : public EngineObserver {
   public:
    explicit Observer(Impl* gateway)
        : EngineObserver(&gateway->engine_), gateway_(*gateway) {}

    void OnUp(Epoch epoch, const PlanLimits& stages, int num_stages,
              const LostStages& lost) override {
      const GatewayOptions& options = gateway_.options_;
      PlanLimits limits = stages;
      limits.num_blocks =
          std::min(limits.num_blocks,
                   options.kv_blocks > 0 ? options.kv_blocks : kMaxBlocks);
      // The pool of a windowed KV group depends on it.
      limits.max_step_tokens =
          std::min(limits.max_step_tokens, options.engine.max_step_tokens);
      EngineObserver::OnUp(epoch, limits, num_stages, lost);
      gateway_.leads_ = true;
      const int context = gateway_.max_context();
      const int whole = gateway_.model_.max_positions;
      LogInfo("pipeline up: epoch ", epoch, ", ", num_stages, " stages, ",
              limits.num_blocks, " KV blocks, context ", context,
              context == whole
                  ? " (the model's)"
                  : Cat(" (as the stages have it; the model has ", whole, ")"));
    }
    void OnSuperseded(const Status& why) override {
      gateway_.leads_ = false;
      gateway_.engine_.OnSuperseded(serving::WithCode(
          why, std::string(standby::HandoverExchange::kSuperseded)));
    }
    PeerLead LeadOfPeers() override {
      return gateway_.peers_ ? gateway_.peers_->lead() : PeerLead::kNone;
    }
    void OnException(const Status&) override { CountException("pipeline"); }

   private:
    Impl& gateway_;
  };

  const GatewayOptions options_;
  const serving::ServedModel model_;
  GatewayMetrics metrics_;
  Observer observer_{this};
  const std::unique_ptr<PipelineAssembler> pipeline_;
  EngineLoop engine_;
  const std::unique_ptr<otlp::Exporter> exporter_;  // null: none
  trace::TraceStore traces_;
  TurnQueue work_;
  TurnQueue compiles_;
  serving::StreamJournal streams_;
  serving::AnswerStore answers_;
  standby::StreamFeed feed_;
  http::Router router_;
  const std::unique_ptr<Doors> doors_;
  // Null: there is no other gateway.
  std::unique_ptr<standby::PeerGateways> peers_;
  std::atomic<bool> draining_{false};
  // The engine has, or waits for, the pipeline of this gateway's lead.
  std::atomic<bool> leads_{false};
  bool stopped_ = false;
  std::unique_ptr<http::HttpServer> http_;
  std::unique_ptr<http::HttpServer> metrics_server_;
};

GatewayServer::GatewayServer(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
GatewayServer::~GatewayServer() = default;

StatusOr<std::unique_ptr<GatewayServer>> GatewayServer::Start(
    GatewayOptions options) {
  SLUICE_RETURN_IF_ERROR(trace::Validate(options.traces));
  SLUICE_ASSIGN_OR_RETURN(auto doors, Doors::Open(options));
  // Doors keeps digests: this memory must not keep the keys.
  std::fill(options.api_keys.begin(), options.api_keys.end(), '\0');
  options.api_keys.clear();
  SLUICE_ASSIGN_OR_RETURN(serving::ServedModel model, LoadNamedModel(options));
  PipelineOptions pipeline;
  pipeline.stages = options.stages;
  pipeline.spares = options.spares;
  pipeline.places = options.places;
  pipeline.replica = options.engine.replica;
  pipeline.steps_ahead = options.engine.ahead_within > Duration::zero();
  pipeline.build = std::string(BuildVersion());
  pipeline.transport = options.transport;
  pipeline.lost_after = options.lost_after;
  pipeline.suspect_after = std::min(pipeline.suspect_after, options.lost_after);
  pipeline.resplit = options.resplit;
  if (!options.peers.addresses.empty()) pipeline.lease = options.peers.lease;
  pipeline.check_model = [digest = model.digest, config = model.config,
                          path = model.root](const StageFacts& stages) {
    if (digest.empty() || stages.model_digest == digest) return OkStatus();
    return FailedPrecondition("the stages serve model ", stages.model_name,
                              " with digest ", stages.model_digest,
                              ", the gateway's model ", path, " has digest ",
                              digest, WhyModelsDiffer(config, stages));
  };
  SLUICE_ASSIGN_OR_RETURN(auto client,
                          PipelineAssembler::Create(std::move(pipeline)));
  std::unique_ptr<otlp::Exporter> exporter;
  if (options.otlp) {
    SLUICE_ASSIGN_OR_RETURN(
        exporter,
        otlp::Exporter::Start(*options.otlp, std::string(BuildVersion())));
  }
  auto impl = std::make_unique<Impl>(std::move(options), std::move(model),
                                     std::move(client), std::move(doors),
                                     std::move(exporter));
  SLUICE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<GatewayServer>(new GatewayServer(std::move(impl)));
}

std::string GatewayServer::address() const { return impl_->address(); }
serving::Readiness GatewayServer::readiness() const {
  return impl_->readiness();
}
void GatewayServer::Tidy() { impl_->Tidy(); }

EngineStats GatewayServer::engine_stats() const {
  return impl_->engine_stats();
}
void GatewayServer::Drain(TimePoint deadline) { impl_->Drain(deadline); }
void GatewayServer::Stop() { impl_->Stop(); }

}  // namespace sluice::gateway
