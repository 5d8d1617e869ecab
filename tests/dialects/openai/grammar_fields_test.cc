// What holds an answer to a grammar: each server's fields, and tool_choice.
#include "common/dialects/openai/grammar_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/dialects/openai/parse.h"
#include "common/serving/error.h"

namespace sluice::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = GrammarSpec::Kind;

constexpr char kTools[] = R"("tools":[
    {"type":"function","function":{"name":"a","strict":true}},
    {"type":"function","function":{"name":"b","strict":null}},
    {"type":"function","function":{"name":"c","strict":false}}],)";

StatusOr<serving::ChatRequest> ChatWith(const std::string& fields) {
  return ParseChatRequest(
      Cat(R"({"messages":[{"role":"user","content":"hi"}],)", fields, "}"),
      100);
}

// Both endpoints read the same.
std::optional<serving::GrammarField> GrammarOf(const std::string& fields) {
  const auto chat = ChatWith(fields);
  const auto completion =
      ParseCompletionRequest(Cat(R"({"prompt":"hi",)", fields, "}"), 100);
  EXPECT_TRUE(chat.ok()) << chat.status();
  EXPECT_TRUE(completion.ok()) << completion.status();
  if (!chat.ok() || !completion.ok()) return std::nullopt;
  EXPECT_EQ(chat->fields.grammar, completion->fields.grammar);
  return chat->fields.grammar;
}

void ExpectGrammar(const std::string& fields,
                   const serving::GrammarField& wanted) {
  SCOPED_TRACE(fields);
  const auto got = GrammarOf(fields);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->name, wanted.name);
  EXPECT_EQ(got->spec.kind, wanted.spec.kind);
  EXPECT_EQ(got->spec.text, wanted.spec.text);
}

void ExpectRefused(const std::string& fields, std::string_view param,
                   std::string_view words = "") {
  SCOPED_TRACE(fields);
  const auto got = ChatWith(fields);
  ASSERT_FALSE(got.ok());
  const http::ApiError error = serving::ToApiError(got.status());
  EXPECT_EQ(error.http_status, 400) << error.message;
  EXPECT_EQ(error.param.value_or("none"), param) << error.message;
  EXPECT_THAT(error.message, HasSubstr(std::string(words)));
}

TEST(GrammarFieldsTest, EveryServersFieldsGiveOneGrammar) {
  const std::string schema = R"({"type":"object","z":1,"a":2})";
  const GrammarSpec spec{Kind::kJsonSchema, schema};
  const std::string format = R"("response_format":)";
  ExpectGrammar(format + R"({"type":"json_object"})",
                {"response_format", {Kind::kJsonObject, ""}});
  ExpectGrammar(format + R"({"type":"json_object","schema":)" + schema + "}",
                {"response_format.schema", spec});
  ExpectGrammar(format + R"({"type":"json_schema","schema":)" + schema + "}",
                {"response_format.schema", spec});
  ExpectGrammar(format + R"({"type":"json_schema","json_schema":{"name":"a_-1",
                "strict":false,"description":"x","schema":)" +
                    schema + "}}",
                {"response_format.json_schema.schema", spec});
  ExpectGrammar(format + R"({"type":"json_schema","json_schema":{"strict":null,
                "description":null,"schema":)" +
                    schema + "}}",
                {"response_format.json_schema.schema", spec});
  const std::string outputs = R"("structured_outputs":)";
  ExpectGrammar(outputs + R"({"json":)" + schema + R"(,"regex":null})",
                {"structured_outputs.json", spec});
  ExpectGrammar(outputs + R"({"json":"{\"a\": 1}"})",
                {"structured_outputs.json", {Kind::kJsonSchema, "{\"a\": 1}"}});
  ExpectGrammar(outputs + R"({"regex":"a+","disable_fallback":true})",
                {"structured_outputs.regex", {Kind::kRegex, "a+"}});
  ExpectGrammar(outputs + R"({"choice":["b","a"],"json_object":false})",
                {"structured_outputs.choice", {Kind::kChoice, R"(["b","a"])"}});
  ExpectGrammar(outputs + R"({"grammar":"start: /a/"})",
                {"structured_outputs.grammar", {Kind::kLark, "start: /a/"}});
  ExpectGrammar(outputs + R"({"json_object":true})",
                {"structured_outputs.json_object", {Kind::kJsonObject, ""}});
  const std::string tag =
      R"({"type":"structural_tag","format":{"type":"any_text"}})";
  ExpectGrammar(format + tag, {"response_format", {Kind::kStructuralTag, tag}});
  ExpectGrammar(
      outputs + R"({"structural_tag":)" + tag + "}",
      {"structured_outputs.structural_tag", {Kind::kStructuralTag, tag}});
  ExpectGrammar(R"("structural_tag":"{}")",
                {"structural_tag", {Kind::kStructuralTag, "{}"}});
  ExpectGrammar(R"("guided_json":)" + schema, {"guided_json", spec});
  ExpectGrammar(R"("guided_json":true)",
                {"guided_json", {Kind::kJsonSchema, "true"}});
  ExpectGrammar(R"("guided_regex":"a")", {"guided_regex", {Kind::kRegex, "a"}});
  ExpectGrammar(R"("guided_choice":["a"])",
                {"guided_choice", {Kind::kChoice, R"(["a"])"}});
  ExpectGrammar(R"("guided_grammar":"root ::= \"a\"")",
                {"guided_grammar", {Kind::kGbnf, "root ::= \"a\""}});
  ExpectGrammar(R"("guided_json_object":true)",
                {"guided_json_object", {Kind::kJsonObject, ""}});
  ExpectGrammar(R"("grammar":"root ::= [a-z]")",
                {"grammar", {Kind::kGbnf, "root ::= [a-z]"}});
  ExpectGrammar(R"("json_schema":)" + schema, {"json_schema", spec});
  ExpectGrammar(R"("json_schema":"{}")",
                {"json_schema", {Kind::kJsonSchema, "{}"}});
  ExpectGrammar(R"("regex":"a+")", {"regex", {Kind::kRegex, "a+"}});
  ExpectGrammar(R"("ebnf":"root ::= \"a\"")",
                {"ebnf", {Kind::kGbnf, "root ::= \"a\""}});
}

TEST(GrammarFieldsTest, ValuesThatAskForNothingAreAccepted) {
  for (const char* fields :
       {R"("response_format":null)", R"("response_format":{"type":"text"})",
        R"("structured_outputs":null)", R"("structured_outputs":{})",
        R"("structured_outputs":{"json":null,"disable_any_whitespace":false})",
        R"("guided_json":null)", R"("guided_json_object":false)",
        R"("grammar":"")", R"("json_schema":"")", R"("regex":"")",
        R"("ebnf":"","regex":null)"}) {
    SCOPED_TRACE(fields);
    EXPECT_FALSE(GrammarOf(fields).has_value());
  }
}

TEST(GrammarFieldsTest, BadValuesAreRefusedByTheirPath) {
  const std::string format = R"("response_format":)";
  ExpectRefused(format + "[]", "response_format", "must be an object");
  ExpectRefused(format + "{}", "response_format.type", "is missing");
  ExpectRefused(format + R"({"type":1})", "response_format.type");
  ExpectRefused(format + R"({"type":"xml"})", "response_format.type",
                "json_schema");
  ExpectRefused(format + R"({"type":"json_schema"})",
                "response_format.json_schema", "is missing");
  ExpectRefused(format + R"({"type":"json_schema","json_schema":[]})",
                "response_format.json_schema");
  ExpectRefused(format + R"({"type":"json_schema","json_schema":{}})",
                "response_format.json_schema.schema", "is missing");
  ExpectRefused(
      format + R"({"type":"json_schema","json_schema":{"schema":"{}"}})",
      "response_format.json_schema.schema", "a string");
  ExpectRefused(format + R"({"type":"json_schema","json_schema":{"schema":{},
                "strict":1}})",
                "response_format.json_schema.strict");
  for (const std::string& name :
       {std::string("a b"), std::string(), std::string(65, 'a')}) {
    ExpectRefused(
        Cat(format, R"({"type":"json_schema","json_schema":{"name":")", name,
            R"(","schema":{}}})"),
        "response_format.json_schema.name", "1 to 64");
  }
  const std::string outputs = R"("structured_outputs":)";
  ExpectRefused(outputs + "5", "structured_outputs");
  ExpectRefused(outputs + R"({"regex":""})", "structured_outputs.regex");
  ExpectRefused(outputs + R"({"choice":[]})", "structured_outputs.choice");
  ExpectRefused(outputs + R"({"choice":["a",1]})", "structured_outputs.choice",
                "not all strings");
  ExpectRefused(outputs + R"({"json":5})", "structured_outputs.json");
  ExpectRefused(outputs + R"({"grammar":"a: b"})", "structured_outputs.grammar",
                "`start:`");
  ExpectRefused(outputs + R"({"structural_tag":5})",
                "structured_outputs.structural_tag", "must be a string");
  ExpectRefused(outputs + R"({"whitespace_pattern":" "})",
                "structured_outputs.whitespace_pattern", "not supported");
  ExpectRefused(R"("guided_choice":"a")", "guided_choice");
  ExpectRefused(R"("guided_json_object":1)", "guided_json_object");
  ExpectRefused(R"("grammar":5)", "grammar");
  ExpectRefused(R"("structural_tag":["{}"])", "structural_tag");
}

TEST(GrammarFieldsTest, TwoGrammarsAreRefusedByBothNames) {
  ExpectRefused(R"("response_format":{"type":"json_object"},"regex":"a")",
                "regex", "response_format");
  ExpectRefused(R"("structured_outputs":{"regex":"a","choice":["a"]})",
                "structured_outputs.choice", "structured_outputs.regex");
  ExpectRefused(R"("guided_json":{},"json_schema":{})", "json_schema",
                "guided_json");
  EXPECT_TRUE(GrammarOf(R"("response_format":{"type":"text"},"regex":"a")")
                  .has_value());
}

TEST(GrammarFieldsTest, LarkAndGbnfAreToldApart) {
  EXPECT_EQ(KindOfGrammar("start: /a/"), Kind::kLark);
  EXPECT_EQ(KindOfGrammar("%import x\nstart : b\nb: /::=/"), Kind::kLark);
  EXPECT_EQ(KindOfGrammar("root ::= start\nstart ::= \"a\""), Kind::kGbnf);
  EXPECT_EQ(KindOfGrammar("root ::= \"start: \""), Kind::kGbnf);
  EXPECT_EQ(KindOfGrammar("restart: /a/"), std::nullopt);
  EXPECT_EQ(KindOfGrammar("start"), std::nullopt);
  EXPECT_EQ(KindOfGrammar(""), std::nullopt);
}

TEST(GrammarFieldsTest, ToolChoicesSayWhatMayBeCalled) {
  const auto chat = [](std::string_view choice) {
    return ChatWith(Cat(kTools, R"("tool_choice":)", choice)).value().tools;
  };
  const serving::ToolFields free = chat("\"auto\"");
  EXPECT_EQ(free.choice, serving::ToolChoice::kAuto);
  EXPECT_THAT(free.allowed, IsEmpty());
  EXPECT_THAT(free.strict, ElementsAre(true, std::nullopt, false));
  EXPECT_EQ(chat("null").choice, serving::ToolChoice::kAuto);
  EXPECT_TRUE(chat("\"none\"").tools.is_null());
  const serving::ToolFields required = chat("\"required\"");
  EXPECT_EQ(required.choice, serving::ToolChoice::kRequired);
  EXPECT_THAT(required.allowed, IsEmpty());
  const serving::ToolFields named =
      chat(R"({"type":"function","function":{"name":"b"}})");
  EXPECT_EQ(named.choice, serving::ToolChoice::kRequired);
  EXPECT_THAT(named.allowed, ElementsAre("b"));
  EXPECT_FALSE(named.parallel) << "one call, unless more are asked for";
  EXPECT_TRUE(required.parallel);
  EXPECT_TRUE(chat(R"({"type":"function","function":{"name":"b"}},
                   "parallel_tool_calls":true)")
                  .parallel);
  EXPECT_EQ(named.tools.size(), 3u) << "the model is told of all";
  const std::string two = R"([{"type":"function","function":{"name":"c"}},
      {"type":"function","function":{"name":"a"}},
      {"type":"function","function":{"name":"c"}}])";
  const serving::ToolFields some = chat(
      R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":)" +
      two + "}}");
  EXPECT_EQ(some.choice, serving::ToolChoice::kAuto);
  EXPECT_THAT(some.allowed, ElementsAre("c", "a"));
  EXPECT_EQ(chat(R"({"type":"allowed_tools","allowed_tools":{"mode":"required",
                 "tools":)" +
                 two + "}}")
                .choice,
            serving::ToolChoice::kRequired);
}

TEST(GrammarFieldsTest, BadToolChoicesAreRefused) {
  const std::string choice = R"("tool_choice":)";
  // vllm#44216: "required" was taken and ignored.
  ExpectRefused(choice + "\"required\"", "tool_choice", "needs tools");
  ExpectRefused(R"("tools":[],)" + choice + "\"required\"", "tool_choice",
                "needs tools");
  ExpectRefused(choice + R"({"type":"function","function":{"name":"a"}})",
                "tool_choice", "needs tools");
  for (const char* bad : {"\"maybe\"", "1", "{}", R"({"type":"function"})",
                          R"({"type":"function","function":{"name":5}})",
                          R"({"type":"custom","custom":{"name":"a"}})",
                          R"({"type":"function","function":{"name":"d"}})",
                          R"({"type":"allowed_tools"})"}) {
    ExpectRefused(Cat(kTools, choice, bad), "tool_choice");
  }
  const auto allowed = [&](std::string_view members) {
    return Cat(kTools, choice, R"({"type":"allowed_tools","allowed_tools":{)",
               members, "}}");
  };
  ExpectRefused(allowed(R"("mode":"none","tools":[])"),
                "tool_choice.allowed_tools.mode", "auto");
  ExpectRefused(allowed(R"("mode":"auto","tools":[])"),
                "tool_choice.allowed_tools.tools", "1 to 512");
  ExpectRefused(allowed(R"("mode":"auto","tools":[{"type":"function",
                "function":{"name":"x"}}])"),
                "tool_choice", "tools[0]");
}

// What a double does not keep would hold an answer to another number.
TEST(GrammarFieldsTest, SchemasKeepTheirDigitsOrAreRefused) {
  for (const char* number :
       {"18446744073709551615", "-9223372036854775808", "1.5", "1e19",
        "1.7976931348623157e308", "0.0", "1.10", "9007199254740993"}) {
    const std::string schema = Cat(R"({"const":)", number, "}");
    EXPECT_TRUE(GrammarOf(Cat(R"("json_schema":)", schema))) << number;
  }
  for (const char* number :
       {"18446744073709551617", "-9223372036854775809", "1e-400",
        "0.100000000000000000000000000001", "123456789012345678.5"}) {
    const std::string schema =
        Cat(R"({"items": {"enum":[null,)", number, "]}}");
    ExpectGrammar(Cat(R"("json_schema":)", schema),
                  {"json_schema", {Kind::kJsonSchema, schema}});
    ExpectGrammar(
        Cat(R"("response_format":{"type":"json_schema","json_schema":)",
            R"({"schema":{},"name":"x","schema":)", schema, "}}"),
        {"response_format.json_schema.schema", {Kind::kJsonSchema, schema}});
    ExpectRefused(Cat(R"("structural_tag":{"format":{"type":"json_schema",)",
                      R"("json_schema":)", schema, "}}"),
                  "structural_tag.format.json_schema.items.enum[1]", "digits");
    const std::string tool =
        Cat(R"("tools":[{"type":"function","function":{"name":"a",)",
            R"("parameters":)", schema, R"(,"strict":#}}])");
    const size_t flag = tool.find('#');
    const auto with = [&](const char* value) {
      return std::string(tool).replace(flag, 1, value);
    };
    ExpectRefused(with("true"), "tools[0].function.parameters.items.enum[1]");
    EXPECT_TRUE(ChatWith(with("false")).ok());
    // As a text a schema has all its digits, and other fields round.
    EXPECT_TRUE(GrammarOf(Cat(R"("json_schema":"{\"const\":)", number,
                              R"(}","temperature":0.30000000000000000001)")));
  }
}

}  // namespace
}  // namespace sluice::openai
