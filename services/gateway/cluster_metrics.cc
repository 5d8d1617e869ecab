// GatewayMetrics' series of the stages and of other gateways.
#include "common/metrics/metric_names.h"
#include "services/gateway/gateway_metrics.h"

namespace sluice::gateway {

namespace names = metrics::names;
using metrics::Counter;
using metrics::Gauge;

void GatewayMetrics::AddSplitSeries() {
  const Gauge stages = registry().AddGauge(
      names::kGatewayStages, "Stages that the layers are split over");
  const Gauge missing = registry().AddGauge(
      names::kGatewayMissingStages, "Stages that they are not split over now");
  const char* const help = "Times that the layers were split anew";
  const Counter shrinks = registry().AddCounter(names::kGatewayResplits, help,
                                                {{"kind", "shrink"}});
  const Counter growths = registry().AddCounter(names::kGatewayResplits, help,
                                                {{"kind", "growth"}});
  registry().OnScrape([=, this] {
    MutexLock lock(mutex_);
    if (!sources_.pipeline) return;
    const PipelineStatus status = sources_.pipeline();
    const auto count = static_cast<double>(status.stages.size());
    stages.Set(count);
    missing.Set(static_cast<double>(status.full_count) - count);
    shrinks.AdvanceTo(static_cast<double>(status.shrinks));
    growths.AdvanceTo(static_cast<double>(status.growths));
  });
}

void GatewayMetrics::AddLeaderSeries() {
  const Gauge leader =
      registry().AddGauge(names::kGatewayLeader, "1 if it has the stages");
  const Gauge term =
      registry().AddGauge(names::kGatewayTerm, "Of the latest pipeline");
  const Counter takeovers = registry().AddCounter(
      names::kGatewayTakeovers, "Times that it began to lead");
  const Gauge waiting = registry().AddGauge(
      names::kGatewayForwarding, "Requests that other gateways answer");
  const auto forwarded = [this](const char* end) {
    return registry().AddCounter(names::kGatewayForwarded,
                                 "Answers of other gateways", {{"end", end}});
  };
  const Counter whole = forwarded("whole"), resumed = forwarded("resumed"),
                broken = forwarded("broken"), lost = forwarded("lost_gateways");
  registry().OnScrape([=, this] {
    MutexLock lock(mutex_);
    if (!sources_.pipeline) return;
    const PipelineStatus status = sources_.pipeline();
    leader.Set(status.role == GatewayRole::kLeader ? 1 : 0);
    term.Set(static_cast<double>(status.epoch.term()));
    takeovers.AdvanceTo(static_cast<double>(status.takeovers));
    const auto* const stats = sources_.forwarder;
    if (stats == nullptr) return;
    waiting.Set(stats->waiting);
    broken.AdvanceTo(static_cast<double>(stats->broken));
    resumed.AdvanceTo(static_cast<double>(stats->resumed));
    lost.AdvanceTo(static_cast<double>(stats->lost));
    whole.AdvanceTo(
        static_cast<double>(stats->forwarded - stats->broken - stats->resumed));
  });
}

}  // namespace sluice::gateway
