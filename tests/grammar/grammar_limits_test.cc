#include <gtest/gtest.h>

#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/grammar/grammar_compiler.h"
#include "tests/grammar/walk.h"
#include "tests/text/text_fixtures.h"

namespace sluice::testing {
namespace {

using Kind = GrammarSpec::Kind;

std::string Nested(int levels) {
  std::string text = "{\"type\":\"integer\"}";
  for (int i = 0; i < levels; ++i) {
    text = "{\"type\":\"array\",\"items\":" + text + "}";
  }
  return text;
}

std::string Enum(int count) {
  std::string text = "{\"enum\":[";
  for (int i = 0; i < count; ++i) {
    text += (i == 0 ? "\"v" : ",\"v") + std::to_string(i) + '"';
  }
  return text + "]}";
}

// Returns what this process has computed so far: other processes add nothing.
double CpuSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

class GrammarLimitsTest : public ::testing::Test {
 protected:
  GrammarLimitsTest() : tokenizer_(TinyTokenizer()) {
    eos_ = {*tokenizer_->TokenToId("<|im_end|>")};
    vocab_size_ = tokenizer_->vocab_size();
    compiler_ = *GrammarCompiler::Create(*tokenizer_, vocab_size_, eos_, {});
  }

  Status CompileStatus(Kind kind, const std::string& text) {
    return compiler_->Compile({kind, text}, "").status();
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<TokenId> eos_;
  int32_t vocab_size_ = 0;
  std::unique_ptr<GrammarCompiler> compiler_;
};

TEST_F(GrammarLimitsTest, BadSchemasAreRefusedByKeywordAndPath) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> bad = {
      {"{", {"JSON"}},
      {"[]", {"schema"}},
      {R"({"type":"strin"})", {"type"}},
      {R"({"properties":{"a":{"not":{}}}})", {"`not`", "properties", "a"}},
      {R"({"items":{"if":{}}})", {"`if`", "items"}},
      {R"({"properties":{"a":{"minimum":"x"}}})", {"minimum", "properties"}},
      {R"({"required":"a"})", {"required"}},
      {R"({"enum":[]})", {"enum"}},
      {R"({"$ref":"http://example.com/a"})", {"$ref"}},
      {R"({"$ref":"#/$defs/none"})", {"$ref", "none"}},
      {R"({"$ref":"#"})", {"$ref"}},
      {R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},
           "$ref":"#/$defs/a"})",
       {"$ref", "itself"}},
      {R"({"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}},
           "$ref":"#/$defs/a"})",
       {"$ref", "itself"}},
      {R"j({"items":{"type":"string","pattern":"a("}})j",
       {"`pattern`", "/items", "without its"}},
      {R"j({"type":"string","pattern":"(?=a)"})j",
       {"`pattern`", "look-around"}},
      {R"j({"patternProperties":{"(":{}}})j", {"`patternProperties`"}},
      {R"({"items":{"minimum":1e5000}})", {"`minimum`", "/items", "digits"}},
      {R"({"items":{"multipleOf":1e-9}})", {"`multipleOf`", "/items", "1e-9"}},
      {R"({"type":"integer","minimum":2,"maximum":1})", {"no value fits"}},
      {R"({"items":{"oneOf":[{"type":"integer"},{"type":"number"}]}})",
       {"`oneOf`", "/items"}},
      {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", {}},
      {"false", {}},
      {Nested(65), {"64"}},
      {Enum(10'001), {"enum", "10000"}},
      {"{\"description\":\"" + std::string(300 << 10, 'x') + "\"}", {"262144"}},
      {std::string(100'000, '['), {}},
  };
  for (const auto& [schema, words] : bad) {
    const Status status = CompileStatus(Kind::kJsonSchema, schema);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << schema.substr(0, 80) << ": " << status;
    EXPECT_LT(status.message().size(), 2'000u);
    for (const std::string& word : words) {
      EXPECT_NE(status.message().find(word), std::string::npos)
          << schema.substr(0, 80) << ": " << status;
    }
  }
}

TEST_F(GrammarLimitsTest, GoodSchemasOfUnusualShapesAreTaken) {
  for (const std::string& schema :
       {std::string("{}"), std::string("true"), Nested(60), Enum(10'000),
        std::string(R"({"$defs":{"n":{"type":"object","properties":
            {"next":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"})"),
        std::string(R"({"type":"string","maxLength":2.0})"),
        std::string(R"({"oneOf":[{"type":"integer"},{"type":"string"}]})"),
        std::string(R"({"items":{"type":"string","format":"iri"}})"),
        std::string(R"({"const":-9223372036854775808})"),
        std::string(R"({"type":["string","null"],"title":"x","default":null,
            "examples":[1],"$comment":"c","unknown-key":[{}]})")}) {
    EXPECT_TRUE(CompileStatus(Kind::kJsonSchema, schema).ok())
        << schema.substr(0, 80) << ": "
        << CompileStatus(Kind::kJsonSchema, schema);
  }
}

TEST_F(GrammarLimitsTest, CompilingHasATimeLimit) {
  GrammarCompiler::Options options;
  options.limits.max_compile_ms = 1;
  const auto compiler =
      GrammarCompiler::Create(*tokenizer_, vocab_size_, eos_, options);
  ASSERT_TRUE(compiler.ok()) << compiler.status();
  const Status status =
      (*compiler)->Compile({Kind::kJsonSchema, Enum(10000)}, "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("limit is 1"), std::string::npos)
      << status;
}

// Each level doubles the answers: refused, or compiled within bounds and then
// bounded at each step.
TEST_F(GrammarLimitsTest, ExponentialReferencesAreBounded) {
  std::string schema = R"({"$defs":{"d0":{"type":"null"})";
  for (int i = 1; i < 40; ++i) {
    const std::string below =
        "{\"$ref\":\"#/$defs/d" + std::to_string(i - 1) + "\"}";
    schema += ",\"d" + std::to_string(i) + "\":{\"type\":\"array\"," +
              "\"prefixItems\":[" + below + "," + below +
              "],\"items\":false,\"minItems\":2}";
  }
  schema += R"(},"$ref":"#/$defs/d39"})";
  const double begin = CpuSeconds();
  const auto grammar = compiler_->Compile({Kind::kJsonSchema, schema}, "");
  EXPECT_LT(CpuSeconds() - begin, 5 * kSlowdown);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  auto constraint = compiler_->NewConstraint({.grammar = *grammar});
  std::mt19937_64 random(1);
  const Walk walk = DrawAnswer(*tokenizer_, vocab_size_, eos_, *constraint,
                               random, {.max_tokens = 200});
  EXPECT_TRUE(walk.status.ok() ||
              walk.status.code() == absl::StatusCode::kResourceExhausted)
      << walk.status;
  EXPECT_LT(CpuSeconds() - begin, 10 * kSlowdown);
}

// Chains of references and rules, on which compilers recurse; and texts that
// take long where nothing bounds them. Each is refused, or compiled and then
// matched within bounds.
TEST_F(GrammarLimitsTest, DeepAndWideTextsEndInBounds) {
  const auto chain = [](int length, const char* before, const char* between,
                        const char* behind) {
    std::string text;
    for (int i = 0; i < length; ++i) {
      text +=
          before + std::to_string(i) + between + std::to_string(i + 1) + behind;
    }
    return text;
  };
  const std::string end = std::to_string(5000);
  const auto defined = [&](const char* between, const char* behind) {
    return "{\"$ref\":\"#/$defs/d0\",\"$defs\":{" +
           chain(5000, "\"d", between, behind) + "\"d" + end +
           "\":{\"type\":\"null\"}}}";
  };
  std::string same_words, patterns, multiples;
  for (int i = 0; i < 20'000; ++i) same_words += i == 0 ? "\"a\"" : "|\"a\"";
  for (int i = 0; i < 300; ++i) {
    patterns += (i == 0 ? "\"^x{" : ",\"^x{") + std::to_string(i) + "}y\":{}";
  }
  for (const char* number : {"9973", "9967", "9949", "9941"}) {
    multiples += (multiples.empty() ? "" : ",") +
                 std::string("{\"multipleOf\":") + number + "}";
  }
  const std::vector<std::pair<Kind, std::string>> texts = {
      {Kind::kJsonSchema, defined("\":{\"$ref\":\"#/$defs/d", "\"},")},
      {Kind::kJsonSchema,
       defined("\":{\"items\":{\"$ref\":\"#/$defs/d", "\"}},")},
      {Kind::kJsonSchema,
       defined("\":{\"allOf\":[{\"$ref\":\"#/$defs/d", "\"}]},")},
      {Kind::kJsonSchema, "{\"patternProperties\":{" + patterns + "}}"},
      {Kind::kJsonSchema, "{\"allOf\":[" + multiples + "]}"},
      {Kind::kLark,
       "start: r0\n" + chain(9000, "r", ": r", "\n") + "r9000: \"a\"\n"},
      {Kind::kLark,
       "start: T0\n" + chain(9000, "T", ": T", "\n") + "T9000: \"a\"\n"},
      {Kind::kLark, "start: " + same_words + "\n"},
      {Kind::kLark, "start: " + std::string(50'000, '(') + "\n"},
      {Kind::kGbnf, "root ::= r0\n" + chain(9000, "r", " ::= r", "\n") +
                        "r9000 ::= \"a\"\n"},
      {Kind::kGbnf, "root ::= " + std::string(50'000, '(')},
      {Kind::kRegex, std::string(50'000, '(')},
      {Kind::kRegex, "(?:a{1000}){1000}"},
      {Kind::kRegex, "(a?){500}a{500}"},
  };
  for (const auto& [kind, text] : texts) {
    const double begin = CpuSeconds();
    const auto grammar = compiler_->Compile({kind, text}, "");
    EXPECT_LT(CpuSeconds() - begin, 5 * kSlowdown) << text.substr(0, 40);
    if (!grammar.ok()) {
      EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument)
          << text.substr(0, 40) << ": " << grammar.status();
      EXPECT_LT(grammar.status().message().size(), 2'000u);
      continue;
    }
    const auto constraint = compiler_->NewConstraint({.grammar = *grammar});
    std::mt19937_64 random(1);
    const Walk walk = DrawAnswer(*tokenizer_, vocab_size_, eos_, *constraint,
                                 random, {.max_tokens = 50});
    EXPECT_TRUE(walk.status.ok() ||
                walk.status.code() == absl::StatusCode::kResourceExhausted)
        << text.substr(0, 40) << ": " << walk.status;
  }
}

}  // namespace
}  // namespace sluice::testing
