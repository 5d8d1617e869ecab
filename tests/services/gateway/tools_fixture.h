#ifndef SLUICE_TESTS_SERVICES_GATEWAY_TOOLS_FIXTURE_H_
#define SLUICE_TESTS_SERVICES_GATEWAY_TOOLS_FIXTURE_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/serving/loaded_text.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"
#include "tests/services/gateway/model_formats.h"
#include "tests/serving/toy_text.h"
#include "tests/testing/test_data.h"

namespace sluice::gateway {

inline constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "get_weather",
   "description": "Weather now.", "strict": null,
   "parameters": {"type": "object", "properties": {
     "city": {"type": "string"}, "days": {"type": "integer"}},
     "required": ["city"]}}},
  {"type": "function", "function": {"name": "get_location",
   "parameters": {"type": "object", "properties": {}}}}])";

inline std::string Trimmed(const Json& text) {
  if (!text.is_string()) return "";
  const std::string all = text;
  const size_t begin = all.find_first_not_of(" \n");
  if (begin == std::string::npos) return "";
  return all.substr(begin, all.find_last_not_of(" \n") - begin + 1);
}

// A message put together from a stream's events, as clients do it; and what
// OpenAI's shapes ask of each.
struct Streamed {
  std::string content;
  std::string reasoning;
  std::map<int, Json> calls;
  std::string finish;
  Json usage;
  Json logprobs = Json::array();

  explicit Streamed(const std::vector<Json>& events) {
    bool first = true;
    for (const Json& event : events) {
      if (event.contains("usage") && !event["usage"].is_null()) {
        usage = event["usage"];
      }
      if (event["choices"].empty()) continue;
      const Json& choice = event["choices"][0];
      const Json& delta = choice["delta"];
      EXPECT_EQ(delta.contains("role"), first);
      EXPECT_EQ(finish, "") << "nothing comes after the end";
      first = false;
      content += delta.value("content", Json("")).is_string()
                     ? delta.value("content", "")
                     : "";
      reasoning += delta.value("reasoning_content", "");
      EXPECT_EQ(delta.value("reasoning", ""),
                delta.value("reasoning_content", ""));
      if (delta.contains("tool_calls")) TakeCalls(delta["tool_calls"]);
      if (!choice["finish_reason"].is_null()) {
        finish = choice["finish_reason"];
        EXPECT_TRUE(delta.empty());
      }
      if (!choice["logprobs"].is_null()) {
        for (const Json& entry : choice["logprobs"]["content"]) {
          logprobs.push_back(entry);
        }
      }
    }
  }

  void TakeCalls(const Json& pieces) {
    for (const Json& piece : pieces) {
      const int index = piece["index"];
      const Json& function = piece["function"];
      ASSERT_TRUE(function["arguments"].is_string());
      const auto found = calls.find(index);
      if (found == calls.end()) {
        EXPECT_EQ(index, static_cast<int>(calls.size()));
        EXPECT_EQ(piece["type"], "function");
        EXPECT_TRUE(piece["id"].is_string());
        EXPECT_FALSE(function["name"].get<std::string>().empty());
        calls[index] = piece;
        continue;
      }
      EXPECT_EQ(piece.size(), 2u) << "index and function, " << DumpJson(piece);
      EXPECT_FALSE(function.contains("name")) << "once";
      Json& arguments = found->second["function"]["arguments"];
      arguments = arguments.get<std::string>() +
                  function["arguments"].get<std::string>();
    }
  }
};

// The handlers over a model of `format`, behind which the test speaks.
class Server {
 public:
  explicit Server(const Format& format, const serving::FormatNames& names = {})
      : model_(MakeToyModel(TemplateOf(format), format.tokens, names)),
        context_{model_, engine_.loop(), metrics_, nullptr, {}} {
    context_.readiness = [] { return serving::Readiness{true}; };
    AddDialects(router_, context_);
  }
  ~Server() { engine_.EndAll(); }

  std::shared_ptr<http::FakeExchange> Chat(Json body) {
    if (!body.contains("messages")) {
      body["messages"] =
          Json::array({{{"role", "user"}, {"content", "Weather?"}}});
    }
    const auto exchange = http::Post("/v1/chat/completions", DumpJson(body));
    router_.Route(exchange);
    return exchange;
  }

  // Sequence `sequence` gives the tokens of `output`, with a logprob each.
  void Say(size_t sequence, const std::string& output) {
    const auto tokens = model_.text->Encode(output, /*special=*/true);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    spoken_ = tokens->size();
    for (const TokenId token : *tokens) {
      TokenEvent event;
      event.tokens = {serving::WithLogprob(token, -0.5f)};
      engine_.Tokens(sequence, event);
    }
  }
  void Stop(size_t sequence) {
    FinalEvent end;
    end.stop_token = 256;
    engine_.End(sequence, end);
  }
  // The answer to `body` when the model says `output` and ends its turn.
  std::shared_ptr<http::FakeExchange> Answer(const Json& body,
                                             const std::string& output) {
    const size_t sequence = engine_.submitted();
    auto exchange = Chat(body);
    EXPECT_EQ(engine_.submitted(), sequence + 1);
    if (engine_.submitted() == sequence) return exchange;
    Say(sequence, output);
    Stop(sequence);
    return exchange;
  }

  std::string PromptOf(size_t sequence) {
    return *model_.text->Decode(engine_.request(sequence).prompt_tokens,
                                /*skip_special=*/false);
  }
  const Tokenizer& tokenizer() const {
    return static_cast<const serving::LoadedText&>(*model_.text).tokenizer();
  }

  serving::ServedModel model_;
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{"toy"}};
  serving::ServingContext context_;
  http::Router router_;
  size_t spoken_ = 0;  // tokens of the latest Say
};

inline Json WithTools(const char* fields = "{}") {
  Json body = *ParseJson(fields);
  body["tools"] = *ParseJson(kTools);
  return body;
}

// The rest does not differ among formats.
class GatewayToolsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SLUICE_REQUIRE_TEST_DATA(templates, "templates");
    EXPECT_FALSE(templates.empty());
    server_ = std::make_unique<Server>(Glm());
  }
  Json Message(const Json& body, const std::string& output = Glm().output) {
    return server_->Answer(body, output)->Body()["choices"][0]["message"];
  }

  std::unique_ptr<Server> server_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TESTS_SERVICES_GATEWAY_TOOLS_FIXTURE_H_
