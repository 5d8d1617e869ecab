#include "common/tools/chat/markdown.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/json.h"
#include "common/text/utf8.h"
#include "common/tools/chat/terminal_text.h"

namespace sluice::chat {
namespace {

constexpr int kColumns = 40;

// Returns what is shown of `text` that comes in pieces of `size` bytes.
std::string Shown(std::string_view text, size_t size = 1u << 20) {
  Markdown markdown(kColumns);
  std::string out;
  for (size_t at = 0; at < text.size(); at += size) {
    out += markdown.Push(text.substr(at, size));
  }
  return out + markdown.Finish();
}

// Returns `shown` with <b> for bold, <c> for code, <d> dim, <i> italic, <u>
// underlined, <s> struck, and / for the terminal's own style.
std::string Tags(std::string shown) {
  const std::pair<const char*, const char*> names[] = {
      {"\x1b[0;1;4m", "<bu>"},  {"\x1b[0;1;3m", "<bi>"},
      {"\x1b[0;1;36m", "<bc>"}, {"\x1b[0;1m", "<b>"},
      {"\x1b[0;2m", "<d>"},     {"\x1b[0;3m", "<i>"},
      {"\x1b[0;4m", "<u>"},     {"\x1b[0;9m", "<s>"},
      {"\x1b[0;36m", "<c>"},    {"\x1b[0m", "</>"}};
  for (const auto& [from, to] : names) {
    const std::string_view sequence = from;
    for (size_t at; (at = shown.find(sequence)) != std::string::npos;) {
      shown.replace(at, sequence.size(), to);
    }
  }
  return shown;
}

// Returns whether a terminal obeys nothing in `shown` but styles, new lines and
// tabs.
bool IsHarmless(std::string_view shown) {
  while (!shown.empty()) {
    if (shown.starts_with("\x1b[")) {
      shown.remove_prefix(2);
      const size_t end = shown.find_first_not_of("0123456789;");
      if (end == std::string_view::npos || shown[end] != 'm') return false;
      shown.remove_prefix(end + 1);
      continue;
    }
    const Utf8Unit unit = NextUtf8(shown);
    if (unit.kind != Utf8Unit::Kind::kCharacter) return false;
    if (unit.value < 0x20 && unit.value != '\n' && unit.value != '\t') {
      return false;
    }
    if (unit.value >= 0x7F && unit.value < 0xA0) return false;
    shown.remove_prefix(unit.size);
  }
  return true;
}

// Returns each byte of harmless text behind the sequence that styles it, which
// may stand in other places.
std::string EachStyled(std::string_view shown) {
  std::string out, style = "\x1b[0m";
  while (!shown.empty()) {
    if (shown.starts_with("\x1b[")) {
      style = shown.substr(0, shown.find('m') + 1);
      shown.remove_prefix(style.size());
    } else {
      out += style + shown[0];
      shown.remove_prefix(1);
    }
  }
  return out;
}

std::string WithoutStyles(std::string_view shown) {
  std::string out;
  while (!shown.empty()) {
    if (shown.starts_with("\x1b[")) {
      shown.remove_prefix(shown.find('m') + 1);
    } else {
      out += shown[0];
      shown.remove_prefix(1);
    }
  }
  return out;
}

TEST(MarkdownTest, StylesOfALineTakeThePlaceOfTheirMarks) {
  EXPECT_EQ(Tags(Shown("a **bold** word")), "a <b>bold</> word");
  EXPECT_EQ(Tags(Shown("*it* and _it_, ~~no~~")),
            "<i>it</> and <i>it</>, <s>no</>");
  EXPECT_EQ(Tags(Shown("***both***")), "<bi>both</>");
  EXPECT_EQ(Tags(Shown("**a `c` b**")), "<b>a <bc>c<b> b</>");
  EXPECT_EQ(Tags(Shown("`a * b` and `` ` ``")), "<c>a * b</> and <c>`</>");
  EXPECT_EQ(Tags(Shown("[text](http://a/b)")), "<u>text<d> (http://a/b)</>");
}

TEST(MarkdownTest, MarksThatNothingAnswersAreText) {
  for (const char* text :
       {"2 * 3 * 4", "snake_case_name", "a ** b", "a*", "**open", "`open",
        "[1] and [x](", "~/file ~ x", "5 ~~", "a \\", "__init", "x **y"}) {
    EXPECT_EQ(Shown(text), text);
  }
  EXPECT_EQ(Shown("\\*no\\* \\`x\\`"), "*no* `x`");
}

TEST(MarkdownTest, HeadingsListsQuotesAndRulesAreKeptLegible) {
  EXPECT_EQ(Tags(Shown("# One\n## Two `x`\n#hash")),
            "<bu>One</>\n<b>Two <bc>x</>\n#hash");
  EXPECT_EQ(Shown("- a\n  * b\n+ c\n12. d\n-5 degrees"),
            "• a\n  • b\n• c\n12. d\n-5 degrees");
  EXPECT_EQ(Tags(Shown("> said\n> > twice")),
            "<d>│ </>said\n<d>│ </><d>│ </>twice");
  for (const char* rule : {"---", "* * *", "_____"}) {
    EXPECT_TRUE(Tags(Shown(rule)).starts_with("<d>──")) << rule;
    EXPECT_EQ(DisplayWidth(WithoutStyles(Shown(rule))), kColumns);
  }
}

TEST(MarkdownTest, CodeIsShownAsItIsWithItsFences) {
  EXPECT_EQ(Tags(Shown("```py\nx = **1**\n\n# no\n```\n**b**")),
            "<d>```py</>\n<c>x = **1**</>\n\n<c># no</>\n<d>```</>\n<b>b</>");
  EXPECT_EQ(Tags(Shown("~~~~\n```\n~~~\n~~~~\nx")),
            "<d>~~~~</>\n<c>```</>\n<c>~~~</>\n<d>~~~~</>\nx");
  EXPECT_EQ(Tags(Shown("```\nopen")), "<d>```</>\n<c>open</>");
}

TEST(MarkdownTest, ColumnsOfATableStandBelowEachOther) {
  EXPECT_EQ(Tags(Shown("| a | long |\n|---|-----:|\n| **x** | 1 |\n| 漢字 | 2 "
                       "|\nend")),
            "<b>a</>   <d> │ </><b>long</>\n"
            "<d>─────┼─────</>\n"
            "<b>x</>   <d> │ </>   1\n"
            "漢字<d> │ </>   2\n"
            "end");
}

TEST(MarkdownTest, ATableWiderThanTheTerminalBecomesAList) {
  const std::string wide(kColumns, 'w');
  EXPECT_EQ(Tags(Shown("|a|b|\n|-|-|\n|1|" + wide + "|\n|2|x|")),
            "<b>a</>: 1\n<b>b</>: " + wide + "\n\n<b>a</>: 2\n<b>b</>: x");
}

TEST(MarkdownTest, PlainTextIsShownBeforeItsLineEnds) {
  Markdown markdown(kColumns);
  EXPECT_EQ(markdown.Push("Hello"), "Hello");
  EXPECT_EQ(markdown.Push(", wor"), ", wor");
  EXPECT_EQ(markdown.Push("ld **bo"), "ld ");
  EXPECT_EQ(Tags(markdown.Push("ld** x")), "<b>bold</> x");
  EXPECT_EQ(markdown.Push("\n#"), "\n");
  EXPECT_EQ(Tags(markdown.Push(" T")), "<bu>T</>");
}

TEST(MarkdownTest, ControlCharactersNeverReachTheTerminal) {
  EXPECT_EQ(Shown("a\x1b[2J\x07"
                  "b\x7f\r\n\tc\xc2\x9b"
                  "31m"),
            "a[2Jb\n\tc31m");
  EXPECT_EQ(Shown("\x1b]0;title\x1b\\x"), "]0;title\\x");
  EXPECT_EQ(Shown("`\x9b`"), "\x1b[0;36m\uFFFD\x1b[0m");
}

TEST(MarkdownTest, AnyTextIsHarmlessAndTheSameInAnyPieces) {
  constexpr std::string_view kBytes[] = {
      "*",    "_",  "`",   "~",  "[",       "]",    "(",  ")",    "\\",
      "#",    "-",  "|",   ">",  " ",       "\n",   "\t", "a",    "é",
      "字",   "1",  ".",   ":",  "\x1b",    "[",    "m",  "\xc2", "\x9b",
      "\x07", "\r", "```", "**", "| - |\n", "```\n"};
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t i = 0, count = random() % 60; i < count; ++i) {
      text += kBytes[random() % std::size(kBytes)];
      // Beyond the limits of spans and marks, too.
      if (random() % 50 == 0) {
        text += std::string(random() % 1500, "*`-#a| "[random() % 7]);
      }
    }
    const std::string whole = Shown(text);
    ASSERT_TRUE(IsHarmless(whole)) << DumpJson(Json(text));
    for (const size_t size : {1u, 3u, 17u}) {
      const std::string pieces = Shown(text, size);
      ASSERT_TRUE(IsHarmless(pieces)) << DumpJson(Json(text));
      ASSERT_TRUE(EachStyled(pieces) == EachStyled(whole))
          << "pieces of " << size << " of " << DumpJson(Json(text));
    }
  }
}

}  // namespace
}  // namespace sluice::chat
