// Faults of other servers that users reported, by thread: each is what the
// model wrote and what must come of it.
#include <gtest/gtest.h>

#include <utility>

#include "common/base/json.h"
#include "common/text/chat_template.h"
#include "tests/testing/test_data.h"
#include "tests/text/output_fixtures.h"

namespace sluice::testing {
namespace {

const std::string kParis = "get_weather[{\"city\": \"Paris\"}]";

// Tool calls and reasoning of GLM ------------------------------------------

// A call within <think> was swallowed.
TEST(OutputRegressionTest, Vllm42400CallWithinReasoningIsACall) {
  EXPECT_EQ(Glm("<think>I plan. <tool_call>get_weather\n<arg_key>city</arg_key>"
                "\n<arg_value>Paris</arg_value>\n</tool_call>"),
            "think[I plan.] " + kParis);
  EXPECT_EQ(Told(kIntellect, InReasoning(),
                 AsText("I plan.\n<tool_call>\n<function=get_weather>\n"
                        "<parameter=city>\nParis\n</parameter>\n</function>\n"
                        "</tool_call>\nGood.</think>\nSo.")),
            "think[I plan.] " + kParis + " think[\n\nGood.] text[So.]");
  // Reasoning about the format is no call.
  EXPECT_EQ(Glm("<think>Use <tool_call>name</tool_call> here.</think>Hi"),
            "think[Use <tool_call>name</tool_call> here.] text[Hi]");
}

// Where a grammar holds calls, reasoning is free of it.
TEST(OutputRegressionTest, ACallWithinReasoningMayBeReasoning) {
  OutputRequest request = InReasoning();
  request.calls_in_reasoning = false;
  EXPECT_EQ(Told(kIntellect, request,
                 AsText("I.\n<tool_call>\n<function=search>\n</function>\n"
                        "</tool_call></think><tool_call>\n"
                        "<function=get_weather>\n<parameter=city>\nParis\n"
                        "</parameter>\n</function>\n</tool_call>")),
            "think[I.\n<tool_call>\n<function=search>\n</function>\n"
            "</tool_call>] " +
                kParis);
}

TEST(OutputRegressionTest, ContentThatHasBegunMayHaveNoCalls) {
  OutputRequest request = WithTools();
  request.calls_or_content = true;
  const std::string call =
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n"
      "<arg_value>Paris</arg_value>\n</tool_call>";
  EXPECT_EQ(Told(kGlm, request, AsText(call + "\n" + call)),
            kParis + " " + kParis);
  EXPECT_EQ(Told(kGlm, request, AsText("\"" + call + "\"")),
            "text[\"" + call + "\"]");
}

// A call without arguments was dropped, but only in streams.
TEST(OutputRegressionTest, Vllm44326CallWithoutArgumentsIsKept) {
  EXPECT_EQ(Glm("<tool_call>get_current_time</tool_call>"),
            "get_current_time[{}]");
  EXPECT_EQ(Told(kGlm, InReasoning(),
                 AsText("now</think><tool_call>get_current_time</tool_call>")),
            "think[now] get_current_time[{}]");
  EXPECT_EQ(Glm("<tool_call>mcp__gmail-cleanup__list_filters</tool_call>"),
            "mcp__gmail-cleanup__list_filters[{}]");
}

// Names came truncated: get_weather as get.
TEST(OutputRegressionTest, Vllm39757NamesAreWholeHoweverTheyAreCut) {
  OutputRequest request = WithTools();
  request.tools.push_back({"get", ""});
  OutputStream stream = AsText("<tool_call>get");
  stream.push_back({-1, "_weather"});
  stream.push_back({-1, "\n<arg_key>city</arg_key><arg_value>Paris"});
  stream.push_back({-1, "</arg_value></tool_call>"});
  EXPECT_EQ(Told(kGlm, request, stream), kParis);
}

// The stream broke off where the parser met tools in another shape.
TEST(OutputRegressionTest, Vllm39574ToolsWithoutASchemaBreakNothing) {
  OutputRequest request;
  request.tools = {{"get_weather", ""}, {"other", "{\"properties\": 7}"}};
  const std::string arguments =
      "<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>";
  EXPECT_EQ(Told(kGlm, request, AsText("<tool_call>get_weather" + arguments)),
            kParis);
  EXPECT_EQ(Told(kGlm, request, AsText("<tool_call>other" + arguments)),
            "other[{\"city\": \"Paris\"}]");
}

// Two parsers, one for reasoning and one for tools, lost text to each other;
// without tools in the request content came twice.
TEST(OutputRegressionTest, Vllm45915OneParserForReasoningAndTools) {
  EXPECT_EQ(Glm("<think>a</think>b<tool_call>get_current_time</tool_call>"),
            "think[a] text[b] get_current_time[{}]");
  EXPECT_EQ(Told(kGlm, WithoutTools(),
                 AsText("<think>a</think>the limit < 5 <t <tool")),
            "think[a] text[the limit < 5 <t <tool]");
}

// Several tokens at once (speculation) mangled the arguments.
TEST(OutputRegressionTest, Vllm39253BurstsOfTokensGiveTheSameCalls) {
  EXPECT_EQ(Glm("<think>a</think><tool_call>get_weather\n<arg_key>city"
                "</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>\n"
                "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>"
                "Paris</arg_value>\n</tool_call>"),
            "think[a] " + kParis + " " + kParis);
}

// The output begins with a line feed before <think>, and the model at times
// goes over to JSON.
TEST(OutputRegressionTest, LlamaCpp15186LineFeedAndJson) {
  EXPECT_EQ(Glm("\n<think>Good.</think>\n<tool_call>\n{\"name\": \"get_weather"
                "\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>"),
            "think[Good.] " + kParis);
  EXPECT_EQ(Glm("\n<think>Good.</think>\n{\n  \"tool_calls\": []\n}"),
            "think[Good.] text[{\n  \"tool_calls\": []\n}]");
}

// Calls were not streamed, and strings that look like JSON lost their type.
TEST(OutputRegressionTest, LlamaCpp15904ArgumentsStreamAndKeepTheirType) {
  const auto parser =
      NewOutputParser(kGlm, HarmonyTokenizer().vocabulary(), WithTools());
  parser->Feed(-1, "<tool_call>get_weather\n<arg_key>city</arg_key>\n");
  const OutputEvents events = parser->Feed(-1, "<arg_value>Par");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "{\"city\": \"Par");
  EXPECT_EQ(Glm("<tool_call>write_file<arg_key>content</arg_key><arg_value>"
                "{\"a\": 1}</arg_value></tool_call>"),
            "write_file[{\"content\": \"{\\\"a\\\": 1}\"}]");
}

// One reader for the family of XML formats: with and without line feeds.
TEST(OutputRegressionTest, LlamaCpp16932XmlCallsWithAndWithoutWhiteSpace) {
  EXPECT_EQ(Glm("<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris"
                "</arg_value></tool_call>"),
            kParis);
  EXPECT_EQ(Told(kIntellect, WithTools(),
                 AsText("<tool_call><function=get_weather><parameter=city>Paris"
                        "</parameter></function></tool_call>")),
            kParis);
}

// A template that did not parse was replaced by another one, in silence.
TEST(OutputRegressionTest, LlamaCpp14939AFormatIsChosenByTheTemplateAlone) {
  const Vocabulary& vocabulary = HarmonyTokenizer().vocabulary();
  EXPECT_FALSE(
      ChatTemplate::Make("{% if %}<arg_key>", HarmonyTokenizer()).ok());
  EXPECT_EQ(*ChooseOutputFormat("<|im_start|>{{ message }}", vocabulary),
            OutputFormat{});
}

// Harmony: what raised an error, and so a status of 500 --------------------

TEST(OutputRegressionTest, Harmony38LeftoverWordsInAHeader) {
  EXPECT_EQ(Harmony("<|channel|>commentary to=functions.get_weather "
                    "––commentary json<|message|>{\"city\": \"Paris\"}"
                    "<|call|>"),
            kParis);
  EXPECT_EQ(Harmony("<|channel|>final <|constrain|>response<|message|>Hi"
                    "<|return|>"),
            "text[Hi]");
}

// Refusals come without any header.
TEST(OutputRegressionTest, Vllm23567ARefusalWithoutAHeader) {
  EXPECT_EQ(Harmony("The user asks for it. We must refuse.<|end|><|start|>"
                    "assistant<|channel|>analysis<|message|>Refuse.<|end|>"
                    "<|start|>assistant<|channel|>final<|message|>I'm sorry."
                    "<|return|>"),
            "text[The user asks for it. We must refuse.] think[Refuse.] "
            "text[\nI'm sorry.]");
}

TEST(OutputRegressionTest, Vllm46464NoMarkerOutOfPlaceRaises) {
  EXPECT_EQ(Harmony("<|channel|>final<|message|>Answer<|end|><|return|>"),
            "text[Answer]");
  EXPECT_EQ(Harmony("<|start|><|start|>assistant<|channel|>final<|message|>A"
                    "<|end|> 364 <|start|>assistantassistant<|channel|>final"
                    "<|message|>B<|end|>"),
            "text[A\n364 \nB]");
}

TEST(OutputRegressionTest, Vllm51977ARecipientGivenTwice) {
  OutputRequest request = WithTools();
  request.tools.push_back({"web-browsing", ""});
  EXPECT_EQ(Told(kHarmony, request,
                 AsHarmony("<|start|>assistant to=functions.web-browsing"
                           "<|channel|>commentary to=functions.web-browsing "
                           "<|constrain|>json<|message|>{}<|call|>")),
            "web-browsing[{}]");
}

// llama.cpp#27720 has the same headers.
TEST(OutputRegressionTest, Vllm57099MalformedChannels) {
  EXPECT_EQ(Harmony("<|channel|>commentary?commentary?<|message|>Hi<|end|>"),
            "text[Hi]");
  EXPECT_EQ(Harmony("<|channel|>?"
                    "?<|message|>Hi<|end|><|start|>assistant"
                    "<|channel|>analysis<|message|>Hm<|end|>"),
            "text[Hi] think[Hm]");
  EXPECT_EQ(Harmony("<|channel|>commentary to=assistant<|channel|>commentary?"
                    "<|message|>Hi<|end|>"),
            "text[Hi]");
}

// Four places where a parse was not guarded: the header, the body, between
// messages, and the end.
TEST(OutputRegressionTest, Sglang35299EveryPlaceTakesEveryMarker) {
  const std::string markers[] = {"<|start|>",   "<|channel|>", "<|constrain|>",
                                 "<|message|>", "<|end|>",     "<|call|>",
                                 "<|return|>"};
  for (const std::string place :
       {"", "<|channel|>", "<|channel|>final", "<|channel|>final<|message|>",
        "<|channel|>final<|message|>a", "<|channel|>final<|message|>a<|end|>",
        "<|start|>", "<|start|>assistant",
        "<|channel|>commentary <|constrain|>",
        "<|channel|>commentary to=functions.free<|message|>{"}) {
    for (const std::string& first : markers) {
      for (const std::string& second : markers) {
        const std::string text = place + first + second + "z";
        EXPECT_NE(Harmony(text).find('z'), std::string::npos) << text;
      }
    }
  }
}

// tool_choice --------------------------------------------------------------

// A call was lost where prose came first.
TEST(OutputRegressionTest, Vllm44216ACallBehindProseIsFound) {
  EXPECT_EQ(Harmony("<|channel|>final<|message|>Sure.<|end|><|start|>assistant"
                    "<|channel|>commentary to=functions.get_weather"
                    "<|message|>{\"city\": \"Paris\"}<|call|>"),
            "text[Sure.] " + kParis);
}

// tool_choice none still gave calls.
TEST(OutputRegressionTest, Vllm30867WithoutToolsThereAreNoCalls) {
  EXPECT_EQ(
      Told(kHarmony, WithoutTools(),
           AsHarmony("<|channel|>commentary to=functions.get_weather<|message|>"
                     "{\"city\": \"Paris\"}<|call|>")),
      "text[{\"city\": \"Paris\"}]");
  const std::string glm = "<tool_call>get_current_time</tool_call>";
  EXPECT_EQ(Told(kGlm, WithoutTools(), AsText(glm)), "text[" + glm + "]");
  const std::string llama = "{\"name\": \"free\", \"parameters\": {}}";
  EXPECT_EQ(Told(kLlama, WithoutTools(), AsText(llama)), "text[" + llama + "]");
}

// Nested or endless markup hung the server.
TEST(OutputRegressionTest, Vllm49981EndlessMarkupEnds) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "<tool_call>";
  EXPECT_EQ(Show(ParseStream(kGlm, WithTools(), AsText(text))),
            "text[" + text + "]");
}

// The head of a call that never comes is not waited for, so that it is not
// read again from each opening within it.
TEST(OutputRegressionTest, Vllm49981OpeningsWithoutACallAreGivenOutSoon) {
  const std::string late = "<tool_call>{\"arguments\": {\"a\": \"";
  for (const std::string& text :
       {std::string("<tool_call>{\"id\":["),
        std::string("<tool_call>{\"id\":{"),
        "<tool_call>{\"id\": \"" + std::string(600, 'b'),
        "<tool_call>{\"" + std::string(600, 'b'),
        late + std::string(5000, 'b')}) {
    const auto parser =
        NewOutputParser(kHermes, HarmonyTokenizer().vocabulary(), WithTools());
    std::string given;
    for (const OutputEvent& event : parser->Feed(-1, text)) {
      given += event.text;
    }
    EXPECT_EQ(given, text);
  }
  EXPECT_EQ(Told(kHermes, WithTools(),
                 AsText(late + std::string(1000, 'b') +
                        "\"}, \"name\": \"free\"}</tool_call>")),
            "free[{\"a\": \"" + std::string(1000, 'b') + "\"}]");
}

// One malformed schema made every later request fail.
TEST(OutputRegressionTest, Vllm43920AMalformedSchemaHarmsNobody) {
  OutputRequest request = WithTools();
  request.tools.push_back({"bad",
                           "{\"properties\": {\"a\": {\"$ref\": \"#/$de"
                           "fs/a\"}}, \"$defs\": {\"a\": {\"$ref\": \"#"
                           "/$defs/a\"}}}"});
  request.tools.push_back({"worse", "{\"properties\": "});
  const auto call = [](const std::string& name) {
    return AsText("<tool_call>" + name +
                  "<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>");
  };
  EXPECT_EQ(Told(kGlm, request, call("bad")), "bad[{\"a\": 1}]");
  EXPECT_EQ(Told(kGlm, request, call("worse")), "worse[{\"a\": 1}]");
  EXPECT_EQ(Told(kGlm, request, call("free")), "free[{\"a\": 1}]");
}

// A tool whose parameter `p` may be what `a`, `b` and `c` say, each `width`
// times: as many schemas as the fourth power of it.
OutputTool TreeOfChoices(int width) {
  const auto choices = [width](const std::string& one) {
    Json all = Json::array();
    for (int i = 0; i < width; ++i) all.push_back(*ParseJson(one));
    Json made = Json::object();
    made["anyOf"] = std::move(all);
    return made;
  };
  Json schema = Json::object();
  schema["properties"]["p"] = choices("{\"$ref\": \"#/$defs/a\"}");
  schema["$defs"]["a"] = choices("{\"$ref\": \"#/$defs/b\"}");
  schema["$defs"]["b"] = choices("{\"$ref\": \"#/$defs/c\"}");
  schema["$defs"]["c"] = choices("{\"type\": \"string\"}");
  return {"tree", DumpJson(schema)};
}

// Definitions that name each other without a cycle are as bad: what they say
// is not read to its end, which shows in the type.
TEST(OutputRegressionTest, Vllm43920ASchemaIsReadInABoundedNumberOfSteps) {
  const std::string call =
      "<tool_call>tree<arg_key>p</arg_key><arg_value>1</arg_value></tool_call>";
  OutputRequest request;
  request.tools = {TreeOfChoices(3)};
  EXPECT_EQ(Told(kGlm, request, AsText(call)), "tree[{\"p\": \"1\"}]");
  for (const int width : {20, 100}) {
    request.tools = {TreeOfChoices(width)};
    EXPECT_EQ(Show(ParseStream(kGlm, request, AsText(call))),
              "tree[{\"p\": 1}]");
  }
}

// Reasoning between tool turns ---------------------------------------------

// The turn as a client sends it back, and as the template then shows it to
// the model. `key`: what the template calls reasoning.
std::string RenderedBack(const std::string& file, const std::string& key,
                         const OutputEvents& events, bool with_answer) {
  const auto made = ChatTemplate::Make(ReadFileOrDie(file), HarmonyTokenizer());
  EXPECT_TRUE(made.ok()) << made.status();
  Json turn = {{"role", "assistant"}, {"content", ""}};
  for (const OutputEvent& event : events) {
    if (event.kind == OutputEvent::Kind::kReasoning) turn[key] = event.text;
    if (event.kind == OutputEvent::Kind::kCallBegin) {
      Json call = {{"type", "function"}, {"function", Json::object()}};
      call["function"]["name"] = event.text;
      turn["tool_calls"] = Json::array({call});
    }
    if (event.kind == OutputEvent::Kind::kArguments) {
      turn["tool_calls"][0]["function"]["arguments"] = event.text;
    }
  }
  Json messages = Json::array();
  messages.push_back({{"role", "user"}, {"content", "Weather?"}});
  messages.push_back(turn);
  messages.push_back({{"role", "tool"}, {"content", "sunny"}});
  if (with_answer) {
    messages.push_back({{"role", "assistant"}, {"content", "Sunny."}});
    messages.push_back({{"role", "user"}, {"content", "Thanks."}});
  }
  const auto text = (*made)->Render(messages, nullptr, RenderOptions());
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

constexpr std::string_view kTurn =
    "<|channel|>analysis<|message|>We need the weather.<|end|><|start|>"
    "assistant<|channel|>commentary to=functions.get_weather <|constrain|>json"
    "<|message|>{\"city\": \"Paris\"}<|call|>";

// The model began its reasoning anew at every turn: its own was left out.
TEST(OutputRegressionTest, Vllm27653ReasoningComesBackBetweenToolTurns) {
  SLUICE_REQUIRE_TEST_DATA(path, "templates/openai-gpt-oss-120b.jinja");
  const auto events = ParseStream(kHarmony, WithTools(), AsHarmony(kTurn));
  EXPECT_NE(RenderedBack(path, "thinking", events, false)
                .find("<|start|>assistant<|channel|>analysis<|message|>We need "
                      "the weather.<|end|><|start|>assistant "
                      "to=functions.get_weather<|channel|>commentary json"
                      "<|message|>{\"city\": \"Paris\"}<|call|>"),
            std::string::npos);
}

// It is left out once a final answer follows, and not before.
TEST(OutputRegressionTest, Vllm45048ReasoningIsDroppedOnlyBehindAnAnswer) {
  SLUICE_REQUIRE_TEST_DATA(path, "templates/openai-gpt-oss-120b.jinja");
  const auto events = ParseStream(kHarmony, WithTools(), AsHarmony(kTurn));
  EXPECT_EQ(
      RenderedBack(path, "thinking", events, true).find("We need the weather."),
      std::string::npos);
}

// A client that sends reasoning back finds it in the prompt.
TEST(OutputRegressionTest, Codex2461ReasoningContentIsAcceptedBack) {
  SLUICE_REQUIRE_TEST_DATA(path, "templates/GLM-4.6.jinja");
  const auto events = ParseStream(
      kGlm, WithTools(),
      AsText("\n<think>We need the weather.</think>\n<tool_call>get_weather\n"
             "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
             "</tool_call>"));
  EXPECT_NE(RenderedBack(path, "reasoning_content", events, false)
                .find("<|assistant|>\n<think>We need the weather.</think>\n"
                      "<tool_call>get_weather\n<arg_key>city</arg_key>\n"
                      "<arg_value>Paris</arg_value>\n</tool_call>"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::testing
