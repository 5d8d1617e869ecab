#ifndef SLUICE_COMMON_METRICS_PROCESS_METRICS_H_
#define SLUICE_COMMON_METRICS_PROCESS_METRICS_H_

#include <string_view>

#include "common/metrics/metrics.h"

namespace sluice::metrics {

// Adds the process_* series of the Prometheus conventions (CPU seconds,
// memory, open files, start time), read from /proc at each scrape, the log's
// dropped lines, and sluice_build_info{version,git,service,isa,cuda} = 1.
void AddProcessMetrics(Registry& registry, std::string_view service,
                       std::string_view isa = "");

}  // namespace sluice::metrics

#endif  // SLUICE_COMMON_METRICS_PROCESS_METRICS_H_
