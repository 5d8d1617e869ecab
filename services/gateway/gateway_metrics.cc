#include "services/gateway/gateway_metrics.h"

#include <utility>

#include "common/base/cat.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/process_metrics.h"
#include "common/otlp/exporter.h"

namespace sluice::gateway {

namespace buckets = metrics::buckets;
namespace names = metrics::names;
using metrics::Counter;
using metrics::Gauge;
using metrics::Labels;

namespace {

// Counts of the engine, shown unchanged.
struct EngineCounter {
  std::string_view name;
  const char* help;
  uint64_t EngineCounters::*value;
  bool vllm = true;
};
constexpr EngineCounter kEngineCounters[] = {
    {names::kVllmPromptTokens, "Prompt tokens", &EngineCounters::prompt_tokens},
    {names::kVllmCachedTokens, "Prompt tokens found in the cache",
     &EngineCounters::prefix_hit_tokens},
    {names::kVllmGenerationTokens, "Generated tokens",
     &EngineCounters::generation_tokens},
    {names::kVllmPreemptions, "Sequences preempted",
     &EngineCounters::preemptions},
    {names::kVllmPrefixQueries, "Tokens looked up in the prefix cache",
     &EngineCounters::prefix_query_tokens},
    {names::kVllmPrefixHits, "Tokens found in the prefix cache",
     &EngineCounters::prefix_hit_tokens},
    {names::kGatewaySteps, "Steps committed", &EngineCounters::steps, false},
    {names::kGatewayComputedTokens, "Tokens computed, recompute included",
     &EngineCounters::computed_tokens, false},
    {names::kGatewaySharedSteps, "Steps with several sequences",
     &EngineCounters::steps_with_several_sequences, false},
    {names::kGatewaySplitPrefills, "Prompts computed in several chunks",
     &EngineCounters::split_prefills, false},
    {names::kGatewayRecoveries,
     "Pipelines that took on the sequences of a lost one",
     &EngineCounters::recoveries, false},
    {names::kGatewayReplayedTokens,
     "Tokens of lost sequences that were computed again",
     &EngineCounters::replayed_tokens, false},
    {names::kGatewayKeptTokens,
     "Tokens of them that surviving stages did not compute",
     &EngineCounters::kept_tokens, false},
    {names::kGatewayYields, "Sequences that gave way to another client's",
     &EngineCounters::yields, false},
    {names::kGatewayKvEvictions, "Blocks of cached prefixes given to others",
     &EngineCounters::cache_evictions, false},
};

// Times of the engine, summed.
struct EngineTime {
  std::string_view name;
  const char* help;
  Duration EngineCounters::*value;
};
constexpr EngineTime kEngineTimes[] = {
    {names::kGatewayStepSeconds, "Submit to result, summed over steps",
     &EngineCounters::step_time},
    {names::kGatewayStepInterval,
     "From the result before, or its own submission, to its result, summed",
     &EngineCounters::step_interval},
    {names::kGatewayScheduleSeconds, "Planning, summed over plans",
     &EngineCounters::plan_time},
};

// The engine's present state.
struct EngineGauge {
  std::string_view name;
  const char* help;
  double (*value)(const EngineStats& stats);
  bool vllm = false;
  const char* kind = nullptr;  // its label; null: none
};
constexpr const char kRateHelp[] =
    "Tokens per second of the pipeline, measured";
constexpr EngineGauge kEngineGauges[] = {
    {names::kVllmRunning, "Sequences in the batch",
     [](const EngineStats& s) -> double { return s.running; }, true},
    {names::kVllmWaiting, "Sequences queued",
     [](const EngineStats& s) -> double { return s.waiting; }, true},
    {names::kVllmKvUsage, "KV cache in use, 0 to 1",
     [](const EngineStats& s) { return s.kv_usage(); }, true},
    {names::kVllmKvUsageOld, "KV cache in use (older name)",
     [](const EngineStats& s) { return s.kv_usage(); }, true},
    {names::kGatewaySuspended, "Sequences that wait for a lost pipeline",
     [](const EngineStats& s) -> double { return s.suspended; }},
    {names::kGatewayQueueDepth, "Sequences accepted, not running",
     [](const EngineStats& s) -> double { return s.waiting; }},
    {names::kGatewayQueueTokens, "Prompt tokens of sequences not running",
     [](const EngineStats& s) {
       return static_cast<double>(s.waiting_tokens);
     }},
    {names::kGatewayQueueBytes, "Bytes of their token histories",
     [](const EngineStats& s) { return static_cast<double>(s.waiting_bytes); }},
    {names::kGatewayPromisedWait, "What a new request would wait to start",
     [](const EngineStats& s) { return Seconds(s.promised_wait); }},
    {names::kGatewayPromptBudget, "Prompt tokens that a step may carry now",
     [](const EngineStats& s) -> double { return s.prompt_budget; }},
    {names::kGatewayTokenRate, kRateHelp,
     [](const EngineStats& s) { return s.prompt_tokens_per_second; }, false,
     "prompt"},
    {names::kGatewayTokenRate, kRateHelp,
     [](const EngineStats& s) { return s.decode_tokens_per_second; }, false,
     "decode"},
    {names::kGatewayPlansInFlight, "Plans in flight",
     [](const EngineStats& s) -> double { return s.plans_in_flight; }},
    {names::kGatewayPlansInFlightMax, "Most plans in flight so far",
     [](const EngineStats& s) -> double { return s.max_plans_in_flight_seen; }},
};

}  // namespace

GatewayMetrics::GatewayMetrics(GatewayMetricsOptions options)
    : RequestMetrics(
          {options.model_name, options.max_positions, options.vllm_names}),
      options_(std::move(options)),
      http_(registry(), options_.key_names) {
  metrics::AddProcessMetrics(registry(), "gateway");
  AddEngineSeries();
  AddScrapedSeries();
  AddExportSeries();
  AddTrialSeries();
}

void GatewayMetrics::AddEngineSeries() {
  std::vector<Counter> counters;
  for (const EngineCounter& one : kEngineCounters) {
    counters.push_back(
        one.vllm ? vllm().AddCounter(one.name, one.help, vllm_labels())
                 : registry().AddCounter(one.name, one.help));
  }
  std::vector<Counter> times;
  for (const EngineTime& one : kEngineTimes) {
    times.push_back(registry().AddCounter(one.name, one.help));
  }
  std::vector<Gauge> gauges;
  for (const EngineGauge& one : kEngineGauges) {
    Labels labels = one.vllm ? vllm_labels() : Labels();
    if (one.kind != nullptr) labels["kind"] = one.kind;
    metrics::Registry& of = one.vllm ? vllm() : registry();
    gauges.push_back(of.AddGauge(one.name, one.help, labels));
  }
  registry().OnScrape([=, this] {
    EngineStats stats;
    {
      MutexLock lock(mutex_);
      if (!sources_.engine) return;
      stats = sources_.engine();
    }
    for (size_t i = 0; i < counters.size(); ++i) {
      counters[i].AdvanceTo(
          static_cast<double>(stats.*kEngineCounters[i].value));
    }
    for (size_t i = 0; i < times.size(); ++i) {
      times[i].AdvanceTo(Seconds(stats.*kEngineTimes[i].value));
    }
    for (size_t i = 0; i < gauges.size(); ++i) {
      gauges[i].Set(kEngineGauges[i].value(stats));
    }
    SetCacheConfig(stats.blocks_total);
  });
}

void GatewayMetrics::SetCacheConfig(int blocks) {
  if (blocks == 0 || blocks == cache_blocks_) return;
  if (cache_blocks_ != 0) {
    vllm().RemoveGauge(names::kVllmCacheConfig, cache_config_);
  }
  Labels labels = vllm_labels();
  labels["block_size"] = Cat(kBlockTokens);
  labels["num_gpu_blocks"] = Cat(blocks);
  labels["enable_prefix_caching"] = options_.prefix_cache ? "True" : "False";
  cache_config_ = vllm().AddGauge(names::kVllmCacheConfig,
                                  "The KV cache, as labels", labels);
  cache_config_.Set(1);
  cache_blocks_ = blocks;
}

// How the layers are split over stages.
void GatewayMetrics::AddScrapedSeries() {
  const Gauge ready =
      registry().AddGauge(names::kGatewayReady, "1 if /readyz says 200");
  const Gauge healthy = vllm().AddGauge(
      names::kVllmHealthy, "1 if the pipeline moves", vllm_labels());
  const Gauge epoch =
      registry().AddGauge(names::kGatewayEpoch, "Pipeline rebuilds");
  const Gauge recovery =
      registry().AddGauge(names::kGatewayRecoverySeconds,
                          "From the latest loss of the pipeline to the next");
  const Gauge connections =
      registry().AddGauge(names::kGatewayConnections, "Open connections");
  const Gauge inflight =
      registry().AddGauge(names::kGatewayInflight, "Requests being answered");
  const Gauge backlog = registry().AddGauge(
      names::kGatewaySseBacklog, "Bytes that clients have not read yet");
  const Counter evicted = registry().AddCounter(
      names::kGatewayEvictions, "Connections closed to make room");
  const Gauge longest_hold = registry().AddGauge(
      names::kGatewayLoopLongestHold,
      "The longest that an event held its HTTP event loop, in CPU time");
  const Counter long_holds = registry().AddCounter(
      names::kGatewayLoopLongHolds,
      "Events that held theirs for more than 50 ms of it");
  const Counter gone = registry().AddCounter(
      names::kGatewayDisconnects, "Clients gone before their answer's end",
      {{"reason", "disconnected"}});
  const Counter slow = registry().AddCounter(
      names::kGatewayDisconnects, "Clients gone before their answer's end",
      {{"reason", "slow_reader"}});
  AddSplitSeries();
  AddLeaderSeries();
  registry().OnScrape([=, this] {
    MutexLock lock(mutex_);
    if (sources_.ready) {
      const bool now = sources_.ready();
      ready.Set(now ? 1 : 0);
      healthy.Set(now ? 1 : 0);
    }
    if (sources_.epoch) epoch.Set(sources_.epoch());
    if (sources_.last_recovery) recovery.Set(sources_.last_recovery());
    if (sources_.http == nullptr) return;
    const http::HttpServerStats& http = *sources_.http;
    connections.Set(http.connections);
    inflight.Set(http.exchanges);
    backlog.Set(static_cast<double>(http.backlog_bytes));
    evicted.AdvanceTo(static_cast<double>(http.evictions));
    longest_hold.Set(static_cast<double>(http.longest_hold_ns) / 1e9);
    long_holds.AdvanceTo(static_cast<double>(http.long_holds));
    const auto slow_readers = static_cast<double>(http.slow_readers);
    slow.AdvanceTo(slow_readers);
    gone.AdvanceTo(static_cast<double>(http.disconnects) - slow_readers);
  });
}

void GatewayMetrics::AddTrialSeries() {
  const auto add = [this](const char* reason) {
    return registry().AddCounter(
        names::kGatewayGrammarFailures,
        "Grammars that ended the process in which they were tried, by reason",
        {{"reason", reason}});
  };
  registry().OnScrape([this, crashed = add("crashed"), time = add("time"),
                       memory = add("memory")] {
    MutexLock lock(mutex_);
    if (sources_.trials == nullptr) return;
    crashed.AdvanceTo(static_cast<double>(sources_.trials->crashed));
    time.AdvanceTo(static_cast<double>(sources_.trials->time));
    memory.AdvanceTo(static_cast<double>(sources_.trials->memory));
  });
}

void GatewayMetrics::AddExportSeries() {
  const auto add = [this](const char* result) {
    return registry().AddCounter(names::kGatewayTracesExported,
                                 "Traces for the collector, by what became of "
                                 "them",
                                 {{"result", result}});
  };
  const Counter sent = add("sent");
  const Counter queue_full = add("queue_full");
  const Counter failed = add("failed");
  const Counter rejected =
      registry().AddCounter(names::kGatewayTracesRejectedSpans,
                            "Spans that the collector said it did not take");
  registry().OnScrape([=, this] {
    MutexLock lock(mutex_);
    if (sources_.traces == nullptr) return;
    const otlp::ExportStats& stats = *sources_.traces;
    sent.AdvanceTo(static_cast<double>(stats.sent));
    queue_full.AdvanceTo(static_cast<double>(stats.queue_full));
    failed.AdvanceTo(static_cast<double>(stats.failed));
    rejected.AdvanceTo(static_cast<double>(stats.rejected_spans));
  });
}

void GatewayMetrics::Attach(Sources sources) {
  MutexLock lock(mutex_);
  sources_ = std::move(sources);
}

void GatewayMetrics::Detach() {
  MutexLock lock(mutex_);
  sources_ = {};
}

}  // namespace sluice::gateway
