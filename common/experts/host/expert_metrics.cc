#include "common/experts/host/expert_metrics.h"

#include "common/experts/host/expert_loop.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/rpc_metrics.h"

namespace sluice {
namespace {

namespace names = metrics::names;
namespace buckets = metrics::buckets;

constexpr double kNano = 1e-9;

}  // namespace

ExpertMetrics::ExpertMetrics(metrics::Registry* registry, bool per_expert)
    : registry_(registry), per_expert_(per_expert) {
  const char* outcomes[] = {"answered", "refused"};
  const char* row_outcomes[] = {"answered", "failed"};
  const char* directions[] = {"in", "out"};
  for (size_t i = 0; i < 2; ++i) {
    batches_[i] =
        registry->AddCounter(names::kExpertBatches, "Batches that were asked.",
                             {{"outcome", outcomes[i]}});
    rows_[i] = registry->AddCounter(names::kExpertRows,
                                    "Rows of batches that were answered.",
                                    {{"outcome", row_outcomes[i]}});
    wire_bytes_[i] = registry->AddCounter(names::kExpertWireBytes,
                                          "Bytes of batches and results.",
                                          {{"dir", directions[i]}});
  }
  const char* states[] = {"loading", "ready", "draining", "failed", "stalled"};
  for (size_t i = 0; i < state_.size(); ++i) {
    state_[i] = registry->AddGauge(names::kExpertState,
                                   "1 for the state that the host is in.",
                                   {{"state", states[i]}});
  }
  batch_tokens_ =
      registry->AddHistogram(names::kExpertBatchTokens,
                             "Rows computed together.", buckets::BatchSize());
  joined_batches_ = registry->AddHistogram(names::kExpertJoinedBatches,
                                           "Batches computed together.",
                                           buckets::BatchSize());
  queue_seconds_ = registry->AddHistogram(
      names::kExpertQueueSeconds, "Time a batch waits.", buckets::StepPart());
  compute_seconds_ =
      registry->AddHistogram(names::kExpertComputeSeconds,
                             "Time batches are computed, joined ones "
                             "once.",
                             buckets::StepPart());
  serialize_seconds_ = registry->AddHistogram(
      names::kExpertSerializeSeconds,
      "Time to take a batch's frame apart and to write its result's.",
      buckets::StepPart());
  dropped_ = registry->AddCounter(names::kExpertDropped,
                                  "Results that could not be sent.");
  queue_depth_ = registry->AddGauge(names::kExpertQueueDepth,
                                    "Batches that wait or are being computed.");
  clients_ = registry->AddGauge(names::kExpertAskers, "Streams that are open.");
  busy_ratio_ = registry->AddGauge(names::kExpertBusyRatio,
                                   "Share of the loop's time spent computing.");
  weights_bytes_ = registry->AddGauge(names::kExpertWeightsBytes,
                                      "Bytes of the experts held.");
  load_seconds_ = registry->AddGauge(names::kExpertLoadSeconds,
                                     "Time it took to load the experts.");
  SetState(State::kLoading);
}

void ExpertMetrics::SetState(State state) {
  for (size_t i = 0; i < state_.size(); ++i) {
    state_[i].Set(i == static_cast<size_t>(state) ? 1 : 0);
  }
}

void ExpertMetrics::OnLoaded(const HostedExpertsInfo& info) {
  weights_bytes_.Set(static_cast<double>(info.weights_bytes));
  load_seconds_.Set(info.load_seconds);
  SetState(State::kReady);
}

void ExpertMetrics::OnScrape(const ExpertLoopStats& stats, int32_t clients,
                             ExpertHeat& heat) {
  const double busy = static_cast<double>(stats.busy_ns) * kNano;
  const double total = busy + stats.wait_seconds;
  busy_ratio_.Set(total > 0 ? busy / total : 0);
  queue_depth_.Set(stats.queue_depth);
  clients_.Set(clients);
  for (const ExpertHeat::Layer& layer : heat.Snapshot()) {
    const std::string name = Cat(layer.layer);
    registry_
        ->AddGauge(names::kExpertLoadSkew,
                   "Most asks of one expert over the mean, lately.",
                   {{"layer", name}})
        .Set(layer.skew());
    registry_
        ->AddGauge(names::kExpertActive, "Experts asked lately.",
                   {{"layer", name}})
        .Set(layer.active());
    if (!per_expert_) continue;
    for (size_t i = 0; i < layer.experts.size(); ++i) {
      registry_
          ->AddCounter(names::kExpertTokens, "Asks of one expert.",
                       {{"layer", name}, {"expert", Cat(layer.experts[i])}})
          .AdvanceTo(static_cast<double>(layer.asks[i]));
    }
  }
}

void ExpertMetrics::OnComputed(int32_t batches, int32_t rows, int64_t nanos) {
  joined_batches_.Observe(batches);
  batch_tokens_.Observe(rows);
  compute_seconds_.Observe(static_cast<double>(nanos) * kNano);
}

void ExpertMetrics::OnAnswered(const wire::ExpertResult& result) {
  batches_[0].Add();
  const auto failed = static_cast<double>(result.failures.size());
  rows_[0].Add(result.rows - failed);
  rows_[1].Add(failed);
  queue_seconds_.Observe(static_cast<double>(result.times.queue_ns) * kNano);
}

void ExpertMetrics::OnRefused() { batches_[1].Add(); }

void ExpertMetrics::OnDropped() { dropped_.Add(); }

void ExpertMetrics::OnSerialized(int64_t nanos) {
  serialize_seconds_.Observe(static_cast<double>(nanos) * kNano);
}

void ExpertMetrics::OnWire(bool in, int64_t bytes) {
  wire_bytes_[in ? 0 : 1].Add(static_cast<double>(bytes));
}

void ExpertMetrics::OnHandled(const std::string& method, StatusCode code,
                              Duration duration) {
  metrics::RecordHandled(
      *registry_, {"sluice.v1.Expert", method, "bidi_stream", code, duration});
}

}  // namespace sluice
