#ifndef SLUICE_SERVICES_GATEWAY_HANDLERS_CLUSTER_H_
#define SLUICE_SERVICES_GATEWAY_HANDLERS_CLUSTER_H_

#include <functional>
#include <string>

#include "common/engine/engine_stats.h"
#include "common/http/router.h"
#include "common/pipeline/gateway/pipeline_status.h"
#include "services/gateway/readiness.h"

namespace sluice::gateway {

struct ServedModel;

// What the picture of the cluster is drawn from, read at one moment.
struct ClusterReading {
  GatewayReadiness readiness;
  PipelineStatus pipeline;
  int max_context = 0;  // 0: no pipeline was ever up
  EngineStats engine;
};

// `reading` as /cluster shows it. Counters are as they are: who draws rates
// takes two readings and the difference of their time_ms. Anybody is told the
// last part alone of a stage's path, and no words of what went wrong.
std::string ClusterJson(const ServedModel& model, const ClusterReading& reading,
                        Audience audience = Audience::kKeyHolder);

// GET /cluster. `read` is called on the event loops and must not block;
// `model` outlives the router.
void AddClusterHandler(http::Router& router, const ServedModel& model,
                       bool keys_asked, std::function<ClusterReading()> read);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HANDLERS_CLUSTER_H_
