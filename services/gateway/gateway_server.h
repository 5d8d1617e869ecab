#ifndef SLUICE_SERVICES_GATEWAY_GATEWAY_SERVER_H_
#define SLUICE_SERVICES_GATEWAY_GATEWAY_SERVER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/concurrency/turn_queue.h"
#include "common/core/stage_identity.h"
#include "common/engine/engine_loop.h"
#include "common/grammar/grammar_compiler.h"
#include "common/http/http_server.h"
#include "common/otlp/otlp_options.h"
#include "common/pipeline/gateway/pipeline_options.h"
#include "common/pipeline/gateway/resplit_options.h"
#include "common/rpc/transport_options.h"
#include "common/serving/answer_store.h"
#include "common/serving/request_cost.h"
#include "common/serving/request_rules.h"
#include "common/serving/stream_journal.h"
#include "common/standby/peer_options.h"
#include "common/trace/trace_options.h"
#include "services/gateway/audience.h"

namespace sluice::gateway {

struct GatewayOptions {
  // HTTP; port 0: choose one.
  std::string listen = http::HttpServerOptions().listen;
  std::string metrics_listen;  // /metrics on a thread of its own; empty: none
  std::vector<std::string> stages;  // "host:port" or "unix:PATH", in order
  std::vector<std::string> spares;  // replace a lost stage
  std::vector<StagePlace>
      places;  // the stages' layers; empty: as the stages say
  std::string model_path;
  // Names for requests; the first is shown. Empty: weights::ModelName.
  std::vector<std::string> model_names;
  bool any_model_name = false;            // requests may use any name
  std::string tool_format = "auto";       // see ChooseOutputFormat
  std::string reasoning_format = "auto";  // the same
  GrammarCompiler::Options grammars;
  rpc::TransportOptions transport;
  Duration lost_after = PipelineOptions().lost_after;
  ResplitOptions resplit;
  standby::PeerOptions peers;
  EngineOptions engine;
  int kv_blocks = 0;  // the most blocks to use of the stages'; 0: all
  int http_threads = http::HttpServerOptions().threads;
  int text_threads = 0;  // see TurnQueue; 0: 3, on two CPUs 2
  size_t text_bytes = TurnQueue::Options().max_bytes;  // of large text work
  http::HttpLimits http_limits;
  http::TlsFiles http_tls;
  std::vector<std::string> cors_origins;     // see CorsPolicy
  std::vector<std::string> allowed_hosts;    // see BrowserGuard
  std::vector<std::string> trusted_proxies;  // see TrustedProxies
  // API keys, in a file or as text (see ApiKeys), not both. Without keys any
  // client is accepted, which beyond loopback needs `open`.
  std::string api_key_file;
  std::string api_keys;
  bool open = false;
  bool vllm_metrics = true;
  bool metrics_key_names = false;  // see GatewayMetricsOptions
  bool debug_endpoints = false;
  bool strict_fields = false;  // see serving::ServingContext
  bool access_log = false;     // see LogAccess
  serving::CostLimits limits;  // per request
  serving::RequestRules rules;
  serving::StreamJournal::Options stream_journal;
  serving::AnswerStore::Options response_store;
  trace::TraceOptions traces;
  std::optional<otlp::OtlpOptions> otlp;  // none: no traces are exported
};

// The gateway's parts, in the order of their dependencies: the model's text,
// pipeline, engine, HTTP. Threads: see REQUESTS.md.
class GatewayServer {
 public:
  // Loads the model's text side and begins to listen and to connect. The
  // pipeline comes up later, and may be lost and come up again.
  static StatusOr<std::unique_ptr<GatewayServer>> Start(GatewayOptions options);
  ~GatewayServer();  // Stop()
  GatewayServer(const GatewayServer&) = delete;
  GatewayServer& operator=(const GatewayServer&) = delete;

  std::string address() const;  // "127.0.0.1:8000", the port as chosen
  serving::Readiness readiness() const;
  EngineStats engine_stats() const;
  // Forgets what is too old to be kept. Any thread, every few seconds.
  void Tidy();

  // Ends readiness: new generations get 503, older ones go on, probes and
  // scrapes get answers until Stop. Returns when all older requests are
  // answered, or at `deadline`.
  void Drain(TimePoint deadline);
  // Ends the remaining requests with an error and joins all threads.
  // Idempotent.
  void Stop();

 private:
  class Impl;
  explicit GatewayServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_GATEWAY_SERVER_H_
