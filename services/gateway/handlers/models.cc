#include <ctime>
#include <string>
#include <string_view>

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

// Clients of Messages send it.
constexpr std::string_view kAnthropicHeader = "anthropic-version";

// Returns a model's object in Anthropic's form.
Json AnthropicModelJson(const serving::ServedModel& model,
                        std::string_view name) {
  const std::time_t created = model.created;
  tm utc;
  gmtime_r(&created, &utc);
  char time[64];
  std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {{"type", "model"},
          {"id", name},
          {"display_name", name},
          {"created_at", time}};
}

// Returns the list of models in Anthropic's form: one page.
Json AnthropicModels(const serving::ServedModel& model) {
  Json data = Json::array();
  data.push_back(AnthropicModelJson(model, model.name));
  for (const std::string& alias : model.aliases) {
    data.push_back(AnthropicModelJson(model, alias));
  }
  return {{"data", data},
          {"has_more", false},
          {"first_id", data.front()["id"]},
          {"last_id", data.back()["id"]}};
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
        if (!request.Header(kAnthropicHeader).empty()) {
          return on->Send(JsonResponse(AnthropicModels(context.model)));
        }
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
        const bool anthropic = !on->request().Header(kAnthropicHeader).empty();
        on->Send(JsonResponse(anthropic
                                  ? AnthropicModelJson(model, name)
                                  : ModelJson(context, on->request(), name)));
      });
  router.Add("GET", "/version", [](std::shared_ptr<http::Exchange> on) {
    on->Send(JsonResponse({{"version", std::string(BuildVersion())}}));
  });
}

}  // namespace sluice::gateway
