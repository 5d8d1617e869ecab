// Tools of many shapes in every format: the grammar of answers lets texts
// through, and the format's parser reads each text as calls of these tools or
// as fitting content. The arguments are JSON objects, and the pieces of the
// text change nothing. The input's bytes choose the format, the rules, the
// tools' schemas and the content's grammar; kAnswers texts are drawn for each
// input.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/core/step_plan.h"
#include "common/grammar/answer_grammar.h"
#include "common/grammar/grammar_compiler.h"
#include "common/grammar/matcher.h"
#include "tests/fuzz/input_bound.h"
#include "tests/grammar/walk.h"
#include "tests/text/output_fixtures.h"

namespace sluice {
namespace {

constexpr OutputFormat kFormats[] = {testing::kGlm, testing::kIntellect,
                                     testing::kHermes, testing::kLlama,
                                     testing::kHarmony};

constexpr TokenId kNoToken = -1;  // of text between special tokens
constexpr size_t kPieces[] = {1, 7, size_t{1} << 20};  // bytes of text
constexpr int kAnswers = 3;                            // of each grammar

// Each lets "yes" and "<a" through, or an object.
const GrammarSpec kContents[] = {
    {GrammarSpec::Kind::kChoice, R"(["yes","<a"])"},
    {GrammarSpec::Kind::kRegex, "yes|<a"},
    {GrammarSpec::Kind::kLark, "start: call | \"<a\"\ncall: \"yes\"\n"},
    {GrammarSpec::Kind::kGbnf, R"(root ::= "yes" | call
call ::= "<a")"},
    {GrammarSpec::Kind::kStructuralTag,
     R"({"format":{"type":"or","elements":[
        {"type":"const_string","value":"yes"},
        {"type":"const_string","value":"<a"}]}})"},
    {GrammarSpec::Kind::kJsonObject, ""},
    {GrammarSpec::Kind::kJsonSchema,
     R"({"type":"object","properties":{"yes":{"type":"integer"}}})"},
};

// Takes bytes one by one; zeros at the end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  int Next(int below) {
    if (at_ == size_) return 0;
    return data_[at_++] % below;
  }
  bool is_over() const { return at_ == size_; }

 private:
  const uint8_t* const data_;
  const size_t size_;
  size_t at_ = 0;
};

Json Schema(Bytes& in, int level) {
  Json schema = Json::object();
  switch (in.Next(level > 2 ? 6 : 9)) {
    case 0:
      schema["type"] = "string";
      if (in.Next(3) == 0) schema["maxLength"] = in.Next(9);
      break;
    case 1:
      schema["type"] = "integer";
      schema["minimum"] = in.Next(100) - 50;
      schema["maximum"] = schema["minimum"].get<int>() + in.Next(1000);
      break;
    case 2:
      schema["type"] = "boolean";
      break;
    case 3:
      schema["enum"] = Json::array({"a", "<b>", "c\"\n"});
      break;
    case 4:
      schema["type"] = Json::array({"string", "null"});
      break;
    case 5:
      schema["const"] = in.Next(2) == 0 ? Json("x") : Json(7);
      break;
    case 6:
      schema["type"] = "array";
      schema["items"] = Schema(in, level + 1);
      schema["maxItems"] = in.Next(4);
      break;
    default:
      schema["type"] = "object";
      schema["properties"] = Json::object();
      schema["required"] = Json::array();
      for (int i = in.Next(4); i > 0; --i) {
        const std::string name = std::string(1, static_cast<char>('a' + i)) +
                                 (in.Next(4) == 0 ? "\xc3\xbc" : "");
        schema["properties"][name] = Schema(in, level + 1);
        if (in.Next(2) == 0) schema["required"].push_back(name);
      }
      schema["additionalProperties"] = false;
  }
  return schema;
}

AnswerRules Rules(Bytes& in) {
  AnswerRules rules;
  rules.requires_call = in.Next(4) != 0;
  rules.is_parallel = in.Next(2) == 0;
  for (int i = 1 + in.Next(3); i > 0; --i) {
    Json schema = {{"type", "object"},
                   {"properties", Json::object()},
                   {"required", Json::array()},
                   {"additionalProperties", false}};
    for (int p = in.Next(4); p > 0; --p) {
      const std::string name = "p" + std::to_string(p);
      schema["properties"][name] = Schema(in, 1);
      if (in.Next(2) == 0) schema["required"].push_back(name);
    }
    rules.tools.push_back({.name = "tool_" + std::to_string(i),
                           .parameters = DumpJson(schema),
                           .is_strict = in.Next(4) != 0});
  }
  const int content = in.Next(2 * static_cast<int>(std::size(kContents)));
  if (content < static_cast<int>(std::size(kContents)) &&
      !rules.requires_call) {
    rules.content = kContents[content];
  }
  return rules;
}

OutputRequest RequestFor(const AnswerRules& rules) {
  OutputRequest request;
  request.calls_in_reasoning = false;
  request.calls_or_content = rules.content.has_value();
  for (const GrammarTool& tool : rules.tools) {
    request.tools.push_back({tool.name, tool.parameters});
  }
  return request;
}

OutputEvents Parse(OutputParser& parser, const std::vector<TokenId>& tokens,
                   size_t piece) {
  const Tokenizer& tokenizer = testing::HarmonyTokenizer();
  OutputEvents events;
  const auto add = [&](OutputEvents more) {
    for (OutputEvent& event : more) {
      const bool goes_on = event.kind != OutputEvent::Kind::kCallBegin &&
                           event.kind != OutputEvent::Kind::kCallEnd &&
                           !events.empty() && events.back().kind == event.kind;
      if (goes_on) {
        events.back().text += event.text;
      } else {
        events.push_back(std::move(event));
      }
    }
  };
  std::string held;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_special = tokenizer.IsSpecial(tokens[i]);
    if (is_special && !held.empty()) {
      add(parser.Feed(kNoToken, std::exchange(held, "")));
    }
    held += tokenizer.TokenBytes(tokens[i]);
    if (is_special || held.size() >= piece || i + 1 == tokens.size()) {
      add(parser.Feed(is_special ? tokens[i] : kNoToken,
                      std::exchange(held, "")));
    }
  }
  add(parser.Finish(OutputEnd::kStopped));
  return events;
}

// A free object may hold 9e999, which is JSON.
bool IsNumberTooLarge(const StatusOr<Json>& json) {
  return json.status().message().find("double's range") != std::string::npos;
}

void CheckCalls(const OutputEvents& events, const AnswerRules& rules) {
  std::string arguments;
  std::string content;
  int calls = 0;
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kContent:
        SLUICE_CHECK(!rules.requires_call);
        content += event.text;
        break;
      case OutputEvent::Kind::kCallBegin:
        ++calls;
        arguments.clear();
        SLUICE_CHECK(std::any_of(
            rules.tools.begin(), rules.tools.end(),
            [&](const GrammarTool& tool) { return tool.name == event.text; }));
        break;
      case OutputEvent::Kind::kArguments:
        arguments += event.text;
        break;
      case OutputEvent::Kind::kCallEnd: {
        const auto json = ParseJson(arguments);
        SLUICE_CHECK(json.ok() ? json->is_object() : IsNumberTooLarge(json));
        break;
      }
      case OutputEvent::Kind::kReasoning:
        break;
    }
  }
  SLUICE_CHECK(!rules.requires_call || calls > 0);
  if (rules.content) {
    SLUICE_CHECK(content.empty() == (calls > 0));
    const auto json = ParseJson(content);
    SLUICE_CHECK(content.empty() || content == "yes" || content == "<a" ||
                 (json.ok() ? json->is_object() : IsNumberTooLarge(json)));
  }
  SLUICE_CHECK(rules.is_parallel || calls <= 1 || !rules.requires_call);
  SLUICE_CHECK(calls <= kMaxCallsPerAnswer);
}

void DrawAndCheck(const OutputFormat& format, const AnswerRules& rules,
                  const std::shared_ptr<const Grammar>& grammar,
                  const std::vector<TokenId>& eos, std::mt19937_64& random) {
  const Tokenizer& tokenizer = testing::HarmonyTokenizer();
  const auto matcher = *Matcher::Make(grammar);
  const testing::Walk walk = testing::DrawAnswer(
      tokenizer, tokenizer.vocab_size(), eos,
      [&](std::span<const TokenId> tokens) {
        return matcher->Step(tokens, kMaxDraftTokens);
      },
      random,
      {.max_tokens = 200,
       .hurry = 0.5,
       .endings = {"</arg_value>", "\n</parameter>", "<|end|>", "\"", "}",
                   "\n</tool_call>", "</tool_call>", "</function>"}});
  SLUICE_CHECK(walk.status.ok());
  if (!walk.is_complete) return;
  const auto parsers = NewOutputParsers(format, tokenizer.vocabulary(),
                                        RequestFor(rules), std::size(kPieces));
  const OutputEvents events = Parse(*parsers[0], walk.tokens, kPieces[0]);
  CheckCalls(events, rules);
  for (size_t i = 1; i < std::size(kPieces); ++i) {
    SLUICE_CHECK(Parse(*parsers[i], walk.tokens, kPieces[i]) == events);
  }
}

void Run(Bytes in) {
  static const std::vector<TokenId> eos = {
      *testing::HarmonyTokenizer().TokenToId("<|return|>"),
      *testing::HarmonyTokenizer().TokenToId("<|call|>")};
  static GrammarCompiler* const compiler =
      GrammarCompiler::Create(testing::HarmonyTokenizer(),
                              testing::HarmonyTokenizer().vocab_size(), eos,
                              {.num_threads = 1, .max_cached = 0})
          ->release();
  const Tokenizer& tokenizer = testing::HarmonyTokenizer();
  const OutputFormat& format = kFormats[in.Next(std::size(kFormats))];
  const auto seed = static_cast<uint64_t>(in.Next(256));
  const AnswerRules rules = Rules(in);
  const auto spec =
      AnswerGrammar(format, tokenizer.vocabulary(), rules, *compiler);
  if (!spec.ok()) {
    SLUICE_CHECK(spec.status().code() == StatusCode::kInvalidArgument);
    return;
  }
  const auto grammar = compiler->Compile(*spec, "");
  SLUICE_CHECK(grammar.ok());
  std::mt19937_64 random(seed);
  for (int i = 0; i < kAnswers; ++i) {
    DrawAndCheck(format, rules, *grammar, eos, random);
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 256) return 0;
  sluice::Run({data, size});
  return 0;
}
