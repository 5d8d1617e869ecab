// Lark grammars as one expression.
#include "common/grammar/lark_regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "common/base/cat.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// Codex's grammar of its custom tool apply_patch.
constexpr char kPatch[] = R"(start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
)";

bool Fits(std::string_view grammar, const std::string& text) {
  const auto regex = RegexOfLark(grammar);
  EXPECT_TRUE(regex.ok()) << regex.status();
  return regex.ok() && std::regex_search(text, std::regex(*regex));
}

TEST(LarkRegexTest, HoldsPatches) {
  EXPECT_TRUE(Fits(kPatch,
                   "*** Begin Patch\n*** Add File: a.txt\n+one\n+\n"
                   "*** Update File: b\n*** Move to: c\n@@ def\n x\n-y\n+z\n"
                   "*** End of File\n*** Delete File: d\n*** End Patch\n"));
  EXPECT_TRUE(
      Fits(kPatch, "*** Begin Patch\n*** Delete File: d\n*** End Patch"));
  EXPECT_FALSE(Fits(kPatch, "*** Begin Patch\n*** End Patch\n"));
  EXPECT_FALSE(
      Fits(kPatch, "*** Begin Patch\n*** Add File: a\nno sign\n*** End Patch"));
  EXPECT_LT(RegexOfLark(kPatch)->size(), 1000u);
}

TEST(LarkRegexTest, TakesEveryForm) {
  const std::string grammar = R"x(
    // Sums.
    start: _sum ["=" NUMBER] # end
    _sum.2: TERM (("+" | "-") TERM)~1..2
    ?TERM: DIGITS | "(" DIGITS{2} ")" | "x".."z" | "a/b\n" | /q\/[a-c]+/
    DIGITS: INT+
    %import common (INT, WS)
    %import common.NUMBER -> NUMBER)x";
  EXPECT_TRUE(Fits(grammar, "1+x"));
  EXPECT_TRUE(Fits(grammar, "12-(34)+q/ab=4.5"));
  EXPECT_TRUE(Fits(grammar, "a/b\n+z"));
  EXPECT_FALSE(Fits(grammar, "1"));
  EXPECT_FALSE(Fits(grammar, "1+1+1+1"));
  EXPECT_FALSE(Fits(grammar, "1+w"));
  EXPECT_FALSE(Fits("start: \"a.b\"", "axb"));
  EXPECT_TRUE(Fits("start: a?\na: \"x\"", ""));
}

TEST(LarkRegexTest, SaysWhatNoExpressionIs) {
  const auto error = [](std::string_view grammar) {
    return std::string(RegexOfLark(grammar).status().message());
  };
  EXPECT_THAT(error("start: a\na: \"(\" start \")\""),
              HasSubstr("rule start contains itself"));
  EXPECT_THAT(error("start: \"a\"\n%ignore \" \""), HasSubstr("statement"));
  EXPECT_THAT(error("start: \"a\"i"), HasSubstr("flag i"));
  EXPECT_THAT(error("start: /a/s"), HasSubstr("flags"));
  EXPECT_THAT(error("start: b"), HasSubstr("no rule b"));
  EXPECT_THAT(error("begin: \"b\""), HasSubstr("no rule start"));
  EXPECT_THAT(error("start: \"a"), HasSubstr("has no end"));
  EXPECT_THAT(error("start: (\"a\""), HasSubstr("unexpected text"));
  EXPECT_THAT(error("start: \"a\")"), HasSubstr("unexpected text"));
  EXPECT_THAT(error("start: %json {}"), HasSubstr("statement"));
  EXPECT_THAT(error("start: <|end|>"), HasSubstr("text at byte"));
  EXPECT_THAT(error("start: \"a\"\nstart: \"b\""), HasSubstr("twice"));
  EXPECT_THAT(error("start: \"a\"~20000"), HasSubstr("repeats"));
  EXPECT_THAT(error("start: \"b\"..\"a\""), HasSubstr("range"));
  EXPECT_THAT(error("%import common.NOTHING"), HasSubstr("import"));
  EXPECT_EQ(RegexOfLark("start: start").status().code(),
            StatusCode::kUnimplemented);
  EXPECT_EQ(RegexOfLark("start: /(?!a)b/").status().code(),
            StatusCode::kUnimplemented);
}

TEST(LarkRegexTest, FindsLookaround) {
  for (const char* regex : {"(?=a)", "a(?!b)", "(?<=a)b", "[a](?<!b)"}) {
    EXPECT_TRUE(HasLookaround(regex)) << regex;
  }
  for (const char* regex :
       {"(?:a)", "(?<name>a)", "\\(?=a", "[(?=]", "[\\](?=]", "a\\", ""}) {
    EXPECT_FALSE(HasLookaround(regex)) << regex;
  }
}

// A long list of words is no grammar of a quadratic size.
TEST(LarkRegexTest, TakesManyAlternatives) {
  std::string words = "start: \"w\"";
  for (int i = 0; i < 2000; ++i) words += Cat(" | \"w", i, "\"");
  EXPECT_TRUE(Fits(words, "w1999"));
  EXPECT_FALSE(Fits(words, "w2000"));
}

// Rules that double, and nesting, end at a bound.
TEST(LarkRegexTest, IsBounded) {
  std::string doubling = "start: r0\n";
  std::string chain = "start: r0\n";
  for (int i = 0; i < 40; ++i) {
    doubling += Cat("r", i, ": r", i + 1, " r", i + 1, "\n");
  }
  for (int i = 0; i < 10'000; ++i) chain += Cat("r", i, ": r", i + 1, "\n");
  EXPECT_THAT(RegexOfLark(doubling + "r40: \"a\"").status().message(),
              HasSubstr("bytes"));
  EXPECT_THAT(RegexOfLark(chain + "r10000: \"a\"").status().message(),
              HasSubstr("within one another"));
  EXPECT_THAT(
      RegexOfLark("start: " + std::string(9'000, '(')).status().message(),
      HasSubstr("within one another"));
  EXPECT_FALSE(RegexOfLark(std::string(300 << 10, ' ')).ok());
}

}  // namespace
}  // namespace sluice
