// Any body on its whole way to tokens: parsed, its history adapted, rendered by
// a real template engine, tokenized by a real tokenizer; answered with its own
// prompt. The first byte says which endpoint; the rest is the body.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/http/router.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/fuzz/input_bound.h"
#include "tests/services/gateway/fakes.h"
#include "tests/serving/toy_text.h"

namespace sluice::gateway {
namespace {

// One call per message, as Llama 3's template takes them.
constexpr const char* kTemplate =
    "{%- if tools %}{%- for t in tools %}{{ t | tojson }}\n{%- endfor %}"
    "{\"name\": \"f\", \"parameters\": {}}{%- endif %}"
    "{%- for m in messages %}<|start|>{{ m.role }}\n"
    "{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    "{%- endif %}{{ m.content }}"
    "{%- if m.tool_calls %}{%- if m.tool_calls | length != 1 %}"
    "{{ raise_exception('one call') }}{%- endif %}"
    "{{ m.tool_calls[0].function.arguments | tojson }}{%- endif %}<|end|>\n"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}<|start|>assistant\n{%- endif %}";

constexpr const char* kPaths[] = {"/v1/chat/completions",
                                  "/v1/completions",
                                  "/tokenize",
                                  "/detokenize",
                                  "/v1/messages",
                                  "/v1/messages/count_tokens",
                                  "/completion",
                                  "/infill",
                                  "/apply-template",
                                  "/api/chat",
                                  "/api/generate",
                                  "/v1/responses",
                                  "/v1/responses/input_tokens"};

// Everything behind the socket, made once.
struct TextGateway {
  serving::ServedModel model = FakeModel();
  ScriptedEngine engine{Echo};
  GatewayMetrics metrics{{"toy"}};
  http::Router router;

  TextGateway() {
    model.text = serving::MakeToyText(kTemplate,
                                      {{"<|end|>", "<|start|>", "<|eot|>"},
                                       {"<think>", "<PRE>", "<SUF>", "<MID>"}});
    model.eos_ids = {256};
    const serving::ServingContext context{
        model, engine.loop(), metrics, nullptr,
        [] { return serving::Readiness{true}; }};
    AddDialects(router, context);
  }
};

void AskOne(uint8_t which, std::string_view body) {
  static auto* gateway = new TextGateway;
  const auto exchange =
      http::Post(kPaths[which % std::size(kPaths)], std::string(body));
  exchange->deferred = true;  // as on a loop
  gateway->router.Route(exchange);
  gateway->engine.Settle(*exchange);
  SLUICE_CHECK(exchange->ended && exchange->responses.size() == 1);
  fuzz::g_passes = gateway->engine.submitted();
  gateway->engine.Forget();
}

}  // namespace
}  // namespace sluice::gateway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  sluice::gateway::AskOne(data[0],
                          {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
