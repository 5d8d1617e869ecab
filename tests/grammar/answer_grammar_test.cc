// What a grammar of answers lets through, the parser of its format reads.
#include "common/grammar/answer_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/grammar/grammar_compiler.h"
#include "tests/grammar/walk.h"
#include "tests/testing/representative.h"
#include "tests/text/output_fixtures.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

const std::map<std::string, OutputFormat> kFormats = {
    {"glm", kGlm},
    {"qwen", kIntellect},
    {"hermes", kHermes},
    {"llama", kLlama},
    {"harmony", kHarmony},
    {"mistral", {ToolFormat::kMistral, ReasoningFormat::kMistral}},
    {"mistral-list", {ToolFormat::kMistralList, ReasoningFormat::kNone}},
    {"deepseek-v3", {ToolFormat::kDeepSeekV3, ReasoningFormat::kThink}},
    {"deepseek-v3.1", {ToolFormat::kDeepSeekV31, ReasoningFormat::kThink}},
    {"deepseek-v3.2", {ToolFormat::kDeepSeekV32, ReasoningFormat::kThink}},
    {"minimax", {ToolFormat::kMiniMax, ReasoningFormat::kThink}},
    {"minimax-m3", {ToolFormat::kMiniMaxM3, ReasoningFormat::kMiniMaxM3}},
    {"seed", {ToolFormat::kSeed, ReasoningFormat::kSeed}},
    {"kimi", {ToolFormat::kKimi, ReasoningFormat::kThink}},
    {"granite", {ToolFormat::kGranite, ReasoningFormat::kNone}},
    {"phi", {ToolFormat::kPhi, ReasoningFormat::kNone}},
    {"command", {ToolFormat::kCommand, ReasoningFormat::kCommand}},
    {"command-r-plus", {ToolFormat::kCommandPlus, ReasoningFormat::kNone}},
    {"apertus", {ToolFormat::kApertus, ReasoningFormat::kApertus}},
    {"longcat", {ToolFormat::kLongCat, ReasoningFormat::kNone}},
    {"lfm", {ToolFormat::kLfm, ReasoningFormat::kNone}},
    {"nemotron", {ToolFormat::kNemotron, ReasoningFormat::kThink}},
    {"gemma", {ToolFormat::kGemma, ReasoningFormat::kGemma}}};

constexpr char kWeather[] = R"({"type":"object","properties":{
    "city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":9},
    "unit":{"enum":["C","F"]},"tags":{"type":"array","maxItems":2,
    "items":{"$ref":"#/$defs/tag"}},"note":{"anyOf":[{"type":"string"},
    {"type":"null"}]}},"required":["city","days"],
    "additionalProperties":false,
    "$defs":{"tag":{"type":"string","maxLength":3}}})";

constexpr char kNow[] = R"({"type":"object","properties":{
    "zone":{"type":["integer","null"],"minimum":-12,"maximum":12}},
    "additionalProperties":false})";

// One vocabulary, with a compiler.
struct Model {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
  std::vector<TokenId> eos;
  std::unique_ptr<GrammarCompiler> compiler;
};

Model MakeModel(std::string name, const Tokenizer& tokenizer) {
  Model model{std::move(name), &tokenizer, {}, nullptr};
  for (const char* end : {"<|return|>", "<|call|>", "<|im_end|>", "<|user|>",
                          "<|eot_id|>", "<|endoftext|>"}) {
    const auto id = tokenizer.TokenToId(end);
    if (id) model.eos.push_back(*id);
  }
  if (model.eos.empty()) model.eos = tokenizer.eos_ids();
  auto made =
      GrammarCompiler::Create(tokenizer, tokenizer.vocab_size(), model.eos, {});
  EXPECT_TRUE(made.ok()) << made.status();
  model.compiler = *std::move(made);
  return model;
}

// A call as a client sees it.
struct Call {
  std::string name;
  std::string arguments;
  bool has_ended = false;
};
struct Answer {
  bool is_complete = false;
  std::string text;
  std::string content;
  std::vector<Call> calls;
};

class AnswerGrammarTest : public ::testing::Test {
 protected:
  AnswerGrammarTest() {
    models_.push_back(MakeModel("bytes", HarmonyTokenizer()));
    for (const NamedTokenizer& named : AllTokenizers()) {
      // A vocabulary with this token is a tool calling model's.
      if (named.tokenizer->TokenToId("<tool_call>")) {
        models_.push_back(MakeModel(named.name, *named.tokenizer));
      }
    }
  }

  static Answer Draw(const Model& model, const OutputFormat& format,
                     const AnswerRules& rules, const Grammar& grammar,
                     uint64_t seed);
  // Draws answers in all formats and vocabularies.
  template <typename Check>
  void ForEachAnswer(const AnswerRules& rules, const Check& check,
                     int seeds = 40 / kSlowdown) {
    for (const Model& model : models_) {
      // Other vocabularies differ in what a token spells alone.
      const int draws = IsLong() || &model == &models_.front() ? seeds : 3;
      if (OnlyRepresentative() && &model != &models_.front()) return;
      for (const auto& [name, format] : kFormats) {
        if (format == kHarmony && !model.tokenizer->TokenToId("<|channel|>")) {
          continue;
        }
        SCOPED_TRACE(model.name + ", " + name);
        const auto spec = AnswerGrammar(format, model.tokenizer->vocabulary(),
                                        rules, *model.compiler);
        ASSERT_TRUE(spec.ok()) << spec.status();
        const auto grammar = model.compiler->Compile(*spec, "");
        ASSERT_TRUE(grammar.ok()) << grammar.status() << "\n" << spec->text;
        int complete = 0;
        for (int seed = 0; seed < draws; ++seed) {
          const Answer answer = Draw(model, format, rules, **grammar,
                                     static_cast<uint64_t>(seed));
          if (!answer.is_complete) continue;
          ++complete;
          SCOPED_TRACE(answer.text);
          check(answer);
        }
        EXPECT_GE(complete, draws / 3) << spec->text;
      }
    }
  }

  std::vector<Model> models_;
};

Answer AnswerGrammarTest::Draw(const Model& model, const OutputFormat& format,
                               const AnswerRules& rules, const Grammar& grammar,
                               uint64_t seed) {
  // The grammar outlives its constraint: the cache has it.
  const auto constraint =
      model.compiler->NewConstraint({.grammar = std::shared_ptr<const Grammar>(
                                         &grammar, [](const Grammar*) {})});
  std::mt19937_64 random(seed);
  const Walk walk =
      DrawAnswer(*model.tokenizer, model.tokenizer->vocab_size(), model.eos,
                 *constraint, random,
                 {.max_tokens = 1500,
                  .endings = {"</arg_value>", "\n</parameter>", "</parameter>",
                              "</\uFF5CDSML\uFF5Cparameter>", "]<]minimax[>[</",
                              "<|end|>", "\"", "}", "\n</tool_call>",
                              "</tool_call>", "</function>"}});
  Answer answer;
  EXPECT_TRUE(walk.status.ok()) << walk.status;
  answer.is_complete = walk.is_complete;
  answer.text = *model.tokenizer->Decode(walk.tokens, false);
  if (!walk.is_complete) return answer;
  OutputRequest request;
  for (const GrammarTool& tool : rules.tools) {
    request.tools.push_back({tool.name, tool.parameters});
  }
  // Token by token, as a stream has them.
  auto parser = NewOutputParser(format, model.tokenizer->vocabulary(), request);
  OutputEvents events;
  const auto add = [&events](OutputEvents more) {
    events.insert(events.end(), more.begin(), more.end());
  };
  for (const TokenId id : walk.tokens) {
    add(parser->Feed(id, model.tokenizer->TokenBytes(id)));
  }
  add(parser->Finish(OutputEnd::kStopped));
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kContent:
        answer.content += event.text;
        break;
      case OutputEvent::Kind::kCallBegin:
        answer.calls.push_back({event.text, "", false});
        break;
      case OutputEvent::Kind::kArguments:
        answer.calls.back().arguments += event.text;
        break;
      case OutputEvent::Kind::kCallEnd:
        answer.calls.back().has_ended = true;
        break;
      default:
        break;
    }
  }
  return answer;
}

// A grammar has numbers of any size; the exponent of a number beyond a double
// is cut before the arguments are read.
Json ArgumentsOf(const Call& call) {
  static const std::regex kExponent(R"(([0-9])[eE]\+?[0-9]{3,})");
  const Json json = Json::parse(call.arguments, nullptr, false);
  if (!json.is_discarded()) return json;
  return Json::parse(std::regex_replace(call.arguments, kExponent, "$1e9"),
                     nullptr, false);
}

void ExpectWeather(const Call& call) {
  const Json json = ArgumentsOf(call);
  ASSERT_TRUE(json.is_object()) << call.arguments;
  ASSERT_TRUE(json.contains("city") && json.contains("days"));
  EXPECT_TRUE(json["city"].is_string());
  EXPECT_TRUE(json["days"].is_number_integer());
  EXPECT_GE(json["days"].get<int>(), 1);
  EXPECT_LE(json["days"].get<int>(), 9);
  for (const auto& [key, value] : json.items()) {
    if (key == "unit") {
      EXPECT_TRUE(value == "C" || value == "F");
    } else if (key == "tags") {
      ASSERT_TRUE(value.is_array());
      EXPECT_LE(value.size(), 2u);
      for (const Json& tag : value) EXPECT_TRUE(tag.is_string());
    } else if (key == "note") {
      EXPECT_TRUE(value.is_string() || value.is_null());
    } else {
      EXPECT_TRUE(key == "city" || key == "days") << key;
    }
  }
}

TEST_F(AnswerGrammarTest, RequiredAnswersAreCallsAlone) {
  AnswerRules rules;
  rules.tools = {{"get_weather", kWeather}, {"mcp__now", kNow}};
  rules.requires_call = true;
  for (const bool is_parallel : {true, false}) {
    rules.is_parallel = is_parallel;
    ForEachAnswer(rules, [&](const Answer& answer) {
      EXPECT_EQ(answer.content, "");
      ASSERT_GE(answer.calls.size(), 1u);
      EXPECT_LE(answer.calls.size(),
                is_parallel ? static_cast<size_t>(kMaxCallsPerAnswer) : 1u);
      for (const Call& call : answer.calls) {
        EXPECT_TRUE(call.has_ended);
        if (call.name == "get_weather") {
          ExpectWeather(call);
        } else {
          EXPECT_EQ(call.name, "mcp__now");
          EXPECT_TRUE(ArgumentsOf(call).is_object()) << call.arguments;
        }
      }
    });
  }
}

TEST_F(AnswerGrammarTest, AStrictToolsCallsFitWhereTheAnswerIsFree) {
  AnswerRules rules;
  rules.tools = {{"get_weather", kWeather}};
  int calls = 0;
  ForEachAnswer(rules, [&](const Answer& answer) {
    for (const Call& call : answer.calls) {
      ++calls;
      EXPECT_EQ(call.name, "get_weather");
      ExpectWeather(call);
    }
  });
  EXPECT_GT(calls, 0);
}

// Characters are counted beside markup that a bare text may not spell.
TEST_F(AnswerGrammarTest, LongCountedStringsFit) {
  struct Bounds {
    size_t least = 0;
    size_t most = 0;
  };
  for (const Bounds bounds :
       {Bounds{0, 25}, Bounds{0, 40}, Bounds{0, 200}, Bounds{3, 2000}}) {
    SCOPED_TRACE(bounds.most);
    AnswerRules rules;
    rules.requires_call = true;
    rules.tools = {{"say", R"({"type":"object","required":["text"],
        "additionalProperties":false,"properties":{"text":{"type":"string",
        "minLength":)" + std::to_string(bounds.least) +
                               R"(,"maxLength":)" +
                               std::to_string(bounds.most) + "}}}"}};
    ForEachAnswer(
        rules,
        [&](const Answer& answer) {
          for (const Call& call : answer.calls) {
            const Json json = ArgumentsOf(call);
            ASSERT_TRUE(json.is_object() && json["text"].is_string());
            const auto text = json["text"].get<std::string>();
            size_t characters = 0;
            for (const char c : text) characters += (c & 0xC0) != 0x80;
            EXPECT_GE(characters, bounds.least);
            EXPECT_LE(characters, bounds.most);
          }
        },
        /*seeds=*/6);
  }
}

TEST_F(AnswerGrammarTest, CallsOrFittingContent) {
  AnswerRules rules;
  rules.tools = {{"get_weather", kWeather}};
  rules.content =
      GrammarSpec{GrammarSpec::Kind::kJsonSchema,
                  R"({"type":"object","properties":{"ok":{"type":"boolean"}},
          "required":["ok"],"additionalProperties":false})"};
  int contents = 0;
  ForEachAnswer(rules, [&](const Answer& answer) {
    for (const Call& call : answer.calls) ExpectWeather(call);
    if (!answer.calls.empty()) {
      EXPECT_EQ(answer.content, "");
      return;
    }
    ++contents;
    const Json json = Json::parse(answer.content, nullptr, false);
    ASSERT_TRUE(json.is_object() && json.contains("ok")) << answer.content;
    EXPECT_TRUE(json["ok"].is_boolean());
  });
  EXPECT_GT(contents, 0);
}

TEST_F(AnswerGrammarTest, HarmonysFinalMessageFits) {
  AnswerRules rules;
  const Model& model = models_.front();
  for (const GrammarSpec& content :
       {GrammarSpec{GrammarSpec::Kind::kRegex, "a/[b-d]{3}"},
        GrammarSpec{GrammarSpec::Kind::kChoice, R"(["a/bcd"])"},
        GrammarSpec{GrammarSpec::Kind::kLark,
                    "start: \"a/\" TEXT\nTEXT: /[b-d]{3}/\n"},
        GrammarSpec{GrammarSpec::Kind::kGbnf,
                    "root ::= \"a/\" call\ncall ::= [b-d] [b-d] [b-d]"},
        GrammarSpec{GrammarSpec::Kind::kStructuralTag,
                    R"({"format":{"type":"tag","begin":"a/","end":"d",
                    "content":{"type":"regex","pattern":"[bc]{2}"}}})"}}) {
    rules.content = content;
    const auto spec = AnswerGrammar(kHarmony, model.tokenizer->vocabulary(),
                                    rules, *model.compiler);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto grammar = model.compiler->Compile(*spec, "");
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Answer answer = Draw(model, kHarmony, rules, **grammar, seed);
      if (!answer.is_complete) continue;
      EXPECT_EQ(answer.content.size(), 5u) << answer.text;
      EXPECT_TRUE(answer.content.starts_with("a/")) << answer.text;
    }
  }
}

// Formats that write each parameter by itself.
constexpr std::array kTaggedFormats = {"glm", "qwen", "seed", "minimax",
                                       "deepseek-v3.2"};

TEST_F(AnswerGrammarTest, SchemasThatAFormatCannotSayAreRefused) {
  const Model& model = models_.front();
  const auto status = [&](const OutputFormat& format, std::string schema) {
    AnswerRules rules;
    rules.tools = {{"f", std::move(schema)}};
    return AnswerGrammar(format, model.tokenizer->vocabulary(), rules,
                         *model.compiler)
        .status();
  };
  struct Case {
    const char* property;
    const char* named;  // the keyword's path
  };
  for (const Case& each : {
           Case{R"({"type":["string","integer"],"minimum":3})", "/minimum"},
           Case{R"({"anyOf":[{"type":"string"},{"type":"array","items":
                {"type":"integer"}}]})",
                "/items"},
           Case{R"({"anyOf":[{"const":"1"},{"type":"integer"}]})",
                "reads as another type"},
           Case{R"({"enum":["null",null]})", "two values"},
           Case{R"({"type":"string","enum":["a"],"pattern":"b"})", "/pattern"},
           Case{R"({"type":"string","enum":[1]})", "allows no value"},
           Case{R"({"allOf":[{"type":"string"},{"minLength":2}]})", "/allOf"},
           Case{R"({"minLength":2})", "/minLength"},
       }) {
    const std::string schema = Cat(R"({"type":"object","properties":{"a":)",
                                   each.property, R"(},"required":["a"]})");
    EXPECT_TRUE(status(kHermes, schema).ok()) << status(kHermes, schema);
    for (const char* name : kTaggedFormats) {
      const std::string message(status(kFormats.at(name), schema).message());
      EXPECT_NE(message.find("tool f"), message.npos) << schema;
      EXPECT_NE(message.find("/properties/a"), message.npos) << message;
      EXPECT_NE(message.find(each.named), message.npos) << message;
    }
  }
  for (const char* name : kTaggedFormats) {
    EXPECT_FALSE(
        status(kFormats.at(name), R"({"type":"object","minProperties":1})")
            .ok());
  }
  const std::string not_keyword =
      R"({"type":"object","properties":{"a":{"not":{}}}})";
  for (const auto& [name, format] : kFormats) {
    const std::string message(status(format, not_keyword).message());
    EXPECT_NE(message.find("`not`"), message.npos) << name << message;
    EXPECT_NE(message.find("tool f"), message.npos) << name << message;
  }
  EXPECT_FALSE(status({}, R"({"type":"object"})").ok());
  for (const char* name : {"invoke", "tool_call"}) {  // MiniMax M3's own tags
    const std::string schema =
        Cat(R"({"type":"object","properties":{")", name, R"(":{}}})");
    EXPECT_TRUE(status(kFormats.at("minimax"), schema).ok()) << name;
    EXPECT_FALSE(status(kFormats.at("minimax-m3"), schema).ok()) << name;
  }
}

// Whatever the schema of a tool that is not strict, the tool can be called.
TEST_F(AnswerGrammarTest, AToolThatIsNotStrictTakesAnySchema) {
  for (const char* parameters : {
           R"({"type":"object","properties":{"a":{"not":{}},
               "b":{"type":"integer","minimum":-9223372036854775808},
               "c":{"type":["string","null"],"uniqueItems":true}},
               "required":["a"]})",
           R"({"$ref":"#/definitions/x"})",
           R"({"type":"object","minProperties":2})",
           R"({"type":"object","patternProperties":{"^x":{}}})",
           R"({"type":"object","properties":{"a":{}},"required":["b"]})",
           R"({"type":"object","properties":{"":{},"<x>":{},"b\n":{}}})",
           R"({"type":"object","properties":{"a":{"oneOf":[{},{}]}}})",
           R"({"type":"object","properties":{"a":{"propertyNames":{}}},
               "additionalProperties":false})",
           R"({"type":"object","properties":{"a":{"$ref":
               "https://example.com/a.json"}}})",
           R"({"anyOf":[{"required":["a"]},{"required":["b"]}]})", "true",
           R"({"type":"nothing"})", R"({"properties":[]})"}) {
    SCOPED_TRACE(parameters);
    AnswerRules rules;
    rules.tools = {{"f", parameters, /*is_strict=*/false},
                   {"get_weather", kWeather}};
    rules.requires_call = true;
    ForEachAnswer(
        rules,
        [](const Answer& answer) {
          for (const Call& call : answer.calls) {
            if (call.name == "get_weather") ExpectWeather(call);
            EXPECT_TRUE(ArgumentsOf(call).is_object()) << call.arguments;
          }
        },
        /*seeds=*/3);
  }
}

// What stands bare is read back as a value that the schema allows.
TEST_F(AnswerGrammarTest, BareValuesKeepTheirTypes) {
  struct Case {
    const char* property;
    std::function<bool(const Json&)> fits;
  };
  const auto one_of = [](const char* values) {
    return [all = Json::parse(values)](const Json& value) {
      return std::find_if(all.begin(), all.end(), [&](const Json& each) {
               return each.type() == value.type() && each == value;
             }) != all.end();
    };
  };
  const auto length = [](size_t least, size_t most) {
    return [=](const Json& value) {
      if (value.is_null()) return true;
      if (!value.is_string()) return false;
      size_t characters = 0;
      for (const char c : value.get<std::string>()) {
        characters += (c & 0xC0) != 0x80;
      }
      return characters >= least && characters <= most;
    };
  };
  const Case cases[] = {
      {R"({"type":["string","integer"],"enum":["1"]})", one_of(R"(["1"])")},
      {R"({"enum":["1",2]})", one_of(R"(["1",2])")},
      {R"({"type":["string","boolean"],"enum":["true"]})",
       one_of(R"(["true"])")},
      {R"({"type":["integer","string"],"const":"1"})", one_of(R"(["1"])")},
      {R"({"type":["string","null"],"enum":["null"," 1 ","[]"]})",
       one_of(R"(["null"," 1 ","[]"])")},
      {R"({"type":["string","integer"],"enum":["1",2.5,3,true]})",
       one_of(R"(["1",3])")},
      {R"({"$ref":"#/$defs/color"})", one_of(R"(["red","7"])")},
      {R"({"anyOf":[{"$ref":"#/$defs/color"},{"type":"null"}]})",
       one_of(R"(["red","7",null])")},
      {R"({"allOf":[{"$ref":"#/$defs/color"}],"default":"red"})",
       one_of(R"(["red","7"])")},
      {R"({"anyOf":[{"const":"auto"},{"type":"integer","minimum":3,
          "maximum":5}]})",
       one_of(R"(["auto",3,4,5])")},
      {R"({"type":"string","enum":["a","bb","ccc"],"minLength":2})",
       one_of(R"(["bb","ccc"])")},
      {R"({"type":["string","null"],"minLength":2,"maxLength":3})",
       length(2, 3)},
      {R"({"anyOf":[{"type":"string","maxLength":4},{"type":"null"}]})",
       length(0, 4)},
      {R"({"type":["string","integer"],"maxLength":3})",
       [](const Json& value) {
         return value.is_string() || value.is_number_integer();
       }},
      {R"({"type":["string","number","null"]})",
       [](const Json& value) {
         return value.is_string() || value.is_number() || value.is_null();
       }},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.property);
    AnswerRules rules;
    rules.requires_call = true;
    rules.tools = {
        {"f", Cat(R"({"type":"object","properties":{"m":)", each.property,
                  R"(},"required":["m"],"additionalProperties":
                                false,"$defs":{"color":{"type":"string",
                                "enum":["red","7"]}}})")}};
    ForEachAnswer(
        rules,
        [&](const Answer& answer) {
          for (const Call& call : answer.calls) {
            const Json json = ArgumentsOf(call);
            ASSERT_TRUE(json.is_object() && json.contains("m"));
            EXPECT_TRUE(each.fits(json["m"])) << call.arguments;
          }
        },
        /*seeds=*/4);
  }
}

// Each kind of grammar may stand beside tools.
TEST_F(AnswerGrammarTest, ContentOfAnyKindGoesWithTools) {
  for (const GrammarSpec& content :
       {GrammarSpec{GrammarSpec::Kind::kLark, "start: call\ncall: \"yes\"\n"},
        GrammarSpec{GrammarSpec::Kind::kGbnf, "root ::= \"yes\""},
        GrammarSpec{GrammarSpec::Kind::kStructuralTag,
                    R"({"format":{"type":"const_string","value":"yes"}})"}}) {
    AnswerRules rules;
    rules.tools = {{"mcp__now", kNow}};
    rules.content = content;
    ForEachAnswer(
        rules,
        [](const Answer& answer) {
          if (answer.calls.empty()) {
            EXPECT_EQ(answer.content, "yes");
          } else {
            EXPECT_EQ(answer.content, "");
            EXPECT_EQ(answer.calls.front().name, "mcp__now");
          }
        },
        /*seeds=*/6);
  }
}

// Definitions stand in each property that leads to them, and in no other.
TEST_F(AnswerGrammarTest, DefinitionsAreCopiedWithinBounds) {
  const Model& model = models_.front();
  const auto status = [&](int count, const std::string& property) {
    std::string schema = R"({"type":"object","$defs":{"n":{"type":"integer",
        "description":")" +
                         std::string(100'000, 'd') +
                         R"("},"m":{"$ref":"#/$defs/n"}},"properties":{)";
    for (int i = 0; i < count; ++i) {
      schema += Cat(i == 0 ? "" : ",", "\"p", i, "\":", property);
    }
    AnswerRules rules;
    rules.tools = {{"f", schema + "}}"}};
    return AnswerGrammar(kGlm, model.tokenizer->vocabulary(), rules,
                         *model.compiler)
        .status();
  };
  EXPECT_TRUE(status(1000, R"({"type":"integer"})").ok());
  const std::string leads = R"({"type":"array","items":{"$ref":"#/$defs/m"}})";
  EXPECT_TRUE(status(2, leads).ok()) << status(2, leads);
  const Status many = status(1000, leads);
  EXPECT_EQ(many.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(many.message()).find("/properties/p2"),
            std::string::npos)
      << many;
}

TEST_F(AnswerGrammarTest, MarksOfReasoning) {
  const auto none = ReasoningMarksOf(kHermes, TinyTokenizer()->vocabulary());
  EXPECT_TRUE(none.begin.empty() && none.end.empty());  // no </think>
  for (const Model& model : models_) {
    const Vocabulary& vocabulary = model.tokenizer->vocabulary();
    EXPECT_EQ(ReasoningMarksOf(kGlm, vocabulary).end.size(),
              vocabulary.Find("</think>").has_value());
    EXPECT_TRUE(ReasoningMarksOf(kHarmony, vocabulary).end.empty());
  }
}

}  // namespace
}  // namespace sluice::testing
