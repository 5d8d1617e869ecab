// GET /openapi.json tells what the parsers take, what API.md says and which
// defaults hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "common/dialects/openai/field_schemas.h"
#include "common/dialects/openai/known_fields.h"
#include "common/dialects/openai/parse.h"
#include "services/gateway/dialects.h"
#include "services/gateway/gateway_metrics.h"
#include "services/gateway/handlers/handlers.h"
#include "tests/services/gateway/fakes.h"
#include "tests/testing/representative.h"

namespace sluice::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json Parsed(std::string_view text) {
  auto json = ParseJson(text);
  EXPECT_TRUE(json.ok()) << json.status() << ": " << text;
  return json.ok() ? *json : Json();
}

bool IsOfType(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  EXPECT_EQ(type, "integer");
  if (!value.is_number_float()) return value.is_number();
  return value.get<double>() == std::trunc(value.get<double>());
}

// Takes the keywords of JSON Schema that the document has.
class SchemaChecker {
 public:
  explicit SchemaChecker(const Json& document) : document_(document) {}

  bool Takes(const Json& schema, const Json& value) const {
    for (const auto& [keyword, limit] : schema.items()) {
      if (!Holds(keyword, limit, schema, value)) return false;
    }
    return true;
  }

 private:
  bool Holds(const std::string& keyword, const Json& limit, const Json& schema,
             const Json& value) const {
    static const std::set<std::string> kNotes = {
        "description",          "default",      "x-sluice-use", "format",
        "additionalProperties", "propertyNames"};
    if (kNotes.contains(keyword)) return true;
    if (keyword == "$ref") {
      return Takes(
          document_[Json::json_pointer(limit.get<std::string>().substr(1))],
          value);
    }
    if (keyword == "type") return HoldsType(limit, value);
    if (keyword == "const") return value == limit;
    if (keyword == "not") return !Takes(limit, value);
    if (keyword == "enum" || keyword == "anyOf") {
      return std::any_of(limit.begin(), limit.end(), [&](const Json& one) {
        return keyword == "enum" ? one == value : Takes(one, value);
      });
    }
    if (value.is_number()) return HoldsNumber(keyword, limit, value);
    if (value.is_string()) return HoldsString(keyword, limit, value);
    if (value.is_array()) return HoldsArray(keyword, limit, value);
    if (value.is_object()) return HoldsObject(keyword, schema, value);
    return true;
  }

  static bool HoldsType(const Json& type, const Json& value) {
    if (type.is_string()) return IsOfType(value, type);
    return std::any_of(type.begin(), type.end(),
                       [&](const Json& one) { return IsOfType(value, one); });
  }
  static bool HoldsNumber(const std::string& keyword, const Json& limit,
                          const Json& value) {
    if (keyword == "minimum") return value >= limit;
    if (keyword == "maximum") return value <= limit;
    return keyword != "exclusiveMinimum" || value > limit;
  }
  static bool HoldsString(const std::string& keyword, const Json& limit,
                          const std::string& value) {
    if (keyword == "minLength") return value.size() >= limit;
    if (keyword == "maxLength") return value.size() <= limit;
    return keyword != "pattern" ||
           std::regex_search(value, std::regex(limit.get<std::string>()));
  }
  bool HoldsArray(const std::string& keyword, const Json& limit,
                  const Json& value) const {
    if (keyword == "minItems") return value.size() >= limit;
    if (keyword == "maxItems") return value.size() <= limit;
    return keyword != "items" ||
           std::all_of(value.begin(), value.end(),
                       [&](const Json& one) { return Takes(limit, one); });
  }
  bool HoldsObject(const std::string& keyword, const Json& schema,
                   const Json& value) const {
    const Json& limit = schema[keyword];
    if (keyword == "maxProperties") return value.size() <= limit;
    if (keyword == "required") {
      return std::all_of(limit.begin(), limit.end(), [&](const Json& name) {
        return value.contains(name.get<std::string>());
      });
    }
    if (keyword != "properties") return true;
    for (const auto& [name, member] : value.items()) {
      if (limit.contains(name)) {
        if (!Takes(limit[name], member)) return false;
      } else if (schema.contains("additionalProperties")) {
        if (!Takes(schema["additionalProperties"], member)) return false;
      }
    }
    return true;
  }

  const Json& document_;
};

std::vector<Json> Probes() {
  std::vector<Json> probes = Parsed(R"([null, true, false, -101, -100, -3, -2.5,
      -2, -1.5, -1, 0, 0.005, 0.01, 0.5, 1, 1.5, 2, 2.5, 5.0, 16, 20, 21, 100,
      101, 128, 129, 3600, 3601, 2147483647, 2147483648, 9223372036854775807,
      1e30, "", "a", "auto", "none", "low", "a.b", "a!", "left", "deepseek",
      [], [1], [-1], [1.5], [100], ["a"], [""], [[1]], [["a"]], [{}], [null],
      ["text"], {}, {"type": "enabled"}, {"type": "x"}, {"a": 1}, {"a": null},
      {"1": 5}, {"1": 101}, {"01": 1}, {"1": "x"}, {"include_usage": true},
      {"include_usage": 1}, {"continuous_usage_stats": "x"},
      {"enable_thinking": true}, {"enable_thinking": "x"},
      {"date_string": "1 May"}, {"date_string": "a!"}, {"date_string": 1},
      {"type": "text"}, {"type": "json_object"}, {"type": "json_schema"},
      {"type": "json_schema", "schema": {}}, {"regex": "a"}, {"regex": 1},
      {"json": {}}, {"json": 5}, {"choice": ["a"]}, {"choice": "a"},
      {"grammar": "start: \"a\""}, {"json_object": true},
      [{"role": "user", "content": "a"}], [{"role": "user", "content": null}],
      [{"role": "assistant", "content": null}], [{"role": "x"}],
      [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
      [{"type": "function", "function": {"name": "f"}}],
      [{"type": "function", "function": {"name": "?"}}], [{"type": "x"}],
      {"type": "function", "function": {"name": "f"}}, {"type": "disabled"},
      {"type": "enabled", "budget_tokens": 5}, {"effort": "low"},
      {"effort": 1}, {"enabled": false}, {"max_tokens": 0}, {"max_tokens": 5},
      {"messages": []}, {"messages": null}])");
  for (const size_t length : {32, 33, 128, 129, 256, 257, 1024, 1025}) {
    probes.emplace_back(std::string(length, 'a'));
  }
  for (const size_t length : {1, 128, 129}) {
    probes.emplace_back(std::vector<int>(length, 7));
    probes.emplace_back(std::vector<std::string>(length, "s"));
    probes.emplace_back(std::vector<Json>(
        length, Parsed(R"({"role": "user", "content": "a"})")));
  }
  return probes;
}

// A body in which `field` may have any of its values.
Json BodyFor(const std::string& field, const Json& value, bool chat) {
  Json body = chat
                  ? Parsed(R"({"messages": [{"role": "user", "content": ""}]})")
                  : Parsed(R"({"prompt": "a", "echo": true})");
  if (field == "top_logprobs") body["logprobs"] = true;
  if (field == "stream_options") body["stream"] = true;
  if (field == "tool_choice") {
    body["tools"] =
        Parsed(R"([{"type": "function", "function": {"name": "f"}}])");
  }
  body[field] = value;
  return body;
}

Status ParseStatus(const Json& body, bool chat) {
  const std::string text = DumpJson(body);
  if (chat) return openai::ParseChatRequest(text, 100).status();
  return openai::ParseCompletionRequest(text, 100).status();
}

// Fields of whose values the parsers check more than a schema tells.
const std::set<std::string> kFiner = {"messages",
                                      "prompt",
                                      "tools",
                                      "tool_choice",
                                      "response_format",
                                      "best_of",
                                      "logit_bias",
                                      "structured_outputs",
                                      "guided_grammar",
                                      "echo",
                                      "stop_token_ids",
                                      "functions",
                                      "allowed_token_ids",
                                      "logprob_token_ids"};

TEST(ApiDocumentTest, TakesWhatTheParsersTakeFieldByField) {
  if (sluice::testing::OnlyRepresentative()) {
    GTEST_SKIP() << "has one thread: under ThreadSanitizer in the long mode";
  }
  const Json document = ApiDocument({});
  const SchemaChecker checker(document);
  const std::vector<Json> probes = Probes();
  for (const bool chat : {true, false}) {
    const Json schema = openai::BodySchema(
        {.chat = chat, .max_stops = serving::kMaxStopStrings});
    for (const auto& [name, of_field] : schema["properties"].items()) {
      SCOPED_TRACE(Cat(name, chat ? " of chat" : " of completions"));
      int taken = 0;
      int refused = 0;
      for (const Json& value : probes) {
        const Status parsed = ParseStatus(BodyFor(name, value, chat), chat);
        const bool takes = checker.Takes(of_field, value);
        ++(takes ? taken : refused);
        const std::string shown = DumpJson(value).substr(0, 80);
        if (parsed.ok()) {
          EXPECT_TRUE(takes) << shown << " is taken";
        } else if (!kFiner.contains(name)) {
          EXPECT_FALSE(takes) << shown << ": " << parsed;
        }
      }
      EXPECT_GT(taken, 0);
      const bool ignored = of_field.empty();
      EXPECT_EQ(refused == 0, ignored);
    }
  }
}

TEST(ApiDocumentTest, HasEveryKnownFieldWithItsText) {
  const Json schemas = ApiDocument({})["components"]["schemas"];
  for (const openai::KnownField& field : openai::KnownFields()) {
    const std::string name(field.name);
    for (const bool chat : {true, false}) {
      const Json& properties =
          schemas[chat ? "ChatCompletionRequest" : "CompletionRequest"]
                 ["properties"];
      ASSERT_EQ(properties.contains(name),
                chat ? field.chat : field.completions)
          << name;
      if (!properties.contains(name)) continue;
      const Json& schema = properties[name];
      const std::string text = schema["description"];
      EXPECT_FALSE(text.empty()) << name;
      EXPECT_THAT(text, Not(HasSubstr("]("))) << name;
      const bool typed = schema.contains("type") || schema.contains("enum") ||
                         schema.contains("anyOf");
      EXPECT_EQ(typed, field.use != openai::FieldUse::kIgnored) << name;
    }
  }
}

TEST(ApiDocumentTest, RangesAndDefaultsAreThoseOfThePage) {
  const Json properties = ApiDocument(
      {})["components"]["schemas"]["ChatCompletionRequest"]["properties"];
  const std::regex range("^(-?[0-9.]+) to (-?[0-9.]+)\\b");
  const std::regex otherwise("[^-]\\bdefault (true|false|-?[0-9.]*[0-9])\\b");
  int ranges = 0;
  int defaults = 0;
  for (const auto& [name, schema] : properties.items()) {
    const std::string text = schema["description"];
    std::smatch match;
    if (schema.contains("minimum") && std::regex_search(text, match, range)) {
      EXPECT_EQ(schema["minimum"], Parsed(match[1].str())) << name;
      EXPECT_EQ(schema["maximum"], Parsed(match[2].str())) << name;
      ++ranges;
    }
    if (std::regex_search(text, match, otherwise)) {
      EXPECT_EQ(schema["default"], Parsed(match[1].str())) << name;
      ++defaults;
    }
  }
  EXPECT_GE(ranges, 6);
  EXPECT_GE(defaults, 10);
}

class ApiDefaultsTest : public ::testing::Test {
 protected:
  ApiDefaultsTest() : context_{model_, engine_.loop(), metrics_, nullptr, {}} {
    context_.readiness = [] { return serving::Readiness{true}; };
    AddDialects(router_, context_);
  }
  void TearDown() override { engine_.EndAll(); }

  struct Outcome {
    SamplingParams sampling;
    int max_tokens = 0;
    std::vector<TokenId> prompt;
    std::string body;
    bool operator==(const Outcome&) const = default;
  };
  // Runs `body`; nothing if it is refused.
  std::optional<Outcome> Run(bool chat, Json body) {
    body["seed"] = 3;
    auto on = http::Post(chat ? "/v1/chat/completions" : "/v1/completions",
                         DumpJson(body));
    on->request().request_id = "same";
    const size_t index = engine_.submitted();
    router_.Route(on);
    if (engine_.submitted() == index) {
      ADD_FAILURE() << DumpJson(on->Body());
      return std::nullopt;
    }
    const GenerateRequest request = engine_.request(index);
    engine_.Text(index, "word");
    engine_.End(index, FinishReason::kStop);
    Json answer = on->Body();
    answer.erase("created");
    return Outcome{request.sampling, request.max_tokens, request.prompt_tokens,
                   DumpJson(answer)};
  }

  serving::ServedModel model_ = FakeModel();
  ScriptedEngine engine_;
  GatewayMetrics metrics_{{"fake"}};
  serving::ServingContext context_;
  http::Router router_;
};

TEST_F(ApiDefaultsTest, AFieldWithItsDefaultChangesNothing) {
  for (const bool chat : {true, false}) {
    const Json base =
        chat ? Parsed(R"({"messages": [{"role": "user", "content": "hi"}]})")
             : Parsed(R"({"prompt": "hi"})");
    const auto plain = Run(chat, base);
    ASSERT_TRUE(plain.has_value());
    const Json schema = openai::BodySchema({.chat = chat, .max_stops = 32});
    int checked = 0;
    for (const auto& [name, of_field] : schema["properties"].items()) {
      if (!of_field.contains("default")) continue;
      Json body = base;
      body[name] = of_field["default"];
      EXPECT_EQ(Run(chat, body), plain) << name << ", chat: " << chat;
      ++checked;
    }
    EXPECT_GT(checked, 30);
  }
}

TEST(ApiDocumentTest, SaysWhatTheOperatorChose) {
  const Json open = ApiDocument({});
  EXPECT_EQ(open["security"].back(), Json::object()) << "no key is asked for";
  EXPECT_FALSE(open["paths"].contains("/debug/logits"));
  const Json& chat = open["components"]["schemas"]["ChatCompletionRequest"];
  EXPECT_FALSE(chat.contains("additionalProperties"));
  EXPECT_EQ(chat["properties"]["stop"]["anyOf"][1]["maxItems"], 32);
  const Json other = ApiDocument({.keys_asked = true,
                                  .debug_endpoints = true,
                                  .strict_fields = true,
                                  .max_stop_strings = 7});
  EXPECT_EQ(other["security"].size(), 2u);
  EXPECT_TRUE(other["paths"].contains("/debug/logits"));
  const Json& strict = other["components"]["schemas"]["CompletionRequest"];
  EXPECT_EQ(strict["additionalProperties"], false);
  EXPECT_EQ(strict["properties"]["stop"]["anyOf"][1]["maxItems"], 7);
}

}  // namespace
}  // namespace sluice::gateway
