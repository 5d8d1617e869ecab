#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/build_info.h"
#include "common/base/json.h"
#include "common/serving/error.h"
#include "common/serving/prepare.h"
#include "common/serving/served_model.h"
#include "services/gateway/handlers/handlers.h"

namespace sluice::gateway {
namespace {

Json Modalities() {
  return {{"input_modalities", {"text"}}, {"output_modalities", {"text"}}};
}

// Returns what llama.cpp tells of a model's size.
Json MetaJson(const serving::ServedModel& model) {
  Json meta{{"n_ctx_train", model.max_positions},
            {"n_vocab", model.vocab_size}};
  if (model.hidden_size > 0) meta["n_embd"] = model.hidden_size;
  if (model.num_params > 0) meta["n_params"] = model.num_params;
  if (model.tensor_bytes > 0) meta["size"] = model.tensor_bytes;
  return meta;
}

// Returns a model's entry of `models`, which clients of Ollama's API read.
Json TagJson(const serving::ServedModel& model, std::string_view name) {
  return {{"name", std::string(name)}, {"model", std::string(name)},
          {"type", "model"},           {"size", model.tensor_bytes},
          {"digest", model.digest},    {"capabilities", {"completion"}}};
}

// Returns a model's object. Key holders see `root`, a path with a user's name.
// The context's length has the name of each kind of server.
Json ModelJson(const serving::ServingContext& context,
               const http::HttpRequest& request, std::string_view name) {
  const serving::ServedModel& model = context.model;
  Json json{{"id", std::string(name)},
            {"object", "model"},
            {"created", model.created},
            {"owned_by", "sluice"},
            {"parent", nullptr},
            {"max_model_len", serving::MaxContext(context)},
            {"context_length", serving::MaxContext(context)},
            {"architecture", Modalities()},
            {"meta", MetaJson(model)},
            {"permission", Json::array()}};
  if (!request.tenant.empty()) json["root"] = model.root;
  return json;
}

// Clients of Messages send it.
constexpr std::string_view kAnthropicHeader = "anthropic-version";

// Returns a model's object in Anthropic's form.
Json AnthropicModelJson(const serving::ServingContext& context,
                        std::string_view name) {
  const std::time_t created = context.model.created;
  tm utc;
  gmtime_r(&created, &utc);
  char time[64];
  std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {{"type", "model"},
          {"id", name},
          {"display_name", name},
          {"created_at", time},
          {"lifecycle", "active"},
          {"max_input_tokens", serving::MaxContext(context)},
          {"max_tokens", serving::MaxContext(context)}};
}

// Returns the list of models in Anthropic's form: one page.
Json AnthropicModels(const serving::ServingContext& context) {
  Json data = Json::array();
  data.push_back(AnthropicModelJson(context, context.model.name));
  for (const std::string& alias : context.model.aliases) {
    data.push_back(AnthropicModelJson(context, alias));
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
  const auto list = [context](std::shared_ptr<http::Exchange> on) {
    const serving::ServedModel& model = context.model;
    if (!on->request().Header(kAnthropicHeader).empty()) {
      return on->Send(JsonResponse(AnthropicModels(context)));
    }
    std::vector<std::string> names = {model.name};
    names.insert(names.end(), model.aliases.begin(), model.aliases.end());
    Json body{
        {"object", "list"}, {"data", Json::array()}, {"models", Json::array()}};
    for (const std::string& name : names) {
      body["data"].push_back(ModelJson(context, on->request(), name));
      body["models"].push_back(TagJson(model, name));
    }
    on->Send(JsonResponse(body));
  };
  router.Add("GET", "/v1/models", list);
  router.Add("GET", "/models", list);  // as llama.cpp
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
                                  ? AnthropicModelJson(context, name)
                                  : ModelJson(context, on->request(), name)));
      });
  router.Add("GET", "/version", [](std::shared_ptr<http::Exchange> on) {
    on->Send(JsonResponse({{"version", std::string(BuildVersion())}}));
  });
}

}  // namespace sluice::gateway
