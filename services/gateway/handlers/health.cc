#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/metrics/metrics.h"
#include "common/standby/stage_order.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {

std::string ReadinessJson(const serving::Readiness& readiness,
                          Audience audience) {
  const bool open = audience == Audience::kAnybody;
  Json body{{"ready", readiness.ready},
            {"why", open ? readiness.open_why : readiness.why},
            {"not_ready", Json::array()},
            {"epoch", readiness.epoch},
            {"term", readiness.term}};
  if (readiness.missing_stages > 0) {
    body["missing_stages"] = readiness.missing_stages;
  }
  if (!readiness.role.empty()) {
    body["role"] = readiness.role;
    if (!readiness.pipeline.empty()) body["pipeline"] = readiness.pipeline;
    if (!open && !readiness.leader.empty()) body["leader"] = readiness.leader;
  }
  for (const serving::PartReadiness& part : readiness.parts) {
    if (part.ready) continue;
    body["not_ready"].push_back({{"name", open ? part.open_name : part.name},
                                 {"why", open ? part.open_why : part.why}});
  }
  return DumpJson(body);
}

Audience AudienceOf(bool keys_asked, const http::HttpRequest& request) {
  const bool local = request.peer.empty() || request.peer == "::1" ||
                     request.peer.starts_with("127.") ||
                     request.peer.starts_with("::ffff:127.");
  const bool known = keys_asked ? !request.tenant.empty() : local;
  return known ? Audience::kKeyHolder : Audience::kAnybody;
}

void AddHealthHandlers(http::Router& router,
                       const serving::ServingContext& context) {
  router.Add("GET", "/livez", [](std::shared_ptr<http::Exchange> on) {
    on->Send({200, "text/plain", {}, "ok\n"});
  });
  const auto ready = [context](std::shared_ptr<http::Exchange> on) {
    const serving::Readiness readiness = context.readiness();
    http::HttpResponse response;
    // The path needs no key.
    response.body =
        ReadinessJson(readiness, AudienceOf(context.keys_asked, on->request()));
    if (!readiness.ready) {
      response.status = 503;
      response.headers.emplace_back("Retry-After",
                                    Cat(readiness.retry_after_seconds));
    }
    const std::string_view asked = on->request().Header(standby::kStagesHeader);
    if (!asked.empty() && !readiness.stages.empty()) {
      response.headers.emplace_back(
          standby::kStagesHeader,
          standby::AnswerToStages(asked, readiness.stages));
    }
    on->Send(std::move(response));
  };
  router.Add("GET", "/readyz", ready);
  router.Add("GET", "/health", ready);
  router.Add("GET", "/ping", ready);
  router.Add("GET", "/metrics", [context](std::shared_ptr<http::Exchange> on) {
    on->Send({200,
              std::string(metrics::kTextContentType),
              {},
              context.metrics.Text()});
  });
}

}  // namespace sluice::gateway
