// Bodies of Messages: what the reader takes has the form that the core needs,
// and the events of a stream make the whole answer. Behind it an engine that
// echoes its prompt, so that what a client writes is told apart as a model's
// thinking and calls. Input: a body.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/dialects/messages/handlers.h"
#include "common/dialects/messages/parse.h"
#include "common/http/router.h"
#include "common/text/output/parameter_types.h"
#include "common/text/output/parsers.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
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
  }
};

void CheckMessage(const Json& message) {
  constexpr std::array<std::string_view, 4> kRoles = {"system", "user",
                                                      "assistant", "tool"};
  const std::string role = message.at("role");
  SLUICE_CHECK(std::ranges::find(kRoles, role) != kRoles.end());
  SLUICE_CHECK(message.at("content").is_string());
  if (role == "tool") SLUICE_CHECK(message.at("tool_call_id").is_string());
  if (!message.contains("tool_calls")) return;
  SLUICE_CHECK(role == "assistant" && !message["tool_calls"].empty());
  for (const Json& call : message["tool_calls"]) {
    SLUICE_CHECK(call.at("function").at("arguments").is_object());
    SLUICE_CHECK(!call["function"].at("name").get<std::string>().empty());
  }
}

// Returns whether the body is taken.
bool CheckReader(std::string_view body) {
  const auto parsed =
      messages::ParseMessagesRequest(body, {.vocab_size = serving::kFakeVocab});
  if (!parsed.ok()) {
    SLUICE_CHECK(parsed.status().code() == StatusCode::kInvalidArgument);
    return false;
  }
  const serving::ChatRequest& chat = parsed->chat;
  SLUICE_CHECK(!chat.messages.empty());
  for (const Json& message : chat.messages) CheckMessage(message);
  const serving::ToolFields& tools = chat.tools;
  SLUICE_CHECK(tools.tools.is_null() || !tools.tools.empty());
  SLUICE_CHECK(tools.tools.size() == tools.strict.size());
  return true;
}

// The message that a stream's events make, or the error that ends it.
Json Assembled(const http::FakeExchange& exchange) {
  constexpr std::string_view kData = "data: ";
  std::string text;
  for (const std::string& chunk : exchange.chunks) text += chunk;
  Json message;
  bool is_open = false;
  for (size_t at = 0; at < text.size(); at = text.find("\n\n", at) + 2) {
    const size_t begin = text.find(kData, at) + kData.size();
    const auto json =
        ParseJson(text.substr(begin, text.find('\n', begin) - begin),
                  {.max_bytes = size_t{64} << 20});
    SLUICE_CHECK(json.ok());
    const std::string type = json->at("type");
    SLUICE_CHECK(text.compare(at, 7, "event: ") == 0);
    SLUICE_CHECK(text.compare(at + 7, type.size(), type) == 0);
    if (type == "error") return *json;
    if (type == "message_start") {
      message = json->at("message");
    } else if (type == "content_block_start") {
      SLUICE_CHECK(!std::exchange(is_open, true));
      SLUICE_CHECK(json->at("index") == message["content"].size());
      message["content"].push_back(json->at("content_block"));
    } else if (type == "content_block_delta") {
      SLUICE_CHECK(is_open);
      Json& block = message["content"].back();
      for (const auto& [name, piece] : json->at("delta").items()) {
        if (name == "type") continue;
        block[name] = block.value(name, "") + piece.get<std::string>();
      }
    } else if (type == "content_block_stop") {
      SLUICE_CHECK(std::exchange(is_open, false));
    } else if (type == "message_delta") {
      message.update(json->at("delta"));
    }
  }
  SLUICE_CHECK(!is_open);
  return message;
}

void CheckSame(const Json& whole, const Json& streamed) {
  SLUICE_CHECK(whole.at("stop_reason") == streamed.at("stop_reason"));
  SLUICE_CHECK(whole.at("content").size() == streamed.at("content").size());
  for (size_t i = 0; i < whole["content"].size(); ++i) {
    const Json& block = whole["content"][i];
    const Json& other = streamed["content"][i];
    for (const char* name : {"type", "text", "thinking", "signature", "name"}) {
      SLUICE_CHECK(block.value(name, "") == other.value(name, ""));
    }
  }
}

std::shared_ptr<http::FakeExchange> Ask(Gateway& gateway, std::string_view path,
                                        std::string body) {
  const auto exchange = http::Post(path, std::move(body));
  exchange->format = FormatOf(exchange->request());
  exchange->deferred = true;  // as on a loop
  gateway.router.Route(exchange);
  gateway.engine.Settle(*exchange);
  SLUICE_CHECK(exchange->ended && exchange->responses.size() == 1);
  return exchange;
}

// The body with another `stream`.
std::string Streamed(const Json& body, bool stream) {
  Json other = body;
  other["stream"] = stream;
  return DumpJson(other);
}

void RunOne(std::string_view body) {
  static auto* gateway = new Gateway;
  const bool is_taken = CheckReader(body);
  Ask(*gateway, messages::kCountPath, std::string(body));
  const auto asked = Ask(*gateway, messages::kMessagesPath, std::string(body));
  if (!is_taken) {
    SLUICE_CHECK(asked->responses[0].status == 400);
    SLUICE_CHECK(asked->Body().at("type") == "error");
  } else if (const auto json = ParseJson(body); json->is_object()) {
    const auto whole =
        Ask(*gateway, messages::kMessagesPath, Streamed(*json, false));
    const auto stream =
        Ask(*gateway, messages::kMessagesPath, Streamed(*json, true));
    SLUICE_CHECK(whole->responses[0].status == stream->responses[0].status);
    if (stream->streaming && !whole->streaming) {
      CheckSame(whole->Body(), Assembled(*stream));
    }
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
