#include "services/gateway/handlers/endpoints.h"

#include <utility>

#include "services/gateway/dialects.h"

namespace sluice::gateway {

void AddEndpoints(http::Router& router, const serving::ServingContext& context,
                  bool debug, std::function<ClusterReading()> cluster) {
  AddDialects(router, context);
  AddModelHandlers(router, context);
  AddServerStateHandlers(router, context);
  AddUnbuiltHandlers(router);
  AddHealthHandlers(router, context);
  AddPageHandlers(router);
  AddApiDocumentHandler(router,
                        {context.keys_asked, debug, context.strict_fields,
                         context.rules.max_stop_strings});
  AddClusterHandler(router, context.model, context.keys_asked,
                    std::move(cluster));
  AddTraceHandler(router, context);
  if (!debug) return;
  AddDebugHandlers(router, context);
  AddTraceListHandler(router, context);
}

}  // namespace sluice::gateway
