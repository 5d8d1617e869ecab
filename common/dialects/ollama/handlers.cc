#include "common/dialects/ollama/handlers.h"

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/build_info.h"
#include "common/base/json.h"
#include "common/dialects/ollama/models.h"
#include "common/http/event_framing.h"
#include "common/serving/error.h"
#include "common/serving/fields.h"
#include "common/serving/prepare.h"
#include "common/serving/request_body.h"
#include "common/serving/served_model.h"

namespace sluice::ollama {
namespace {

// The Ollama whose API this is: clients ask for one of at least some version.
constexpr std::string_view kApiVersion = "0.40.12";

http::HttpResponse JsonAnswer(const Json& body) {
  http::HttpResponse response;
  response.body = DumpJson(body);
  return response;
}

// A body that names a model.
struct NamingBody {
  std::string model;
  bool stream = true;
};

constexpr std::string_view kKnownOfShow[] = {"model",  "name",     "options",
                                             "system", "template", "verbose"};
constexpr std::string_view kKnownOfPull[] = {"insecure", "model",  "name",
                                             "password", "stream", "username"};

// Reads `model`, or `name`, its older name, which is served.
StatusOr<NamingBody> ReadName(const serving::ServingContext& context,
                              std::string_view body,
                              std::span<const std::string_view> known) {
  JsonBudget budget;
  SLUICE_ASSIGN_OR_RETURN(const Json json, serving::ParseBody(body, budget));
  if (context.strict_fields) {
    SLUICE_RETURN_IF_ERROR(serving::RefuseOthers(json, known));
  }
  serving::FieldReader in(json);
  NamingBody out;
  out.model = in.String("model").value_or("");
  const std::string name = in.String("name").value_or("");
  if (out.model.empty()) out.model = name;
  out.stream = in.Bool("stream").value_or(true);
  if (out.model.empty()) in.Refuse("model", "is missing");
  SLUICE_RETURN_IF_ERROR(in.status());
  SLUICE_RETURN_IF_ERROR(CheckName(context.model, out.model));
  return out;
}

StatusOr<http::HttpResponse> Show(const serving::ServingContext& context,
                                  const http::HttpRequest& http) {
  SLUICE_RETURN_IF_ERROR(ReadName(context, http.body, kKnownOfShow).status());
  return JsonAnswer(ShownJson(context));
}

// The served model is there already; no other is fetched.
StatusOr<http::HttpResponse> Pull(const serving::ServingContext& context,
                                  const http::HttpRequest& http) {
  const StatusOr<NamingBody> body = ReadName(context, http.body, kKnownOfPull);
  if (body.status().code() == StatusCode::kNotFound) {
    return serving::WithCode(
        NotFound(Message(body.status()), ": this server downloads no model; ",
                 "it serves '", context.model.name, "'"),
        "model_not_found");
  }
  if (!body.ok()) return body.status();
  http::HttpResponse response = JsonAnswer({{"status", "success"}});
  if (body->stream) {
    const std::string line = std::move(response.body) + "\n";
    response = http::JsonLinesHead();
    response.body = line;
  }
  return response;
}

}  // namespace

void AddOthers(http::Router& router, const serving::ServingContext& context) {
  using OnExchange = std::shared_ptr<http::Exchange>;
  router.Add("GET", "/api/version", [](OnExchange on) {
    on->Send(JsonAnswer({{"version", std::string(kApiVersion)},
                         {"server", Cat("sluice ", BuildVersion())}}));
  });
  router.Add("GET", "/api/tags", [context](OnExchange on) {
    on->Send(JsonAnswer(TagsJson(context.model)));
  });
  router.Add("GET", "/api/ps", [context](OnExchange on) {
    on->Send(JsonAnswer(RunningJson(context)));
  });
  router.Add("POST", "/api/show", [context](OnExchange on) {
    serving::AnswerOffLoop(context, Show, std::move(on));
  });
  router.Add("POST", "/api/pull", [context](OnExchange on) {
    serving::AnswerOffLoop(context, Pull, std::move(on));
  });
  AddEmbedHandlers(router, context);
}

bool IsSpoken(const http::HttpRequest& request) {
  return request.path == "/api" || request.path.starts_with("/api/");
}

}  // namespace sluice::ollama
