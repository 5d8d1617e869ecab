#include "common/manual/manual_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Program Example() {
  Program program;
  program.name = "tool";
  program.version = "1.2.3";
  program.about = "does things";
  program.description = {"First.", ".Second \\ 'begins' oddly."};
  program.sections = {{"files", {"~/.tool"}}};
  ProgramCommand command;
  command.name = "ask";
  command.about = "asks";
  command.arguments = {{.name = "WHO", .value = "TEXT", .required = true},
                       {.name = "WHAT", .value = "TEXT", .many = true}};
  command.options = {
      {.name = "--top-k", .value = "INT", .about = "of the likeliest"},
      {.name = "--as", .value = "TEXT", .choices = {"json", "text"}}};
  program.commands = {command};
  return program;
}

TEST(ManualPageTest, APageOfACommandHasItsArgumentsAndOptions) {
  const Program program = Example();
  const std::string page = ManualPage(program, program.commands[0]);
  EXPECT_THAT(page, HasSubstr(".SH NAME\ntool\\-ask \\- asks\n"));
  EXPECT_THAT(page, HasSubstr("\\fBtool ask\\fR [\\fIOPTIONS\\fR] "
                              "\\fIWHO\\fR [\\fIWHAT\\fR ...]\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-\\-top\\-k\\fR \\fIINT\\fR\n"
                              "of the likeliest\n"));
  EXPECT_THAT(page, HasSubstr("json, text"));
  EXPECT_THAT(page, HasSubstr(".BR tool (1)"));
}

TEST(ManualPageTest, TheProgramsPageListsCommandsAndSections) {
  const std::string page = ManualPage(Example());
  EXPECT_THAT(page, HasSubstr(".SH COMMANDS\n.TP\n\\fBask\\fR\nasks\n"));
  EXPECT_THAT(page, HasSubstr(".SH FILES\n\\(ti/.tool\n"));
  EXPECT_THAT(page, HasSubstr(".BR tool\\-ask (1)\n"));
}

TEST(ManualPageTest, TextIsNeverTakenForAMacro) {
  const std::string page = ManualPage(Example());
  EXPECT_THAT(page, HasSubstr(".PP\n\\&.Second \\e \\(aqbegins\\(aq oddly.\n"));
}

TEST(ManualPageTest, TheDateIsThatOfTheSourceAlone) {
  ::unsetenv("SOURCE_DATE_EPOCH");
  EXPECT_THAT(ManualPage(Example()),
              HasSubstr(".TH \"TOOL\" \"1\" \"\" \"tool 1.2.3\""));
  ::setenv("SOURCE_DATE_EPOCH", "86400", 1);
  EXPECT_THAT(ManualPage(Example()), HasSubstr("\"1\" \"1970-01-02\""));
  ::unsetenv("SOURCE_DATE_EPOCH");
}

}  // namespace
}  // namespace sluice
