// From a body's bytes to a request.
#include "common/dialects/openai/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/retry_after.h"
#include "common/serving/error.h"
#include "tests/dialects/openai/parse_testing.h"

namespace sluice::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kVocab = 100;

// A chat request with `fields` added: `"top_k": 3`.
StatusOr<serving::ChatRequest> Chat(const std::string& fields) {
  return ParseChatRequest(
      Cat("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]",
          fields.empty() ? "" : ",", fields, "}"),
      kVocab);
}

StatusOr<serving::CompletionRequest> Completion(const std::string& fields) {
  return ParseCompletionRequest(
      Cat("{\"prompt\":\"hi\"", fields.empty() ? "" : ",", fields, "}"),
      kVocab);
}

TEST(GatewayParseTest, ReadsEveryFieldOfAChat) {
  const auto got = Chat(R"("model":"m","max_completion_tokens":7,
    "max_tokens":7,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,
    "seed":-3,"stop":["a","b"],"stop_token_ids":[1,2],"ignore_eos":true,
    "min_tokens":2,"logprobs":true,"top_logprobs":4,"stream":true,
    "stream_options":{"include_usage":true,"continuous_usage_stats":true},
    "return_token_ids":true,"return_tokens_as_token_ids":true)");
  ASSERT_TRUE(got.ok()) << got.status();
  const serving::GenerationFields& fields = got->fields;
  EXPECT_EQ(fields.model, "m");
  EXPECT_EQ(fields.max_tokens, 7);
  EXPECT_EQ(fields.temperature, 0.5);
  EXPECT_EQ(fields.top_p, 0.9);
  EXPECT_EQ(fields.top_k, 40);
  EXPECT_EQ(fields.min_p, 0.1);
  EXPECT_EQ(fields.seed, static_cast<uint64_t>(-3));
  EXPECT_THAT(fields.stop, ElementsAre("a", "b"));
  EXPECT_THAT(fields.stop_token_ids, ElementsAre(1, 2));
  EXPECT_TRUE(fields.ignore_eos);
  EXPECT_EQ(fields.min_tokens, 2);
  EXPECT_EQ(fields.logprobs, 4);
  EXPECT_TRUE(fields.stream && fields.include_usage);
  EXPECT_TRUE(fields.continuous_usage);
  EXPECT_TRUE(fields.return_token_ids && fields.tokens_as_token_ids);
}

TEST(GatewayParseTest, NullIsAbsentAndUnknownFieldsAreIgnored) {
  const auto got = Chat(R"("temperature":null,"stop":null,"n":null,
    "stream_options":null,"max_tokens":null,"no_such_field":{"a":[1]},
    "user":"u","metadata":{},"store":true,"parallel_tool_calls":true,
    "service_tier":"auto")");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->fields.temperature, std::nullopt);
  EXPECT_TRUE(got->fields.stop.empty());
}

TEST(GatewayParseTest, ReadsWhatTokensMayComeAndWhen) {
  const auto got = Completion(
      R"("allowed_token_ids":[5,3,5],"bad_words":["x","a b"],"priority":-7)");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->fields.allowed_token_ids, ElementsAre(5, 3, 5));
  EXPECT_THAT(got->fields.bad_words, ElementsAre("x", "a b"));
  EXPECT_EQ(got->fields.priority, -7);
  EXPECT_TRUE(Completion(R"("allowed_token_ids":[],"bad_words":[])").ok());
  ExpectParam(Completion(R"("allowed_token_ids":[-1])"), "allowed_token_ids");
  ExpectParam(Completion(R"("bad_words":[""])"), "bad_words");
  ExpectParam(Chat(R"("priority":0.5)"), "priority");
}

TEST(GatewayParseTest, TopKIsOffAtMinusOneAndZero) {
  EXPECT_EQ(Chat("\"top_k\":-1")->fields.top_k, 0);
  EXPECT_EQ(Chat("\"top_k\":0")->fields.top_k, 0);
}

TEST(GatewayParseTest, WholeNumbersMayBeWrittenAsDecimals) {
  EXPECT_EQ(Chat("\"max_tokens\":5.0")->fields.max_tokens, 5);
}

TEST(GatewayParseTest, RefusesWrongTypesAndRangesByName) {
  struct Case {
    const char* fields;
    const char* param;
  };
  const Case cases[] = {
      {"\"model\":1", "model"},
      {"\"max_tokens\":0", "max_tokens"},
      {"\"max_tokens\":-2", "max_tokens"},
      {"\"max_tokens\":1.5", "max_tokens"},
      {"\"max_tokens\":\"5\"", "max_tokens"},
      {"\"max_tokens\":99999999999999999999", "max_tokens"},
      {"\"max_completion_tokens\":-5", "max_completion_tokens"},
      {"\"max_completion_tokens\":0", "max_completion_tokens"},
      {"\"max_tokens\":7,\"max_completion_tokens\":0", "max_completion_tokens"},
      {"\"temperature\":-0.1", "temperature"},
      {"\"temperature\":2.1", "temperature"},
      {"\"temperature\":true", "temperature"},
      {"\"top_p\":-0.1", "top_p"},
      {"\"repeat_last_n\":64,\"repeat_penalty\":1.1", "repeat_last_n"},
      {"\"top_p\":1.1", "top_p"},
      {"\"top_k\":-2", "top_k"},
      {"\"min_p\":-1", "min_p"},
      {"\"seed\":1.5", "seed"},
      {"\"stop\":[\"\"]", "stop"},
      {"\"stop\":5", "stop"},
      {"\"stop\":[1]", "stop"},
      {"\"sse_ping_interval\":-2", "sse_ping_interval"},
      {"\"sse_ping_interval\":0.5", "sse_ping_interval"},
      {"\"repeat_penalty\":0", "repeat_penalty"},
      {"\"repeat_penalty\":2,\"repetition_penalty\":1", "repeat_penalty"},
      {"\"stop_token_ids\":[100]", "stop_token_ids"},
      {"\"stop_token_ids\":[-1]", "stop_token_ids"},
      {"\"stop_token_ids\":7", "stop_token_ids"},
      {"\"ignore_eos\":1", "ignore_eos"},
      {"\"min_tokens\":-1", "min_tokens"},
      {"\"min_tokens\":9,\"max_tokens\":8", "min_tokens"},
      {"\"logprobs\":1", "logprobs"},
      {"\"logprobs\":true,\"top_logprobs\":21", "top_logprobs"},
      {"\"top_logprobs\":2", "top_logprobs"},
      {"\"stream\":\"yes\"", "stream"},
      {"\"stream_options\":{\"include_usage\":true}", "stream_options"},
      {"\"stream\":true,\"stream_options\":{\"include_usage\":1}",
       "stream_options"},
      {"\"return_token_ids\":0", "return_token_ids"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.fields);
    ExpectParam(Chat(one.fields), one.param);
  }
}

TEST(GatewayParseTest, MessagesNameLimitAndValue) {
  const auto got = Chat("\"temperature\":3");
  EXPECT_THAT(Message(got.status()), HasSubstr("temperature"));
  EXPECT_THAT(Message(got.status()), HasSubstr("0 to 2"));
  EXPECT_THAT(Message(got.status()), HasSubstr("3"));
}

TEST(GatewayParseTest, NamedTokensHaveTheirLogprobs) {
  const auto chat =
      Chat(R"("logprobs":true,"top_logprobs":2,"logprob_token_ids":[7,3,7])");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_THAT(chat->fields.logprob_token_ids, ElementsAre(7, 3));
  EXPECT_EQ(chat->fields.logprobs, 2);
  const auto completion =
      Completion(R"("logprobs":0,"logprob_token_ids":[5],"echo":true)");
  ASSERT_TRUE(completion.ok()) << completion.status();
  EXPECT_THAT(completion->fields.logprob_token_ids, ElementsAre(5));
  EXPECT_TRUE(Completion(R"("logprob_token_ids":[])").ok());
  std::string many = R"("logprobs":1,"logprob_token_ids":[0)";
  for (int i = 0; i < kMaxLogprobTokenIds; ++i) many += ",1";
  for (const std::string& fields :
       std::vector<std::string>{R"("logprob_token_ids":[5])",
                                R"("logprobs":1,"logprob_token_ids":[-1])",
                                R"("logprobs":1,"logprob_token_ids":["5"])",
                                R"("logprobs":1,"logprob_token_ids":5)",
                                R"("logprobs":1,"max_tokens":0,"echo":true,)"
                                R"("logprob_token_ids":[5])",
                                many + "]"}) {
    ExpectParam(Completion(fields), "logprob_token_ids");
  }
  ExpectParam(Chat(R"("logprob_token_ids":[5])"), "logprob_token_ids");
  ExpectParam(Chat(R"("logprobs":false,"logprob_token_ids":[5])"),
              "logprob_token_ids");
}

TEST(GatewayParseTest, UnbuiltFieldsAreRefusedUnlessNeutral) {
  struct Case {
    const char* name;
    const char* neutral;
    const char* refused;
  };
  const Case cases[] = {
      {"functions", "[]", "[{}]"},
      {"chat_template", "null", "\"x\""},
      {"modalities", "[\"text\"]", "[\"audio\"]"},
      {"guided_whitespace_pattern", "null", "\" \""},
      {"grammar_triggers", "[]", "[{}]"},
      {"stop_regex", "[]", "[\"a+\"]"},
      {"truncation_side", "\"left\"", "\"right\""},
      {"repetition_detection", "{}", "{\"max_pattern_size\":2}"},
      {"samplers", "[]", "[\"top_k\"]"},
      {"typical_p", "1.0", "0.5"},
      {"mirostat", "0", "2"},
      {"dry_multiplier", "0", "0.8"},
      {"xtc_probability", "0", "0.5"},
      {"dynatemp_range", "0", "0.5"},
      {"separate_reasoning", "true", "false"},
      {"reasoning_format", "\"auto\"", "\"none\""},
  };
  for (const Case& one : cases) {
    const std::string field = Cat("\"", one.name, "\":");
    SCOPED_TRACE(one.name);
    EXPECT_TRUE(Chat(field + one.neutral).ok());
    ExpectParam(Chat(field + one.refused), one.name);
  }
}

TEST(GatewayParseTest, WhatOtherServersObeyIsRefusedOnBothEndpoints) {
  for (const char* name :
       {"images", "lora", "lora_path", "adapter_id", "format", "options",
        "custom_logit_processor", "logits_processors", "return_hidden_states",
        "vllm_xargs", "session_params", "mm_processor_kwargs", "system",
        "instructions", "stop_sequences", "context"}) {
    SCOPED_TRACE(name);
    for (const char* nothing : {"null", "false", "\"\"", "[]", "{}"}) {
      const std::string field = Cat("\"", name, "\":", nothing);
      EXPECT_TRUE(Chat(field).ok()) << nothing;
      EXPECT_TRUE(Completion(field).ok()) << nothing;
    }
    for (const char* value : {"true", "\"x\"", "[{\"id\":0}]", "{\"a\":1}"}) {
      const std::string field = Cat("\"", name, "\":", value);
      ExpectParam(Chat(field), name);
      ExpectParam(Completion(field), name);
    }
  }
  EXPECT_THAT(Message(Chat("\"format\":\"json\"").status()),
              HasSubstr("give response_format instead"));
}

TEST(GatewayParseTest, NoProbabilityIsGreedy) {
  for (const char* fields :
       {"\"top_p\":0", "\"top_p\":0,\"temperature\":1.5",
        "\"top_p\":0.0,\"temperature\":0", "\"top_p\":1e-60"}) {
    SCOPED_TRACE(fields);
    for (const serving::GenerationFields& got :
         {Chat(fields)->fields, Completion(fields)->fields}) {
      EXPECT_EQ(got.temperature, 0.0);
      EXPECT_EQ(got.top_p, 1.0);
    }
  }
  EXPECT_EQ(Chat("\"top_p\":0.1")->fields.temperature, std::nullopt);
}

TEST(GatewayParseTest, ALimitHasManyNamesAndOneValue) {
  for (const char* name :
       {"max_tokens", "max_completion_tokens", "max_output_tokens",
        "max_new_tokens", "n_predict"}) {
    SCOPED_TRACE(name);
    const std::string field = Cat("\"", name, "\":");
    EXPECT_EQ(Chat(field + "2")->fields.max_tokens, 2);
    EXPECT_EQ(Chat(field + "2")->fields.max_tokens_field, name);
    EXPECT_EQ(Completion(field + "2")->fields.max_tokens, 2);
    EXPECT_EQ(Chat(field + "-1")->fields.max_tokens, std::nullopt);
    EXPECT_TRUE(Chat(field + "null").ok());
    ExpectParam(Chat(field + "0"), name);
    ExpectParam(Completion(field + "0"), name);
    ExpectParam(Completion(field + "-2"), name);
    if (std::string_view(name) == "max_tokens") continue;
    EXPECT_TRUE(Chat(field + "2,\"max_tokens\":2").ok());
    const auto differ = Chat(field + "3,\"max_tokens\":2");
    ExpectParam(differ, name);
    EXPECT_THAT(Message(differ.status()), HasSubstr("max_tokens, which is 2"));
    ExpectParam(Completion(field + "3,\"max_tokens\":2"), name);
  }
  EXPECT_TRUE(Completion("\"n_predict\":-1")->fields.fills_context);
  EXPECT_FALSE(Completion("\"max_tokens\":-1")->fields.fills_context);
  ExpectParam(Chat("\"n_predict\":-1,\"max_tokens\":5"), "n_predict");
}

TEST(GatewayParseTest, TemplateVariablesHaveAnyNameButTheServersOwn) {
  const auto got = Chat(
      "\"chat_template_kwargs\":{\"foo\":1,\"bar\":{\"a\":[null]},"
      "\"tools\":null,\"gone\":null}");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(DumpJson(got->chat_template.kwargs),
            "{\"foo\":1,\"bar\":{\"a\":[null]}}");
  EXPECT_THAT(got->argument_names, ElementsAre("foo", "bar"));
  for (const char* name :
       {"messages", "tools", "documents", "add_generation_prompt",
        "continue_final_message", "bos_token", "eos_token", "unk_token",
        "raise_exception"}) {
    const auto refused =
        Chat(Cat("\"chat_template_kwargs\":{\"", name, "\":true}"));
    ExpectParam(refused, "chat_template_kwargs");
    EXPECT_THAT(Message(refused.status()), HasSubstr(name));
  }
}

TEST(GatewayParseTest, MaxTokensOfMinusOneCountAsAbsent) {
  EXPECT_FALSE(Chat("\"max_tokens\":-1")->fields.max_tokens.has_value());
  EXPECT_EQ(
      Chat("\"max_tokens\":5,\"max_completion_tokens\":-1")->fields.max_tokens,
      5);
  EXPECT_FALSE(Completion("\"max_tokens\":-1")->fields.max_tokens.has_value());
}

TEST(GatewayParseTest, StopStringsHaveFewBytesTogether) {
  const auto with = [](size_t last) {
    const std::string whole(1024, 'x');
    return Chat(Cat("\"stop\":[\"", whole, "\",\"", whole, "\",\"", whole,
                    "\",\"", std::string(1000, 'y'), "\",\"",
                    std::string(last, 'z'), "\"]"));
  };
  EXPECT_TRUE(with(24).ok());
  ExpectParam(with(25), "stop");
  EXPECT_THAT(Message(with(25).status()), HasSubstr("4097 bytes together"));
}

TEST(GatewayParseTest, RepeatPenaltyIsRepetitionPenalty) {
  EXPECT_EQ(Chat("\"repeat_penalty\":1.5")->fields.repetition_penalty, 1.5);
  EXPECT_EQ(Chat("\"repeat_penalty\":1.5,\"repetition_penalty\":1.5")
                ->fields.repetition_penalty,
            1.5);
}

TEST(GatewayParseTest, NoReasoningEffortTurnsThinkingOff) {
  const auto of = [](const std::string& fields) {
    return DumpJson(Chat(fields)->chat_template.kwargs);
  };
  const char* off =
      "{\"reasoning_effort\":\"none\",\"enable_thinking\":false,"
      "\"thinking\":false}";
  EXPECT_EQ(of("\"reasoning_effort\":\"none\""), off);
  EXPECT_EQ(of("\"chat_template_kwargs\":{\"reasoning_effort\":\"none\"}"),
            off);
  EXPECT_EQ(of("\"reasoning_effort\":\"none\",\"chat_template_kwargs\":{"
               "\"enable_thinking\":true}"),
            "{\"reasoning_effort\":\"none\",\"enable_thinking\":true,"
            "\"thinking\":false}");
  EXPECT_EQ(of("\"reasoning_effort\":\"low\""),
            "{\"reasoning_effort\":\"low\"}");
}

TEST(GatewayParseTest, BodiesThatAreNoObjectAreRefused) {
  for (const char* body :
       {"", "[]", "5", "{", "nul", "{\"a\":NaN}", "{\"a\":Infinity}",
        "{\"prompt\":\"\xff\"}", "{\"a\":1e999}", "{} {}"}) {
    SCOPED_TRACE(body);
    ExpectParam(ParseChatRequest(body, kVocab), "none");
    ExpectParam(ParseCompletionRequest(body, kVocab), "none");
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":[";
  ExpectParam(ParseChatRequest(deep, kVocab), "none");
}

TEST(GatewayParseTest, ToolsAreCheckedAndKeptInTheirOrder) {
  const auto got = Chat(R"("tools":[{"type":"function","function":{
      "name":"b","parameters":{"z":1,"a":2},"strict":null}},
    {"type":"function","function":{"name":"mcp.a/b:c-d"}}],
    "parallel_tool_calls":false)");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(DumpJson(got->tools.tools),
            "[{\"type\":\"function\",\"function\":{\"name\":\"b\","
            "\"parameters\":{\"z\":1,\"a\":2}}},{\"type\":\"function\","
            "\"function\":{\"name\":\"mcp.a/b:c-d\"}}]");
  EXPECT_FALSE(got->tools.parallel);
  EXPECT_TRUE(Chat("\"tools\":[]")->tools.tools.is_null());
  EXPECT_TRUE(Chat("\"tool_choice\":\"auto\"")->tools.parallel);
}

TEST(GatewayParseTest, BadToolsAreRefusedWithTheirPlace) {
  struct Case {
    const char* tool;
    const char* place;
  };
  const Case cases[] = {
      {"5", "tools[1] must be an object"},
      {"{\"type\":\"web_search\"}", "tools[1].type"},
      {"{\"type\":\"function\"}", "tools[1].function"},
      {"{\"type\":\"function\",\"function\":{}}", "tools[1].function.name"},
      {"{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}",
       "tools[1].function.name"},
      {"{\"type\":\"function\",\"function\":{\"name\":\"<|end|>\"}}",
       "tools[1].function.name"},
      {"{\"type\":\"function\",\"function\":{\"name\":\"a\","
       "\"parameters\":[]}}",
       "tools[1].function.parameters"},
      {"{\"type\":\"function\",\"function\":{\"name\":\"a\","
       "\"description\":1}}",
       "tools[1].function.description"},
      {"{\"type\":\"function\",\"function\":{\"name\":\"a\","
       "\"strict\":1}}",
       "tools[1].function.strict"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.tool);
    const auto got =
        Chat(Cat("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
                 "\"ok\"}},",
                 one.tool, "]"));
    ExpectParam(got, "tools");
    EXPECT_THAT(Message(got.status()), HasSubstr(one.place));
  }
  std::string many = "5";
  for (size_t i = 0; i < serving::kMaxTools; ++i) many += ",5";
  EXPECT_THAT(Message(Chat(Cat("\"tools\":[", many, "]")).status()),
              HasSubstr("limit 512"));
}

TEST(GatewayParseTest, ToolsThatMayNotBeCalledAreNotThere) {
  ExpectParam(Chat("\"parallel_tool_calls\":\"no\""), "parallel_tool_calls");
  EXPECT_TRUE(Chat("\"tools\":[{\"type\":\"function\",\"function\":{"
                   "\"name\":\"a\"}}],\"tool_choice\":\"none\"")
                  ->tools.tools.is_null());
}

TEST(GatewayParseTest, FunctionsAreToolsInAnOlderForm) {
  const std::string two =
      R"("functions":[{"name":"a","parameters":{"z":1},"description":null},
         {"name":"b"}])";
  const auto got = Chat(two);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(DumpJson(got->tools.tools),
            "[{\"type\":\"function\",\"function\":{\"name\":\"a\","
            "\"parameters\":{\"z\":1}}},{\"type\":\"function\","
            "\"function\":{\"name\":\"b\"}}]");
  EXPECT_TRUE(got->tools.as_functions);
  EXPECT_FALSE(got->tools.parallel);
  EXPECT_EQ(got->tools.choice, serving::ToolChoice::kAuto);
  const auto named = Chat(two + R"(,"function_call":{"name":"b"})");
  EXPECT_EQ(named->tools.choice, serving::ToolChoice::kRequired);
  EXPECT_THAT(named->tools.allowed, ElementsAre("b"));
  EXPECT_TRUE(Chat(two + R"(,"function_call":"none")")->tools.tools.is_null());
  EXPECT_TRUE(Chat(R"("functions":[],"function_call":"auto")").ok());
  ExpectParam(Chat(two + R"(,"function_call":{"name":"c"})"), "function_call");
  ExpectParam(Chat(R"("function_call":{"name":"a"})"), "function_call");
  ExpectParam(Chat(two + R"(,"function_call":"any")"), "function_call");
  const auto bad = Chat(R"("functions":[{"name":"a"},{"name":"?"}])");
  ExpectParam(bad, "functions");
  EXPECT_THAT(Message(bad.status()), HasSubstr("functions[1].name"));
  ExpectParam(
      Chat(two + R"(,"tools":[{"type":"function","function":{"name":"a"}}])"),
      "functions");
}

TEST(GatewayParseTest, KeysAreShortAndWhatOnlyLooksLikeOneStaysText) {
  const std::string key(serving::kMaxKeyBytes + 1, 'k');
  EXPECT_THAT(Message(Chat(Cat("\"metadata\":{\"", key, "\":0}")).status()),
              HasSubstr("key of 513 bytes, limit 512"));
  const auto call = [](std::string_view arguments) {
    return Json{{"role", "assistant"},
                {"tool_calls",
                 {{{"function", {{"name", "f"}, {"arguments", arguments}}}}}}};
  };
  const std::string text = Cat("{\"", key, "\":0}");
  const auto got = Messages(DumpJson({call(text), call("{\"a\":1}")}));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0]["tool_calls"][0]["function"]["arguments"],
            (Json{{"arguments", text}}));
  EXPECT_EQ((*got)[1]["tool_calls"][0]["function"]["arguments"],
            (Json{{"a", 1}}));
}

TEST(GatewayParseTest, MissingMessagesAndPromptAreNamed) {
  ExpectParam(ParseChatRequest("{}", kVocab), "messages");
  ExpectParam(ParseCompletionRequest("{}", kVocab), "prompt");
}

TEST(GatewayParseTest, PromptsComeInFourForms) {
  const auto count = [](const char* prompt) {
    const auto got =
        ParseCompletionRequest(Cat("{\"prompt\":", prompt, "}"), kVocab);
    EXPECT_TRUE(got.ok()) << prompt << ": " << got.status();
    return got.ok() ? got->prompts.size() : 0;
  };
  EXPECT_EQ(count("\"a\""), 1u);
  EXPECT_EQ(count("[\"a\",\"b\"]"), 2u);
  EXPECT_EQ(count("[1,2,3]"), 1u);
  EXPECT_EQ(count("[[1],[2,3],[4]]"), 3u);
  const auto ids = ParseCompletionRequest("{\"prompt\":[[1,2]]}", kVocab);
  EXPECT_THAT(std::get<std::vector<TokenId>>(ids->prompts[0]),
              ElementsAre(1, 2));
}

TEST(GatewayParseTest, BadPromptsAreRefused) {
  for (const char* prompt : {"5", "{}", "[]", "[[]]", "[1,\"a\"]", "[100]",
                             "[-1]", "[1.5]", "[[1],[-4]]", "[true]"}) {
    SCOPED_TRACE(prompt);
    ExpectParam(
        ParseCompletionRequest(Cat("{\"prompt\":", prompt, "}"), kVocab),
        "prompt");
  }
  std::string many = "[\"a\"";
  for (size_t i = 0; i < kMaxPrompts; ++i) many += ",\"a\"";
  ExpectParam(ParseCompletionRequest(Cat("{\"prompt\":", many, "]}"), kVocab),
              "prompt");
}

TEST(GatewayParseTest, CompletionsCountTheirLogprobs) {
  EXPECT_EQ(Completion("\"logprobs\":0")->fields.logprobs, 0);
  EXPECT_EQ(Completion("\"logprobs\":20")->fields.logprobs, 20);
  EXPECT_EQ(Completion("")->fields.logprobs, std::nullopt);
  ExpectParam(Completion("\"logprobs\":21"), "logprobs");
  ExpectParam(Completion("\"logprobs\":-1"), "logprobs");
  ExpectParam(Completion("\"logprobs\":true"), "logprobs");
}

TEST(GatewayParseTest, NoNewTokensNeedEcho) {
  EXPECT_TRUE(Completion("\"max_tokens\":0,\"echo\":true").ok());
  ExpectParam(Completion("\"max_tokens\":0"), "max_tokens");
}

TEST(GatewayParseTest, ASuffixIsRefusedButHarmlessWhenEmpty) {
  EXPECT_TRUE(Completion("\"suffix\":\"\"").ok());
  ExpectParam(Completion("\"suffix\":\"x\""), "suffix");
}

TEST(GatewayParseTest, TokenizeTakesPromptOrMessages) {
  EXPECT_TRUE(ParseTokenizeRequest("{\"prompt\":\"a\"}").ok());
  EXPECT_TRUE(ParseTokenizeRequest("{\"messages\":[{\"role\":\"user\","
                                   "\"content\":\"a\"}]}")
                  .ok());
  ExpectParam(ParseTokenizeRequest("{}"), "prompt");
  ExpectParam(ParseDetokenizeRequest("{}", kVocab), "tokens");
  ExpectParam(ParseDetokenizeRequest("{\"tokens\":[100]}", kVocab), "tokens");
}

TEST(GatewayErrorTest, StatusesBecomeHttpErrors) {
  const auto http = [](const Status& status) {
    return http::PlainError(serving::ToApiError(status), {});
  };
  EXPECT_EQ(http(InvalidArgument("x")).status, 400);
  EXPECT_EQ(http(NotFound("x")).status, 404);
  EXPECT_EQ(http(DeadlineExceeded("x")).status, 504);
  const http::HttpResponse full = http(ResourceExhausted("x"));
  EXPECT_EQ(full.status, 429);
  const http::HttpResponse wait = http(
      WithRetryAfter(ResourceExhausted("x"), std::chrono::milliseconds(6500)));
  EXPECT_EQ(wait.headers, (http::HttpHeaders{{"Retry-After", "7"},
                                             {"Retry-After-Ms", "7000"}}));
  EXPECT_EQ(full.headers[0].first, "Retry-After");
  EXPECT_EQ(http(Unavailable("x")).status, 503);
  EXPECT_EQ(http(Unavailable("x")).headers[0].first, "Retry-After");
  EXPECT_EQ(
      http::ErrorJson(serving::ToApiError(serving::FieldError("n", "bad"))),
      "{\"error\":{\"message\":\"n: bad\",\"type\":"
      "\"invalid_request_error\",\"param\":\"n\",\"code\":null}}");
}

TEST(GatewayErrorTest, InternalMessagesStayInside) {
  const http::HttpResponse response =
      http::PlainError(serving::ToApiError(Internal("secret path")), {});
  EXPECT_EQ(response.status, 500);
  EXPECT_THAT(response.body, HasSubstr("internal error"));
  EXPECT_THAT(response.body, ::testing::Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace sluice::openai
