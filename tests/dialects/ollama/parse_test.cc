// Bodies of /api/chat and /api/generate, field by field.
#include "common/dialects/ollama/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/dialects/ollama/fields.h"
#include "common/serving/chat_parts.h"
#include "common/serving/error.h"

namespace sluice::ollama {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ChatBody(std::string_view more) {
  return Cat(R"({"model":"m","messages":[{"role":"user","content":"hi"}])",
             more.empty() ? "" : ",", more, "}");
}
std::string GenerateBody(std::string_view more) {
  return Cat(R"({"model":"m","prompt":"hi")", more.empty() ? "" : ",", more,
             "}");
}

OllamaRequest Parsed(const std::string& body, bool chat = true) {
  auto request = chat ? ParseChat(body, false) : ParseGenerate(body, false);
  EXPECT_TRUE(request.ok()) << request.status() << " " << body;
  return *std::move(request);
}
serving::GenerationFields Options(std::string_view options) {
  return Parsed(ChatBody(Cat(R"("options":{)", options, "}"))).chat.fields;
}
std::string Refusal(const std::string& body, bool chat = true,
                    bool strict = false) {
  const Status status = chat ? ParseChat(body, strict).status()
                             : ParseGenerate(body, strict).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << body;
  return std::string(Message(status));
}
// Messages by their one text, as normalised.
std::string Messages(std::string_view messages) {
  return DumpJson(
      Parsed(Cat(R"({"model":"m","messages":)", messages, "}")).chat.messages);
}

TEST(OllamaParseTest, AStreamIsTheDefault) {
  EXPECT_TRUE(Parsed(ChatBody("")).chat.fields.stream);
  EXPECT_TRUE(Parsed(ChatBody(R"("stream":null)")).chat.fields.stream);
  EXPECT_FALSE(Parsed(ChatBody(R"("stream":false)")).chat.fields.stream);
  EXPECT_THAT(Refusal(ChatBody(R"("stream":"no")")), StartsWith("stream: "));
}

TEST(OllamaParseTest, TheModelIsNamed) {
  EXPECT_EQ(Parsed(ChatBody("")).chat.fields.model, "m");
  EXPECT_EQ(Refusal(R"({"messages":[]})"), "model: is missing");
  EXPECT_EQ(Refusal(R"({"prompt":"x","model":""})", false),
            "model: is missing");
}

TEST(OllamaParseTest, OptionsBecomeSampling) {
  const auto fields = Options(
      R"("seed":7,"temperature":0.5,"top_k":40,"top_p":0.9,"min_p":0.1,)"
      R"("repeat_penalty":1.1,"repeat_last_n":-1,"presence_penalty":0.5,)"
      R"("frequency_penalty":-0.5,"stop":["a","b"],"num_predict":12)");
  EXPECT_EQ(fields.seed, 7u);
  EXPECT_EQ(fields.temperature, 0.5);
  EXPECT_EQ(fields.top_k, 40);
  EXPECT_EQ(fields.top_p, 0.9);
  EXPECT_EQ(fields.min_p, 0.1);
  EXPECT_EQ(fields.repetition_penalty, 1.1);
  EXPECT_EQ(fields.presence_penalty, 0.5);
  EXPECT_EQ(fields.frequency_penalty, -0.5);
  EXPECT_EQ(fields.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(fields.max_tokens, 12);
  EXPECT_TRUE(fields.cuts_max_tokens);
  EXPECT_EQ(Options(R"("stop":"a")").stop.size(), 1u);
}

TEST(OllamaParseTest, ValuesWithAMeaningOfTheirOwn) {
  for (const char* none : {"-1", "-2", "0"}) {
    EXPECT_FALSE(Options(Cat(R"("num_predict":)", none)).max_tokens);
  }
  EXPECT_FALSE(Options(R"("seed":-1)").seed) << "a random one";
  EXPECT_EQ(Options(R"("seed":-2)").seed, static_cast<uint64_t>(-2));
  EXPECT_EQ(Options(R"("seed":0)").seed, 0u);
  EXPECT_EQ(Options(R"("top_k":-1)").top_k, 0);
  EXPECT_EQ(Options(R"("top_p":0)").temperature, 0);
  // No token counts: there is no penalty.
  const auto off = Options(R"("repeat_penalty":1.5,"repeat_last_n":0)");
  EXPECT_EQ(off.repetition_penalty, 1);
  EXPECT_EQ(Options(R"("repeat_last_n":64)").repetition_penalty, std::nullopt);
}

TEST(OllamaParseTest, OptionsAreRefusedByName) {
  const auto refusal = [](std::string_view option) {
    return Refusal(ChatBody(Cat(R"("options":{)", option, "}")));
  };
  EXPECT_THAT(refusal(R"("temperature":3)"),
              StartsWith("options.temperature: must be "));
  EXPECT_THAT(refusal(R"("num_predict":-3)"),
              StartsWith("options.num_predict: "));
  EXPECT_THAT(refusal(R"("num_predict":"5")"),
              StartsWith("options.num_predict: "));
  EXPECT_THAT(refusal(R"("num_ctx":-1)"), StartsWith("options.num_ctx: "));
  EXPECT_THAT(refusal(R"("repeat_penalty":0)"),
              StartsWith("options.repeat_penalty: "));
  EXPECT_THAT(refusal(R"("stop":[1])"), StartsWith("options.stop"));
  EXPECT_EQ(refusal(R"("repeat_penalty":1.1,"repeat_last_n":64)"),
            "options.repeat_last_n: must be -1 or 0 beside a penalty: "
            "penalties look at the whole prompt and completion, got 64");
  EXPECT_EQ(refusal(R"("mirostat":2)"),
            "options.mirostat: not supported; leave it out, or give 0; got "
            "the number 2");
  EXPECT_THAT(Refusal(ChatBody(R"("options":[])")), StartsWith("options: "));
}

// Each known field and option, with the values that change nothing and others.
TEST(OllamaParseTest, KnownFieldsAreWhatTheReaderTakes) {
  constexpr char kWrong[] = R"([{"?":true}])";
  for (const serving::RequestField& field : KnownFields()) {
    SCOPED_TRACE(field.name);
    for (const bool chat : {true, false}) {
      const bool is_option = field.place == kOption;
      const int place = chat ? kChat : kGenerate;
      if (!is_option && (field.place & place) == 0) continue;
      const auto body = [&](std::string_view value) {
        const std::string member = Cat("\"", field.name, "\":", value);
        const std::string more =
            is_option ? Cat(R"("options":{)", member, "}") : member;
        return chat ? ChatBody(more) : GenerateBody(more);
      };
      if (field.use == serving::FieldUse::kIgnored) {
        Parsed(body(kWrong), chat);
        continue;
      }
      EXPECT_THAT(Refusal(body(kWrong), chat), HasSubstr(field.name));
      if (field.use != serving::FieldUse::kUnbuilt) continue;
      Parsed(body("null"), chat);
      const Json values = *ParseJson(field.neutral);
      for (const Json& neutral : values) {
        Parsed(body(DumpJson(neutral)), chat);
      }
    }
  }
}

// Rows of the page: "| `name` | both | text |", of options "| `name` | text |".
TEST(OllamaParseTest, ThePageHasARowForEach) {
  std::ifstream file("services/gateway/OLLAMA.md");
  ASSERT_TRUE(file.is_open()) << "run in the root of the checkout";
  std::map<std::string, std::string> rows;
  const std::regex row(R"(\| `([a-z_0-9]+)` \| (.*) \|)");
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, match, row)) {
      EXPECT_TRUE(rows.emplace(match[1], match[2]).second) << match[1];
    }
  }
  std::set<std::string> known;
  const auto check = [&](const serving::RequestField& field,
                         std::string_view place) {
    const std::string name(field.name);
    known.insert(name);
    EXPECT_THAT(rows[name], StartsWith(place)) << name;
    if (field.use == serving::FieldUse::kIgnored) {
      EXPECT_THAT(rows[name], HasSubstr("no effect")) << name;
    } else if (field.use == serving::FieldUse::kUnbuilt) {
      EXPECT_THAT(rows[name], HasSubstr("else refused")) << name;
    }
  };
  for (const serving::RequestField& field : KnownFields()) {
    check(field, field.place == kBoth       ? "both | "
                 : field.place == kChat     ? "chat | "
                 : field.place == kGenerate ? "generate | "
                                            : "");
  }
  for (const auto& [name, text] : rows) {
    EXPECT_TRUE(known.contains(name) || name.ends_with("_duration"))
        << name << " is on the page alone";
  }
}

TEST(OllamaParseTest, AStrictServerRefusesWhatItDoesNotKnow) {
  EXPECT_EQ(Refusal(ChatBody(R"("later":1)"), true, true),
            "later: member 3 is not known here");
  EXPECT_EQ(Refusal(ChatBody(R"("options":{"later":1})"), true, true),
            "options.later: member 1 is not known here");
  EXPECT_EQ(Refusal(ChatBody(R"("suffix":"x")"), true, true),
            "suffix: member 3 is not known here");
  Parsed(ChatBody(R"("later":1,"options":{"later":1})"));
}

TEST(OllamaParseTest, AFormatIsAGrammar) {
  const auto grammar = [](std::string_view format) {
    return Parsed(ChatBody(Cat(R"("format":)", format))).chat.fields.grammar;
  };
  EXPECT_FALSE(grammar("\"\""));
  EXPECT_FALSE(grammar("null"));
  EXPECT_EQ(grammar("\"json\"")->spec.kind, GrammarSpec::Kind::kJsonObject);
  const auto schema = grammar(R"({"type":"object"})");
  EXPECT_EQ(schema->spec.kind, GrammarSpec::Kind::kJsonSchema);
  EXPECT_EQ(schema->spec.text, R"({"type":"object"})");
  EXPECT_EQ(schema->name, "format");
  EXPECT_THAT(Refusal(ChatBody(R"("format":"xml")")), StartsWith("format: "));
  EXPECT_THAT(Refusal(ChatBody(R"("format":true)")), StartsWith("format: "));
  // To the digit.
  EXPECT_EQ(grammar(R"({"const":0.12345678901234567891})")->spec.text,
            R"({"const":0.12345678901234567891})");
}

TEST(OllamaParseTest, ThinkSetsTheTemplatesVariables) {
  const auto kwargs = [](std::string_view think) {
    return DumpJson(
        Parsed(ChatBody(Cat(R"("think":)", think))).chat.chat_template.kwargs);
  };
  EXPECT_EQ(kwargs("null"), "{}");
  EXPECT_EQ(kwargs("true"), R"({"enable_thinking":true,"thinking":true})");
  EXPECT_EQ(kwargs("false"), R"({"reasoning_effort":"none",)"
                             R"("enable_thinking":false,"thinking":false})");
  EXPECT_EQ(kwargs("\"low\""), R"({"reasoning_effort":"low",)"
                               R"("enable_thinking":true,"thinking":true})");
  EXPECT_EQ(kwargs("\"none\""), kwargs("false"));
  EXPECT_THAT(Refusal(ChatBody(R"("think":1)")), StartsWith("think: "));
  EXPECT_THAT(Refusal(ChatBody(R"("think":"<|x|>")")), StartsWith("think: "));
}

TEST(OllamaParseTest, KeepAliveIsATime) {
  for (const char* time : {"5", "-1", "0.5", "\"5m\"", "\"1h30m\"", "\"-1\""}) {
    const auto parsed =
        ParseChat(Cat(R"({"model":"m","keep_alive":)", time, "}"), false);
    EXPECT_EQ(parsed->act, OllamaRequest::Act::kLoad) << time;
  }
  for (const char* time : {"true", "\"\"", "\"soon\"", "\"m\""}) {
    EXPECT_THAT(Refusal(ChatBody(Cat(R"("keep_alive":)", time))),
                StartsWith("keep_alive: "));
  }
}

TEST(OllamaParseTest, LogProbabilities) {
  EXPECT_FALSE(Parsed(ChatBody("")).chat.fields.logprobs);
  EXPECT_EQ(Parsed(ChatBody(R"("logprobs":true)")).chat.fields.logprobs, 0);
  EXPECT_EQ(Parsed(ChatBody(R"("logprobs":true,"top_logprobs":20)"))
                .chat.fields.logprobs,
            20);
  EXPECT_THAT(Refusal(ChatBody(R"("logprobs":true,"top_logprobs":21)")),
              StartsWith("top_logprobs: "));
  EXPECT_EQ(Refusal(ChatBody(R"("top_logprobs":2)")),
            R"(top_logprobs: needs "logprobs": true)");
}

TEST(OllamaParseTest, MessagesAreNormalised) {
  EXPECT_EQ(Messages(R"([{"role":"System","content":"s"},)"
                     R"({"role":"user","content":"u","images":[]},)"
                     R"({"role":"assistant","thinking":"t","tool_calls":[)"
                     R"({"id":"c","function":{"index":0,"name":"f",)"
                     R"("arguments":{"a":1}}}]},)"
                     R"({"role":"tool","tool_name":"f","content":"r"},)"
                     R"({"role":"user"}])"),
            R"([{"role":"system","content":"s"},)"
            R"({"role":"user","content":"u"},)"
            R"({"role":"assistant","content":"","reasoning_content":"t",)"
            R"("tool_calls":[{"type":"function","function":{"name":"f",)"
            R"("arguments":{"a":1}},"id":"c"}]},)"
            R"({"role":"tool","content":"r","name":"f"},)"
            R"({"role":"user","content":""}])");
}

TEST(OllamaParseTest, MessagesAreRefusedByName) {
  const auto refusal = [](std::string_view message) {
    return Refusal(Cat(R"({"model":"m","messages":[)", message, "]}"));
  };
  EXPECT_THAT(Refusal(R"({"model":"m","messages":{}})"),
              StartsWith("messages: must be an array"));
  EXPECT_EQ(refusal("7"), "messages[0]: must be an object, got the number 7");
  EXPECT_EQ(refusal(R"({"role":"king"})"),
            "messages[0].role: must be system, user, assistant or tool");
  EXPECT_THAT(refusal(R"({"role":"user","content":[]})"),
              StartsWith("messages[0].content: "));
  EXPECT_THAT(refusal(R"({"role":"user","images":"x"})"),
              StartsWith("messages[0].images: must be an array"));
  EXPECT_THAT(refusal(R"({"role":"assistant","tool_calls":{}})"),
              StartsWith("messages[0].tool_calls: must be an array"));
  EXPECT_EQ(refusal(R"({"role":"assistant","tool_calls":[{}]})"),
            "messages[0].tool_calls: [0].function must be an object");
  EXPECT_THAT(
      refusal(R"({"role":"assistant","tool_calls":[{"function":{"name":"f",)"
              R"("arguments":[]}}]})"),
      HasSubstr("[0].function.arguments must be an object"));
  EXPECT_THAT(refusal(Cat(R"({"role":"tool","tool_name":")",
                          std::string(129, 'n'), "\"}")),
              StartsWith("messages[0].tool_name: has 129 bytes"));
}

TEST(OllamaParseTest, APictureOfTheHistoryIsANote) {
  const std::string note(serving::kImageNote);
  EXPECT_EQ(Messages(R"([{"role":"user","content":"a","images":["x","y"]},)"
                     R"({"role":"tool","images":["x"]},)"
                     R"({"role":"user","content":"b"}])"),
            Cat(R"([{"role":"user","content":"a\n)", note, "\\n", note,
                R"("},{"role":"tool","content":")", note,
                R"("},{"role":"user","content":"b"}])"));
  EXPECT_EQ(Refusal(R"({"model":"m","messages":[)"
                    R"({"role":"user","images":["x"]},)"
                    R"({"role":"assistant","content":"a"}]})"),
            "messages[0].images: no model here reads pictures, got 1");
  EXPECT_THAT(Refusal(GenerateBody(R"("images":["x"])"), false),
              StartsWith("images: no model here reads pictures"));
}

TEST(OllamaParseTest, ToolsAreFunctions) {
  const auto tools = Parsed(
      ChatBody(R"("tools":[{"type":"web_search"},{"function":{"name":"f",)"
               R"("description":"d","parameters":{"type":"object"},"x":1}}])"));
  EXPECT_EQ(DumpJson(tools.chat.tools.tools),
            R"([{"type":"function","function":{"name":"f",)"
            R"("description":"d","parameters":{"type":"object"}}}])");
  EXPECT_EQ(tools.chat.tools.strict.size(), 1u);
  EXPECT_TRUE(Parsed(ChatBody(R"("tools":[])")).chat.tools.tools.is_null());
  EXPECT_TRUE(
      Parsed(ChatBody(R"("tools":[{"type":"x"}])")).chat.tools.tools.is_null());
  EXPECT_THAT(Refusal(ChatBody(R"("tools":[{"type":"function"}])")),
              StartsWith("tools: tools[0].function must be"));
  EXPECT_THAT(Refusal(ChatBody(R"("tools":[{"function":{"name":"<"}}])")),
              StartsWith("tools[0].function.name: "));
  EXPECT_THAT(Refusal(ChatBody(
                  R"("tools":[{"function":{"name":"f","parameters":1}}])")),
              StartsWith("tools[0].function.parameters: "));
}

TEST(OllamaParseTest, APromptIsAChatUnlessItIsRaw) {
  const OllamaRequest chat = Parsed(GenerateBody(R"("system":"s")"), false);
  EXPECT_EQ(DumpJson(chat.chat.messages), R"([{"role":"system","content":"s"},)"
                                          R"({"role":"user","content":"hi"}])");
  const OllamaRequest raw = Parsed(GenerateBody(R"("raw":true)"), false);
  EXPECT_TRUE(raw.is_raw);
  EXPECT_EQ(raw.prompt, "hi");
  EXPECT_TRUE(raw.chat.messages.is_null());
  EXPECT_THAT(Refusal(GenerateBody(R"("raw":true,"system":"s")"), false),
              StartsWith("system: cannot go with raw"));
  EXPECT_THAT(Refusal(GenerateBody(R"("raw":true,"suffix":"s")"), false),
              StartsWith("suffix: cannot go with"));
  EXPECT_THAT(Refusal(GenerateBody(R"("suffix":"x","system":"s")"), false),
              StartsWith("system: cannot go with suffix"));
  EXPECT_THAT(Refusal(GenerateBody(R"("template":"t")"), false),
              StartsWith("template: not supported"));
  EXPECT_THAT(Refusal(GenerateBody(R"("context":[1])"), false),
              StartsWith("context: not supported"));
}

TEST(OllamaParseTest, TheDigestIsOfWhatIsAskedFor) {
  const auto digest = [](std::string_view more) {
    return Parsed(ChatBody(more)).chat.fields.digest;
  };
  EXPECT_EQ(digest(""), digest(R"("keep_alive":"5m")"));
  EXPECT_EQ(digest(R"("options":{"seed":1,"top_k":2})"),
            digest(R"("options":{"top_k":2,"seed":1})"));
  EXPECT_NE(digest(""), digest(R"("options":{"seed":1})"));
}

}  // namespace
}  // namespace sluice::ollama
