#ifndef SLUICE_SERVICES_CLI_METRICS_TEXT_H_
#define SLUICE_SERVICES_CLI_METRICS_TEXT_H_

#include <map>
#include <string>

#include "common/base/status.h"
#include "services/cli/http_client.h"

namespace sluice::cli {

// Sums over labels, by metric name.
using Metrics = std::map<std::string, double>;

// The sums of a Prometheus text. Lines that are no samples are left out.
Metrics ParseMetrics(const std::string& text);

// Those of GET /metrics. UNAVAILABLE if nothing answers; FAILED_PRECONDITION
// with the status and the server's words ("401: ..") if it refuses.
StatusOr<Metrics> FetchMetrics(const BaseUrl& base);

}  // namespace sluice::cli

#endif  // SLUICE_SERVICES_CLI_METRICS_TEXT_H_
