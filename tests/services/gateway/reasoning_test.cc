// Whether a model thinks, and calls in their older form, with the real formats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/services/gateway/tools_fixture.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;

using GatewayReasoningTest = GatewayToolsTest;

TEST_F(GatewayReasoningTest, EveryNameOfTheSwitchTurnsThinkingOff) {
  size_t sequence = 0;
  for (const char* fields :
       {R"({"enable_thinking": false})", R"({"think": false})",
        R"({"thinking": {"type": "disabled"}})",
        R"({"reasoning": {"effort": "none"}})", R"({"reasoning_budget": 0})"}) {
    Message(*ParseJson(fields), "Yes.");
    EXPECT_THAT(server_->PromptOf(sequence++), HasSubstr("/nothink")) << fields;
  }
  Server gpt_oss(Harmony());
  gpt_oss.Chat(*ParseJson(R"({"think": false})"));
  EXPECT_THAT(gpt_oss.PromptOf(0), HasSubstr("Reasoning: low"));
}

TEST_F(GatewayReasoningTest, ReasoningIsLeftOutWhereItIsNotWanted) {
  const std::string output = "\n<think>Hm.</think>\nYes.";
  for (const char* fields : {R"({"include_reasoning": false})",
                             R"({"reasoning": {"exclude": true}})"}) {
    Json body = *ParseJson(fields);
    const Json whole = server_->Answer(body, output)->Body();
    const Json& message = whole["choices"][0]["message"];
    EXPECT_FALSE(message.contains("reasoning")) << fields;
    EXPECT_FALSE(message.contains("reasoning_content"));
    EXPECT_EQ(Trimmed(message["content"]), "Yes.");
    EXPECT_GT(whole["usage"]["completion_tokens_details"]["reasoning_tokens"],
              0);
    body["stream"] = true;
    const Streamed streamed(server_->Answer(body, output)->Events());
    EXPECT_EQ(streamed.reasoning, "");
    EXPECT_EQ(streamed.content, message["content"]);
  }
}

TEST_F(GatewayReasoningTest, FunctionsAreAnsweredInTheirOlderForm) {
  Json body;
  body["functions"] = Json::array();
  const Json tools = *ParseJson(kTools);
  for (const Json& tool : tools) {
    body["functions"].push_back(tool["function"]);
  }
  const Json whole = server_->Answer(body, Glm().output)->Body();
  const Json& choice = whole["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "function_call");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  const Json& call = choice["message"]["function_call"];
  EXPECT_EQ(call["name"], "get_weather");
  EXPECT_EQ(*ParseJson(call["arguments"].get<std::string>()),
            *ParseJson(kArguments));
  EXPECT_THAT(server_->PromptOf(0), HasSubstr("get_weather"));
  body["stream"] = true;
  std::string name, arguments, finish;
  for (const Json& event : server_->Answer(body, Glm().output)->Events()) {
    const Json& part = event["choices"][0];
    if (!part["finish_reason"].is_null()) finish = part["finish_reason"];
    if (!part["delta"].contains("function_call")) continue;
    const Json& piece = part["delta"]["function_call"];
    name += piece.value("name", "");
    arguments += piece.value("arguments", "");
  }
  EXPECT_EQ(name, "get_weather");
  EXPECT_EQ(arguments, call["arguments"]);
  EXPECT_EQ(finish, "function_call");
}

TEST_F(GatewayReasoningTest, AnOlderHistoryRendersAsOneOfTools) {
  Json older = WithTools();
  older["messages"] = *ParseJson(R"([
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": null, "function_call":
      {"name": "get_weather", "arguments": "{\"city\": \"Bern\"}"}},
    {"role": "function", "name": "get_weather", "content": "rain"}])");
  Json newer = WithTools();
  newer["messages"] = *ParseJson(R"([
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "a",
      "type": "function", "function":
      {"name": "get_weather", "arguments": "{\"city\": \"Bern\"}"}}]},
    {"role": "tool", "tool_call_id": "a", "content": "rain"}])");
  server_->Chat(older);
  server_->Chat(newer);
  EXPECT_EQ(server_->PromptOf(0), server_->PromptOf(1));
}

}  // namespace
}  // namespace sluice::gateway
