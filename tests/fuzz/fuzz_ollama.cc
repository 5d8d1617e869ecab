// Any body of Ollama's dialect through reader and writer: one answer always,
// and a stream's lines joined are the whole answer to the same body. The first
// byte says which path; the rest is the body. Behind it an engine that echoes
// its prompt, so that what a client writes is told apart as a model's reasoning
// and calls.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/http/router.h"
#include "common/text/output/parameter_types.h"
#include "common/text/output/parsers.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "tests/fuzz/input_bound.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

constexpr const char* kPaths[] = {"/api/chat", "/api/generate", "/api/show",
                                  "/api/pull"};

serving::ServedModel ModelThatCalls() {
  auto text = std::make_unique<serving::FakeText>();
  text->format = {ToolFormat::kHermes, ReasoningFormat::kThink};
  text->specials = {
      {"<|fim_prefix|>", 1}, {"<|fim_suffix|>", 2}, {"<|fim_middle|>", 3}};
  text->new_parser = [format = text->format](const OutputRequest& request) {
    return NewMarkupParser(format, request,
                           std::make_shared<const ToolTypes>(request.tools));
  };
  serving::ServedModel model = FakeModel();
  model.text = std::move(text);
  model.any_name = true;
  return model;
}

// Everything behind the socket, made once.
struct Gateway {
  const serving::ServedModel model = ModelThatCalls();
  ScriptedEngine engine{Echo};
  GatewayMetrics metrics{{"fake"}};
  http::Router router;

  Gateway() {
    AddDialects(router, {model, engine.loop(), metrics, nullptr,
                         [] { return serving::Readiness{true}; }});
  }
};

// An answer's parts, joined; of calls without the ids, which differ.
struct Joined {
  std::string content;
  std::string thinking;
  Json calls = Json::array();
  Json end;
  bool operator==(const Joined&) const = default;

  void Take(Json line) {
    SLUICE_CHECK(line.is_object() && !line.contains("error"));
    Json& part = line.contains("message") ? line["message"] : line;
    content += part.value("content", "") + part.value("response", "");
    thinking += part.value("thinking", "");
    for (Json& call : part.value("tool_calls", Json::array())) {
      SLUICE_CHECK(call["function"]["arguments"].is_object());
      call.erase("id");
      calls.push_back(call);
    }
    SLUICE_CHECK(end.is_null());
    if (line["done"] == true) end = line["done_reason"];
  }
};

std::shared_ptr<http::FakeExchange> Ask(Gateway& gateway, const char* path,
                                        std::string body) {
  const auto exchange = http::Post(path, std::move(body));
  exchange->format = FormatOf(exchange->request());
  exchange->deferred = true;  // as on a loop
  gateway.router.Route(exchange);
  gateway.engine.Settle(*exchange);
  SLUICE_CHECK(exchange->ended && exchange->responses.size() == 1);
  return exchange;
}

Joined Join(const http::FakeExchange& exchange) {
  std::string text = exchange.responses[0].body;
  for (const std::string& chunk : exchange.chunks) text += chunk;
  Joined joined;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = rest.find('\n');
    JsonLimits limits;
    limits.max_bytes = size_t{64} << 20;
    auto line = ParseJson(rest.substr(0, end), limits);
    SLUICE_CHECK(line.ok());
    joined.Take(*std::move(line));
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  }
  return joined;
}

void RunOne(uint8_t which, std::string_view body) {
  static auto* gateway = new Gateway;
  const size_t path = which % std::size(kPaths);
  const auto first = Ask(*gateway, kPaths[path], std::string(body));
  const http::HttpResponse& response = first->responses[0];
  if (response.status != 200) {
    const auto error = ParseJson(response.body);
    SLUICE_CHECK(error.ok() && error->size() == 1 &&
                 (*error)["error"].is_string());
  } else if (path < 2) {
    const size_t end = body.rfind('}');
    const auto whole =
        Ask(*gateway, kPaths[path],
            Cat(body.substr(0, end), ",\"stream\":false", body.substr(end)));
    SLUICE_CHECK(whole->responses[0].status == 200);
    SLUICE_CHECK(Join(*first) == Join(*whole));
  }
  fuzz::g_passes = gateway->engine.submitted();
  gateway->engine.Forget();
}

}  // namespace
}  // namespace sluice::gateway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  sluice::gateway::RunOne(data[0],
                          {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
