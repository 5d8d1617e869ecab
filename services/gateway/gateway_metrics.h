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
#include "common/http/http_server.h"
#include "common/metrics/metrics.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "common/serving/request_metrics.h"
#include "common/standby/forwarder.h"
#include "services/gateway/http_metrics.h"

namespace sluice::otlp {
struct ExportStats;
}  // namespace sluice::otlp

namespace sluice::gateway {

struct GatewayMetricsOptions {
  std::string model_name;
  int max_positions = 4096;  // as RequestMetricsOptions
  bool vllm_names = true;    // --metrics-compat=vllm
  bool prefix_cache = true;  // shown in cache_config_info
  bool key_names = false;    // series per API key, labelled with its name
};

// All series of the gateway. Any thread.
class GatewayMetrics : public serving::RequestMetrics {
 public:
  explicit GatewayMetrics(GatewayMetricsOptions options);

  void OnExchange(const http::ExchangeSummary& summary) {
    http_.OnExchange(summary);
  }

  // Read at each scrape. The sources outlive this object or Detach.
  struct Sources {
    std::function<EngineStats()> engine;
    std::function<bool()> ready;
    std::function<double()> epoch;  // may be empty
    const http::HttpServerStats* http = nullptr;
    std::function<double()> last_recovery = nullptr;  // seconds; may be empty
    const otlp::ExportStats* traces = nullptr;        // null: none are exported
    std::function<PipelineStatus()> pipeline = nullptr;  // may be empty
    // Null: no other gateway.
    const standby::ForwarderStats* forwarder = nullptr;
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
  void SetCacheConfig(int blocks);

  const GatewayMetricsOptions options_;
  HttpMetrics http_;

  mutable Mutex mutex_;
  Sources sources_ ABSL_GUARDED_BY(mutex_);
  // The latest values other than 0, and their series; for the scrape hook.
  int cache_blocks_ = 0;
  metrics::Gauge cache_config_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_GATEWAY_METRICS_H_
