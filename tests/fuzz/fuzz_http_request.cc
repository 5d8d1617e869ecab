// Any path and body through router, parsers and answers: one answer always,
// and every byte of it as clients expect. Input: the path up to the first
// newline, then the body. Behind it an engine that echoes its prompt, so that
// what a client writes is told apart as a model's reasoning and calls.
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/http/router.h"
#include "common/text/output/parameter_types.h"
#include "common/text/output/parsers.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/fuzz/input_bound.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

ServedModel ModelThatCalls() {
  auto text = std::make_unique<openai::FakeText>();
  text->format = {ToolFormat::kHermes, ReasoningFormat::kThink};
  text->new_parser = [format = text->format](const OutputRequest& request) {
    return NewMarkupParser(format, request,
                           std::make_shared<const ToolTypes>(request.tools));
  };
  ServedModel model = FakeModel();
  model.text = std::move(text);
  return model;
}

// Everything behind the socket, made once.
struct Gateway {
  const ServedModel model = ModelThatCalls();
  ScriptedEngine engine{Echo};
  GatewayMetrics metrics{{"fake"}};
  http::Router router;

  Gateway() {
    const HandlerContext context{model, engine.loop(), metrics, nullptr,
                                 [] { return GatewayReadiness{true}; }};
    AddChatHandler(router, context);
    AddCompletionsHandler(router, context);
    AddTokenizeHandlers(router, context);
    AddModelHandlers(router, context);
    AddHealthHandlers(router, context);
  }
};

void CheckJson(std::string_view text) {
  JsonLimits limits;
  limits.max_bytes = size_t{64} << 20;
  SLUICE_CHECK(ParseJson(text, limits).ok());
}

// `text` holds whole events alone, each with one JSON value or [DONE].
void CheckEvents(std::string_view text) {
  constexpr std::string_view kData = "data: ";
  constexpr std::string_view kEnd = "\n\n";
  while (!text.empty()) {
    SLUICE_CHECK(text.starts_with(kData));
    const size_t end = text.find(kEnd);
    SLUICE_CHECK(end != std::string_view::npos);
    const auto data = text.substr(kData.size(), end - kData.size());
    if (data != "[DONE]") CheckJson(data);
    text.remove_prefix(end + kEnd.size());
  }
}

// A large answer comes in pieces that end anywhere, as events or whole.
void CheckPieces(const http::FakeExchange& exchange) {
  std::string text;
  for (const std::string& chunk : exchange.chunks) text += chunk;
  if (exchange.responses[0].content_type == "application/json") {
    CheckJson(text);
  } else {
    CheckEvents(text);
  }
}

void RunOne(std::string_view input) {
  static auto* gateway = new Gateway;
  const size_t newline = std::min(input.find('\n'), input.size());
  const std::string_view body =
      input.substr(std::min(newline + 1, input.size()));
  const auto exchange = http::Post(input.substr(0, newline), std::string(body));
  exchange->deferred = true;  // as on a loop
  gateway->router.Route(exchange);
  gateway->engine.Settle(*exchange);
  SLUICE_CHECK(exchange->ended);
  SLUICE_CHECK(exchange->responses.size() == 1);
  const http::HttpResponse& response = exchange->responses[0];
  if (exchange->streaming) {
    CheckPieces(*exchange);
  } else if (response.content_type == "application/json") {
    CheckJson(response.body);
  }
  fuzz::g_passes = gateway->engine.submitted();
  gateway->engine.Forget();
}

}  // namespace
}  // namespace sluice::gateway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::gateway::RunOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
