#ifndef SLUICE_SERVICES_GATEWAY_GATEWAY_METRICS_H_
#define SLUICE_SERVICES_GATEWAY_GATEWAY_METRICS_H_

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "common/base/mutex.h"
#include "common/core/generate_request.h"
#include "common/engine/engine_stats.h"
#include "common/grammar/compile_process.h"
#include "common/http/forwarder.h"
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "services/gateway/http_metrics.h"

namespace sluice::otlp {
struct ExportStats;
}  // namespace sluice::otlp

namespace sluice::gateway {

struct GatewayMetricsOptions {
  std::string model_name;
  int max_positions = 4096;  // bounds the token-count histograms
  bool vllm_names = true;    // --metrics-compat=vllm
  bool prefix_cache = true;  // shown in cache_config_info
  bool key_names = false;    // series per API key, labelled with its name
};

// The reason for refusing a request.
enum class Rejection {
  kQueueFull,
  kDraining,
  kUnavailable,
  kTooLong,
  kInvalid
};

// The kind of a request's grammar.
enum class GrammarKind {
  kJsonSchema,
  kJsonObject,
  kRegex,
  kChoice,
  kGrammar,  // Lark, GBNF
  kTools,
};
inline constexpr int kNumGrammarKinds = 6;

// The end of a sequence in metrics.
enum class Outcome { kStop, kLength, kAbort, kError };

// All series of the gateway. Any thread.
class GatewayMetrics {
 public:
  explicit GatewayMetrics(GatewayMetricsOptions options);

  metrics::Registry& registry() { return registry_; }
  std::string Text() const { return registry_.Text(); }

  void OnExchange(const http::ExchangeSummary& summary) {
    http_.OnExchange(summary);
  }
  void OnRejection(Rejection why) const;
  void OnTokenized(double seconds) const { tokenize_.Observe(seconds); }
  // A request's grammar was made, in `seconds`.
  void OnGrammar(GrammarKind kind, double seconds) const;
  // An event's tokens were detokenized.
  void OnDetokenized(double seconds) const { detokenize_.Observe(seconds); }
  // The engine submitted a step of `tokens` tokens.
  void OnStep(int tokens) const { iteration_tokens_.Observe(tokens); }
  // Seconds from the request's arrival to its first token.
  void OnFirstToken(double seconds) const { ttft_.Observe(seconds); }
  // `count` tokens came `seconds` after the previous one.
  void OnNextTokens(double seconds, int count) const;
  void OnSequenceEnd(Outcome outcome, const SequenceStats& stats,
                     int max_tokens, double e2e_seconds) const;
  // A client goes on with a stream that was cut.
  void OnResume() const { resumed_.Add(); }
  // All choices of a prompt ended without error: their number, and the most
  // tokens that one of them generated.
  void OnPromptEnd(int choices, int most_tokens) const;

  // Read at each scrape. The sources outlive this object or Detach.
  struct Sources {
    std::function<EngineStats()> engine;
    std::function<bool()> ready;
    std::function<double()> epoch;  // may be empty
    const http::HttpServerStats* http = nullptr;
    std::function<double()> last_recovery = nullptr;  // seconds; may be empty
    const otlp::ExportStats* traces = nullptr;        // null: none are exported
    std::function<PipelineStatus()> pipeline = nullptr;  // may be empty
    const http::ForwarderStats* forwarder = nullptr;  // null: no other gateway
    const TrialFailures* trials = nullptr;  // null: no grammar is tried
  };
  void Attach(Sources sources);
  void Detach();

 private:
  void AddScrapedSeries();
  void AddSplitSeries();
  void AddLeaderSeries();
  void AddEngineSeries();
  void AddExportSeries();
  void AddTrialSeries();
  void AddHistograms();
  void SetCacheConfig(int blocks);
  metrics::Registry& vllm();

  const GatewayMetricsOptions options_;
  metrics::Registry registry_;
  metrics::Registry discarded_;  // holds the vLLM names when they are off
  metrics::Labels vllm_labels_;
  HttpMetrics http_;
  metrics::Histogram tokenize_, detokenize_, grammar_, ttft_, itl_, tpot_alias_,
      request_tpot_, e2e_, queue_time_, prefill_time_, decode_time_,
      inference_time_, prompt_tokens_, generation_tokens_, max_tokens_,
      choices_, most_tokens_, prefill_computed_, iteration_tokens_;
  metrics::Counter outcomes_[4], rejections_[5], grammars_[kNumGrammarKinds],
      resumed_;

  mutable Mutex mutex_;
  Sources sources_ ABSL_GUARDED_BY(mutex_);
  // The latest values other than 0, and their series; for the scrape hook.
  int cache_blocks_ = 0;
  metrics::Gauge cache_config_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_GATEWAY_METRICS_H_
