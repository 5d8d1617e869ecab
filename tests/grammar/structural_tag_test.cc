#include "common/grammar/structural_tag.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/grammar/grammar_compiler.h"
#include "tests/grammar/walk.h"
#include "tests/text/output_fixtures.h"

namespace sluice::testing {
namespace {

constexpr char kSchema[] = R"({"type":"object","properties":{
    "days":{"type":"integer","minimum":1,"maximum":9}},"required":["days"],
    "additionalProperties":false})";

class StructuralTagTest : public ::testing::Test {
 protected:
  StructuralTagTest() : tokenizer_(HarmonyTokenizer()) {
    eos_ = {*tokenizer_.TokenToId("<|return|>")};
    auto made =
        GrammarCompiler::Create(tokenizer_, tokenizer_.vocab_size(), eos_, {});
    EXPECT_TRUE(made.ok()) << made.status();
    compiler_ = *std::move(made);
  }

  StatusOr<GrammarSpec> Spec(const std::string& tag) {
    return StructuralTagGrammar(tag, tokenizer_.vocabulary(), *compiler_);
  }

  // Returns whether the tokens of `text` are an answer to `tag`.
  bool Fits(const std::string& tag, const std::string& text) {
    const auto spec = Spec(tag);
    EXPECT_TRUE(spec.ok()) << spec.status();
    if (!spec.ok()) return false;
    const auto grammar = compiler_->Compile(*spec, "");
    EXPECT_TRUE(grammar.ok()) << grammar.status() << "\n" << spec->text;
    if (!grammar.ok()) return false;
    const auto constraint = compiler_->NewConstraint({.grammar = *grammar});
    const ConstraintStep* step = &Await(*constraint, {});
    const auto ids = tokenizer_.Encode(text, {.add_special_tokens = false});
    for (const TokenId id : *ids) {
      const bool forced = !step->forced.empty();
      const bool allowed = forced ? step->forced.front() == id
                                  : step->mask && Allows(*step->mask, id);
      if (!step->status.ok() || step->is_complete || !allowed) return false;
      step = &Await(*constraint, std::span(&id, 1));
    }
    return step->status.ok() && step->forced.empty() &&
           (step->is_complete || (step->mask && Allows(*step->mask, eos_[0])));
  }

  // Draws answers; all of them end as `check` wants.
  template <typename Check>
  void ForEachAnswer(const std::string& tag, const Check& check) {
    const auto spec = Spec(tag);
    ASSERT_TRUE(spec.ok()) << spec.status();
    const auto grammar = compiler_->Compile(*spec, "");
    ASSERT_TRUE(grammar.ok()) << grammar.status() << "\n" << spec->text;
    int complete = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const auto constraint = compiler_->NewConstraint({.grammar = *grammar});
      std::mt19937_64 random(seed);
      const Walk walk = DrawAnswer(
          tokenizer_, tokenizer_.vocab_size(), eos_, *constraint, random,
          {.max_tokens = 600, .endings = {"<f=a>", "</f>", "<f=", "}"}});
      ASSERT_TRUE(walk.status.ok()) << walk.status << "\n" << spec->text;
      if (!walk.is_complete) continue;
      ++complete;
      check(*tokenizer_.Decode(walk.tokens, false));
    }
    EXPECT_GT(complete, 10) << spec->text;
  }

  std::string ErrorOf(const std::string& tag) {
    const auto spec = Spec(tag);
    return spec.ok() ? "none" : std::string(spec.status().message());
  }

  const Tokenizer& tokenizer_;
  std::vector<TokenId> eos_;
  std::unique_ptr<GrammarCompiler> compiler_;
};

std::string Older() {
  return std::string(R"({"type":"structural_tag","triggers":["<f="],
      "structures":[{"begin":"<f=a>","end":"</f>","schema":)") +
         kSchema + R"(},{"begin":"<f=b>","end":"</f>","schema":{
      "type":"array","items":{"type":"integer"}}}]})";
}

TEST_F(StructuralTagTest, TextIsFreeUntilATrigger) {
  EXPECT_TRUE(Fits(Older(), ""));
  EXPECT_TRUE(Fits(Older(), "Some <b>text</b>, <f and <f"));
  EXPECT_TRUE(Fits(Older(), "Well: <f=a>{\"days\":3}</f> and\n<f=b>[1]</f>."));
  EXPECT_FALSE(Fits(Older(), "<f=a>{\"days\":33}</f>"));
  EXPECT_FALSE(Fits(Older(), "<f=c>{\"days\":3}</f>"));
  EXPECT_FALSE(Fits(Older(), "<f=a>{\"days\":3}"));
  ForEachAnswer(Older(), [](const std::string& text) {
    for (size_t at = text.find("<f="); at != text.npos;
         at = text.find("<f=", at + 1)) {
      const size_t end = text.find("</f>", at);
      ASSERT_NE(end, text.npos) << text;
      if (text[at + 3] != 'a') continue;
      const Json json = Json::parse(text.substr(at + 5, end - at - 5), nullptr,
                                    /*allow_exceptions=*/false);
      ASSERT_TRUE(json.is_object() && json.contains("days")) << text;
    }
  });
}

TEST_F(StructuralTagTest, Formats) {
  const auto format = [](const std::string& inner) {
    return R"({"type":"structural_tag","format":)" + inner + "}";
  };
  const std::string yes = R"({"type":"const_string","value":"yes"})";
  const std::string digits = R"({"type":"regex","pattern":"[0-9]{2}/[0-9]"})";
  const std::string any = R"({"type":"any_text"})";
  const std::string tag =
      R"({"type":"tag","begin":"<t>","content":)" + any + R"(,"end":"</t>"})";
  EXPECT_TRUE(Fits(format(yes), "yes"));
  EXPECT_FALSE(Fits(format(yes), "no"));
  EXPECT_TRUE(Fits(format(digits), "12/3"));
  EXPECT_TRUE(Fits(format(any), "what\never"));
  EXPECT_TRUE(Fits(format(tag), "<t>a </b> b</t>"));
  EXPECT_FALSE(Fits(format(tag), "<t>a</t>b</t>"));
  const auto list = [](const char* type, const std::string& elements) {
    return std::string(R"({"type":")") + type + R"(","elements":[)" + elements +
           "]}";
  };
  EXPECT_TRUE(Fits(format(list("or", yes + "," + digits)), "yes"));
  EXPECT_TRUE(Fits(format(list("or", yes + "," + digits)), "99/1"));
  EXPECT_TRUE(Fits(format(list("sequence", tag + "," + yes + "," + any)),
                   "<t></t>yes!"));
  const auto tags = [&](const char* type, const std::string& more) {
    return format(std::string(R"({"type":")") + type + R"(","tags":[)" + tag +
                  "]" + more + "}");
  };
  EXPECT_TRUE(Fits(tags("tags_with_separator", R"(,"separator":", ")"),
                   "<t>1</t>, <t>2</t>"));
  EXPECT_TRUE(Fits(tags("tags_with_separator", R"(,"separator":"")"), ""));
  EXPECT_FALSE(Fits(
      tags("tags_with_separator", R"(,"separator":", ","at_least_one":true)"),
      ""));
  const std::string triggers = R"(,"triggers":["<t"])";
  EXPECT_TRUE(Fits(tags("triggered_tags", triggers), "a<t>1</t>b<t>2</t>c"));
  const std::string one = triggers + R"(,"at_least_one":true)";
  EXPECT_FALSE(Fits(tags("triggered_tags", one), "a"));
  EXPECT_TRUE(Fits(tags("triggered_tags", one), "<t>1</t>b"));
  EXPECT_FALSE(Fits(tags("triggered_tags", one + R"(,"stop_after_first":true)"),
                    "<t>1</t>b"));
}

TEST_F(StructuralTagTest, SpecialTokensAreMeant) {
  const std::string tag = R"({"format":{"type":"triggered_tags",
      "triggers":["<|channel|>commentary"],"tags":[{
      "begin":"<|channel|>commentary to=f<|message|>",
      "content":{"type":"any_text"},"end":"<|end|>"}]}})";
  EXPECT_TRUE(
      Fits(tag, "Hm. <|channel|>commentary to=f<|message|>x y<|end|> Done."));
  EXPECT_FALSE(Fits(tag, "Hm. <|channel|>final<|message|>x<|end|>"));
}

TEST_F(StructuralTagTest, BadTagsAreRefusedByTheirPath) {
  EXPECT_NE(ErrorOf("{").find("no JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("[]").find("no object"), std::string::npos);
  EXPECT_NE(ErrorOf("{}").find("neither"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"format":{"type":"grammar"}})").find("`/format`"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"format":{"type":"or","elements":[]}})")
                .find("`/format/elements`"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"structures":[{"begin":"<a>","schema":{},"end":""}],
                        "triggers":["<b"]})")
                .find("no tag for the trigger `<b`"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"structures":[{"begin":"<a>","schema":{"not":{}},
                        "end":""}],"triggers":["<a"]})")
                .find("`/structures/0/schema`"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"format":{"type":"sequence","elements":[
                {"type":"any_text"},{"type":"any_text"}]}})")
                .find("`/format/elements/0`"),
            std::string::npos);
  std::string deep = R"({"type":"any_text"})";
  for (int i = 0; i < 20; ++i) {
    deep = R"({"type":"or","elements":[)" + deep + "]}";
  }
  EXPECT_NE(ErrorOf(R"({"format":)" + deep + "}").find("deeper"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::testing
