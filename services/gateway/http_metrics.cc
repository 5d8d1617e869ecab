#include "services/gateway/http_metrics.h"

#include <algorithm>

#include "common/base/cat.h"
#include "common/metrics/metric_names.h"

namespace sluice::gateway {
namespace {

namespace buckets = metrics::buckets;
namespace names = metrics::names;

constexpr size_t kMaxKeyLabels = 64;

std::string StatusClass(int status) {
  return status == 0 ? "client_closed" : Cat(status / 100, "xx");
}

// Clients choose methods: known ones alone become labels.
std::string MethodLabel(std::string_view method) {
  static constexpr std::string_view kMethods[] = {"GET", "POST", "HEAD",
                                                  "OPTIONS"};
  const bool known = std::find(std::begin(kMethods), std::end(kMethods),
                               method) != std::end(kMethods);
  return known ? std::string(method) : "other";
}

}  // namespace

void HttpMetrics::OnExchange(const http::ExchangeSummary& summary) {
  const std::string handler(summary.route);
  const std::string status = StatusClass(summary.status);
  metrics::Labels labels{{"handler", handler},
                         {"method", MethodLabel(summary.method)}};
  registry_
      .AddHistogram(names::kHttpDuration, "Header's arrival to answer's end",
                    buckets::RequestLatency(), labels)
      .Observe(Seconds(summary.duration));
  labels["status"] = status;
  registry_.AddCounter(names::kHttpRequests, "Requests answered", labels).Add();
  registry_
      .AddHistogram(names::kHttpRequestBytes, "Bodies of requests",
                    buckets::BodyBytes(), {{"handler", handler}})
      .Observe(static_cast<double>(summary.request_bytes));
  registry_
      .AddHistogram(names::kHttpResponseBytes, "Bodies of answers",
                    buckets::BodyBytes(), {{"handler", handler}})
      .Observe(static_cast<double>(summary.response_bytes));
  registry_
      .AddCounter(names::kGatewayRequests, "Requests answered, by error",
                  {{"endpoint", handler},
                   {"status_class", status},
                   {"error_type", std::string(summary.error_type)}})
      .Add();
  if (!key_names_ || summary.tenant.empty()) return;
  registry_
      .AddCounter(names::kGatewayKeyRequests, "Requests answered, by API key",
                  {{"key", KeyLabel(summary.tenant)}, {"status_class", status}})
      .Add();
}

std::string HttpMetrics::KeyLabel(std::string_view tenant) {
  MutexLock lock(mutex_);
  if (keys_.find(tenant) != keys_.end()) return std::string(tenant);
  if (keys_.size() >= kMaxKeyLabels) return "other";
  return *keys_.emplace(tenant).first;
}

}  // namespace sluice::gateway
