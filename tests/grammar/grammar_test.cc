#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "common/core/step_plan.h"
#include "common/grammar/grammar_compiler.h"
#include "tests/grammar/walk.h"
#include "tests/testing/representative.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

using Kind = GrammarSpec::Kind;

// JSON allows numbers beyond a double's range, which the parser here refuses.
std::string WithoutHugeNumbers(const std::string& text) {
  return std::regex_replace(
      text, std::regex(R"(\d(\.\d+)?([eE][+-]?\d{3,}|\d{100,}))"), "1");
}

class GrammarTest : public ::testing::Test {
 protected:
  GrammarTest() : tokenizer_(TinyTokenizer()) {
    eos_ = {*tokenizer_->TokenToId("<|im_end|>"),
            *tokenizer_->TokenToId("<|endoftext|>")};
    vocab_size_ = tokenizer_->vocab_size() + 3;  // rows without a token
    auto made = GrammarCompiler::Create(*tokenizer_, vocab_size_, eos_, {});
    EXPECT_TRUE(made.ok()) << made.status();
    compiler_ = *std::move(made);
  }

  Status CompileStatus(Kind kind, const std::string& text) {
    return compiler_->Compile({kind, text}, "").status();
  }

  std::shared_ptr<TokenConstraint> Constrain(Kind kind, const std::string& text,
                                             bool takes_forced = true) {
    auto grammar = compiler_->Compile({kind, text}, "");
    EXPECT_TRUE(grammar.ok()) << text << ": " << grammar.status();
    if (!grammar.ok()) return nullptr;
    return compiler_->NewConstraint(
        {.grammar = *grammar, .takes_forced = takes_forced});
  }

  // The texts of complete answers, drawn with 20 seeds; most must be complete.
  std::vector<std::string> Answers(Kind kind, const std::string& text) {
    std::vector<std::string> answers;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      auto constraint = Constrain(kind, text);
      if (constraint == nullptr) return {};
      std::mt19937_64 random(seed);
      const Walk walk =
          DrawAnswer(*tokenizer_, vocab_size_, eos_, *constraint, random);
      EXPECT_TRUE(walk.status.ok()) << text << ": " << walk.status;
      if (walk.is_complete) answers.push_back(TextOf(walk.tokens));
    }
    EXPECT_GE(answers.size(), 15u) << text;
    return answers;
  }

  std::string TextOf(std::span<const TokenId> tokens) {
    return *tokenizer_->Decode(tokens, false);
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<TokenId> eos_;
  int32_t vocab_size_ = 0;
  std::unique_ptr<GrammarCompiler> compiler_;
};

TEST_F(GrammarTest, SchemasGiveWhatTheySay) {
  const std::string schema = R"({
    "type": "object",
    "properties": {
      "name": {"type": "string", "minLength": 2, "maxLength": 5},
      "age": {"type": "integer", "minimum": 0, "maximum": 150},
      "tags": {"type": "array", "items": {"enum": ["a", "b\"c"]},
               "maxItems": 3},
      "size": {"anyOf": [{"type": "null"}, {"type": "number"}]}
    },
    "required": ["name", "age", "tags", "size"],
    "additionalProperties": false
  })";
  for (const std::string& answer : Answers(Kind::kJsonSchema, schema)) {
    const Json json = Json::parse(WithoutHugeNumbers(answer), nullptr, false);
    ASSERT_TRUE(json.is_object()) << answer;
    ASSERT_EQ(json.size(), 4u) << answer;
    EXPECT_TRUE(json["name"].is_string()) << answer;
    EXPECT_TRUE(json["age"].is_number_integer()) << answer;
    EXPECT_GE(json["age"].get<int64_t>(), 0) << answer;
    EXPECT_LE(json["age"].get<int64_t>(), 150) << answer;
    EXPECT_LE(json["tags"].size(), 3u) << answer;
    for (const Json& tag : json["tags"]) {
      EXPECT_TRUE(tag == "a" || tag == "b\"c") << answer;
    }
    EXPECT_TRUE(json["size"].is_null() || json["size"].is_number()) << answer;
  }
}

// A model that writes white space wherever it may comes to an end.
TEST_F(GrammarTest, WhiteSpaceIsBounded) {
  auto constraint = Constrain(Kind::kJsonSchema,
                              R"({"type":"array","items":{"const":1},
                                  "minItems":2,"maxItems":2})");
  std::vector<TokenId> blanks;
  for (const char* name : {"Ċ", "Ġ", "ĉ"}) {
    const auto id = tokenizer_->TokenToId(name);
    ASSERT_TRUE(id.has_value()) << name;
    blanks.push_back(*id);
  }
  std::vector<TokenId> appended;
  std::string text;
  for (int i = 0; i < 400; ++i) {
    const ConstraintStep step = Await(*constraint, appended);
    ASSERT_TRUE(step.status.ok());
    if (step.is_complete) break;
    appended = step.forced;
    TokenId next = -1;
    for (const TokenId blank : blanks) {
      if (next < 0 && Allows(*step.mask, blank)) next = blank;
    }
    for (TokenId id = 0; next < 0; ++id) {
      if (Allows(*step.mask, id)) next = id;
    }
    appended.push_back(next);
    text += TextOf(appended);
    if (next == eos_[0] || next == eos_[1]) break;
  }
  EXPECT_EQ(Json::parse(text.substr(0, text.find('<')), nullptr, false),
            Json({1, 1}))
      << text;
  EXPECT_LT(text.size(), 300u);
}

TEST_F(GrammarTest, FormatsHold) {
  const std::map<std::string, std::string> formats = {
      {"date-time", R"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d.*)"},
      {"date", R"(\d{4}-\d\d-\d\d)"},
      {"time", R"(\d\d:\d\d:\d\d.*)"},
      {"uuid", R"([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"},
      {"ipv4", R"((\d{1,3}\.){3}\d{1,3})"},
      {"ipv6", R"([0-9a-fA-F:.]+)"},
      {"email", R"([^@]+@[^@]+)"}};
  for (const auto& [format, pattern] : formats) {
    const std::string schema =
        R"({"type":"string","format":")" + format + "\"}";
    for (const std::string& answer : Answers(Kind::kJsonSchema, schema)) {
      const Json json = Json::parse(answer, nullptr, false);
      ASSERT_TRUE(json.is_string()) << format << ": " << answer;
      EXPECT_TRUE(
          std::regex_match(json.get<std::string>(), std::regex(pattern)))
          << format << ": " << answer;
    }
  }
  // Others are annotations, and none is about numbers.
  for (const char* schema : {R"({"type":"string","format":"nonsense"})",
                             R"({"type":"integer","format":"int32"})"}) {
    EXPECT_TRUE(CompileStatus(Kind::kJsonSchema, schema).ok()) << schema;
  }
}

// Each answer is the value to the digit, whose double is another number.
TEST_F(GrammarTest, NumbersKeepTheirDigits) {
  for (const char* number :
       {"-9223372036854775808", "1234567890123456789", "9007199254740993",
        "18446744073709551615", "0.100000000000000000000000000001"}) {
    const std::string schema = Cat(R"({"enum":[{"id":)", number, "}]}");
    for (const auto& [kind, text] :
         {std::pair(Kind::kJsonSchema, schema),
          std::pair(Kind::kLark, Cat("start: %json ", schema, "\n"))}) {
      for (const std::string& answer : Answers(kind, text)) {
        const std::regex form(
            Cat(R"(\s*\{\s*"id"\s*:\s*)",
                std::regex_replace(number, std::regex("\\."), "\\."),
                R"(\s*\}\s*)"));
        EXPECT_TRUE(std::regex_match(answer, form)) << answer;
      }
    }
  }
}

// A model that may add members goes on adding them.
TEST_F(GrammarTest, ObjectsHaveTheirPropertiesAlone) {
  const std::string schema = R"({"type":"object","properties":{
      "a":{"type":"object","properties":{"b":{"type":"boolean"}},
           "additionalProperties":{"type":"null"}},
      "properties":{"type":"integer","maximum":9,"minimum":0}},
      "required":["a"]})";
  bool has_other = false;
  for (const std::string& answer : Answers(Kind::kJsonSchema, schema)) {
    const Json json = Json::parse(answer, nullptr, false);
    ASSERT_TRUE(json.is_object() && json.contains("a")) << answer;
    EXPECT_LE(json.size(), json.contains("properties") ? 2u : 1u) << answer;
    has_other = has_other || json["a"].size() > json["a"].count("b");
  }
  EXPECT_TRUE(has_other);
  // Joined schemas stay as they are.
  EXPECT_TRUE(CompileStatus(Kind::kJsonSchema, R"({"allOf":[
      {"type":"object","properties":{"a":{"type":"null"}},"required":["a"]},
      {"type":"object","properties":{"b":{"type":"null"}},"required":["b"]}]})")
                  .ok());
}

TEST_F(GrammarTest, AnObjectIsAnyObject) {
  for (const std::string& answer : Answers(Kind::kJsonObject, "")) {
    EXPECT_TRUE(
        Json::parse(WithoutHugeNumbers(answer), nullptr, false).is_object())
        << answer;
  }
}

TEST_F(GrammarTest, ARegexCoversTheWholeAnswer) {
  const std::string pattern = "(yes|no), [0-9]{2,4}(a|b)?";
  for (const std::string& answer : Answers(Kind::kRegex, pattern)) {
    EXPECT_TRUE(std::regex_match(answer, std::regex(pattern))) << answer;
  }
}

TEST_F(GrammarTest, AChoiceIsOneOfItsStrings) {
  const std::vector<std::string> words = {"red", "reddish", "a.b(c", "ü\n"};
  for (const std::string& answer : Answers(Kind::kChoice, Json(words).dump())) {
    EXPECT_NE(std::find(words.begin(), words.end(), answer), words.end())
        << answer;
  }
  EXPECT_FALSE(CompileStatus(Kind::kChoice, "[]").ok());
  EXPECT_FALSE(CompileStatus(Kind::kChoice, "[1]").ok());
  EXPECT_FALSE(CompileStatus(Kind::kChoice, "{").ok());
}

TEST_F(GrammarTest, LarkAndGbnfGrammars) {
  const std::string lark =
      "start: \"[\" NUM (\",\" NUM)* \"]\"\n"
      "NUM: /[0-9]+/\n";
  const std::string gbnf =
      "root ::= \"[\" num (\",\" num)* \"]\"\n"
      "num ::= [0-9]+ # digits\n";
  for (const auto& [kind, text] :
       {std::pair(Kind::kLark, lark), std::pair(Kind::kGbnf, gbnf)}) {
    for (const std::string& answer : Answers(kind, text)) {
      EXPECT_TRUE(
          std::regex_match(answer, std::regex(R"(\[[0-9]+(,[0-9]+)*\])")))
          << answer;
    }
  }
  EXPECT_FALSE(CompileStatus(Kind::kGbnf, "root ::= missing").ok());
  EXPECT_FALSE(CompileStatus(Kind::kGbnf, "root ::= \"open").ok());
  EXPECT_FALSE(CompileStatus(Kind::kLark, "start: missing").ok());
}

TEST_F(GrammarTest, RecursiveGbnf) {
  const std::string gbnf = R"gbnf(root ::= value
value ::= "x" | "(" ws value ws value ws ")"
ws ::= [ \t]*
)gbnf";
  for (const std::string& answer : Answers(Kind::kGbnf, gbnf)) {
    int depth = 0;
    for (const char c : answer) {
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
      ASSERT_GE(depth, 0) << answer;
    }
    EXPECT_EQ(depth, 0) << answer;
  }
}

TEST_F(GrammarTest, SpecialTokensOfALarkGrammar) {
  auto constraint = Constrain(Kind::kLark, "start: \"a\" <|im_start|> \"b\"\n");
  ASSERT_NE(constraint, nullptr);
  std::mt19937_64 random(1);
  const Walk walk =
      DrawAnswer(*tokenizer_, vocab_size_, eos_, *constraint, random);
  ASSERT_TRUE(walk.is_complete) << walk.status;
  EXPECT_EQ(TextOf(walk.tokens), "a<|im_start|>b");
  ASSERT_EQ(walk.tokens.size(), 3u);
  EXPECT_EQ(walk.tokens[1], *tokenizer_->TokenToId("<|im_start|>"));
}

// A forced run is the tokenizer's own ids for its text, whether the engine
// takes it whole or token by token, and the answer ends behind it.
TEST_F(GrammarTest, ForcedTokensAreTheTokenizersOwn) {
  const std::string schema = R"({"const": {"a long name": "and a value"}})";
  std::vector<std::vector<TokenId>> taken;
  for (const bool takes_forced : {true, false}) {
    auto constraint = Constrain(Kind::kJsonSchema, schema, takes_forced);
    std::mt19937_64 random(3);
    const Walk walk = DrawAnswer(*tokenizer_, vocab_size_, eos_, *constraint,
                                 random, {.hurry = 0});
    ASSERT_TRUE(walk.is_complete) << walk.status;
    EXPECT_EQ(walk.forced_runs.empty(), !takes_forced);
    for (const int length : walk.forced_runs) {
      EXPECT_LE(length, kMaxDraftTokens);
    }
    EXPECT_TRUE(Json::parse(TextOf(walk.tokens)) ==
                Json({{"a long name", "and a value"}}))
        << TextOf(walk.tokens);
    taken.push_back(walk.tokens);
  }
  // White space is free, so the texts may differ; not the ids of a text.
  for (const std::vector<TokenId>& tokens : taken) {
    EXPECT_EQ(*tokenizer_->Encode(TextOf(tokens), kRaw), tokens);
  }
}

TEST_F(GrammarTest, StepsAreAFunctionOfTheTokensAlone) {
  auto stepwise = Constrain(Kind::kJsonObject, "");
  auto at_once = Constrain(Kind::kJsonObject, "");
  std::mt19937_64 random(9);
  const Walk walk = DrawAnswer(*tokenizer_, vocab_size_, eos_, *stepwise,
                               random, {.max_tokens = 40, .hurry = 0.05});
  ASSERT_TRUE(walk.status.ok());
  Await(*at_once, {});
  const ConstraintStep whole = Await(*at_once, walk.tokens);
  auto again = Constrain(Kind::kJsonObject, "");
  Await(*again, {});
  for (const TokenId id : walk.tokens) Await(*again, std::span(&id, 1));
  EXPECT_EQ(again->Latest()->mask, whole.mask);
  EXPECT_EQ(again->Latest()->forced, whole.forced);
}

// Reasoning is free but for end tokens; the grammar begins behind it.
TEST_F(GrammarTest, ReasoningIsFree) {
  const TokenId think = *tokenizer_->TokenToId("<think>");
  const TokenId end = *tokenizer_->TokenToId("<|im_start|>");
  const TokenId seven = *tokenizer_->TokenToId("7");
  const TokenId letter = *tokenizer_->TokenToId("a");
  const auto grammar = *compiler_->Compile({Kind::kRegex, "[0-9]{3}"}, "");
  for (const bool begins_free : {false, true}) {
    auto constraint = compiler_->NewConstraint({.grammar = grammar,
                                                .free_begin = {think},
                                                .free_end = {end},
                                                .begins_free = begins_free});
    const ConstraintStep first = Await(*constraint, {});
    ASSERT_TRUE(first.mask.has_value());
    EXPECT_FALSE(Allows(*first.mask, eos_[0]));
    EXPECT_FALSE(Allows(*first.mask, eos_[1]));
    EXPECT_TRUE(Allows(*first.mask, think));
    EXPECT_TRUE(Allows(*first.mask, seven));
    EXPECT_EQ(Allows(*first.mask, letter), begins_free);
    const ConstraintStep free = Await(*constraint, std::span(&think, 1));
    EXPECT_TRUE(Allows(*free.mask, letter));
    EXPECT_FALSE(Allows(*free.mask, eos_[0]));
    const std::vector<TokenId> words = *tokenizer_->Encode("some", kRaw);
    EXPECT_TRUE(Allows(*Await(*constraint, words).mask, letter));
    const ConstraintStep held = Await(*constraint, std::span(&end, 1));
    ASSERT_TRUE(held.mask.has_value());
    EXPECT_FALSE(Allows(*held.mask, eos_[0]));
    EXPECT_FALSE(Allows(*held.mask, letter));
    EXPECT_FALSE(Allows(*held.mask, think));
    EXPECT_TRUE(Allows(*held.mask, seven));
    const std::vector<TokenId> digits = *tokenizer_->Encode("123", kRaw);
    EXPECT_TRUE(Await(*constraint, digits).is_complete);
  }
  // Without reasoning the grammar holds from the first token on.
  auto constraint = compiler_->NewConstraint(
      {.grammar = grammar, .free_begin = {think}, .free_end = {end}});
  Await(*constraint, {});
  const ConstraintStep& held = Await(*constraint, std::span(&seven, 1));
  EXPECT_FALSE(Allows(*held.mask, think));
  EXPECT_TRUE(Allows(*held.mask, seven));
}

TEST_F(GrammarTest, ATokenThatIsNotAllowedIsAnError) {
  auto constraint = Constrain(Kind::kRegex, "[0-9]+");
  Await(*constraint, {});
  const TokenId wrong = *tokenizer_->TokenToId("a");
  const ConstraintStep step = Await(*constraint, std::span(&wrong, 1));
  EXPECT_FALSE(step.status.ok());
  // And stays one.
  EXPECT_EQ(Await(*constraint, std::span(&wrong, 1)).status, step.status);
}

TEST_F(GrammarTest, TenantsShareNoGrammar) {
  const GrammarSpec spec{Kind::kRegex, "a+"};
  const auto first = *compiler_->Compile(spec, "one");
  EXPECT_EQ(*compiler_->Compile(spec, "one"), first);
  EXPECT_NE(*compiler_->Compile(spec, "two"), first);
}

TEST_F(GrammarTest, TheCacheIsBounded) {
  auto compiler = *GrammarCompiler::Create(*tokenizer_, vocab_size_, eos_,
                                           {.max_cached = 2});
  const auto get = [&](const char* text) {
    return *compiler->Compile({Kind::kRegex, text}, "");
  };
  const auto a = get("a"), b = get("b");
  EXPECT_EQ(get("a"), a);
  // As many places are for whole requests.
  for (const char* text : {"c", "d", "e"}) get(text);  // the last in b's place
  EXPECT_EQ(get("a"), a);
  EXPECT_NE(get("b"), b);
}

TEST_F(GrammarTest, ACompilerThatGoesLeavesConstraintsWithoutSteps) {
  auto constraint = Constrain(Kind::kJsonObject, "");
  compiler_ = nullptr;
  constraint->Advance({}, [] {});
  EXPECT_EQ(constraint->Latest(), nullptr);
}

TEST_F(GrammarTest, AVocabularyWithoutAnEndTokenIsRefused) {
  EXPECT_EQ(
      GrammarCompiler::Create(*tokenizer_, vocab_size_, {}, {}).status().code(),
      absl::StatusCode::kInvalidArgument);
}

// Every family's vocabulary: an answer's text fits, and its ids are those that
// the tokenizer gives where the grammar forces them.
TEST(GrammarVocabularyTest, EveryFamilysVocabularyAnswersInJson) {
  if (OnlyRepresentative()) {
    GTEST_SKIP() << "large vocabularies have no threads of their own: under "
                    "ThreadSanitizer in the long mode";
  }
  const std::vector<NamedTokenizer> all = AllTokenizers();
  const std::string schema = R"({"type":"object","properties":{
      "the answer":{"type":"integer","minimum":-1000000,"maximum":1e15},"größe":{"type":"string"},
      "list":{"type":"array","items":{"type":"boolean"},"maxItems":2}},
      "required":["the answer","größe","list"],
      "additionalProperties":false})";
  int num_tried = 0;
  for (const auto& [name, tokenizer] : all) {
    SCOPED_TRACE(name);
    // The golden models' vocabularies have few letters.
    const std::string alphabet = "{\"größe\":[true,0.5e-1]}";
    if (*tokenizer->Decode(*tokenizer->Encode(alphabet, kRaw), false) !=
        alphabet) {
      continue;
    }
    ++num_tried;
    std::vector<TokenId> eos = tokenizer->eos_ids();
    if (eos.empty()) eos = {tokenizer->vocab_size() - 1};
    const int32_t vocab_size = tokenizer->vocab_size();
    auto compiler = GrammarCompiler::Create(*tokenizer, vocab_size, eos, {});
    ASSERT_TRUE(compiler.ok()) << compiler.status();
    const auto grammar = (*compiler)->Compile({Kind::kJsonSchema, schema}, "");
    ASSERT_TRUE(grammar.ok()) << grammar.status();
    int complete = 0;
    for (uint64_t seed = 0; seed < 10; ++seed) {
      auto constraint = (*compiler)->NewConstraint({.grammar = *grammar});
      std::mt19937_64 random(seed);
      const Walk walk =
          DrawAnswer(*tokenizer, vocab_size, eos, *constraint, random);
      ASSERT_TRUE(walk.status.ok()) << walk.status;
      if (!walk.is_complete) continue;
      ++complete;
      const std::string text = *tokenizer->Decode(walk.tokens, false);
      const Json json = Json::parse(text, nullptr, false);
      ASSERT_TRUE(json.is_object()) << text;
      EXPECT_TRUE(json["the answer"].is_number_integer()) << text;
      EXPECT_TRUE(json["größe"].is_string()) << text;
      EXPECT_TRUE(json["list"].is_array()) << text;
    }
    EXPECT_GE(complete, 5);
  }
  EXPECT_GE(num_tried, 3);
}

}  // namespace
}  // namespace sluice::testing
