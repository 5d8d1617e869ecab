// What an answer spells beside its text: marks around it, tags of names.
#include <gtest/gtest.h>

#include <string>

#include "common/base/cat.h"
#include "tests/text/output_fixtures.h"

namespace sluice::testing {
namespace {

std::string Prose(std::string_view text, OutputEnd end = OutputEnd::kStopped) {
  return Told(kIntellect, WithTools(), AsText(text), end);
}

TEST(OutputProseTest, TextMarksAroundAnAnswerAreNoContent) {
  const OutputFormat format = {ToolFormat::kHunyuan,
                               ReasoningFormat::kThinkAnswer};
  const std::string call =
      "<tool_calls>[{\"name\": \"free\", \"arguments\": {}}]</tool_calls>";
  for (const OutputRequest& request : {WithTools(), WithoutTools()}) {
    const auto told = [&](std::string_view text) {
      return Told(format, request, AsText(text));
    };
    EXPECT_EQ(told("<think>\nHm.\n</think>\n<answer>\nHi\n</answer>"),
              "think[Hm.] text[Hi]");
    EXPECT_EQ(told("<think>Hm.</think><answer>Hi </answer>\n"),
              "think[Hm.] text[Hi]");
    EXPECT_EQ(told("<answer>A </answer> is <answer>.\n</answer>\n"),
              "text[A </answer> is <answer>.]");
    EXPECT_EQ(told("Write <answer>x</answer>"),
              "text[Write <answer>x</answer>]");
    EXPECT_EQ(told("<think>Hm.</think>Hi</answer>"),
              "think[Hm.] text[Hi</answer>]");
    EXPECT_EQ(told("<answer>Hi</ans"), "text[Hi</ans]");
  }
  EXPECT_EQ(
      Told(format, WithTools(),
           AsText("<think>x</think>\n<answer>\nI look.\n</answer>\n" + call)),
      "think[x] text[I look.] free[{}]");
}

TEST(OutputProseTest, AprielsMarksAreWords) {
  const OutputFormat format = {ToolFormat::kHunyuan, ReasoningFormat::kApriel};
  constexpr char kAnswer[] = "Hm.\n[BEGIN FINAL RESPONSE]\nHi [x].";
  constexpr char kShown[] = "think[Hm.] text[Hi [x].]";
  for (const OutputRequest& request : {WithTools(), WithoutTools()}) {
    for (const char* end : {"", "\n[END FINAL RESPONSE]\n"}) {
      const std::string text =
          Cat("Here are my reasoning steps:\n", kAnswer, end);
      EXPECT_EQ(Told(format, request, AsText(text)), kShown);
    }
  }
  EXPECT_EQ(Told(format, InReasoning(),
                 AsText(Cat(kAnswer,
                            "\n<tool_calls>[{\"name\": \"free\", "
                            "\"arguments\": {}}]</tool_calls>"))),
            Cat(kShown, " free[{}]"));
  EXPECT_EQ(Told(format, WithTools(), AsText("Here are two. [END FINAL")),
            "text[Here are two. [END FINAL]");
}

TEST(OutputProseTest, AContinuedAnswerIsContentToItsMark) {
  OutputRequest request;
  request.in_content = true;
  EXPECT_EQ(Told({ToolFormat::kCommand, ReasoningFormat::kCommand}, request,
                 AsText(" of Bern.<|END_RESPONSE|>")),
            "text[ of Bern.]");
  EXPECT_EQ(Told({ToolFormat::kGranite, ReasoningFormat::kThinkResponse},
                 request, AsText(" <think> of Bern.\n</response>")),
            "text[ <think> of Bern.]");
  EXPECT_EQ(Told({ToolFormat::kHunyuan, ReasoningFormat::kApriel}, request,
                 AsText(" of Bern.\n[END FINAL RESPONSE]")),
            "text[ of Bern.]");
  EXPECT_EQ(Told(kGlm, request, AsText(" <think> of Bern.\n")),
            "text[ <think> of Bern.\n]");
}

TEST(OutputProseTest, ABareTagOfANameInProseIsContent) {
  for (const std::string text :
       {"Write <function=foo> and then more.",
        "Write <function=foo>\n<parameter=a>1</parameter>\n</function>"}) {
    EXPECT_EQ(Prose(text), "text[" + text + "]");
  }
  // Where a call's own tag or a call stands before it, any name will do.
  EXPECT_EQ(Prose("<tool_call>\n<function=foo>\n</function>\n"
                  "<function=bar></function>\n</tool_call> <function=x> y"),
            "foo[{}] bar[{}] x[{}]");
  EXPECT_EQ(Prose("<tool_call><function=foo></function></tool_call>\nSo "
                  "<function=bar> it is."),
            "foo[{}] text[So <function=bar> it is.]");
}

TEST(OutputProseTest, ArgumentsMayBeJson) {
  EXPECT_EQ(Prose("<function=get_weather>{\"city\": \"Paris </function>\"}"
                  "</function><function=get_current_time> {} </function>So."),
            "get_weather[{\"city\": \"Paris </function>\"}] "
            "get_current_time[{}] text[So.]");
  EXPECT_EQ(Prose("<tool_call>\n<function=get_weather>\n{\"city\": \"Pa\n"),
            "get_weather[{\"city\": \"Pa\\n\"}]");
  EXPECT_EQ(
      Told(kIntellect, WithTools(), AsText("<function=get_weather>{\"city\": "),
           OutputEnd::kCutShort),
      "get_weather[{\"city\": ...");
}

}  // namespace
}  // namespace sluice::testing
