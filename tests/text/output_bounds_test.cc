// Texts as long as a bound of a parser: in pieces they are read as in one.
#include <gtest/gtest.h>

#include <cctype>
#include <iterator>
#include <string>

#include "common/base/cat.h"
#include "common/text/output/markup_tags.h"
#include "tests/testing/representative.h"
#include "tests/text/output_fixtures.h"

namespace sluice::testing {
namespace {

std::string ReadCut(ToolFormat tools, std::string_view text) {
  return Told({tools, ReasoningFormat::kNone}, WithTools(), AsText(text));
}

std::string Spaces(size_t size) { return std::string(size, ' '); }

TEST(OutputBoundsTest, AHeadEndsBeforeItsSeparator) {
  const std::string head = Cat("[TOOL_CALLS]", Spaces(508), "free");
  EXPECT_EQ(ReadCut(ToolFormat::kMistral, head + "[ARGS]{}"), "free[{}]");
  const std::string longer = Cat("[TOOL_CALLS]", Spaces(509), "free[ARGS]{}");
  EXPECT_EQ(ReadCut(ToolFormat::kMistral, longer), "text[" + longer + "]");
}

TEST(OutputBoundsTest, BlanksBeforeACallAreBounded) {
  constexpr char kList[] = R"([{"name": "free", "arguments": {}}])";
  for (const auto format : {ToolFormat::kMistral, ToolFormat::kMistralList}) {
    EXPECT_EQ(ReadCut(format, Cat("[TOOL_CALLS]", Spaces(512), kList)),
              "free[{}]");
    const std::string far = Cat("[TOOL_CALLS]", Spaces(513), kList);
    EXPECT_EQ(ReadCut(format, far), "text[" + far + "]");
  }
  for (const size_t blanks : {507, 508, 511, 512, 513, 600}) {
    const std::string python =
        Cat("<|tool_call_start|>", Spaces(blanks), "[free()]");
    EXPECT_EQ(ReadCut(ToolFormat::kLfm, python).starts_with("text["),
              blanks > 507)
        << blanks;
    EXPECT_EQ(ReadCut(ToolFormat::kLfm,
                      Cat("<|tool_call_start|>", Spaces(blanks), kList)),
              "free[{}]");
  }
}

constexpr char kTyped[] = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>";

TEST(OutputBoundsTest, ANameBehindATypeIsBounded) {
  EXPECT_EQ(ReadCut(ToolFormat::kDeepSeekV3,
                    Cat(kTyped, Spaces(508), "free\n```json\n{}\n```")),
            "free[{}]");
  const std::string far = Cat(kTyped, Spaces(509), "free\n{}");
  EXPECT_EQ(ReadCut(ToolFormat::kDeepSeekV3, far), "text[" + far + "]");
}

TEST(OutputBoundsTest, OneBlockOpensBeforeArguments) {
  EXPECT_EQ(ReadCut(ToolFormat::kDeepSeekV3,
                    Cat(kTyped, "free\n```json\n```json\n{}\n```")),
            "free[{}] text[json\n{}\n```]");
}

// A stream of a format's marks, beginnings of calls and other pieces.
std::string RandomOutput(const std::vector<std::string_view>& tags,
                         std::mt19937_64& random) {
  constexpr std::string_view kHeads[] = {
      R"([{"name": "free", "arguments": {"a": )",
      R"({"tool_name": "search", "parameters": {"query": ")",
      "[free(a='x', b=[1, 'y'], c=",
      "search(\"it's\", 2",
      "call:free{a:1,b:[",
      "functions.free:0",
      R"([{"free": {"a": )",
      R"({"name": "free", "arguments": {}}
{"name": "search", "arguments": {}})",
      "function",
      "free",
      "```json\n",
      "```",
      R"({"tool_name": "directly_answer", "parameters": {"a": )",
      "<function=free>",
      "<invoke name=\"search\">",
      "]<]minimax[>[<invoke name=\"search\">",
      "]<]minimax[>[<tags>]<]minimax[>[<item>",
      "]<]minimax[>[</tags>",
      "<parameter=a>",
      "<parameter name=\"query\">"};
  constexpr std::string_view kPieces[] = {
      "\"", "'",  ",",  ")", "]",  "}",    "{",  "[",
      "(",  "=",  ":",  "a", "\n", "None", "\\", "\\ud83d\\ude00",
      "<",  "</", "<|", ";", " ",  "',",   "')", "')]"};
  std::string text;
  for (auto left = random() % 20; left > 0; --left) {
    switch (random() % 6) {
      case 0:
      case 1:
        if (!tags.empty()) text += tags[random() % tags.size()];
        break;
      case 2:
        text += kHeads[random() % std::size(kHeads)];
        break;
      case 3:
        if (random() % 4 == 0) text += Spaces(random() % 1100);
        break;
      default:
        text += kPieces[random() % std::size(kPieces)];
    }
  }
  return text;
}

// The text without blanks and without marks that are no content by themselves.
std::string Essence(std::string text, const CallMarkup& markup) {
  const std::string_view python = markup.shape == CallShape::kBareJson
                                      ? std::string_view(kPythonTag)
                                      : std::string_view();
  for (const std::string_view mark : {markup.section, python}) {
    for (size_t at = text.find(mark); !mark.empty() && at != std::string::npos;
         at = text.find(mark)) {
      text.erase(at, mark.size());
    }
  }
  std::erase_if(text, [](char c) { return std::isspace(c) != 0; });
  return text;
}

TEST(OutputBoundsTest, WhatIsNoCallIsContent) {
  const int rounds = IsLong() ? 10000 : OnlyQuick() ? 100 : 1000;
  std::mt19937_64 random(32);
  for (int i = 1; i <= static_cast<int>(ToolFormat::kApertus); ++i) {
    const OutputFormat format = {static_cast<ToolFormat>(i),
                                 ReasoningFormat::kNone};
    if (format.tools == ToolFormat::kHarmony) continue;
    SCOPED_TRACE(ToolFormatName(format.tools));
    const CallMarkup& markup = MarkupOf(format.tools);
    for (int round = 0; round < rounds; ++round) {
      const std::string text = RandomOutput(TagsIn(format), random);
      const auto end =
          random() % 2 == 0 ? OutputEnd::kStopped : OutputEnd::kCutShort;
      std::string content;
      bool has_calls = text.find("directly") != std::string::npos;
      for (const OutputEvent& event :
           ParseStream(format, WithTools(), AsText(text), end)) {
        has_calls = has_calls || event.kind != OutputEvent::Kind::kContent;
        content += event.text;
      }
      if (has_calls) continue;
      ASSERT_EQ(Essence(content, markup), Essence(text, markup)) << text;
    }
  }
}

TEST(OutputBoundsTest, EveryFormatReadsPiecesAsTheWhole) {
  const int rounds = IsLong() ? 2000 : OnlyQuick() ? 3 : 30;
  std::mt19937_64 random(31);
  for (int i = 1; i <= static_cast<int>(ToolFormat::kApertus); ++i) {
    const auto tools = static_cast<ToolFormat>(i);
    if (tools == ToolFormat::kHarmony) continue;
    for (int j = 0; j <= static_cast<int>(ReasoningFormat::kApriel); ++j) {
      const OutputFormat format = {tools, static_cast<ReasoningFormat>(j)};
      if (format.reasoning == ReasoningFormat::kHarmony) continue;
      SCOPED_TRACE(Cat(ToolFormatName(tools), " ",
                       ReasoningFormatName(format.reasoning)));
      for (int round = 0; round < rounds; ++round) {
        const OutputStream whole = AsText(RandomOutput(TagsIn(format), random));
        OutputRequest request = WithTools();
        request.in_reasoning = random() % 4 == 0;
        request.in_content = !request.in_reasoning && random() % 8 == 0;
        const auto end =
            random() % 2 == 0 ? OutputEnd::kStopped : OutputEnd::kCutShort;
        const auto all = ParseStreams(
            format, request,
            {whole, CutIntoBytes(whole), CutAtRandom(whole, random),
             CutAtRandom(whole, random)},
            end);
        for (size_t cut = 1; cut < all.size(); ++cut) {
          ASSERT_EQ(Show(all[cut]), Show(all[0]))
              << "cut " << cut << " of " << whole.front().text;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::testing
