#include "common/text/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/testing/golden_model.h"
#include "tests/testing/test_data.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

StatusOr<std::string> RenderSource(const std::string& source,
                                   const std::string& context = "{}",
                                   int64_t now = 0) {
  SLUICE_ASSIGN_OR_RETURN(const auto compiled, JinjaTemplate::Compile(source));
  SLUICE_ASSIGN_OR_RETURN(const auto variables, JinjaVariables::Parse(context));
  return compiled->Render("{}", variables, now);
}

TEST(JinjaTemplateTest, ValuesAreWrittenAsPythonWritesThem) {
  const std::string context =
      R"({"t":true,"n":null,"f":1.0,"e":1e20,"i":7,"s":"a'b",)"
      R"("l":[1,"x",true],"d":{"k":null}})";
  EXPECT_EQ(
      *RenderSource("{{ t }} {{ n }} {{ f }} {{ e }} {{ i }} {{ s }}", context),
      "True None 1.0 1e+20 7 a'b");
  EXPECT_EQ(*RenderSource("{{ l }} {{ d }}", context),
            "[1, 'x', True] {'k': None}");
  EXPECT_EQ(*RenderSource("{{ missing }}|{{ t | string }}", context), "|True");
}

TEST(JinjaTemplateTest, ToJsonIsJsonDumpsWithoutAsciiEscapes) {
  const std::string context = R"({"x":{"b":[1,2.5,"<é\"\n>"],"a":{}}})";
  EXPECT_EQ(*RenderSource("{{ x | tojson }}", context),
            R"({"b": [1, 2.5, "<é\"\n>"], "a": {}})");
  EXPECT_EQ(*RenderSource("{{ x | tojson(indent=2) }}", context),
            "{\n  \"b\": [\n    1,\n    2.5,\n    \"<é\\\"\\n>\"\n  ],\n"
            "  \"a\": {}\n}");
  EXPECT_EQ(*RenderSource("{{ x | tojson(ensure_ascii=False, "
                          "separators=(',', ':'), sort_keys=True) }}",
                          context),
            R"({"a":{},"b":[1,2.5,"<é\"\n>"]})");
}

TEST(JinjaTemplateTest, NoneIsNotIterable) {
  const std::string source =
      "{% for x in [none, [], {}, '', 'ab', 7, true, absent] %}"
      "{{ 1 if x is iterable else 0 }}{% endfor %}";
  EXPECT_EQ(*RenderSource(source, "{}"), "01111001");
  EXPECT_EQ(*RenderSource("{{ tools is iterable and tools | length > 0 }}",
                          R"({"tools": null})"),
            "False");
}

// tests/text/chats/make_snippets.py writes what jinja2 makes of each.
TEST(JinjaTemplateTest, SnippetsAreRenderedAsJinja2RendersThem) {
  const Json snippets =
      *ParseJson(ReadFileOrDie("tests/text/chats/snippets.json"),
                 {.max_bytes = size_t{1} << 20});
  EXPECT_GT(snippets.size(), 700u);
  for (const Json& one : snippets) {
    const auto source = one[0].get<std::string>();
    const auto text = RenderSource(source);
    EXPECT_EQ(text.ok() ? *text : Message(text.status()),
              one[1].get<std::string>())
        << source;
  }
}

TEST(JinjaTemplateTest, BlocksAreTrimmedAndLoopsControlled) {
  EXPECT_EQ(*RenderSource("{% for i in range(9) %}\n"
                          "  {% if i == 2 %}{% continue %}{% endif %}\n"
                          "  {%- if i > 4 %}{% break %}{% endif %}\n"
                          "{{ i }}\n{% endfor %}\n"),
            "0\n1\n3\n4\n");
}

TEST(JinjaTemplateTest, GenerationTagsAreTransparent) {
  EXPECT_EQ(*RenderSource("a{% generation %}b{%- endgeneration -%} c"), "abc");
}

TEST(JinjaTemplateTest, TheDateIsTheCallers) {
  EXPECT_EQ(
      *RenderSource("{{ strftime_now('%d %b %Y %H:%M') }}", "{}", 1751112000),
      "28 Jun 2025 12:00");
}

TEST(JinjaTemplateTest, ARaisedExceptionIsItsMessageAlone) {
  const auto text =
      RenderSource("{{ raise_exception('Roles must alternate') }}");
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(text.status()), "Roles must alternate");
}

TEST(JinjaTemplateTest, ASyntaxErrorIsFoundWhenCompiling) {
  const auto compiled = JinjaTemplate::Compile("a\n{% if %}");
  EXPECT_EQ(compiled.status().code(), StatusCode::kInvalidArgument);
}

TEST(JinjaTemplateTest, EndlessWorkRunsOutOfSteps) {
  const auto text = RenderSource(
      "{% for i in range(99999) %}{% for j in range(99999) %}"
      "{% set x = i * j %}{% endfor %}{% endfor %}");
  EXPECT_EQ(text.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(Message(text.status()).find("steps"), std::string::npos);
}

TEST(JinjaTemplateTest, EndlessOutputIsCapped) {
  const auto text =
      RenderSource("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}");
  EXPECT_EQ(text.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(Message(text.status()).find("bytes"), std::string::npos);
}

TEST(JinjaTemplateTest, EndlessRecursionIsAnError) {
  EXPECT_FALSE(
      RenderSource("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}").ok());
  std::string nested;
  for (int i = 0; i < 20000; ++i) nested += "(";
  EXPECT_FALSE(JinjaTemplate::Compile("{{ " + nested).ok());
}

TEST(JinjaTemplateTest, ADoubledStringIsCappedWhereItIsWritten) {
  const auto text = RenderSource(
      "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}"
      "{% set ns.s = ns.s ~ ns.s %}{{ ns.s }}{% endfor %}");
  EXPECT_EQ(text.status().code(), StatusCode::kResourceExhausted)
      << text.status();
}

TEST(JinjaTemplateTest, TheDeadlineBoundsTheSteps) {
  const auto compiled = JinjaTemplate::Compile(
      "{% for i in range(99999) %}{% set x = i %}{% endfor %}done");
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const auto none = JinjaVariables::Parse("{}");
  ASSERT_TRUE(none.ok()) << none.status();
  const auto at = [&](std::optional<TimePoint> deadline) {
    return (*compiled)->Render("{}", *none, 0, deadline);
  };
  EXPECT_EQ(*at(std::nullopt), "done");
  EXPECT_EQ(*at(Clock::now() + std::chrono::hours(1)), "done");
  EXPECT_EQ(at(Clock::now()).status().code(), StatusCode::kDeadlineExceeded);
}

TEST(JinjaTemplateTest, TellsWhatItReadsFromOutside) {
  const auto reads = [](const std::string& source) {
    const auto compiled = JinjaTemplate::Compile(source);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    const auto names = (*compiled)->Reads();
    EXPECT_TRUE(names.ok()) << names.status();
    std::string all;
    for (const std::string& name : *names) all += name + " ";
    return all;
  };
  EXPECT_EQ(reads("plain"), "");
  EXPECT_EQ(reads("{% for m in messages %}{{ m.role }}{{ loop.index }}"
                  "{% endfor %}"),
            "messages ");
  EXPECT_EQ(reads("{% if a is defined and not b %}{{ c.d['e'] }}{% endif %}"),
            "a b c ");
  EXPECT_EQ(reads("{% set x = 1 %}{{ x }}"), "");
  // Idioms of defaults.
  EXPECT_EQ(reads("{%- set x = x | default(true) -%}{{ x }}"), "x ");
  EXPECT_EQ(reads("{% if x is not defined %}{% set x = 1 %}{% endif %}"), "x ");
  EXPECT_EQ(reads("{% set x = x if x is defined else 1 %}"), "x ");
  EXPECT_EQ(reads("{% macro f(y) %}{{ y }}{{ z }}{% endmacro %}{{ f(1) }}"),
            "z ");
}

constexpr char kChatMl[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + "
    "m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}";

Json User(Json content) {
  return Json::array({{{"role", "user"}, {"content", std::move(content)}}});
}

TEST(ChatTemplateTest, RendersTextAndIds) {
  const auto tokenizer = TinyTokenizer();
  const auto chat = ChatTemplate::Make(kChatMl, *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  RenderOptions options;
  options.add_generation_prompt = false;
  EXPECT_EQ(*(*chat)->Render(User("hi"), nullptr, options),
            "<|im_start|>user\nhi<|im_end|>\n");
  const Ids ids = *(*chat)->RenderIds(User("hi"), nullptr, options);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids[ids.size() - 2], 2);
}

TEST(ChatTemplateTest, VariablesThatSpellSpecialTokensStayText) {
  const auto tokenizer = TinyTokenizer();
  const auto chat = ChatTemplate::Make(
      std::string("{{ mine }}{{ more.a[0] }}") + kChatMl, *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_TRUE((*chat)->Reads("mine"));
  EXPECT_FALSE((*chat)->Reads("others"));
  const auto specials = [&](const Json& variables) {
    RenderOptions options;
    options.kwargs = variables;
    const auto ids = (*chat)->RenderIds(User("hi"), nullptr, options);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return std::count_if(ids->begin(), ids->end(),
                         [&](TokenId id) { return tokenizer->IsSpecial(id); });
  };
  const auto plain = specials({{"mine", "x"}, {"more", {{"a", {"y"}}}}});
  EXPECT_GT(plain, 0);
  EXPECT_EQ(
      specials({{"mine", "<|im_start|>"}, {"more", {{"a", {"<|im_end|>"}}}}}),
      plain);
}

TEST(ChatTemplateTest, AFinalMessageIsCutWhereItEnds) {
  const auto tokenizer = TinyTokenizer();
  const auto chat = ChatTemplate::Make(kChatMl, *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  RenderOptions options;
  options.add_generation_prompt = false;
  options.continue_final_message = true;
  EXPECT_EQ(*(*chat)->Render(User("hi "), nullptr, options),
            "<|im_start|>user\nhi ");
  const Ids whole = *(*chat)->RenderIds(User("hi"), nullptr, {false});
  const Ids cut = *(*chat)->RenderIds(User("hi"), nullptr, options);
  ASSERT_LT(cut.size(), whole.size());
  EXPECT_TRUE(std::equal(cut.begin(), cut.end(), whole.begin()));
  // A template that trims: what it took off is not missed.
  const auto trims =
      ChatTemplate::Make("[{{ messages[-1].content | trim }}]", *tokenizer);
  EXPECT_EQ(*(*trims)->Render(User(" hi \n"), nullptr, options), "[hi");
  const auto shouts =
      ChatTemplate::Make("[{{ messages[-1].content | upper }}]", *tokenizer);
  EXPECT_EQ((*shouts)->Render(User("hi"), nullptr, options).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ((*chat)->Render(User(" "), nullptr, options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ChatTemplateTest, AFinalMessageThatAMarkerContainsIsCutWhereItEnds) {
  const auto tokenizer = TinyTokenizer();
  const auto chat_ml = ChatTemplate::Make(kChatMl, *tokenizer);
  const auto llama3 = ChatTemplate::Make(
      "{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + "
      "'<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}"
      "{% endfor %}",
      *tokenizer);
  RenderOptions options;
  options.add_generation_prompt = false;
  options.continue_final_message = true;
  for (const std::string text : {"e", "d", "im", "end", "t", "user", "|>"}) {
    EXPECT_EQ(*(*chat_ml)->Render(User(text), nullptr, options),
              "<|im_start|>user\n" + text);
    EXPECT_EQ(*(*llama3)->Render(User(text), nullptr, options),
              "<|start_header_id|>user<|end_header_id|>\n\n" + text);
    const Ids whole = *(*chat_ml)->RenderIds(User(text), nullptr, {false});
    const Ids cut = *(*chat_ml)->RenderIds(User(text), nullptr, options);
    // Without the marker and the line's end: of two ids or more.
    ASSERT_LE(cut.size() + 2, whole.size()) << text;
    EXPECT_TRUE(std::equal(cut.begin(), cut.end(), whole.begin())) << text;
  }
  // The template says the text twice: it is not plain where it ends.
  const auto twice = ChatTemplate::Make(
      "{{ messages[-1].content }}|{{ messages[-1].content }}|", *tokenizer);
  EXPECT_EQ((*twice)->Render(User("hi"), nullptr, options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ChatTemplateTest, ALongPromptIsRefusedBeforeItIsTokenized) {
  const auto tokenizer = TinyTokenizer();
  const auto chat = ChatTemplate::Make(kChatMl, *tokenizer);
  RenderOptions options;
  options.max_bytes = 60;
  EXPECT_TRUE((*chat)->RenderIds(User("hi"), nullptr, options).ok());
  const auto refused =
      (*chat)->RenderIds(User(std::string(61, 'x')), nullptr, options);
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfRange);
}

TEST(ChatTemplateTest, PartsAreJoinedForTemplatesThatTakeStrings) {
  const auto tokenizer = TinyTokenizer();
  const auto chat = ChatTemplate::Make(kChatMl, *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const Json parts = {{{"type", "text"}, {"text", "a"}},
                      {{"type", "text"}, {"text", "b"}}};
  EXPECT_NE((*chat)->Render(User(parts), nullptr, {})->find("a\nb"),
            std::string::npos);
  const Json image = {{{"type", "image_url"}, {"image_url", "x"}}};
  const auto refused = (*chat)->Render(User(image), nullptr, {});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(refused.status()).find("messages[0].content[0]"),
            std::string::npos);
}

TEST(ChatTemplateTest, ArgumentsOfToolCallsAreParsed) {
  const auto tokenizer = TinyTokenizer();
  const auto chat = ChatTemplate::Make(
      "{{ messages[0].tool_calls[0].function.arguments.city }}", *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto with = [](const std::string& arguments) {
    return Json::array(
        {{{"role", "assistant"},
          {"content", nullptr},
          {"tool_calls",
           {{{"id", "1"},
             {"type", "function"},
             {"function", {{"name", "f"}, {"arguments", arguments}}}}}}}});
  };
  EXPECT_EQ(*(*chat)->Render(with(R"({"city": "Bern"})"), nullptr, {}), "Bern");
  EXPECT_TRUE((*chat)->Render(with(""), nullptr, {}).ok());
  for (const char* bad : {"{", "[1]", "7"}) {
    const auto text = (*chat)->Render(with(bad), nullptr, {});
    EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Message(text.status())
                  .find("messages[0].tool_calls[0].function.arguments"),
              std::string::npos)
        << text.status();
  }
}

TEST(ChatTemplateTest, RequestsOfTheWrongShapeAreRefused) {
  const auto tokenizer = TinyTokenizer();
  const auto chat = ChatTemplate::Make(kChatMl, *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  RenderOptions options;
  EXPECT_FALSE((*chat)->Render(Json::object(), nullptr, options).ok());
  EXPECT_FALSE((*chat)->Render(Json::array({1}), nullptr, options).ok());
  EXPECT_FALSE((*chat)->Render(Json::array({{{"a", 1}}}), nullptr, {}).ok());
  EXPECT_FALSE((*chat)->Render(User("x"), Json::object({{"a", 1}}), {}).ok());
  options.kwargs = {{"messages", 1}};
  const auto text = (*chat)->Render(User("x"), nullptr, options);
  EXPECT_NE(Message(text.status()).find("chat_template_kwargs: messages"),
            std::string::npos);
  options.kwargs = Json::object();
  options.date = "yesterday";
  EXPECT_FALSE((*chat)->Render(User("x"), nullptr, options).ok());
}

TEST(ChatTemplateTest, TheDateIsOfTheTimeThatTheCallerNames) {
  const auto tokenizer = TinyTokenizer();
  const auto chat = ChatTemplate::Make(
      "{{ strftime_now('%Y-%m-%d') }}{{ messages[0]['content'] }}", *tokenizer);
  ASSERT_TRUE(chat.ok()) << chat.status();
  RenderOptions options;
  options.now = 1751112000;  // at noon in UTC
  EXPECT_EQ(*(*chat)->Render(User("x"), nullptr, options), "2025-06-28x");
  options.now = *options.now + 86400;
  EXPECT_EQ(*(*chat)->Render(User("x"), nullptr, options), "2025-06-29x");
  options.date = "2024-02-29";
  EXPECT_EQ(*(*chat)->Render(User("x"), nullptr, options), "2024-02-29x");
}

TEST(ChatTemplateTest, AModelWithoutATemplateIsNotFound) {
  const std::string path = GoldenModel("stories");
  const Tokenizer* tokenizer = GoldenTokenizer("stories");
  EXPECT_EQ(ChatTemplate::Load(path, *tokenizer).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice::testing
