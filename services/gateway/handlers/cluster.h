#ifndef SLUICE_SERVICES_GATEWAY_HANDLERS_CLUSTER_H_
#define SLUICE_SERVICES_GATEWAY_HANDLERS_CLUSTER_H_

#include <functional>
#include <string>

#include "common/engine/engine_stats.h"
#include "common/http/router.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "services/gateway/audience.h"

namespace sluice::serving {
struct ServedModel;
}  // namespace sluice::serving

namespace sluice::gateway {

// The data of /cluster, read at one moment.
struct ClusterReading {
  serving::Readiness readiness;
  PipelineStatus pipeline;
  int max_context = 0;  // 0: before the first pipeline
  EngineStats engine;
};

// Returns /cluster for `reading`. Counters are totals: rates are differences of
// two readings over that of time_ms. Without a key the answer has only the last
// part of a stage's path, and no error messages.
std::string ClusterJson(const serving::ServedModel& model,
                        const ClusterReading& reading,
                        Audience audience = Audience::kKeyHolder);

// Adds GET /cluster. Event loops call `read`, which must not block; `model`
// outlives the router.
void AddClusterHandler(http::Router& router, const serving::ServedModel& model,
                       bool keys_asked, std::function<ClusterReading()> read);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HANDLERS_CLUSTER_H_
