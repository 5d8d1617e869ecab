// Any path and body through router, parsers and answers: one answer always,
// and every byte of it as clients expect. Input: the path up to the first
// newline, then the body. Behind it a generator that echoes its prompt, so that
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
  auto text = std::make_unique<FakeText>();
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
  FakeGenerator generator{FakeGenerator::Mode::kEcho};
  GatewayMetrics metrics{{"fake"}};
  Router router;

  Gateway() {
    const HandlerContext context{model, generator, metrics, nullptr,
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

void CheckStream(const FakeExchange& exchange) {
  constexpr std::string_view kData = "data: ";
  for (const std::string& chunk : exchange.chunks) {
    SLUICE_CHECK(chunk.starts_with(kData));
    SLUICE_CHECK(chunk.find("\n\n") == chunk.size() - 2);
    if (chunk == "data: [DONE]\n\n") continue;
    CheckJson(std::string_view(chunk).substr(kData.size()));
  }
}

void RunOne(std::string_view input) {
  static auto* gateway = new Gateway;
  const size_t newline = std::min(input.find('\n'), input.size());
  const std::string_view body =
      input.substr(std::min(newline + 1, input.size()));
  const auto exchange = Post(input.substr(0, newline), std::string(body));
  exchange->deferred = true;  // as on a loop
  gateway->router.Route(exchange);
  exchange->RunPosted();
  SLUICE_CHECK(exchange->ended);
  SLUICE_CHECK(exchange->responses.size() == 1);
  const HttpResponse& response = exchange->responses[0];
  if (exchange->streaming) {
    CheckStream(*exchange);
  } else if (response.content_type == "application/json") {
    CheckJson(response.body);
  }
  fuzz::g_passes = gateway->generator.submitted();
  gateway->generator.Forget();
}

}  // namespace
}  // namespace sluice::gateway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::gateway::RunOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
