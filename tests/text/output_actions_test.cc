// Calls in a block of Markdown behind a word: Command R+'s.
#include <gtest/gtest.h>

#include <string>

#include "common/base/cat.h"
#include "tests/text/output_fixtures.h"

namespace sluice::testing {
namespace {

std::string CommandPlus(std::string_view text,
                        OutputEnd end = OutputEnd::kStopped) {
  return Told({ToolFormat::kCommandPlus, ReasoningFormat::kNone}, WithTools(),
              AsText(text), end);
}

TEST(OutputActionsTest, CommandPlusActsInABlock) {
  constexpr char kTwo[] =
      "get_weather[{\n            \"city\": \"B]n ```\"\n        }] "
      "get_current_time[{}]";
  constexpr char kList[] =
      "[\n    {\n        \"tool_name\": \"get_weather\",\n        "
      "\"parameters\": {\n            \"city\": \"B]n ```\"\n        }\n    "
      "},\n"
      "    {\n        \"tool_name\": \"get_current_time\",\n        "
      "\"parameters\": {}\n    }\n]";
  for (const char* open : {"Action:\n```json\n", "Action: ```json\n",
                           "Action:```json", "Action:\n```\n", "Action: "}) {
    for (const char* close : {"```\n", "\n```", ""}) {
      EXPECT_EQ(CommandPlus(Cat(open, kList, close)), kTwo);
      EXPECT_EQ(CommandPlus(Cat("I look.\n", open, kList, close)),
                Cat("text[I look.] ", kTwo));
    }
  }
  EXPECT_EQ(CommandPlus("Action: ```json\n{\"tool_name\": \"free\", "
                        "\"parameters\": {\"a\": [1"),
            R"(free[{"a": [1]}])");
  EXPECT_EQ(CommandPlus("Action: ```json\n[{\"tool_name\": \"free\", "
                        "\"parameters\": {\"a\": [1",
                        OutputEnd::kCutShort),
            R"(free[{"a": [1...)");
}

TEST(OutputActionsTest, CommandPlusMayWriteOfActions) {
  for (const std::string_view text :
       {"Action: I go.", "Action:", "Action: ```", "Action: ```json",
        "Action: ```json\n[1, 2]\n```", "Action: ```sh\nls\n```",
        "Call to Action: ``` x", "Actions: Act", "Action: ```json\n[]```",
        "Action: [```json\n{}"}) {
    EXPECT_EQ(CommandPlus(text), Cat("text[", text, "]"));
  }
}

TEST(OutputActionsTest, CommandPlusMayCallNothing) {
  for (const std::string name : {"directly_answer", "directly-answer"}) {
    const std::string direct =
        Cat("{\"tool_name\": \"", name, "\", \"parameters\": {}}");
    const std::string before =
        Cat("{\"parameters\": {\"a\": 1}, \"tool_name\": \"", name, "\"}");
    for (const std::string& one : {direct, before}) {
      EXPECT_EQ(CommandPlus(Cat("Action: ```json\n[", one, "]```")), "");
      EXPECT_EQ(CommandPlus(Cat("Action: ```json\n[", one, "]```\n")), "");
      EXPECT_EQ(CommandPlus(Cat("Action: ```json\n[", one, "]```\nSo.")),
                "text[\nSo.]");
      EXPECT_EQ(CommandPlus(Cat("Action: ```json\n[", one,
                                ", {\"tool_name\": \"free\", "
                                "\"parameters\": {}}, ",
                                one, "]```")),
                "free[{}]");
    }
    OutputRequest request = WithTools();
    request.tools.push_back({name, ""});
    EXPECT_EQ(Told({ToolFormat::kCommandPlus, ReasoningFormat::kNone}, request,
                   AsText(Cat("Action: ```json\n[", direct, "]```"))),
              Cat(name, "[{}]"));
  }
}

}  // namespace
}  // namespace sluice::testing
