// Any path and body through router, parsers and answers: one answer always,
// and every byte of it as clients expect; a stream goes on from its middle to
// the same end. Input: the path up to the first newline, with a tab before the
// Last-Event-ID if there is one, then the body. Behind it an engine that echoes
// its prompt, so that what a client writes is told apart as a model's reasoning
// and calls.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/http/router.h"
#include "common/serving/event_id.h"
#include "common/text/output/parameter_types.h"
#include "common/text/output/parsers.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/fuzz/input_bound.h"
#include "tests/services/gateway/fakes.h"

namespace sluice::gateway {
namespace {

serving::ServedModel ModelThatCalls() {
  auto text = std::make_unique<serving::FakeText>();
  text->format = {ToolFormat::kHermes, ReasoningFormat::kThink};
  text->new_parser = [format = text->format](const OutputRequest& request) {
    return NewMarkupParser(format, request,
                           std::make_shared<const ToolTypes>(request.tools));
  };
  serving::ServedModel model = FakeModel();
  model.text = std::move(text);
  return model;
}

// Everything behind the socket, made once.
struct Gateway {
  const serving::ServedModel model = ModelThatCalls();
  ScriptedEngine engine{Echo};
  GatewayMetrics metrics{{"fake"}};
  http::Router router;

  Gateway() {
    const serving::ServingContext context{
        model, engine.loop(), metrics, nullptr,
        [] { return serving::Readiness{true}; }};
    AddDialects(router, context);
    AddModelHandlers(router, context);
    AddHealthHandlers(router, context);
  }
};

void CheckJson(std::string_view text) {
  JsonLimits limits;
  limits.max_bytes = size_t{64} << 20;
  SLUICE_CHECK(ParseJson(text, limits).ok());
}

// `text` holds whole events alone, each with one JSON value or [DONE]; of an
// answer's events each has an id that is read as it is.
void CheckEvents(std::string_view text) {
  constexpr std::string_view kEvent = "event: ";
  constexpr std::string_view kId = "id: ";
  constexpr std::string_view kData = "data: ";
  constexpr std::string_view kEnd = "\n\n";
  while (!text.empty()) {
    if (text.starts_with(kEvent)) text.remove_prefix(text.find('\n') + 1);
    SLUICE_CHECK(text.starts_with(kData));
    const size_t whole = text.find(kEnd);
    SLUICE_CHECK(whole != std::string_view::npos);
    const size_t end = std::min(text.find('\n'), whole);
    if (end < whole) {
      const std::string_view id = text.substr(end + 1, whole - end - 1);
      SLUICE_CHECK(id.starts_with(kId));
      SLUICE_CHECK(serving::ParseEventId(id.substr(kId.size())).ok());
    }
    const auto data = text.substr(kData.size(), end - kData.size());
    if (data != "[DONE]") CheckJson(data);
    text.remove_prefix(whole + kEnd.size());
  }
}

// `text` holds whole lines alone, each with one JSON value.
void CheckLines(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    SLUICE_CHECK(end != std::string_view::npos);
    CheckJson(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

// A large answer comes in pieces that end anywhere, as events or whole.
void CheckPieces(const http::FakeExchange& exchange) {
  std::string text;
  for (const std::string& chunk : exchange.chunks) text += chunk;
  const std::string& type = exchange.responses[0].content_type;
  if (type == "application/json") {
    CheckJson(text);
  } else if (type == "application/x-ndjson") {
    CheckLines(text);
  } else {
    CheckEvents(text);
  }
}

std::shared_ptr<http::FakeExchange> Answer(Gateway& gateway,
                                           std::string_view path,
                                           std::string_view body,
                                           std::string_view last_event_id) {
  const auto exchange = http::Post(path, std::string(body));
  if (!last_event_id.empty()) {
    exchange->request().headers.emplace_back("last-event-id", last_event_id);
  }
  exchange->deferred = true;  // as on a loop
  gateway.router.Route(exchange);
  gateway.engine.Settle(*exchange);
  SLUICE_CHECK(exchange->ended);
  SLUICE_CHECK(exchange->responses.size() == 1);
  const http::HttpResponse& response = exchange->responses[0];
  if (exchange->streaming) {
    CheckPieces(*exchange);
  } else if (response.content_type == "application/json") {
    CheckJson(response.body);
  }
  return exchange;
}

// Adds what an event of Messages tells of a block.
void AddBlockText(const Json& event,
                  std::map<std::string, std::string>& texts) {
  if (event.value("type", "") != "content_block_delta") return;
  for (const auto& [name, piece] : event["delta"].items()) {
    if (name == "type") continue;
    texts[Cat("block ", DumpJson(event["index"]), name)] +=
        piece.get<std::string>();
  }
}

// What the events tell, each choice's texts in one. Up to the event of id
// `last`, if that is not empty.
std::map<std::string, std::string> TextsOf(const http::FakeExchange& exchange,
                                           std::string_view last = {}) {
  std::string text;
  for (const std::string& chunk : exchange.chunks) text += chunk;
  std::map<std::string, std::string> texts;
  for (size_t at = 0; at < text.size();) {
    const size_t whole = text.find("\n\n", at);
    if (text.compare(at, 7, "event: ") == 0) at = text.find('\n', at) + 1;
    const size_t end = text.find('\n', at);
    const std::string_view event(text.data() + at, end - at);
    const std::string id =
        whole > end ? text.substr(end + 5, whole - end - 5) : "";
    at = whole + 2;
    if (!event.starts_with("data: {")) continue;
    const Json json = *ParseJson(event.substr(6));
    for (const Json& choice : json.value("choices", Json::array())) {
      const std::string index = DumpJson(choice["index"]);
      texts[index] += choice.value("text", "");
      const Json delta = choice.value("delta", Json::object());
      for (const char* name : {"content", "reasoning"}) {
        if (delta.contains(name) && delta[name].is_string()) {
          texts[index + name] += delta[name].get<std::string>();
        }
      }
    }
    AddBlockText(json, texts);
    if (!last.empty() && id == last) break;
  }
  return texts;
}

// The ids of events that came in one piece.
std::vector<std::string> IdsOf(const http::FakeExchange& exchange) {
  std::vector<std::string> ids;
  for (const std::string& chunk : exchange.chunks) {
    const size_t line = chunk.rfind("\nid: ");
    if (line == std::string::npos || !chunk.ends_with("\n\n")) continue;
    ids.push_back(chunk.substr(line + 5, chunk.size() - line - 5 - 2));
  }
  return ids;
}

void RunOne(std::string_view input) {
  static auto* gateway = new Gateway;
  const size_t newline = std::min(input.find('\n'), input.size());
  const std::string_view body =
      input.substr(std::min(newline + 1, input.size()));
  const std::string_view line = input.substr(0, newline);
  const size_t tab = std::min(line.find('\t'), line.size());
  const std::string_view path = line.substr(0, tab);
  const std::string_view last = line.substr(std::min(tab + 1, line.size()));
  const auto exchange = Answer(*gateway, path, body, last);
  if (const std::vector<std::string> ids = IdsOf(*exchange); !ids.empty()) {
    const std::string& cut = ids[ids.size() / 2];
    const auto rest = Answer(*gateway, path, body, cut);
    SLUICE_CHECK(rest->streaming);
    auto texts = TextsOf(*exchange, cut);
    for (const auto& [name, text] : TextsOf(*rest)) texts[name] += text;
    std::erase_if(texts, [](const auto& text) { return text.second.empty(); });
    auto wanted = TextsOf(*exchange);
    std::erase_if(wanted, [](const auto& text) { return text.second.empty(); });
    SLUICE_CHECK(texts == wanted);
    const std::vector<std::string> others = IdsOf(*rest);
    SLUICE_CHECK(others.empty() || others.back() == ids.back());
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
