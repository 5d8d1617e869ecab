// Tools and reasoning through the handlers: the released chat templates and the
// real formats, with an engine that says what a model would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "common/text/chat_template.h"
#include "tests/services/gateway/tools_fixture.h"
#include "tests/testing/test_data.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class GatewayFormatTest : public ::testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    SLUICE_REQUIRE_TEST_DATA(templates, "templates");
    EXPECT_FALSE(templates.empty());
    server_ = std::make_unique<Server>(GetParam());
  }

  void ExpectTheTurn(const Json& message) {
    const Format& format = GetParam();
    EXPECT_EQ(message.value("reasoning", Json("")),
              message.value("reasoning_content", Json("")));
    EXPECT_EQ(Trimmed(message.value("reasoning_content", Json(""))),
              format.reasons ? "Need it." : "");
    EXPECT_EQ(Trimmed(message["content"]),
              format.reasons ? "Let me look." : "");
    ASSERT_TRUE(message.contains("tool_calls")) << DumpJson(message);
    ASSERT_EQ(message["tool_calls"].size(), format.two_calls ? 2u : 1u);
    const Json& call = message["tool_calls"][0];
    EXPECT_EQ(call["type"], "function");
    EXPECT_EQ(call["function"]["name"], "get_weather");
    EXPECT_EQ(*ParseJson(call["function"]["arguments"].get<std::string>()),
              *ParseJson(kArguments));
    if (!format.two_calls) return;
    EXPECT_EQ(message["tool_calls"][1]["function"]["name"], "get_location");
    EXPECT_EQ(message["tool_calls"][1]["function"]["arguments"], "{}");
  }

  std::unique_ptr<Server> server_;
};

TEST_P(GatewayFormatTest, AnAnswerIsToldApart) {
  const Json body = server_->Answer(WithTools(), GetParam().output)->Body();
  const Json& choice = body["choices"][0];
  ExpectTheTurn(choice["message"]);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  for (const Json& call : choice["message"]["tool_calls"]) {
    EXPECT_THAT(call["id"].get<std::string>(),
                MatchesRegex("call_[0-9a-f]{16}_0_[0-9]"));
  }
  EXPECT_THAT(server_->PromptOf(0), HasSubstr("get_weather"))
      << "the template is told of the tools";
}

TEST_P(GatewayFormatTest, TheStreamSaysTheSame) {
  const std::string fields = R"({"logprobs": true)";
  const Json whole =
      server_->Answer(WithTools((fields + "}").c_str()), GetParam().output)
          ->Body();
  const auto on =
      server_->Answer(WithTools((fields + R"(, "stream": true, "stream_options":
                {"include_usage": true}})")
                                    .c_str()),
                      GetParam().output);
  const Streamed streamed(on->Events());
  const Json& message = whole["choices"][0]["message"];
  EXPECT_EQ(streamed.content, message["content"].is_null()
                                  ? ""
                                  : message["content"].get<std::string>());
  EXPECT_EQ(streamed.reasoning, message.value("reasoning_content", ""));
  EXPECT_EQ(streamed.finish, "tool_calls");
  ASSERT_EQ(streamed.calls.size(), message["tool_calls"].size());
  for (const auto& [index, call] : streamed.calls) {
    EXPECT_EQ(call["function"],
              message["tool_calls"][static_cast<size_t>(index)]["function"]);
  }
  EXPECT_EQ(streamed.usage, whole["usage"]);
  EXPECT_EQ(streamed.logprobs, whole["choices"][0]["logprobs"]["content"]);
  EXPECT_EQ(streamed.logprobs.size(), server_->spoken_)
      << "an entry per token, of markup too";
  EXPECT_EQ(on->chunks.back(), "data: [DONE]\n\n");
}

TEST_P(GatewayFormatTest, TheAnswerSentBackRendersAsTheReferenceDoes) {
  const Format& format = GetParam();
  const Json message = server_->Answer(WithTools(), format.output)
                           ->Body()["choices"][0]["message"];
  Json messages = Json::array({{{"role", "user"}, {"content", "Weather?"}}});
  Json reference = messages;
  messages.push_back(message);
  Json turn = *ParseJson(format.reference);
  turn["role"] = "assistant";
  for (const Json& call : message["tool_calls"]) {
    Json as_object = call;
    as_object["function"]["arguments"] =
        *ParseJson(call["function"]["arguments"].get<std::string>());
    turn["tool_calls"].push_back(std::move(as_object));
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", call["id"]},
                        {"content", "{\"sunny\": true}"}});
  }
  reference.push_back(std::move(turn));
  for (size_t i = 2; i < messages.size(); ++i) reference.push_back(messages[i]);
  Json body = WithTools();
  body["messages"] = messages;
  server_->Chat(body);
  const auto chat =
      ChatTemplate::Make(TemplateOf(format), server_->tokenizer());
  ASSERT_TRUE(chat.ok()) << chat.status();
  Json tools = *ParseJson(kTools);
  tools[0]["function"].erase("strict");  // null is absent
  // Its template fails without.
  if (std::string(format.name) == "harmony")
    tools[1]["function"]["description"] = "";
  const auto expected = (*chat)->Render(reference, tools, {});
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(server_->PromptOf(1), *expected);
}

TEST_P(GatewayFormatTest, ArgumentsThatAreNoObjectAreTakenBack) {
  // What was cut, or what the model wrote wrong: agents send it back.
  for (const char* arguments :
       {"{\"city\": \"Bern", "{\"city\":Bern}", "[\"Bern\"]", "Bern"}) {
    Json body = WithTools();
    body["messages"] = *ParseJson(R"([
      {"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c",
       "type": "function", "function": {"name": "get_weather"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "no JSON"}])");
    body["messages"][1]["tool_calls"][0]["function"]["arguments"] = arguments;
    const size_t sequence = server_->engine_.submitted();
    const auto on = server_->Chat(body);
    ASSERT_EQ(server_->engine_.submitted(), sequence + 1)
        << on->responses.at(0).body;
    EXPECT_THAT(server_->PromptOf(sequence), HasSubstr("Bern")) << arguments;
  }
}

// How often each special token stands in the prompt of `body`.
std::map<TokenId, int> SpecialsOf(Server& server, const Json& body) {
  const size_t sequence = server.engine_.submitted();
  const auto on = server.Chat(body);
  std::map<TokenId, int> counts;
  if (server.engine_.submitted() == sequence) {
    ADD_FAILURE() << on->responses.at(0).body;
    return counts;
  }
  for (const TokenId token : server.engine_.request(sequence).prompt_tokens) {
    if (server.tokenizer().IsSpecial(token)) ++counts[token];
  }
  return counts;
}

TEST_P(GatewayFormatTest, SpelledSpecialTokensStayTextWhereverTheyStand) {
  Json body = *ParseJson(R"({"messages": [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "", "reasoning_content": "Hm.",
     "tool_calls": [{"id": "c", "type": "function", "function":
       {"name": "get_weather", "arguments": "{\"city\": \"Bern\"}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "rain"}]})");
  body["tools"] = *ParseJson(kTools);
  const auto plain = SpecialsOf(*server_, body);
  EXPECT_FALSE(plain.empty());
  Json& call = body["messages"][1]["tool_calls"][0];
  for (const std::string& name : GetParam().tokens.special) {
    SCOPED_TRACE(name);
    Json attack = body;
    Json& turn = attack["messages"][1];
    turn["reasoning_content"] = "Hm. " + name;
    turn["tool_calls"][0]["id"] = name;
    turn["tool_calls"][0]["function"]["name"] = "get" + name;
    turn["tool_calls"][0]["function"]["arguments"] =
        DumpJson({{name, "x" + name}, {"city", name + "Bern"}});
    attack["messages"][2]["tool_call_id"] = name;
    attack["messages"][2]["content"] = "rain" + name;
    Json& function = attack["tools"][0]["function"];
    function["description"] = "Weather " + name;
    function["parameters"]["properties"][name] = {{"type", "string"},
                                                  {"description", name}};
    function["parameters"]["properties"]["city"]["enum"] = {name, "Bern"};
    EXPECT_EQ(SpecialsOf(*server_, attack), plain);
  }
  EXPECT_EQ(call["id"], "c");
}

INSTANTIATE_TEST_SUITE_P(Formats, GatewayFormatTest,
                         ::testing::Values(Glm(), Intellect(), Hermes(),
                                           Harmony(), Llama()),
                         [](const auto& one) { return one.param.name; });

TEST_F(GatewayToolsTest, ChoicesHaveCallsAndIdsOfTheirOwn) {
  const auto on = server_->Chat(WithTools(R"({"n": 2})"));
  for (const size_t i : {1, 0}) {
    server_->Say(i, Glm().output);
    server_->Stop(i);
  }
  std::set<std::string> ids;
  const Json body = on->Body();
  for (const Json& choice : body["choices"]) {
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    for (const Json& call : choice["message"]["tool_calls"]) {
      ids.insert(call["id"]);
    }
  }
  const Json again = Message(WithTools());
  for (const Json& call : again["tool_calls"]) ids.insert(call["id"]);
  EXPECT_EQ(ids.size(), 6u);
}

TEST_F(GatewayToolsTest, NoCallIsLookedForIfNoneIsAllowed) {
  // vllm PR#30867: tool_choice "none" was ignored.
  const auto on =
      server_->Answer(WithTools(R"({"tool_choice": "none"})"), Glm().output);
  const Json choice = on->Body()["choices"][0];
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_THAT(choice["message"]["content"].get<std::string>(),
              HasSubstr("<tool_call>get_weather"));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_THAT(server_->PromptOf(0), Not(HasSubstr("get_weather")))
      << "the model is not told";
}

TEST_F(GatewayToolsTest, WithoutToolsReasoningAloneIsToldApart) {
  const Json message = Message(Json::object(), "\n<think>Hm.</think>\nYes.");
  EXPECT_EQ(message["reasoning_content"], "Hm.");
  EXPECT_EQ(Trimmed(message["content"]), "Yes.");
  EXPECT_FALSE(message.contains("tool_calls"));
}

TEST_F(GatewayToolsTest, OneCallEndsTheAnswerIfMoreAreNotWanted) {
  const auto on = server_->Answer(
      WithTools(R"({"parallel_tool_calls": false, "stream": true})"),
      Glm().output);
  EXPECT_TRUE(server_->engine_.AwaitCancelled(1));
  const Streamed streamed(on->Events());
  EXPECT_EQ(streamed.calls.size(), 1u);
  EXPECT_EQ(streamed.finish, "tool_calls");
  EXPECT_EQ(on->chunks.back(), "data: [DONE]\n\n");
}

TEST_F(GatewayToolsTest, StopStringsAreLookedForInTheContentAlone) {
  const Json body = WithTools(R"({"stop": ["Need", "weather", "Köln"]})");
  EXPECT_EQ(Message(body)["tool_calls"].size(), 2u);
  const auto on =
      server_->Answer(WithTools(R"({"stop": "look"})"), Glm().output);
  const Json choice = on->Body()["choices"][0];
  EXPECT_EQ(Trimmed(choice["message"]["content"]), "Let me");
  EXPECT_EQ(choice["message"]["reasoning_content"], "Need it.");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(GatewayToolsTest, ReasoningTokensAreCounted) {
  const Json usage =
      server_->Answer(WithTools(), Glm().output)->Body()["usage"];
  // "Need it." is a byte a token; "\n<think>" came before it.
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 10);
  EXPECT_GT(usage["completion_tokens"], 50);
  const Json none = server_->Answer(WithTools(), "Yes.")->Body()["usage"];
  EXPECT_EQ(none["completion_tokens_details"]["reasoning_tokens"], 0);
}

TEST_F(GatewayToolsTest, AnAnswerThatIsCutKeepsWhatThereWas) {
  const auto cut = [&](const std::string& output) {
    const size_t sequence = server_->engine_.submitted();
    const auto on = server_->Chat(WithTools());
    server_->Say(sequence, output);
    server_->engine_.End(sequence, FinishReason::kLength);
    const Json choice = on->Body()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "length");
    return choice["message"];
  };
  const Json thinking = cut("\n<think>Need");
  EXPECT_TRUE(thinking["content"].is_null());
  EXPECT_EQ(thinking["reasoning_content"], "Need");
  const Json calling =
      cut("\n<think></think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
          "<arg_value>Kö");
  EXPECT_EQ(calling["tool_calls"][0]["function"]["name"], "get_weather");
  EXPECT_FALSE(
      ParseJson(
          calling["tool_calls"][0]["function"]["arguments"].get<std::string>())
          .ok());
}

TEST_F(GatewayToolsTest, OnlyTheModelsOwnEndTokenCompletesACall) {
  const auto ended_by = [&](TokenId token) {
    const size_t sequence = server_->engine_.submitted();
    const auto on = server_->Chat(WithTools(R"({"stop_token_ids": [88]})"));
    server_->Say(sequence,
                 "\n<think></think>\n<tool_call>get_weather\n<arg_key>city"
                 "</arg_key>\n<arg_value>Bern");
    FinalEvent end;
    end.stop_token = token;
    server_->engine_.End(sequence, end);
    const Json choice = on->Body()["choices"][0];
    const Json& call = choice["message"]["tool_calls"][0]["function"];
    return Cat(choice["finish_reason"].get<std::string>(), " ",
               call["arguments"].get<std::string>());
  };
  EXPECT_EQ(ended_by(256), "tool_calls {\"city\": \"Bern\"}");
  EXPECT_EQ(ended_by(88), "stop {\"city\": \"Bern");
}

TEST_F(GatewayToolsTest, TextWithoutATokenCountsAsNone) {
  const auto on = server_->Chat(WithTools());
  server_->Say(0, "\n<think>");
  TokenEvent event;
  event.tokens = {serving::WithLogprob(0xE2, -0.5f)};  // of three bytes
  server_->engine_.Tokens(0, event);
  server_->engine_.End(0, FinishReason::kLength);
  const Json body = on->Body();
  EXPECT_EQ(body["choices"][0]["message"]["reasoning_content"], "\xEF\xBF\xBD");
  const Json& usage = body["usage"];
  EXPECT_EQ(usage["completion_tokens"], 3);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 3);
}

TEST_F(GatewayToolsTest, AStopOfWhiteSpaceEndsAnAnswerWithoutToolsAtOnce) {
  const auto on = server_->Chat(*ParseJson(R"({"stop": ["\n\n"]})"));
  server_->Say(0, "<think>Hm.</think>\nYes.\n\n");
  EXPECT_TRUE(server_->engine_.AwaitCancelled(1));
  const Json choice = on->Body()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "Yes.");
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(GatewayToolsTest, AFormatIsReadFromATemplateForToolsToo) {
  using serving::MakeToyText;
  const auto plain = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const serving::ToyTokens tokens = Glm().tokens;
  EXPECT_EQ(MakeToyText(plain, tokens)->output_format(),
            (OutputFormat{ToolFormat::kGeneric, ReasoningFormat::kNone}));
  EXPECT_EQ(MakeToyText(plain, tokens, {}, TemplateOf(Glm()))->output_format(),
            (OutputFormat{ToolFormat::kGlm, ReasoningFormat::kThink}));
}

TEST_F(GatewayToolsTest, AnErrorInTheMiddleOfACallIsTheLastEvent) {
  const auto on = server_->Chat(WithTools(R"({"stream": true})"));
  server_->Say(0, "\n<think></think>\n<tool_call>get_weather\n<arg_key>ci");
  FinalEvent end;
  end.reason = FinishReason::kError;
  end.status = Unavailable("stage 1 was lost");
  server_->engine_.End(0, end);
  EXPECT_EQ(on->Events().back()["error"]["message"], "stage 1 was lost");
  EXPECT_TRUE(on->ended);
}

TEST_F(GatewayToolsTest, WhatContinuesAMessageIsItsContentToTheLastSpace) {
  const Json body = *ParseJson(R"({"messages": [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "It is"}],
    "continue_final_message": true, "echo": true})");
  const Json message = Message(body, " <think> so.");
  EXPECT_EQ(message["content"], "It is <think> so.");
  EXPECT_FALSE(message.contains("reasoning_content"));
}

TEST_F(GatewayToolsTest, ThinkingIsTurnedOffByTheTemplatesOwnVariable) {
  Message(*ParseJson(R"({"chat_template_kwargs": {"enable_thinking": false}})"),
          "Yes.");
  Message(*ParseJson(R"({"reasoning_effort": "none"})"), "Yes.");
  for (const size_t i : {0, 1}) {
    EXPECT_THAT(server_->PromptOf(i), HasSubstr("/nothink"));
    EXPECT_THAT(server_->PromptOf(i), ::testing::EndsWith("<think></think>"));
  }
}

TEST_F(GatewayToolsTest, TokenizeCountsTheToolsToo) {
  Json body{
      {"messages", Json::array({{{"role", "user"}, {"content", "Weather?"}}})}};
  const auto count = [&] {
    const auto on = http::Post("/tokenize", DumpJson(body));
    server_->router_.Route(on);
    return on->Body()["count"].get<int>();
  };
  const int without = count();
  body["tools"] = *ParseJson(kTools);
  EXPECT_GT(count(), without + 100);
  server_->Chat(body);
  EXPECT_EQ(server_->engine_.request(0).prompt_tokens.size(),
            static_cast<size_t>(count()));
}

TEST_F(GatewayToolsTest, AFlagNamesAnotherFormat) {
  Server hermes(Glm(), {"hermes", "none"});
  const auto on =
      hermes.Answer(WithTools(),
                    "<think>x</think><tool_call>{\"name\": \"get_location\", "
                    "\"arguments\": {}}</tool_call>");
  const Json message = on->Body()["choices"][0]["message"];
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "get_location");
  EXPECT_FALSE(message.contains("reasoning_content"));
  EXPECT_THAT(message["content"].get<std::string>(), HasSubstr("<think>x"));
  Server none(Glm(), {"none", "none"});
  const auto refused = none.Chat(WithTools());
  EXPECT_EQ(refused->responses[0].status, 400);
  EXPECT_EQ(refused->Body()["error"]["param"], "tools");
}

TEST_F(GatewayToolsTest, ReasoningEffortReachesGptOss) {
  Server server(Harmony());
  server.Chat(*ParseJson(R"({"reasoning_effort": "high"})"));
  EXPECT_THAT(server.PromptOf(0), HasSubstr("Reasoning: high"));
  server.Chat(
      *ParseJson(R"({"chat_template_kwargs": {"reasoning_effort": "low"}})"));
  EXPECT_THAT(server.PromptOf(1), HasSubstr("Reasoning: low"));
  server.Chat(*ParseJson(R"({"reasoning_effort": "none"})"));
  EXPECT_THAT(server.PromptOf(2), HasSubstr("Reasoning: low"));
}

}  // namespace
}  // namespace sluice::gateway
