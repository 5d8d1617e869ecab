// Bodies of /v1/responses, by field.
#include "common/dialects/responses/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/serving/chat_parts.h"
#include "common/serving/error.h"
#include "tests/serving/toy_text.h"

namespace sluice::responses {
namespace {

using ::testing::HasSubstr;

StatusOr<ResponsesRequest> Read(const std::string& body, bool strict = false) {
  return ParseRequest(body, {.vocab_size = 100, .strict = strict});
}

// Reads a body of `members` beside an input.
ResponsesRequest ReadWith(const std::string& members) {
  auto read = Read(R"({"input":"hi",)" + members + "}");
  EXPECT_TRUE(read.ok()) << read.status();
  return *std::move(read);
}

Json MessagesOf(const std::string& items) {
  auto read = Read(R"({"input":)" + items + "}");
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() ? read->chat.messages : Json();
}

// Expects a 400 about `param` whose message has `words`.
void ExpectRefused(const std::string& body, std::string_view param,
                   const std::string& words = "", bool strict = false) {
  const auto read = Read(body, strict);
  ASSERT_FALSE(read.ok()) << body;
  const http::ApiError error = serving::ToApiError(read.status());
  EXPECT_EQ(error.http_status, 400) << error.message;
  EXPECT_EQ(error.param.value_or("none"), param) << error.message;
  EXPECT_THAT(error.message, HasSubstr(words));
}

TEST(ResponsesRequestTest, ATextIsAMessageOfTheUser) {
  const auto read = Read(R"({"model":"m","input":"hi","instructions":"be"})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(DumpJson(read->chat.messages),
            R"([{"role":"system","content":"be"},)"
            R"({"role":"user","content":"hi"}])");
  EXPECT_EQ(read->chat.fields.model, "m");
  EXPECT_FALSE(read->chat.fields.stream);
}

TEST(ResponsesRequestTest, ProbesSendNothing) {
  EXPECT_EQ(DumpJson(MessagesOf("[]")), R"([{"role":"user","content":""}])");
  EXPECT_EQ(DumpJson(MessagesOf(R"("")")), R"([{"role":"user","content":""}])");
  ExpectRefused("{}", "input", "is missing");
  ExpectRefused(R"({"input":1})", "input", "the number 1");
}

TEST(ResponsesRequestTest, ItemsOfATurnAreOneMessage) {
  const Json messages = MessagesOf(R"([
    {"type":"message","role":"developer","id":"x",
     "content":[{"type":"input_text","text":"a"}]},
    {"role":"developer","content":"b"},
    {"role":"user","content":[{"type":"input_text","text":"c"},
                              {"type":"input_text","text":"d"}]},
    {"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"zz",
     "content":[{"type":"reasoning_text","text":"hm"}]},
    {"type":"message","role":"assistant","phase":"commentary",
     "content":[{"type":"output_text","text":"look"}]},
    {"type":"function_call","id":"fc","call_id":"c1","name":"f",
     "arguments":"{\"x\": 1}","status":"completed"},
    {"type":"function_call","call_id":"c2","name":"close","namespace":"multi",
     "arguments":""},
    {"type":"function_call_output","id":"fco","call_id":"c1","output":"one"},
    {"type":"function_call_output","call_id":"c2",
     "output":[{"type":"input_image","image_url":"data:image/png;base64,AA"}]},
    {"type":"custom_tool_call","call_id":"c3","name":"patch","input":"***"},
    {"type":"custom_tool_call_output","call_id":"c3","output":"ok"}])");
  EXPECT_EQ(
      DumpJson(messages),
      R"([{"role":"system","content":"a\n\nb"},)"
      R"({"role":"user","content":"c\nd"},)"
      R"({"role":"assistant","content":"look","reasoning_content":"hm",)"
      R"("tool_calls":[{"type":"function","function":{"name":"f",)"
      R"("arguments":{"x":1}},"id":"c1"},{"type":"function","function":)"
      R"({"name":"multi__close","arguments":{}},"id":"c2"}]},)"
      R"({"role":"tool","content":"one","tool_call_id":"c1"},)"
      R"({"role":"tool","content":")" +
          std::string(serving::kImageNote) +
          R"(","tool_call_id":"c2"},)"
          R"({"role":"assistant","content":"","tool_calls":[{"type":)"
          R"("function","function":{"name":"patch","arguments":{"input":"***"}})"
          R"(,"id":"c3"}]},{"role":"tool","content":"ok","tool_call_id":"c3"}])");
}

TEST(ResponsesRequestTest, APictureOfTheUserIsANote) {
  EXPECT_EQ(MessagesOf(R"([{"role":"user","content":[
              {"type":"input_text","text":"<image>"},
              {"type":"input_image","image_url":"x"},
              {"type":"input_text","text":"</image>"}]}])")[0]["content"],
            Cat("<image>\n", serving::kImageNote, "\n</image>"));
}

TEST(ResponsesRequestTest, ItemsOfUnknownTypesAreLeftOut) {
  EXPECT_EQ(MessagesOf(R"([{"type":"web_search_call","id":"ws"},
    {"type":"compaction","encrypted_content":"z"},{"type":"local_shell_call"},
    {"type":"reasoning","id":"rs","summary":[],"encrypted_content":"z"},
    {"role":"user","content":[{"type":"later"},
                              {"type":"text","text":"x"}]}])"),
            *ParseJson(R"([{"role":"user","content":"x"}])"));
}

TEST(ResponsesRequestTest, RefusesWhatNoItemIs) {
  const auto refused = [](const std::string& item, const std::string& words) {
    ExpectRefused(R"({"input":[)" + item + "]}", "input", words);
  };
  refused("1", "input[0] must be an object, got the number 1");
  refused("{}", "input[0].type");
  refused(R"({"role":"robot","content":""})", "input[0].role");
  refused(R"({"role":"user"})", "input[0].content is missing");
  refused(R"({"role":"user","content":[1]})", "input[0].content[0]");
  refused(R"({"role":"user","content":[{"type":"text"}]})",
          "input[0].content[0].text");
  refused(R"({"type":"item_reference","id":"msg_1"})", "item_reference");
  refused(R"({"type":"function_call","call_id":"c","arguments":"{}"})",
          "input[0].name");
  refused(R"({"type":"function_call","name":"f","arguments":[]})",
          "input[0].arguments");
  refused(R"({"type":"custom_tool_call","name":"f"})", "input[0].input");
  refused(R"({"type":"function_call_output","call_id":1,"output":"a"})",
          "call_id");
}

TEST(ResponsesRequestTest, ReadsSampling) {
  const auto fields =
      ReadWith(R"("temperature":0.5,"top_p":0.9,"top_k":5,"min_p":0.1,
        "seed":7,"max_output_tokens":9,"min_tokens":2,"stop":["a"],
        "stop_token_ids":[3],"ignore_eos":true,"frequency_penalty":1,
        "presence_penalty":-1,"repetition_penalty":1.1,"stream":true,
        "cache_salt":"s","sse_ping_interval":5,"allowed_token_ids":[1,2],
        "bad_words":["x"],"thinking_token_budget":8,"priority":-1)")
          .chat.fields;
  EXPECT_EQ(fields.temperature, 0.5);
  EXPECT_EQ(fields.top_p, 0.9);
  EXPECT_EQ(fields.top_k, 5);
  EXPECT_EQ(fields.min_p, 0.1);
  EXPECT_EQ(fields.seed, 7u);
  EXPECT_EQ(fields.max_tokens, 9);
  EXPECT_EQ(fields.min_tokens, 2);
  EXPECT_EQ(fields.stop, std::vector<std::string>{"a"});
  EXPECT_EQ(fields.stop_token_ids, std::vector<TokenId>{3});
  EXPECT_TRUE(fields.ignore_eos);
  EXPECT_EQ(fields.frequency_penalty, 1);
  EXPECT_EQ(fields.presence_penalty, -1);
  EXPECT_EQ(fields.repetition_penalty, 1.1);
  EXPECT_EQ(fields.ping_interval, 5);
  EXPECT_EQ(fields.cache_salt, "s");
  EXPECT_EQ(fields.allowed_token_ids.size(), 2u);
  EXPECT_EQ(fields.bad_words, std::vector<std::string>{"x"});
  EXPECT_EQ(fields.thinking_budget, 8);
  EXPECT_EQ(fields.priority, -1);
  EXPECT_NE(fields.digest, 0u);
}

TEST(ResponsesRequestTest, RefusesValuesByTheirFields) {
  const auto refused = [](const std::string& member, std::string_view param) {
    ExpectRefused(R"({"input":"hi",)" + member + "}", param);
  };
  refused(R"("temperature":3)", "temperature");
  refused(R"("top_p":-1)", "top_p");
  refused(R"("max_output_tokens":0)", "max_output_tokens");
  refused(R"("max_output_tokens":1,"min_tokens":2)", "min_tokens");
  refused(R"("stop_token_ids":[100])", "stop_token_ids");
  refused(R"("background":true)", "background");
  refused(R"("truncation":"first")", "truncation");
  refused(R"("n":2)", "n");
  refused(R"("stream_options":1)", "stream_options");
  refused(R"("stream_options":{"include_obfuscation":1})",
          "stream_options.include_obfuscation");
  refused(R"("metadata":[])", "metadata");
  refused(R"("metadata":{"a":1})", "metadata");
  refused(R"("metadata":{"a":")" + std::string(513, 'x') + "\"}", "metadata");
  refused(R"("metadata":{")" + std::string(65, 'k') + R"(":""})", "metadata");
  std::string many;
  for (int i = 0; i < 17; ++i)
    many += Cat(i == 0 ? "" : ",", "\"", i, "\":\"\"");
  refused(Cat(R"("metadata":{)", many, "}"), "metadata");
  for (const char* name : {"user", "prompt_cache_key", "safety_identifier"}) {
    refused(Cat("\"", name, "\":[]"), name);
    refused(Cat("\"", name, "\":\"", std::string(513, 'x'), "\""), name);
  }
  refused(R"("include":"x")", "include");
  refused(R"("top_logprobs":21)", "top_logprobs");
  refused(R"("reasoning":{"effort":"<a>"})", "reasoning.effort");
  refused(R"("reasoning":{"summary":"long"})", "reasoning.summary");
  refused(R"("text":{"format":{"type":"xml"}})", "text.format.type");
  refused(R"("text":{"format":{"type":"json_schema"}})", "text.format.schema");
  refused(R"("messages":[])", "messages");
  refused(R"("max_tokens":4)", "max_tokens");
  refused(R"("conversation":"c")", "conversation");
  refused(R"("prompt":{"id":"p"})", "prompt");
}

TEST(ResponsesRequestTest, TakesWhatChangesNothing) {
  ReadWith(R"("background":false,"truncation":"auto","store":true,"n":1,
    "stream_options":{"include_obfuscation":false},"metadata":{"a":"b"},
    "user":"u","prompt_cache_key":"k","service_tier":"auto","later":1,
    "safety_identifier":"s","client_metadata":{"x":"y"},"text":{
    "verbosity":"low"},"include":["reasoning.encrypted_content"],
    "max_tool_calls":3,"instructions":null,"temperature":null)");
  ExpectRefused(R"({"input":"hi","later":1})", "later", "", /*strict=*/true);
  EXPECT_TRUE(Read(R"({"input":"hi","store":false,"text":{},"user":"u",
                       "prompt_cache_options":{},"logprobs":false,
                       "functions":[],"messages":null})",
                   /*strict=*/true)
                  .ok());
  ExpectRefused(R"({"input":"hi","logprobs":true})", "logprobs");
  ExpectRefused(R"({"input":"hi","functions":[{}]})", "functions");
}

TEST(ResponsesRequestTest, ReadsFormats) {
  EXPECT_FALSE(ReadWith(R"("text":{"format":{"type":"text"}})")
                   .chat.fields.grammar.has_value());
  EXPECT_EQ(ReadWith(R"("text":{"format":{"type":"json_object"}})")
                .chat.fields.grammar->spec.kind,
            GrammarSpec::Kind::kJsonObject);
  const auto fields = ReadWith(R"("text":{"format":{"type":"json_schema",
    "name":"n","strict":true,"schema":{"type":"object"}}})")
                          .chat.fields;
  EXPECT_EQ(fields.grammar->name, "text.format.schema");
  EXPECT_EQ(fields.grammar->spec.text, R"({"type":"object"})");
}

TEST(ResponsesRequestTest, ReadsReasoningAndLogprobs) {
  const auto read = ReadWith(R"("reasoning":{"effort":"high","summary":"auto"},
    "include":["message.output_text.logprobs"],"top_logprobs":3)");
  EXPECT_EQ(read.chat.chat_template.kwargs["reasoning_effort"], "high");
  EXPECT_TRUE(read.tells_summary);
  EXPECT_EQ(read.chat.fields.logprobs, 3);
  const auto off = ReadWith(R"("reasoning":{"effort":"none"})");
  EXPECT_EQ(off.chat.chat_template.kwargs["enable_thinking"], false);
  EXPECT_FALSE(off.tells_summary);
  EXPECT_FALSE(off.chat.fields.logprobs.has_value());
}

constexpr char kTools[] = R"("tools":[
  {"type":"web_search","external_web_access":false},
  {"type":"function","name":"f","description":"d","strict":false,
   "parameters":{"type":"object","properties":{}}},
  {"type":"namespace","name":"multi","description":"Many.","tools":[
    {"type":"function","name":"close","description":"Ends.","strict":true,
     "parameters":{"type":"object","properties":{}}},
    {"type":"function","name":"open"}]},
  {"type":"tool_search","execution":"client"},
  {"type":"custom","name":"patch","description":"Patches.","format":
   {"type":"grammar","syntax":"lark","definition":"start: \"a\"+ LF\n%import common.LF"}}])";

TEST(ResponsesRequestTest, ReadsTools) {
  const auto read = ReadWith(kTools);
  const serving::ToolFields& tools = read.chat.tools;
  ASSERT_EQ(tools.tools.size(), 4u);
  const auto function = [&](size_t i) { return tools.tools[i]["function"]; };
  EXPECT_EQ(function(0)["name"], "f");
  EXPECT_EQ(function(1)["name"], "multi__close");
  EXPECT_EQ(function(1)["description"], "Many.\n\nEnds.");
  EXPECT_EQ(function(2)["name"], "multi__open");
  EXPECT_FALSE(function(2).contains("parameters"));
  EXPECT_EQ(function(3)["name"], "patch");
  EXPECT_THAT(function(3)["description"].get<std::string>(),
              HasSubstr("Lark grammar:\nstart: \"a\"+ LF"));
  EXPECT_EQ(function(3)["parameters"]["properties"],
            *ParseJson(R"({"input":{"type":"string"}})"));
  EXPECT_THAT(tools.held.at(3), HasSubstr(R"("pattern":"^(?:)"));
  EXPECT_EQ(tools.strict.at(3), true);
  EXPECT_EQ(tools.strict.at(1), true);
  EXPECT_EQ(tools.strict.at(0), false);
  EXPECT_TRUE(tools.parallel);
  EXPECT_EQ(read.names.at("multi__close").name, "close");
  EXPECT_EQ(read.names.at("multi__close").name_space, "multi");
  EXPECT_TRUE(read.names.at("patch").is_custom);
  EXPECT_EQ(read.echo["tools"].size(), 3u) << "without the hosted ones";
}

TEST(ResponsesRequestTest, ACustomToolWithoutAFormatIsHeldToItsText) {
  const auto tools =
      ReadWith(R"("tools":[{"type":"custom","name":"c"}])").chat.tools;
  EXPECT_EQ(tools.strict.at(0), true);
  EXPECT_EQ(tools.held.at(0), "");
  EXPECT_EQ(DumpJson(tools.tools[0]["function"]["parameters"]),
            R"({"type":"object","properties":{"input":{"type":"string"}},)"
            R"("required":["input"],"additionalProperties":false})");
}

// An agent cannot leave its tool out: what cannot be held is told.
TEST(ResponsesRequestTest, AGrammarThatCannotBeHeldIsTold) {
  for (const auto& [syntax, grammar] :
       {std::pair("lark", "start: \"(\" start \")\" | \"x\""),
        std::pair("lark", "start: /(?!a)b/"), std::pair("regex", "(?=a).*")}) {
    const Json tool{
        {"type", "custom"},
        {"name", "c"},
        {"format",
         {{"type", "grammar"}, {"syntax", syntax}, {"definition", grammar}}}};
    const auto tools =
        ReadWith(Cat("\"tools\":[", DumpJson(tool), "]")).chat.tools;
    EXPECT_EQ(tools.strict.at(0), true) << grammar;
    EXPECT_EQ(tools.held.at(0), "") << grammar;
    EXPECT_THAT(tools.tools[0]["function"]["description"].get<std::string>(),
                HasSubstr(grammar));
  }
}

TEST(ResponsesRequestTest, ReadsToolChoice) {
  const auto chosen = [](const std::string& choice) {
    return ReadWith(Cat(kTools, ",\"tool_choice\":", choice)).chat.tools;
  };
  EXPECT_TRUE(chosen(R"("none")").tools.is_null());
  EXPECT_EQ(chosen(R"("required")").choice, serving::ToolChoice::kRequired);
  EXPECT_EQ(chosen(R"("auto")").choice, serving::ToolChoice::kAuto);
  const auto one = chosen(R"({"type":"function","name":"f"})");
  EXPECT_EQ(one.choice, serving::ToolChoice::kRequired);
  EXPECT_EQ(one.allowed, std::vector<std::string>{"f"});
  EXPECT_FALSE(one.parallel);
  EXPECT_EQ(chosen(R"({"type":"custom","name":"patch"})").allowed,
            std::vector<std::string>{"patch"});
  EXPECT_EQ(chosen(R"({"type":"function","name":"close","namespace":"multi"})")
                .allowed,
            std::vector<std::string>{"multi__close"});
  const auto some = chosen(R"({"type":"allowed_tools","mode":"auto","tools":[
    {"type":"function","name":"f"},{"type":"custom","name":"patch"}]})");
  EXPECT_EQ(some.choice, serving::ToolChoice::kAuto);
  EXPECT_EQ(some.allowed, (std::vector<std::string>{"f", "patch"}));
  const auto refused = [](const std::string& choice) {
    ExpectRefused(
        Cat(R"({"input":"hi",)", kTools, ",\"tool_choice\":", choice, "}"),
        "tool_choice");
  };
  refused(R"({"type":"web_search"})");
  refused(R"({"type":"function","name":"patch"})");
  refused(R"({"type":"custom","name":"f"})");
  refused("1");
  refused(R"("any")");
  ExpectRefused(R"({"input":"hi","tool_choice":"required",
                    "tools":[{"type":"web_search"}]})",
                "tool_choice", "there are none");
}

// The tools of an agent's servers have long names.
TEST(ResponsesRequestTest, ANameAndItsNamespaceHaveEachTheirRoom) {
  const std::string part(128, 'n');
  const auto tools = [](const std::string& name_space,
                        const std::string& name) {
    return Cat(R"("tools":[{"type":"namespace","name":")", name_space,
               R"(","tools":[{"type":"function","name":")", name, "\"}]}]");
  };
  const auto read = ReadWith(tools(part, part));
  EXPECT_EQ(read.names.begin()->first, Cat(part, "__", part));
  for (const std::string& longer :
       {tools(part + "n", "n"), tools("n", part + "n")}) {
    ExpectRefused(Cat(R"({"input":"hi",)", longer, "}"), "tools", "128");
  }
  const std::string call =
      R"([{"type":"function_call","call_id":"c","arguments":"{}","namespace":")";
  EXPECT_EQ(MessagesOf(Cat(call, part, R"(","name":")", part, "\"}]"))
                .at(0)["tool_calls"][0]["function"]["name"],
            Cat(part, "__", part));
  ExpectRefused(Cat(R"({"input":)", call, part, part, R"(","name":"name"}]})"),
                "input", "260");
}

TEST(ResponsesRequestTest, RefusesToolsByTheirPlace) {
  const auto refused = [](const std::string& tool, const std::string& words) {
    ExpectRefused(R"({"input":"hi","tools":[)" + tool + "]}", "tools", words);
  };
  refused("1", "tools[0]");
  refused("{}", "tools[0]");
  refused(R"({"type":"function"})", "tools[0].name");
  refused(R"({"type":"function","name":"a b"})", "tools[0].name");
  refused(R"({"type":"function","name":"f","parameters":1})",
          "tools[0].parameters");
  refused(R"({"type":"namespace","name":"n"})", "tools[0]");
  refused(R"({"type":"namespace","name":"n","description":5,"tools":[]})",
          "tools[0].description");
  refused(R"({"type":"function","name":"n__f"},{"type":"namespace","name":"n",
             "tools":[{"type":"function","name":"f"}]})",
          "tools[1].tools[0] has the name of another tool: n__f");
  refused(R"({"type":"custom","name":"c","format":{"type":"grammar"}})",
          "tools[0].format");
  refused(R"({"type":"custom","name":"c","format":{"type":"grammar",
             "syntax":"lark","definition":"start: \"(\" other"}})",
          "tools[0].format.definition: there is no rule other");
  ExpectRefused(R"({"input":"hi","tools":1})", "tools");
}

TEST(ResponsesRequestTest, WithoutAStoreNothingIsBefore) {
  const auto read = Read(R"({"input":"hi","previous_response_id":"resp_1"})");
  ASSERT_FALSE(read.ok());
  const http::ApiError error = serving::ToApiError(read.status());
  EXPECT_EQ(error.code, "previous_response_not_found");
  EXPECT_THAT(error.message, HasSubstr("--response-store"));
}

TEST(ResponsesRequestTest, WhatIsBeforeIsNotFoundOrTooLarge) {
  const auto code_of = [](const Status& status) {
    ReadOptions options;
    options.previous = [&](std::string_view, JsonBudget&) -> StatusOr<Json> {
      return status;
    };
    const auto read = ParseRequest(
        R"({"input":"hi","previous_response_id":"resp_1"})", options);
    EXPECT_FALSE(read.ok());
    const http::ApiError error = serving::ToApiError(read.status());
    EXPECT_EQ(error.param, "previous_response_id");
    return error.code;
  };
  EXPECT_EQ(code_of(NotFound("none")), "previous_response_not_found");
  EXPECT_EQ(code_of(InvalidArgument("more than 2 values")),
            "previous_response_too_large");
}

TEST(ResponsesRequestTest, TheDigestIsOfWhatChangesTheAnswer) {
  const auto digest = [](const std::string& members) {
    return ReadWith(R"("stream":true,)" + members).chat.fields.digest;
  };
  EXPECT_EQ(digest(R"("seed":1,"user":"a")"),
            digest(R"("metadata":{},"seed":1)"));
  EXPECT_NE(digest(R"("seed":1)"), digest(R"("seed":2)"));
  EXPECT_NE(digest(R"("tools":[])"), digest(kTools));
}

TEST(ResponsesRequestTest, TellsPlainBodies) {
  EXPECT_TRUE(IsPlainBody(R"({"input":"a","stream":true,"tools":[]})"));
  EXPECT_TRUE(IsPlainBody(R"({"input":"a","text":{"verbosity": "low"}})"));
  EXPECT_FALSE(IsPlainBody(R"({"input":"a","tools":[{}]})"));
  EXPECT_FALSE(
      IsPlainBody(R"({"input":"a","text":{"format":{"type":"json_object"}}})"));
  EXPECT_FALSE(IsPlainBody(R"({"input":"a","later":1})"));
}

// As Codex sends a thread: instructions and a developer, what the machine is
// like and what is asked for in two messages of the user, and later a developer
// again. The template takes a system's first message and turns that alternate.
TEST(ResponsesRequestTest, AStrictTemplateTakesAnAgentsThread) {
  const auto text = serving::MakeToyText(
      "{%- set turns = messages %}"
      "{%- if messages[0].role == 'system' %}[S]{{ messages[0].content }}"
      "{%- set turns = messages[1:] %}{%- endif %}"
      "{%- for m in turns %}"
      "{%- if (m.role == 'user') != (loop.index0 % 2 == 0) or "
      "m.role not in ['user', 'assistant'] %}"
      "{{- raise_exception('roles must alternate') }}{%- endif %}"
      "[{{ m.role }}]{{ m.content }}{%- endfor %}",
      {{"<end>"}, {}});
  const Json messages = MessagesOf(R"([
      {"type":"message","role":"developer","content":[
        {"type":"input_text","text":"rules"}]},
      {"type":"message","role":"user","content":[
        {"type":"input_text","text":"<environment>"}]},
      {"type":"message","role":"user","content":[
        {"type":"input_text","text":"fix it"}]},
      {"type":"message","role":"assistant","content":[
        {"type":"output_text","text":"done"}]},
      {"type":"message","role":"developer","content":[
        {"type":"input_text","text":"now brief"}]},
      {"type":"message","role":"user","content":"thanks"}])");
  const auto shown = text->RenderChat(messages, nullptr, {});
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ(*shown,
            "[S]rules[user]<environment>\nfix it[assistant]done"
            "[user]now brief\nthanks");
}

}  // namespace
}  // namespace sluice::responses
