#include "common/experts/client/client_metrics.h"

#include <algorithm>
#include <array>

#include "common/metrics/metric_names.h"

namespace sluice {
namespace {

namespace names = metrics::names;

constexpr double kNano = 1e-9;
constexpr std::array kOutcomes = {"used", "late", "refused", "lost"};

}  // namespace

ExpertClientMetrics::ExpertClientMetrics(
    metrics::Registry* registry, const std::vector<std::string>& hosts) {
  for (const std::string& name : hosts) {
    const metrics::Labels host = {{"host", name}};
    Host& series = hosts_.emplace_back();
    series.outcomes.resize(kOutcomes.size());
    if (name.empty()) continue;
    series.up = registry->AddGauge(names::kStageExpertUp,
                                   "1: batches can be sent to the host.", host);
    series.silent = registry->AddGauge(
        names::kStageExpertSilent,
        "1: nothing was heard of the host for too long.", host);
    for (size_t i = 0; i < kOutcomes.size(); ++i) {
      series.outcomes[i] = registry->AddCounter(
          names::kStageExpertBatches, "Batches sent, by what became of them.",
          {{"host", name}, {"outcome", kOutcomes[i]}});
    }
    series.hedges =
        registry->AddCounter(names::kStageExpertHedges,
                             "Batches sent because another was late.", host);
    series.retries =
        registry->AddCounter(names::kStageExpertRetries,
                             "Batches sent because another was lost.", host);
    series.trip = registry->AddHistogram(names::kStageExpertTripSeconds,
                                         "Batch sent to answer received.",
                                         metrics::buckets::StepPart(), host);
  }
  const auto part = [&](const char* name) {
    return registry->AddHistogram(
        names::kStageExpertPartSeconds,
        "Making a batch (before its trip), and the trip's parts: on the wire, "
        "waiting there, computed there.",
        metrics::buckets::StepPart(), {{"part", name}});
  };
  serialise_ = part("serialise");
  wire_ = part("wire");
  queue_ = part("queue");
  compute_ = part("compute");
  wait_ =
      registry->AddHistogram(names::kStageWaitSeconds, "Time a step waits.",
                             metrics::buckets::StepPart(), {{"for", "expert"}});
  failed_rows_ = registry->AddCounter(names::kStageExpertFailedRows,
                                      "Rows that no host answered.");
}

void ExpertClientMetrics::OnUp(int32_t host, bool up) {
  at(host).up.Set(up ? 1 : 0);
}

void ExpertClientMetrics::OnSilent(int32_t host, bool silent) {
  at(host).silent.Set(silent ? 1 : 0);
}

void ExpertClientMetrics::OnSent(int64_t serialise_ns) {
  serialise_.Observe(static_cast<double>(serialise_ns) * kNano);
}

void ExpertClientMetrics::OnHedge(int32_t host) { at(host).hedges.Add(); }

void ExpertClientMetrics::OnRetry(int32_t host) { at(host).retries.Add(); }

void ExpertClientMetrics::OnOutcome(int32_t host, Outcome outcome) {
  at(host).outcomes[static_cast<size_t>(outcome)].Add();
}

void ExpertClientMetrics::OnTrip(int32_t host, int64_t nanos,
                                 const wire::ExpertTimes& there) {
  at(host).trip.Observe(static_cast<double>(nanos) * kNano);
  // The host's times count only within the trip.
  const int64_t total = std::clamp<int64_t>(there.total_ns, 0, nanos);
  const int64_t queue = std::clamp<int64_t>(there.queue_ns, 0, total);
  const int64_t compute =
      std::clamp<int64_t>(there.compute_ns, 0, total - queue);
  wire_.Observe(static_cast<double>(nanos - total) * kNano);
  queue_.Observe(static_cast<double>(queue) * kNano);
  compute_.Observe(static_cast<double>(compute) * kNano);
}

void ExpertClientMetrics::OnLayer(int64_t wait_ns, size_t failed_rows) {
  wait_.Observe(static_cast<double>(wait_ns) * kNano);
  if (failed_rows > 0) failed_rows_.Add(static_cast<double>(failed_rows));
}

}  // namespace sluice
