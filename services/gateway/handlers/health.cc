#include "common/base/json.h"
#include "common/metrics/metrics.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {

std::string ReadinessJson(const GatewayReadiness& readiness) {
  Json body{{"ready", readiness.ready},
            {"why", readiness.why},
            {"not_ready", Json::array()},
            {"epoch", readiness.epoch}};
  for (const PartReadiness& part : readiness.parts) {
    if (part.ready) continue;
    body["not_ready"].push_back({{"name", part.name}, {"why", part.why}});
  }
  return DumpJson(body);
}

void AddHealthHandlers(Router& router, const HandlerContext& context) {
  router.Add("GET", "/livez", [](std::shared_ptr<Exchange> on) {
    on->Send({200, "text/plain", {}, "ok\n"});
  });
  const auto ready = [context](std::shared_ptr<Exchange> on) {
    const GatewayReadiness readiness = context.readiness();
    HttpResponse response;
    response.body = ReadinessJson(readiness);
    if (!readiness.ready) {
      response.status = 503;
      response.headers.emplace_back("Retry-After", "1");
    }
    on->Send(std::move(response));
  };
  router.Add("GET", "/readyz", ready);
  router.Add("GET", "/health", ready);
  router.Add("GET", "/metrics", [context](std::shared_ptr<Exchange> on) {
    on->Send({200,
              std::string(metrics::kTextContentType),
              {},
              context.metrics.Text()});
  });
}

}  // namespace sluice::gateway
