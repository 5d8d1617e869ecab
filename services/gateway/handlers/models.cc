#include "common/base/json.h"
#include "common/metrics/process_metrics.h"
#include "common/openai/error.h"
#include "services/gateway/handlers/handlers.h"
#include "services/gateway/handlers/prepare.h"
#include "services/gateway/served_model.h"

namespace sluice::gateway {
namespace {

Json ModelJson(const HandlerContext& context) {
  const ServedModel& model = context.model;
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "sluice"},
          {"root", model.root},
          {"parent", nullptr},
          {"max_model_len", MaxContext(context)},
          {"permission", Json::array()}};
}

HttpResponse JsonResponse(const Json& body) {
  HttpResponse response;
  response.body = DumpJson(body);
  return response;
}

}  // namespace

void AddModelHandlers(Router& router, const HandlerContext& context) {
  router.Add("GET", "/v1/models", [context](std::shared_ptr<Exchange> on) {
    Json body{{"object", "list"}, {"data", Json::array()}};
    body["data"].push_back(ModelJson(context));
    on->Send(JsonResponse(body));
  });
  router.Add("GET", "/v1/models/*", [context](std::shared_ptr<Exchange> on) {
    // Names may have slashes: "org/model".
    constexpr std::string_view kPrefix = "/v1/models/";
    const std::string_view path = on->request().path;
    const Status known = CheckModel(context.model, path.substr(kPrefix.size()));
    on->Send(known.ok() ? JsonResponse(ModelJson(context))
                        : ErrorResponse(ToApiError(known)));
  });
  router.Add("GET", "/version", [](std::shared_ptr<Exchange> on) {
    on->Send(JsonResponse({{"version", std::string(metrics::BuildVersion())}}));
  });
}

}  // namespace sluice::gateway
