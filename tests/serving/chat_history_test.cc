// Earlier turns of a conversation as the released chat templates want them.
#include "common/serving/chat_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/dialects/openai/parse.h"
#include "common/serving/generic_tools.h"
#include "common/text/chat_template.h"
#include "tests/serving/toy_text.h"
#include "tests/testing/test_data.h"
#include "tests/text/chat_cases.h"

namespace sluice::serving {
namespace {

using ::sluice::testing::ChatCase;
using ::testing::HasSubstr;
using ::testing::Not;

const Tokenizer& ToyTokenizer() {
  static const auto text = MakeToyText("{{ messages }}", {{"<end>"}, {}});
  return text->tokenizer();
}

std::unique_ptr<ChatTemplate> Template(const std::string& source) {
  auto made = ChatTemplate::Make(source, ToyTokenizer());
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

std::unique_ptr<ChatTemplate> Released(const std::string& file) {
  return Template(::sluice::testing::ReadFileOrDie(
      *::sluice::testing::TestData("templates/" + file)));
}

#define REQUIRE_TEMPLATES()                         \
  SLUICE_REQUIRE_TEST_DATA(templates, "templates"); \
  EXPECT_FALSE(templates.empty())

// A question, two calls in one message, and their results in another order.
Json TwoCalls() {
  return *ParseJson(R"([
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "", "reasoning_content": "Ask twice.",
     "tool_calls": [
       {"id": "a", "type": "function",
        "function": {"name": "first", "arguments": "{\"x\": 1}"}},
       {"id": "b", "type": "function",
        "function": {"name": "second", "arguments": "{\"y\": \"z\"}"}}]},
    {"role": "tool", "tool_call_id": "b", "content": "of b"},
    {"role": "tool", "tool_call_id": "a", "content": "of a"},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "Thanks."}])");
}

TEST(GatewayHistoryTest, RulesAreLearntFromTheTemplatesThemselves) {
  REQUIRE_TEMPLATES();
  const auto rules = [](const char* file) {
    return LearnHistoryRules(*Released(file));
  };
  EXPECT_EQ(rules("GLM-4.6.jinja"),
            (HistoryRules{"reasoning_content", false, false}));
  EXPECT_EQ(rules("Qwen-Qwen3-0.6B.jinja"),
            (HistoryRules{"reasoning_content", false, false}));
  EXPECT_EQ(rules("openai-gpt-oss-120b.jinja"),
            (HistoryRules{.reasoning = "thinking",
                          .content_or_reasoning = true,
                          .one_call = true,
                          .described_tools = true,
                          .system_first = true}));
  EXPECT_EQ(rules("meta-llama-Llama-3.1-8B-Instruct.jinja"),
            (HistoryRules{"", false, true}));
  EXPECT_EQ(rules("Qwen3-Coder.jinja"), (HistoryRules{"", false, false}));
  for (const char* file : {"mistralai-Mistral-Nemo-Instruct-2407.jinja",
                           "Mistral-Small-3.2-24B-Instruct-2506.jinja"}) {
    EXPECT_EQ(rules(file).ids, IdForm::kNine) << file;
  }
  EXPECT_EQ(rules("Kimi-K2-Instruct.jinja").ids, IdForm::kAny);
}

// A template that refuses it, and another that drops it.
TEST(GatewayHistoryTest, ASystemMessageWithinAChatIsTheUsers) {
  const auto texts = [](const Json& messages) {
    std::string all;
    for (const Json& message : messages) {
      all += Cat("[", message["role"].get<std::string>(), "]",
                 message["content"].get<std::string>());
    }
    return all;
  };
  const Json chat = *ParseJson(R"([
      {"role":"system","content":"a"},{"role":"system","content":"b"},
      {"role":"user","content":"c"},{"role":"system","content":"d"},
      {"role":"assistant","content":"e"},{"role":"system","content":"f"},
      {"role":"system","content":"g"},{"role":"user","content":"h"},
      {"role":"user","content":"i"},{"role":"assistant","content":"j"},
      {"role":"tool","content":"k"},{"role":"system","content":"l"}])");
  for (const char* within : {"{{ raise_exception('late') }}", ""}) {
    const auto made = Template(
        Cat("{%- for m in messages %}{%- if m.role == 'system' and not "
            "loop.first %}",
            within,
            "{%- else %}[{{ m.role }}]{{ m.content }}{%- endif %}"
            "{%- endfor %}"));
    const HistoryRules rules = LearnHistoryRules(*made);
    EXPECT_TRUE(rules.system_first) << within;
    EXPECT_EQ(texts(AdaptHistory(chat, rules)),
              "[system]a\nb[user]c\nd[assistant]e[user]f\ng\nh[user]i"
              "[assistant]j[tool]k[user]l");
  }
  const auto shows = Template(
      "{%- for m in messages %}[{{ m.role }}]{{ m.content }}{%- endfor %}");
  EXPECT_FALSE(LearnHistoryRules(*shows).system_first);
  EXPECT_EQ(AdaptHistory(chat, LearnHistoryRules(*shows)), chat);
}

// A template that refuses the second, and others that drop it or the first.
TEST(GatewayHistoryTest, WhatTheUserSaysInARowIsOneMessageWhereItMustBe) {
  const Json chat = *ParseJson(R"([
      {"role":"system","content":"a"},{"role":"user","content":"b"},
      {"role":"user","content":"c"},{"role":"assistant","content":"d"},
      {"role":"user","content":"e"},{"role":"system","content":"f"},
      {"role":"user","content":"g"}])");
  for (const char* check :
       {"{%- if u and loop.previtem is defined and loop.previtem.role == "
        "'user' %}{{ raise_exception('in a row') }}{%- endif %}",
        "{%- if u and loop.previtem is defined and loop.previtem.role == "
        "'user' %}{%- set u = false %}{%- endif %}",
        "{%- if u and loop.nextitem is defined and loop.nextitem.role == "
        "'user' %}{%- set u = false %}{%- endif %}"}) {
    const auto made = Template(
        Cat("{%- for m in messages %}{%- set u = m.role == 'user' %}", check,
            "{%- if u or m.role != 'user' %}[{{ m.role }}]{{ m.content }}"
            "{%- endif %}{%- endfor %}"));
    const HistoryRules rules = LearnHistoryRules(*made);
    EXPECT_TRUE(rules.one_user) << check;
    RenderOptions options;
    const auto text = made->Render(AdaptHistory(chat, rules), nullptr, options);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, "[system]a[user]b\nc[assistant]d[user]e[system]f[user]g");
  }
  const auto shows = Template(
      "{%- for m in messages %}[{{ m.role }}]{{ m.content }}{%- endfor %}");
  EXPECT_FALSE(LearnHistoryRules(*shows).one_user);
}

// What Codex sends, with a word of the user behind a result.
TEST(GatewayHistoryTest, StrictTemplatesTakeAnAgentsThread) {
  REQUIRE_TEMPLATES();
  const Json chat = *ParseJson(R"([
      {"role":"system","content":"rules"},{"role":"user","content":"machine"},
      {"role":"user","content":"fix it"},
      {"role":"assistant","content":"","tool_calls":[
        {"id":"call_1","type":"function",
         "function":{"name":"one","arguments":{}}}]},
      {"role":"tool","tool_call_id":"call_1","content":"stopped"},
      {"role":"system","content":"be brief"},
      {"role":"user","content":"go on"}])");
  const Json tools = *ParseJson(R"([{"type":"function","function":{
      "name":"one","description":"d",
      "parameters":{"type":"object","properties":{}}}}])");
  for (const char* file : {"mistralai-Mistral-Nemo-Instruct-2407.jinja",
                           "Mistral-Small-3.2-24B-Instruct-2506.jinja",
                           "mistralai-Ministral-3-14B-Reasoning-2512.jinja"}) {
    const auto made = Released(file);
    const HistoryRules rules = LearnHistoryRules(*made);
    EXPECT_TRUE(rules.one_user && rules.reply_to_result) << file;
    RenderOptions options;
    options.date = "2025-01-01";
    EXPECT_FALSE(made->Render(chat, tools, options).ok()) << file;
    const auto text = made->Render(AdaptHistory(chat, rules), tools, options);
    ASSERT_TRUE(text.ok()) << file << ": " << text.status();
    EXPECT_THAT(*text, HasSubstr("machine\nfix it")) << file;
    EXPECT_THAT(*text, HasSubstr("be brief\ngo on")) << file;
  }
  EXPECT_TRUE(
      LearnHistoryRules(*Released("google-gemma-2-2b-it.jinja")).one_user);
  EXPECT_EQ(LearnHistoryRules(*Released("Qwen-Qwen3-0.6B.jinja")),
            (HistoryRules{"reasoning_content"}));
}

// The ids of the calls and results of `messages`, in their order.
std::vector<std::string> IdsIn(const Json& messages) {
  std::vector<std::string> ids;
  for (const Json& message : messages) {
    if (message.contains("tool_calls")) {
      for (const Json& call : message["tool_calls"]) ids.push_back(call["id"]);
    }
    if (message.contains("tool_call_id"))
      ids.push_back(message["tool_call_id"]);
  }
  return ids;
}

TEST(GatewayHistoryTest, IdsTakeTheFormThatATemplateNeeds) {
  const auto ids = [](std::string_view first, std::string_view second) {
    return Json::array({{{"role", "assistant"},
                         {"tool_calls",
                          {{{"id", first}, {"function", {{"name", "f"}}}},
                           {{"id", second}, {"function", {{"name", "g.h"}}}}}}},
                        {{"role", "tool"}, {"tool_call_id", first}},
                        {{"role", "tool"}, {"tool_call_id", second}}});
  };
  const Json messages = ids("call_0123456789abcdef_0_0", "abcDEF123");
  HistoryRules rules;
  EXPECT_EQ(IdsIn(AdaptHistory(messages, rules)), IdsIn(messages));
  rules.ids = IdForm::kNine;
  const auto nine = IdsIn(AdaptHistory(messages, rules));
  ASSERT_EQ(nine.size(), 4u);
  EXPECT_EQ(nine[0].size(), 9u);
  EXPECT_EQ(nine[0].find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz"),
            std::string::npos);
  EXPECT_EQ(nine[2], nine[0]);
  EXPECT_EQ(nine[1], "abcDEF123");
  EXPECT_EQ(nine[3], "abcDEF123");
  rules.ids = IdForm::kNumbered;
  // An id that comes again is the later call's.
  Json twice = messages;
  for (const Json& message : messages) twice.push_back(message);
  EXPECT_EQ(IdsIn(AdaptHistory(twice, rules)),
            (std::vector<std::string>{"functions.f:0", "functions.g.h:1",
                                      "functions.f:0", "functions.g.h:1",
                                      "functions.f:2", "functions.g.h:3",
                                      "functions.f:2", "functions.g.h:3"}));
  // Of calls that share an id each has a result of its own.
  EXPECT_EQ(IdsIn(AdaptHistory(ids("x", "x"), rules)),
            (std::vector<std::string>{"functions.f:0", "functions.g.h:1",
                                      "functions.f:0", "functions.g.h:1"}));
}

TEST(GatewayHistoryTest, ToolsStandInTheSystemMessageWhereOnlyThatIsShown) {
  const std::string shown =
      "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
      "{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not none "
      "%}{{ '<|tool|>' + m['tools'] + '<|/tool|>' }}{% endif %}{% endfor %}";
  const auto phi = Template(shown);
  EXPECT_TRUE(LearnHistoryRules(*phi).tools_in_system);
  EXPECT_FALSE(
      LearnHistoryRules(*Template(shown + "{{ tools }}")).tools_in_system);
  Json messages = TwoCalls();
  messages[1]["tool_calls"].erase(1);
  messages[1]["tool_calls"][0]["function"]["arguments"] = {{"x", 1}};
  const Json tools =
      *ParseJson(R"([{"type": "function", "function": {"name": "first"}}])");
  RenderOptions options;
  options.stand_ins = *MarksOfCalls(messages);
  const Json made = WithToolsInSystem(messages, tools, options.stand_ins);
  EXPECT_EQ(*phi->Render(made, nullptr, options),
            R"(<|system|><|tool|>[{"name":"first"}]<|/tool|><|user|>Weather?)"
            R"(<|assistant|><|tool_call|>[{"name":"first","arguments":)"
            R"({"x":1}}]<|/tool_call|><|tool|>of b<|tool|>of a)"
            "<|assistant|>Done.<|user|>Thanks.");
  EXPECT_EQ(WithToolsInSystem(messages, nullptr, options.stand_ins)[0]["role"],
            "user");
  EXPECT_EQ(MarksOfCalls(Json::array())->word, "");
}

TEST(GatewayHistoryTest, MistralsTemplatesTakeThisServersIds) {
  REQUIRE_TEMPLATES();
  for (const char* file : {"mistralai-Mistral-Nemo-Instruct-2407.jinja",
                           "Mistral-Small-3.2-24B-Instruct-2506.jinja"}) {
    const auto chat_template = Released(file);
    const HistoryRules rules = LearnHistoryRules(*chat_template);
    const Json made = AdaptHistory(TwoCalls(), rules);
    const auto text = chat_template->Render(made, nullptr, {});
    EXPECT_TRUE(text.ok()) << file << text.status();
    EXPECT_FALSE(chat_template->Render(TwoCalls(), nullptr, {}).ok());
  }
}

TEST(GatewayHistoryTest, ATemplateWithoutToolsHasNoRules) {
  const auto plain = Template(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  EXPECT_EQ(LearnHistoryRules(*plain), HistoryRules());
}

// A message of the reference as OpenAI's clients would send it.
Json AsClientsSend(Json message) {
  if (const auto found = message.find("thinking"); found != message.end()) {
    message["reasoning_content"] = *found;
    message.erase("thinking");
  }
  if (!message.contains("tool_calls")) return message;
  if (message.value("content", "") == "") message["content"] = nullptr;
  for (Json& call : message["tool_calls"]) {
    Json& arguments = call["function"]["arguments"];
    arguments = DumpJson(arguments);
  }
  return message;
}

// Whether a client can ask for what the case's rendering is of.
bool CanBeAskedFor(const ChatCase& one, const HistoryRules& rules) {
  if (one.kwargs.contains("tools_in_user_message")) return false;
  for (const Json& message : one.messages) {
    // A template that reads another name gets a client's reasoning all the
    // same.
    if (message.contains("reasoning_content") && !rules.reasoning.empty() &&
        rules.reasoning != "reasoning_content") {
      return false;
    }
    // Parts are joined by newlines here, whatever a template makes of them.
    if (message.contains("content") && message["content"].is_array()) {
      return false;
    }
  }
  return true;
}

TEST(GatewayHistoryTest, RequestsRenderByteForByteAsTheReferenceDoes) {
  REQUIRE_TEMPLATES();
  int equal = 0;
  int with_calls = 0;
  for (const ChatCase& one : ::sluice::testing::ChatRenderings()) {
    const auto chat = Released(one.source);
    const HistoryRules rules = LearnHistoryRules(*chat);
    if (!CanBeAskedFor(one, rules)) continue;
    const std::string what = Cat(one.source, " ", one.chat);
    Json body{{"messages", Json::array()}, {"tools", one.tools}};
    for (const Json& message : one.messages) {
      body["messages"].push_back(AsClientsSend(message));
      with_calls += message.contains("tool_calls") ? 1 : 0;
    }
    const auto request = openai::ParseChatRequest(DumpJson(body), 256);
    ASSERT_TRUE(request.ok()) << what << request.status();
    RenderOptions options;
    options.add_generation_prompt = one.add_generation_prompt;
    options.kwargs = one.kwargs;
    options.date = "2025-06-28";
    const auto text = chat->Render(AdaptHistory(request->messages, rules),
                                   request->tools.tools, options);
    ASSERT_TRUE(text.ok()) << what << text.status();
    const std::string sha256 = ::sluice::testing::Sha256Of(*text);
    EXPECT_EQ(sha256, one.sha256) << what << " is here:\n" << *text;
    equal += sha256 == one.sha256 ? 1 : 0;
  }
  EXPECT_EQ(equal, 512);
  EXPECT_EQ(with_calls, 164);
}

TEST(GatewayHistoryTest, AToolNeedsNoDescription) {
  REQUIRE_TEMPLATES();
  const Json tools =
      *ParseJson(R"([{"type": "function", "function": {"name": "bare"}}])");
  const Json messages =
      *ParseJson(R"([{"role": "user", "content": "Weather?"}])");
  for (const char* file :
       {"GLM-4.6.jinja", "openai-gpt-oss-120b.jinja", "Qwen3-Coder.jinja",
        "Qwen-Qwen3-0.6B.jinja", "meta-llama-Llama-3.1-8B-Instruct.jinja"}) {
    const auto chat = Released(file);
    const Json adapted = AdaptTools(tools, LearnHistoryRules(*chat));
    const auto text = chat->Render(messages, adapted, {});
    ASSERT_TRUE(text.ok()) << file << text.status();
    EXPECT_THAT(*text, HasSubstr("bare")) << file;
  }
  EXPECT_EQ(AdaptTools(tools, {}), tools);
}

TEST(GatewayHistoryTest, NothingOfAMessageIsCopiedForEachOfItsCalls) {
  Json calls = Json::array();
  for (int i = 0; i < 512; ++i) {
    calls.push_back({{"id", Cat(i)},
                     {"type", "function"},
                     {"function", {{"name", "f"}, {"arguments", "{}"}}}});
  }
  const Json messages = Json::array({{{"role", "assistant"},
                                      {"content", std::string(8192, 'c')},
                                      {"name", std::string(8192, 'n')},
                                      {"tool_calls", calls}}});
  const Json made = AdaptHistory(messages, {"", false, /*one_call=*/true});
  ASSERT_EQ(made.size(), 512u);
  EXPECT_EQ(made[0]["name"], messages[0]["name"]);
  EXPECT_EQ(made[0]["content"], messages[0]["content"]);
  EXPECT_EQ(made[511]["tool_calls"][0]["id"], "511");
  EXPECT_LT(JsonBytes(made), 2 * JsonBytes(messages));
}

TEST(GatewayHistoryTest, WhereOneCallFitsInAMessageSeveralGetTheirOwn) {
  const Json made = AdaptHistory(TwoCalls(), {"thinking", true, true});
  ASSERT_EQ(made.size(), 7u);
  EXPECT_EQ(made[1]["thinking"], "Ask twice.");
  EXPECT_EQ(made[1]["tool_calls"].size(), 1u);
  EXPECT_EQ(made[1]["tool_calls"][0]["function"]["name"], "first");
  EXPECT_EQ(made[2]["content"], "of a");
  EXPECT_EQ(made[3]["tool_calls"][0]["function"]["name"], "second");
  EXPECT_FALSE(made[3].contains("thinking")) << "it was thought once";
  EXPECT_EQ(made[4]["content"], "of b");
  EXPECT_EQ(made[5]["content"], "Done.");
  Json sorted = TwoCalls();
  std::swap(sorted[2], sorted[3]);  // templates show no ids
  EXPECT_EQ(AdaptHistory(TwoCalls(), {"reasoning_content"}), sorted);
}

TEST(GatewayHistoryTest, ResultsWithoutIdsBelongToCallsInTheirOrder) {
  Json messages = TwoCalls();
  messages[2].erase("tool_call_id");
  messages[3].erase("tool_call_id");
  const Json made = AdaptHistory(messages, {"", false, true});
  EXPECT_EQ(made[2]["content"], "of b");
  EXPECT_EQ(made[4]["content"], "of a");
  messages.erase(3);  // one is missing
  EXPECT_EQ(AdaptHistory(messages, {"", false, true}).size(), 6u);
}

TEST(GatewayHistoryTest, AResultIsNeverShownAsAnotherCalls) {
  Json messages = TwoCalls();
  messages[3].erase("tool_call_id");
  Json made = AdaptHistory(messages, {"", false, true});
  ASSERT_EQ(made.size(), 7u);
  EXPECT_EQ(made[2]["content"], "of a") << "the call that is left";
  EXPECT_EQ(made[4]["content"], "of b");
  messages.erase(3);  // only the second call's result is there
  made = AdaptHistory(messages, {"", false, true});
  ASSERT_EQ(made.size(), 6u);
  EXPECT_EQ(made[2]["tool_calls"][0]["id"], "b") << "the first has none";
  EXPECT_EQ(made[3]["content"], "of b");
}

TEST(GatewayHistoryTest, CallsOfOneIdHaveTheirResultsInOrder) {
  Json messages = TwoCalls();
  messages[1]["tool_calls"][0]["id"] = "b";
  messages[3]["tool_call_id"] = "b";
  const Json made = AdaptHistory(messages, {"", false, true});
  ASSERT_EQ(made.size(), 7u);
  EXPECT_EQ(made[2]["content"], "of b");
  EXPECT_EQ(made[4]["content"], "of a");
}

TEST(GatewayHistoryTest, ManyCallsWithManyResultsTakeNoTime) {
  Json messages = TwoCalls();
  const Json call = messages[1]["tool_calls"][0];
  const Json result = messages[2];
  for (int i = 2; i < 512; ++i) {
    messages[1]["tool_calls"].push_back(call);
    messages[1]["tool_calls"].back()["id"] = Cat("call", i);
  }
  for (int i = 0; i < 3500; ++i) {
    messages.push_back(result);
    messages.back()["tool_call_id"] = Cat("other", i);
  }
  messages.erase(5);
  messages.erase(4);  // the results come behind the calls
  const TimePoint begin = Clock::now();
  const Json made = AdaptHistory(messages, {"", false, true});
  // A tenth of a second at worst; a billion comparisons took half a minute.
  EXPECT_LT(Seconds(Clock::now() - begin), 10);
  ASSERT_EQ(made.size(), 1 + 512 + 2 + 3500u);
  EXPECT_EQ(made[2]["content"], "of a");
  EXPECT_EQ(made[4]["content"], "of b");
  EXPECT_EQ(made[6]["tool_call_id"], "other0");
}

TEST(GatewayHistoryTest, ReasoningBesideContentIsOneTextWhereItMustBe) {
  Json messages = TwoCalls();
  messages[1]["content"] = "Let me look.";
  const Json made = AdaptHistory(messages, {"thinking", true, false});
  EXPECT_EQ(made[1]["thinking"], "Ask twice.\n\nLet me look.");
  EXPECT_EQ(made[1]["content"], "");
}

// What a template renders of the conversation above, in one text.
std::string RenderedHistory(const char* file, const Json& messages) {
  const auto chat = Released(file);
  RenderOptions options;
  options.date = "2025-06-28";
  const auto text = chat->Render(
      AdaptHistory(messages, LearnHistoryRules(*chat)), nullptr, options);
  EXPECT_TRUE(text.ok()) << file << text.status();
  return text.ok() ? *text : "";
}

TEST(GatewayHistoryTest, ReasoningIsKeptBetweenToolTurns) {
  // vllm#27653, vllm PR#45048: lost, or dropped in the middle of a turn.
  REQUIRE_TEMPLATES();
  Json open = TwoCalls();
  open.erase(5);
  open.erase(4);  // the turn goes on: its reasoning is needed
  for (const char* file : {"GLM-4.6.jinja", "openai-gpt-oss-120b.jinja",
                           "Qwen-Qwen3-0.6B.jinja"}) {
    EXPECT_THAT(RenderedHistory(file, open), HasSubstr("Ask twice.")) << file;
    EXPECT_THAT(RenderedHistory(file, TwoCalls()), Not(HasSubstr("twice")))
        << file << ": of a turn that is over it is dropped";
  }
}

TEST(GatewayHistoryTest, TemplatesOfOneCallShowThemAllWithTheirResults) {
  REQUIRE_TEMPLATES();
  EXPECT_THAT(
      RenderedHistory("openai-gpt-oss-120b.jinja", TwoCalls()),
      HasSubstr("to=functions.first<|channel|>commentary json<|message|>"
                "{\"x\": 1}<|call|><|start|>functions.first to=assistant"
                "<|channel|>commentary<|message|>\"of a\"<|end|><|start|>"
                "assistant to=functions.second<|channel|>commentary json"
                "<|message|>{\"y\": \"z\"}<|call|><|start|>functions.second "
                "to=assistant<|channel|>commentary<|message|>\"of b\""));
  const std::string llama =
      RenderedHistory("meta-llama-Llama-3.1-8B-Instruct.jinja", TwoCalls());
  EXPECT_LT(llama.find("\"first\""), llama.find("of a"));
  EXPECT_LT(llama.find("of a"), llama.find("\"second\""));
  EXPECT_LT(llama.find("\"second\""), llama.find("of b"));
}

}  // namespace
}  // namespace sluice::serving
