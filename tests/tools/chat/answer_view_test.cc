#include "common/tools/chat/answer_view.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace sluice::chat {
namespace {

using std::chrono::milliseconds;

AnswerPart Text(const std::string& text) { return {.text = text}; }
AnswerPart Thinking(const std::string& text) { return {.thinking = text}; }

TEST(AnswerViewTest, ThinkingIsDimAndApartFromTheAnswer) {
  AnswerView view({true, true, 80});
  std::string shown = view.Add(Thinking("h\x1b[2Jm"), {});
  shown += view.Add(Thinking("."), {});
  shown += view.Add(Text("**a**"), {});
  shown += view.Finish();
  EXPECT_EQ(shown,
            "\x1b[0;2mh[2Jm\x1b[0m\x1b[0;2m.\x1b[0m\n\n\x1b[0;1ma\x1b[0m\n");
  EXPECT_EQ(view.text(), "**a**");
}

TEST(AnswerViewTest, WithoutATerminalTheAnswerIsRawAndAlone) {
  AnswerView view({});
  EXPECT_EQ(view.Add(Thinking("hm"), {}), "");
  EXPECT_EQ(view.Add(Text("**a\x1b"), {}), "**a");
  EXPECT_EQ(view.Finish(), "\n");
}

TEST(AnswerViewTest, FiguresTellTokensSpeedAndTimes) {
  AnswerView view({});
  const TimePoint asked{};
  view.Add(Text("a"), asked + milliseconds(500));
  view.Add(Text("b"), asked + milliseconds(2500));
  AnswerPart end;
  end.finish = "length";
  end.completion_tokens = 21;
  end.prompt_tokens = 100;
  end.cached_tokens = 64;
  view.Add(end, asked + milliseconds(2600));
  EXPECT_EQ(
      view.Figures(asked, asked + milliseconds(2600)),
      "21 tokens, 10.0 tokens/s, first after 0.50 s, 2.60 s in all; prompt "
      "of 100 (64 cached); ended by length");
}

TEST(AnswerViewTest, WhatTheServerDoesNotTellIsLeftOut) {
  AnswerView view({});
  EXPECT_EQ(view.Figures({}, TimePoint() + milliseconds(100)), "0.10 s in all");
}

}  // namespace
}  // namespace sluice::chat
