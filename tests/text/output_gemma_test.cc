// Gemma's calls: whatever stands between the braces, the arguments are JSON.
#include <gtest/gtest.h>

#include <random>

#include "common/base/cat.h"
#include "common/base/json.h"
#include "tests/text/output_fixtures.h"

namespace sluice::testing {
namespace {

constexpr OutputFormat kGemmaAlone = {ToolFormat::kGemma,
                                      ReasoningFormat::kNone};

std::string Arguments(std::string_view written) {
  const std::string told =
      Told(kGemmaAlone, WithTools(),
           AsText(Cat("<|tool_call>call:free", written, "<tool_call|>")));
  return told.starts_with("free[") && told.ends_with("]")
             ? told.substr(5, told.size() - 6)
             : told;
}

TEST(OutputGemmaTest, PythonsWordsAreValues) {
  EXPECT_EQ(Arguments("{cc:None,n:[None,True,False,null]}"),
            R"({"cc": null, "n": [null, true, false, null]})");
  EXPECT_EQ(Arguments(R"({a:<|"|>None<|"|>,b:Nonesuch})"),
            R"({"a": "None", "b": "Nonesuch"})");
}

TEST(OutputGemmaTest, WhatIsMissingOrTooMuchLeavesJson) {
  EXPECT_EQ(Arguments("{a:1,}"), R"({"a": 1})");
  EXPECT_EQ(Arguments("{,a:1,,b:2}"), R"({"a": 1, "b": 2})");
  EXPECT_EQ(Arguments("{a:,b:1}"), R"({"a": null, "b": 1})");
  EXPECT_EQ(Arguments("{a:}"), R"({"a": null})");
  EXPECT_EQ(Arguments("{foo}"), R"({"foo": null})");
  EXPECT_EQ(Arguments(R"({<|"|>foo<|"|>,b:1})"), R"({"foo": null, "b": 1})");
  EXPECT_EQ(Arguments("{:1}"), R"({"": 1})");
  EXPECT_EQ(Arguments(R"({a:<|"|>x<|"|>y})"), R"({"a": "x"})");
  EXPECT_EQ(Arguments(R"({a:<|"|>x<|"|> <|"|>y<|"|>,b:[1] 2})"),
            R"({"a": "x", "b": [1]})");
  EXPECT_EQ(Arguments(R"({<|"|>a<|"|>b:1})"), R"({"a": 1})");
  EXPECT_EQ(Arguments("{a:[1,,2,],b:[],c:{}}"),
            R"({"a": [1, 2], "b": [], "c": {}})");
  EXPECT_EQ(Arguments(R"({a:"x\qy\"z\\",b:1})"),
            R"({"a": "x\\qy\"z\\", "b": 1})");
}

TEST(OutputGemmaTest, MissingEndsArePutIn) {
  const auto cut = [](std::string_view written, OutputEnd end) {
    return Told(kGemmaAlone, WithTools(),
                AsText(Cat("<|tool_call>call:free{", written)), end);
  };
  const auto stopped = OutputEnd::kStopped;
  EXPECT_EQ(cut(R"(a:[<|"|>x)", stopped), R"(free[{"a": ["x"]}])");
  EXPECT_EQ(cut("a:", stopped), R"(free[{"a": null}])");
  EXPECT_EQ(cut("a:1,", stopped), R"(free[{"a": 1}])");
  EXPECT_EQ(cut("a:1,b", stopped), R"(free[{"a": 1}])");
  EXPECT_EQ(cut(R"(a:1,<|"|>b)", stopped), R"(free[{"a": 1, "b": null}])");
  EXPECT_EQ(cut(R"(a:"x\)", stopped), R"(free[{"a": "x"}])");
  EXPECT_EQ(cut("a:1,", OutputEnd::kCutShort), R"(free[{"a": 1...)");
}

// Whatever pieces of a call follow each other, a call that ended has JSON.
TEST(OutputGemmaTest, ArgumentsAreJsonWhateverIsWritten) {
  constexpr std::string_view kPieces[] = {"{",      "}",    "[",  "]", ",", ":",
                                          "<|\"|>", "\"",   "a",  "1", " ", "x",
                                          "None",   "true", "\\", "<"};
  std::mt19937_64 random(21);
  for (int round = 0; round < 3000; ++round) {
    std::string text = "<|tool_call>call:free{";
    for (auto left = random() % 24; left > 0; --left) {
      text += kPieces[random() % std::size(kPieces)];
    }
    std::string arguments;
    for (const OutputEvent& event :
         ParseStream(kGemmaAlone, WithTools(), AsText(text))) {
      if (event.kind == OutputEvent::Kind::kArguments) arguments += event.text;
    }
    EXPECT_TRUE(ParseJson(arguments).ok()) << text << ": " << arguments;
  }
}

}  // namespace
}  // namespace sluice::testing
