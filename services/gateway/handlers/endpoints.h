#ifndef SLUICE_SERVICES_GATEWAY_HANDLERS_ENDPOINTS_H_
#define SLUICE_SERVICES_GATEWAY_HANDLERS_ENDPOINTS_H_

#include <functional>

#include "common/http/router.h"
#include "services/gateway/handlers/cluster.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {

// Adds every route of the gateway; `debug`: those of --debug-endpoints too.
// Event loops call `cluster`, which must not block.
void AddEndpoints(http::Router& router, const serving::ServingContext& context,
                  bool debug, std::function<ClusterReading()> cluster);

}  // namespace sluice::gateway

#endif  // SLUICE_SERVICES_GATEWAY_HANDLERS_ENDPOINTS_H_
