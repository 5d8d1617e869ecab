#include "common/base/build_info.h"
#include "common/base/json.h"
#include "common/serving/error.h"
#include "common/serving/prepare.h"
#include "common/serving/served_model.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

// Returns a model's object. Key holders see `root`, a path with a user's name.
Json ModelJson(const serving::ServingContext& context,
               const http::HttpRequest& request, std::string_view name) {
  const serving::ServedModel& model = context.model;
  Json json{{"id", std::string(name)},
            {"object", "model"},
            {"created", model.created},
            {"owned_by", "sluice"},
            {"parent", nullptr},
            {"max_model_len", serving::MaxContext(context)},
            {"permission", Json::array()}};
  if (!request.tenant.empty()) json["root"] = model.root;
  return json;
}

http::HttpResponse JsonResponse(const Json& body) {
  http::HttpResponse response;
  response.body = DumpJson(body);
  return response;
}

}  // namespace

void AddModelHandlers(http::Router& router,
                      const serving::ServingContext& context) {
  router.Add(
      "GET", "/v1/models", [context](std::shared_ptr<http::Exchange> on) {
        Json body{{"object", "list"}, {"data", Json::array()}};
        const http::HttpRequest& request = on->request();
        body["data"].push_back(ModelJson(context, request, context.model.name));
        for (const std::string& alias : context.model.aliases) {
          body["data"].push_back(ModelJson(context, request, alias));
        }
        on->Send(JsonResponse(body));
      });
  router.AddVerbatim(
      "GET", "/v1/models/*", [context](std::shared_ptr<http::Exchange> on) {
        // Names may have slashes: "org/model".
        constexpr std::string_view kPrefix = "/v1/models/";
        std::string_view name = on->request().path;
        name.remove_prefix(kPrefix.size());
        const serving::ServedModel& model = context.model;
        if (const Status known = serving::CheckModel(model, "model", name);
            !known.ok()) {
          on->SendError(serving::ToApiError(known));
          return;
        }
        if (!serving::Serves(model, name)) name = model.name;
        on->Send(JsonResponse(ModelJson(context, on->request(), name)));
      });
  router.Add("GET", "/version", [](std::shared_ptr<http::Exchange> on) {
    on->Send(JsonResponse({{"version", std::string(BuildVersion())}}));
  });
}

}  // namespace sluice::gateway
